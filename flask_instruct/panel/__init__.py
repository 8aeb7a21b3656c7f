"""What people see of a run and what they press: templates, the form's POSTs, and the fragments of a running run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from . import undo  # noqa: F401  # its routes
from .approvals import instruct_approvals
from .chat import instruct_chat
from .observer import PanelObserver
from .one_run import instruct_run
from .page import instruct_panel
from .provenance import instruct_activity
from .provenance import instruct_badge
from .provenance import instruct_history
from .views import blueprint

if TYPE_CHECKING:
    from ..state import State

__all__ = ["init_panel"]

SHOWN = (
    instruct_panel,
    instruct_chat,
    instruct_run,
    instruct_approvals,
    instruct_history,
    instruct_badge,
    instruct_activity,
)
"""What templates can show."""


def init_panel(app: Flask, state: State) -> None:
    """Give an app the panel: its routes, the template function ``instruct_panel`` and the observer of runs."""
    app.register_blueprint(blueprint, url_prefix=state.config.url_prefix)
    for function in SHOWN:
        app.add_template_global(function)
    state.observers.append(PanelObserver())
