"""Where a record's values came from: each change of it that the ledger has, who asked for it and who undid it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import aliased

from ..errors import DeclarationError
from .approval import Approval
from .change import Change
from .layouts import Layout
from .layouts import Layouts
from .models import Run
from .models import ToolCall

MOST = 50
"""Entries that are read at once, unless more are wanted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one field; ``field`` is None where the whole row came or went.

    :ivar action: ``insert``, ``update`` or ``delete``.
    :ivar was: the value before as typed JSON, see ``runs.values``; of a whole row its fields; None where there is none.
    :ivar became: the value after.
    :ivar by: ``ai``, or ``undo`` for a person who took changes back.
    :ivar actor: the person who asked for the run, or undid it.
    :ivar approver: the person who approved the call.
    :ivar undone_by: the run that took the change back; ``undone_actor``: the person who did.
    """

    table: str
    key: str
    entity: str | None
    field: str | None
    action: str
    was: Any
    became: Any
    at: datetime
    by: str
    actor: str | None
    approver: str | None
    handler: str
    run_id: str
    call_id: str
    tool: str
    model: str | None
    undone_by: str | None
    undone_actor: str | None

    @property
    def row(self) -> dict[str, Any] | None:
        """The fields of a whole row that came or went."""
        return (self.became or self.was) if self.field is None else None


def history(
    session: Session, layouts: Layouts, record: Any, field: str | None = None, limit: int = MOST
) -> list[Entry]:
    """Return what the AI, and undos, changed of a record, newest first; of its bookkeeping only what is asked for.

    :param field: the name of an attribute: only its changes, and with it the moment the record was made.
    :raises DeclarationError: for what is no record, or a name that it has not.
    """
    layout, key = _place(layouts, record, field)
    entries: list[Entry] = []
    for row in _changes(session, (Change.table == layout.table, Change.key == key)):
        entries += _entries(row, layout, field)
        if len(entries) >= limit:
            break
    return entries[:limit]


def activity(
    session: Session, layouts: Layouts, handlers: Collection[str] | None = None, limit: int = MOST
) -> list[Entry]:
    """Return the newest changes of all records, without their bookkeeping.

    :param handlers: gids of handlers whose runs count; None for all.
    """
    conditions = () if handlers is None else (Run.handler.in_(handlers),)
    entries: list[Entry] = []
    for row in _changes(session, conditions):
        entries += _entries(row, layouts.of_change(row[0].entity, row[0].table), None)
        if len(entries) >= limit:
            break
    return entries[:limit]


def recent_handlers(session: Session, runs: int = 200) -> list[str]:
    """Return the gids of the handlers whose runs were the last to change anything."""
    newest = sa.select(Run.handler).where(Run.id.in_(sa.select(Change.run_id))).order_by(Run.id.desc()).limit(runs)
    return list(dict.fromkeys(session.scalars(newest)))


def _place(layouts: Layouts, record: Any, field: str | None) -> tuple[Layout, str]:
    state = sa.inspect(record, raiseerr=False)
    layout = layouts.of_class(state.mapper) if state is not None and hasattr(state, "mapper") else None
    if layout is None or state is None or state.identity is None:
        raise DeclarationError(f"The history of a {type(record).__name__} is not kept: it must be a stored record.")
    if field is not None and field not in layout.fields:
        raise DeclarationError(
            f"{type(record).__name__} has no field {field!r} that is kept; it has {', '.join(layout.fields)}."
        )
    return layout, layout.write_key(tuple(state.identity))


def _changes(session: Session, conditions: Any) -> Iterator[Any]:
    undoing = aliased(Run)
    query = (
        sa.select(Change, ToolCall, Run, Approval.decided_by, undoing.actor)
        .join(ToolCall, ToolCall.id == Change.call_id)
        .join(Run, Run.id == Change.run_id)
        .outerjoin(Approval, sa.and_(Approval.call_id == ToolCall.id, Approval.status == "approved"))
        .outerjoin(undoing, undoing.id == ToolCall.undone_by)
        .where(*conditions)
        .order_by(Change.created_at.desc(), Change.id.desc())
    )
    yield from session.execute(query.execution_options(yield_per=MOST))


def _entries(row: Any, layout: Layout | None, field: str | None) -> Iterator[Entry]:
    change, call, run, approver, undone_actor = row
    for name, was, became in _fields(change, field):
        known = layout.fields.get(name) if layout is not None and name is not None else None
        if field is None and known is not None and known.bookkeeping:
            continue
        yield Entry(
            change.table,
            change.key,
            change.entity,
            name,
            change.action,
            was,
            became,
            change.created_at,
            run.kind,
            run.actor,
            approver,
            run.handler,
            run.id,
            call.id,
            call.name,
            run.model,
            call.undone_by,
            undone_actor,
        )


def _fields(change: Change, field: str | None) -> Iterator[tuple[str | None, Any, Any]]:
    before, after = change.before or {}, change.after or {}
    if field is not None:
        if field in before or field in after:
            yield field, before.get(field), after.get(field)
    elif change.action == "update":
        for name in after:
            yield name, before.get(name), after[name]
    else:
        yield None, change.before, change.after
