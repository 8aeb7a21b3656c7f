"""What people see of a run and what they press: templates, the form's POSTs, and the fragments of a running run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from .approvals import instruct_approvals
from .chat import instruct_chat
from .observer import PanelObserver
from .page import instruct_panel
from .views import blueprint

if TYPE_CHECKING:
    from ..state import State

__all__ = ["init_panel"]


def init_panel(app: Flask, state: State) -> None:
    """Give an app the panel: its routes, the template function ``instruct_panel`` and the observer of runs."""
    app.register_blueprint(blueprint, url_prefix=state.config.url_prefix)
    app.add_template_global(instruct_panel)
    app.add_template_global(instruct_approvals)
    app.add_template_global(instruct_chat)
    state.observers.append(PanelObserver())
