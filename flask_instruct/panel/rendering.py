"""How the panel's templates are rendered: the same files and the same context for a page and for a fragment.

A fragment goes to every viewer, so nothing of the current request's user may get into it; therefore an app's
context processors do not run, and escaping is on whatever the app has set.
"""

from __future__ import annotations

from typing import Any

from flask import current_app
from jinja2 import Environment
from markupsafe import Markup

from . import answers
from . import growing
from . import language
from . import proposing
from . import undoing
from . import waiting
from . import words
from .language import gettext
from .language import ngettext
from .markdown import markdown
from .told import told

_KEY = "instruct_panel_templates"


def render(template: str, **context: Any) -> Markup:
    """Render one of the panel's templates, or the app's own file of the same name."""
    shared = {
        "_": gettext,
        "ngettext": ngettext,
        "answers": answers,
        "growing": growing,
        "words": words,
        "proposing": proposing,
        "undoing": undoing,
        "waiting": waiting,
        "told": told,
        "language": language,
        "markdown": markdown,
        "debug": current_app.debug,
    }
    return Markup(_templates().get_template(f"instruct/{template}").render(shared | context))


def _templates() -> Environment:
    templates: Environment | None = current_app.extensions.get(_KEY)
    if templates is None:
        templates = current_app.jinja_env.overlay(autoescape=True)
        names = templates.globals
        # One dictionary for each template: Jinja's chain of two is walked in Python, several times a rendering.
        templates.make_globals = lambda own: {**names, **(own or {})}  # type: ignore[method-assign,assignment]
        current_app.extensions[_KEY] = templates
    return templates
