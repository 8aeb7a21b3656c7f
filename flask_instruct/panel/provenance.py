"""Where a record's values came from, for templates: its history, a field's badge, and the newest changes of all."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from flask import current_app
from markupsafe import Markup

from ..errors import HandlerError
from ..handlers import locate
from ..runs.provenance import Entry
from ..runs.provenance import activity
from ..runs.provenance import history
from ..runs.provenance import recent_handlers
from .forms import _may
from .naming import Names
from .rendering import render

if TYPE_CHECKING:
    from ..state import State

SHOWN = 20
"""Entries that are shown at once."""


def instruct_history(record: Any, field: str | None = None, *, limit: int = SHOWN) -> Markup:
    """Show what the AI, and undos, changed of a record, newest first: who, when, and from what to what.

    :param field: only this attribute.
    :raises DeclarationError: for what is no stored record, or a name that it has not.
    """
    entries = _history(record, field, limit)
    return render("history.html", entries=entries, names=Names(_state(), ()), field=field)


def instruct_badge(record: Any, field: str) -> Markup:
    """Show a mark beside a field whose present value is the AI's; nothing beside any other."""
    newest = next(iter(_history(record, field, 1)), None)
    if newest is None or newest.by != "ai" or newest.undone_by is not None:
        return Markup("")
    layout = _state().layouts(_state().db.engine.dialect).of_class(sa.inspect(record).mapper)
    if layout is None or not layout.fields[field].holds(getattr(record, field), newest.became):
        return Markup("")
    return render("badge.html", entry=newest).strip()


def instruct_activity(*, limit: int = SHOWN) -> Markup:
    """Show the newest changes over all records that the viewer may ask the AI about."""
    state = _state()
    session = state.db.session()
    allowed = [gid for gid in recent_handlers(session) if _is_open(state, gid)]
    layouts = state.layouts(state.db.engine.dialect)
    entries = activity(session, layouts, allowed, limit) if allowed else []
    return render("activity.html", entries=entries, names=Names(state, entries))


def _history(record: Any, field: str | None, limit: int) -> list[Entry]:
    state = _state()
    return history(state.db.session(), state.layouts(state.db.engine.dialect), record, field, limit)


def _is_open(state: State, gid: str) -> bool:
    try:
        handler = locate(gid)
    except HandlerError:
        return False
    return _may(state, state.actor(), handler)


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
