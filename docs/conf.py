"""Sphinx: the documentation of Flask-Instruct, with the settings read from ``Config`` itself."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import version as installed_version
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from flask_instruct.config import Config

project = "Flask-Instruct"
author = "Flask-Instruct contributors"
copyright = f"2026, {author}"
release = version = installed_version("flask-instruct")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Flask-Instruct"


class Settings(SphinxDirective):
    """A definition list of all ``INSTRUCT_*`` keys: type, default and the line of documentation in the code."""

    def run(self) -> list[nodes.Node]:
        entries = []
        for name, kind, default, text in settings():
            head = f"`INSTRUCT_{name.upper()}` — {kind}" + (f", default `{default}`" if default != "None" else "")
            entries.append(f"{head}\n: {text.replace('``', '`')}\n")
        return self.parse_text_to_nodes("\n".join(entries))


def settings() -> list[tuple[str, str, str, str]]:
    """Return name, type, default and docstring of every setting, in the order of the source."""
    (definition,) = ast.parse(inspect.getsource(Config)).body
    assert isinstance(definition, ast.ClassDef)
    found = []
    for field, doc in pairwise(definition.body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)):
            continue
        assert isinstance(field.target, ast.Name)
        assert isinstance(doc.value, ast.Constant)
        default = ast.unparse(field.value) if field.value else "required"
        kind = ast.unparse(field.annotation).removesuffix(" | None").replace("tuple[str, ...]", "list of str")
        found.append((field.target.id, "mapping" if "Mapping" in kind else kind, default, str(doc.value.value)))
    return found


def setup(app: Sphinx) -> None:
    app.add_directive("instruct-settings", Settings)
