"""What the documentation says is there: names that can be imported, code that compiles, links that lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from flask_instruct.config import Config

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "_build" not in path.parts)
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_on_a_page_compiles_and_its_imports_exist(page: Path) -> None:
    for language, code in FENCE.findall(page.read_text()):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(code))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flask_instruct"):
                module = importlib.import_module(node.module or "")
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{node.module} has no {missing}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert not [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    known = {f"INSTRUCT_{field.name.upper()}" for field in fields(Config)} | {"INSTRUCT_TEST_POSTGRES_URL"}
    assert set(re.findall(r"INSTRUCT_[A-Z_]+[A-Z]", page.read_text())) <= known


def test_every_setting_has_a_line_of_documentation() -> None:
    source = ast.parse((ROOT / "flask_instruct" / "config.py").read_text())
    (body,) = [node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Config"]
    documented = {
        field.target.id
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr)
    }
    assert documented == {field.name for field in fields(Config)}
