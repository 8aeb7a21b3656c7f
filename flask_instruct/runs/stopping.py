"""Stopping a run, from any process: one that waits ends at once, one that a worker holds is asked to end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from flask import current_app
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from ..errors import ConfigurationError
from .asking import withdraw
from .columns import now
from .effects import close_effects
from .history import interrupted
from .models import HELD
from .models import Run
from .notices import announce
from .queue import ring
from .turns import waiting_for

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

WAITING = ("queued", "waiting_approval")
"""Statuses in which no worker holds the run."""


MARK_SECONDS = 3600
"""How long the mark of a stop stays in Redis; the row has it for good."""


def stop_mark(state: State, run_id: str) -> str:
    """Return the Redis key that says that a run is to stop.

    On SQLite a tool that runs has the one write lock, so the row could only be marked after it, and after the next.
    """
    return f"{state.config.key_prefix}:stop:{run_id}"


def cancel(run: Run) -> bool:
    """Stop a run, and commit the session. False when it had ended before.

    A run that no worker holds, or whose worker's lease ran out, has ended when this returns; its calls that were not
    carried out are answered as interrupted. A worker that holds the run sees the wish within
    ``INSTRUCT_STOP_INTERVAL``: it breaks off a wait for the model, lets a tool that is running come to its end, and
    keeps what was said.
    """
    state: State = current_app.extensions["instruct"]
    session = state.db.session()
    run_id = run.id
    mark(state, run_id)
    changes = ask_to_stop(session, run_id)
    if not changes:
        session.rollback()
        return session.get_one(Run, run_id, populate_existing=True).status == "cancelled"
    next_ones = waiting_for(session, changes[-1][1], state.config)
    announce(state, *changes, then=lambda: [ring(state, *one) for one in next_ones])
    session.commit()
    return True


def ask_to_stop(session: Session, run_id: str) -> list[tuple[Any, ...]]:
    """End a run that nobody holds, or write the wish into the row of one that a worker holds; nothing is committed.

    :returns: the changes to announce, the run's own last; none when it had ended.
    """
    moment = now()
    unheld = sa.or_(Run.status.in_(WAITING), sa.and_(Run.status.in_(HELD), Run.lease_until < moment))
    ended = _set(session, run_id, unheld, status="cancelled", ended_at=moment, lease_until=None, retry_at=None)
    if not ended and not _set(session, run_id, Run.status.in_(HELD), status="cancelling"):
        return []
    stopped = session.get_one(Run, run_id, populate_existing=True)
    changes = [*(_close(session, stopped) if ended else ()), ("run_changed", stopped)]
    session.flush()
    return changes


def mark(state: State, run_id: str) -> None:
    """Tell the run's worker through Redis, which a lock on the database does not hold up."""
    try:
        state.redis.set(stop_mark(state, run_id), "1", ex=MARK_SECONDS)
    except (RedisError, ConfigurationError) as error:
        told = "The stop of run %s goes by the database alone: %s"
        logger.warning(told, run_id, error, extra={"run_id": run_id})


def _set(session: Session, run_id: str, condition: sa.ColumnElement[bool], **values: Any) -> bool:
    changed: sa.CursorResult[Any] = session.execute(  # type: ignore[assignment]
        sa.update(Run)
        .where(Run.id == run_id, condition)
        .values(cancel_requested=True, **values)
        .execution_options(synchronize_session=False)
    )
    return bool(changed.rowcount == 1)


def _close(session: Session, run: Run) -> Iterator[tuple[str, Run, object]]:
    """Mark what was being said as cut, and answer the calls that nobody will carry out (G6)."""
    for message in run.messages:
        if message.state == "streaming":
            message.state = "cut"
            yield "message_finished", run, message
    withdraw(session, run)
    for call in run.calls:
        if call.result is None:
            call.answer(interrupted(call.name), "interrupted")
            yield "call_changed", run, call
    for call in close_effects(session, run):
        yield "call_changed", run, call
