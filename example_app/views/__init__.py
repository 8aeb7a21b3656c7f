"""The pages, one module for each kind of thing that a person can do."""

from __future__ import annotations

from flask import Flask

from . import assessments
from . import comments
from . import pages
from . import rubric


def register_views(app: Flask) -> None:
    for module in (assessments, rubric, comments, pages):
        app.register_blueprint(module.blueprint)
    pages.init_app(app)
