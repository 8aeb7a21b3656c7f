"""What the ledger says of runs, as plain data: the latest ones with what they cost, and one with all its rows.

What people and models wrote is left out unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..errors import InstructError
from .columns import WireText
from .columns import now
from .ledger import Ledger
from .models import ModelCall
from .models import Outbox
from .models import Run
from .spending import spent_by_run

Row = dict[str, Any]

WRITTEN = (WireText, sa.JSON)
"""Types of the columns that hold what a person, a model or a tool has written; shown only when asked for."""

HARMLESS = frozenset({"error_safe", "provider_call_id", "attached", "limits"})
"""Columns of these types that are shown always."""

NEVER = frozenset({"attachments", "parts"})
"""Columns that are copies for the model, or megabytes."""

FRAGMENTS = 200
"""Ids that are looked for in the outbox with one statement; SQLite takes no deeper ones than 1000."""


class NoSuchRun(InstructError):
    """Raise when an id, or the beginning of one, does not mean one run."""


def find(session: Session, beginning: str) -> Run:
    """Return the run whose id begins like this.

    :raises NoSuchRun: when there is none, or more than one.
    """
    wanted = Run.id.startswith(beginning.strip().lower(), autoescape=True)
    found = list(session.scalars(sa.select(Run).where(wanted).order_by(Run.id).limit(3)))
    if not found or not beginning.strip():
        raise NoSuchRun(f"No run has an id that begins with {beginning!r}: flask instruct runs lists them.")
    if len(found) > 1:
        some = ", ".join(run.id for run in found)
        raise NoSuchRun(f"More than one run has an id that begins with {beginning!r} ({some} …): write more of it.")
    return found[0]


def latest(
    session: Session,
    *,
    status: Iterable[str] = (),
    handler: str | None = None,
    actor: str | None = None,
    limit: int = 20,
) -> list[Row]:
    """Return the latest runs, newest first, each with its age in seconds, model, tokens and dollars.

    :param status: only runs of one of these; ``handler``: a handler's name, or the reference of one on a record.
    """
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted := list(status):
        conditions.append(Run.status.in_(wanted))
    if handler is not None:
        conditions.append(sa.or_(Run.handler_name == handler, Run.handler == handler))
    if actor is not None:
        conditions.append(Run.actor == actor)
    runs = list(session.scalars(sa.select(Run).where(*conditions).order_by(Run.id.desc()).limit(limit)))
    spent = _spent(session, [run.id for run in runs])
    return [_line(run) | spent.get(run.id, _UNSPENT) for run in runs]


_UNSPENT: Row = {"input_tokens": None, "output_tokens": None, "cost": None}


def _line(run: Run) -> Row:
    columns = ("id", "status", "handler_name", "handler", "actor", "conversation", "model", "created_at", "ended_at")
    return {name: _plain(getattr(run, name)) for name in columns} | _standing(run)


def _standing(run: Run) -> Row:
    """Give what depends on the moment of asking."""
    return {"age": round(_age(run.created_at), 1), "interrupted": run.interrupted}


def _spent(session: Session, ids: list[str]) -> dict[str, Row]:
    tokens = (sa.func.sum(ModelCall.input_tokens), sa.func.sum(ModelCall.output_tokens))
    query = (
        sa.select(ModelCall.run_id, *tokens, sa.func.sum(ModelCall.cost))
        .where(ModelCall.run_id.in_(ids))
        .group_by(ModelCall.run_id)
    )
    return {
        run_id: {"input_tokens": _whole(read), "output_tokens": _whole(written), "cost": _plain(cost)}
        for run_id, read, written, cost in session.execute(query)
    }


def account(session: Session, run: Run, *, text: bool = False) -> Row:
    """Return all that is known of a run: its row, messages, calls, effects, model calls, spending and broadcasts.

    :param text: with what was asked, said, called and answered.
    """
    of_run = ModelCall.run_id == run.id
    model_calls = session.scalars(sa.select(ModelCall).where(of_run).order_by(ModelCall.created_at, ModelCall.id))
    spent = {name: _plain(value) for name, value in asdict(spent_by_run(session, run.id)).items()}
    return {
        **_row(run, text),
        **_standing(run),
        "messages": [_row(message, text) for message in run.messages],
        "calls": [_row(call, text) for call in run.calls],
        "effects": [_row(effect, text) for call in run.calls for effect in call.effects],
        "model_calls": [_row(call, text) for call in model_calls],
        "spending": spent,
        "broadcasts": _broadcasts(session, run),
    }


def _row(row: Ledger, text: bool) -> Row:
    columns = type(row).__table__.columns
    shown = (name for name, column in columns.items() if name not in NEVER and (text or _is_shown(column)))
    return {name: _plain(getattr(row, name)) for name in shown}


def _is_shown(column: sa.ColumnElement[Any]) -> bool:
    return column.key in HARMLESS or not isinstance(column.type, WRITTEN)


def _broadcasts(session: Session, run: Run) -> dict[str, int]:
    """Count the outbox rows that name the run or something of it; Redis has taken those that are ``published``."""
    published: dict[int, bool] = {}
    for some in _portions([run.id, *(message.id for message in run.messages), *(call.id for call in run.calls)]):
        names = sa.or_(*(Outbox.html.contains(identifier) for identifier in some))
        query = sa.select(Outbox.seq, Outbox.position.is_not(None)).where(names, Outbox.created_at >= run.created_at)
        published |= {seq: bool(is_out) for seq, is_out in session.execute(query)}
    return {"published": sum(published.values()), "waiting": len(published) - sum(published.values())}


def _portions(ids: list[str]) -> Iterator[list[str]]:
    yield from (ids[start : start + FRAGMENTS] for start in range(0, len(ids), FRAGMENTS))


def _age(moment: datetime) -> float:
    return max(0.0, (now() - moment).total_seconds())


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _plain(value: Any) -> Any:
    """Give a value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
