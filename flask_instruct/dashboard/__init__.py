"""The pages under ``/instruct/`` for whoever looks after a site: how it goes, the list of runs, and all of one run.

They only show. Nobody sees them until the app says who may: ``@instruct.authorize_dashboard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from .views import make_blueprint

if TYPE_CHECKING:
    from ..state import State

__all__ = ["init_dashboard"]


def init_dashboard(app: Flask, state: State) -> None:
    """Give an app the pages, under ``INSTRUCT_URL_PREFIX``."""
    prefix = state.config.url_prefix.rstrip("/")
    # At the root of a site they would stand in the place of its own first page.
    app.register_blueprint(make_blueprint(home="/" if prefix else "/dashboard"), url_prefix=prefix or None)
