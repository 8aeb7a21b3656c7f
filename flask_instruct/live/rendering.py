"""Renders templates to fragments. Autoescape is on whatever the template is called: a fragment is always HTML."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask import current_app
from jinja2 import Environment
from jinja2 import StrictUndefined
from markupsafe import Markup

from ..errors import InstructError

_KEY = "instruct_live_jinja"

PERSONAL = ("session", "current_user", "csrf_token")
"""What a page has of the one person who looks at it; a fragment is rendered once for all who do."""


class NotInFragments(InstructError):
    """Raised when a fragment's template asks for something that only the page of one person has."""


def render_fragment(template: str, **context: Any) -> Markup:
    """Render a template of the current app, with its context processors, and trim white space around it.

    :raises NotInFragments: when it uses :data:`PERSONAL` without having been given it.
    """
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    withheld = {name: _withheld(name, template) for name in PERSONAL if name not in context}
    app.update_template_context(context)
    return Markup(_environment(app).get_template(template).render(context | withheld).strip())


def _withheld(name: str, template: str) -> StrictUndefined:
    return StrictUndefined(
        f"{template} uses {name!r}, which a fragment does not have: it is rendered once, often in a worker, for "
        f"everybody who follows the stream. Leave to the page what depends on who looks, ask `{name} is defined` "
        f"first, or give the value to the broadcast.",
        name=name,
        exc=NotInFragments,  # type: ignore[arg-type]  # Jinja only raises it
    )


def _environment(app: Flask) -> Environment:
    # Flask escapes by file name, so that a model's text in a `.txt` or `.j2` fragment would be markup.
    if _KEY not in app.extensions:
        app.extensions[_KEY] = app.jinja_env.overlay(autoescape=True)
    environment: Environment = app.extensions[_KEY]
    return environment
