"""Renders templates to fragments. Autoescape is on whatever the template is called: a fragment is always HTML."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask import current_app
from jinja2 import Environment
from markupsafe import Markup

_KEY = "instruct_live_jinja"


def render_fragment(template: str, **context: Any) -> Markup:
    """Render a template of the current app, with its context processors, and trim white space around it."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    app.update_template_context(context)
    return Markup(_environment(app).get_template(template).render(context).strip())


def _environment(app: Flask) -> Environment:
    # Flask escapes by file name, so that a model's text in a `.txt` or `.j2` fragment would be markup.
    if _KEY not in app.extensions:
        app.extensions[_KEY] = app.jinja_env.overlay(autoescape=True)
    environment: Environment = app.extensions[_KEY]
    return environment
