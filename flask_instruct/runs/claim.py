"""Taking hold of a run: one conditional update decides which worker has it, then what the last one left is cleared."""

from __future__ import annotations

import logging
from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ..config import Config
from ..messages import Message
from .asking import withdraw
from .bounds import bound_step
from .columns import now
from .effects import close_effects
from .effects import lose_running
from .history import interrupted
from .history import said_before
from .interruption import PASSING
from .interruption import Interrupted
from .models import HELD
from .models import ModelCall
from .models import Run
from .notices import Notices
from .turns import has_turn
from .turns import ring_for_next
from .unit import Unit
from .unit import unit_of_work

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

WORN_OUT = "The work on this was interrupted too often and was ended."


class Claimed(NamedTuple):
    """A run that is ours now.

    :param heard: a handler may have heard text of an answer that was thrown away.
    :param earlier: what was said in its conversation before.
    """

    run: Run
    heard: bool
    earlier: tuple[Message, ...]


def claim(state: State, engine: sa.Engine, run_id: str) -> Claimed | None:
    """Take a run that is queued, or whose worker's lease ran out. None when there is nothing to take.

    What was half done is cleared in the same transaction: an answer that was being received is discarded whole,
    a call that had begun waits again (its edits were never committed).

    :raises Interrupted: when the database could not be asked, or a worker that was stopped still holds a row of it.
    """
    try:
        return _claim(state, engine, run_id)
    except IntegrityError:
        logger.info("Run %s waits: another of its conversation was taken a moment ago", run_id)
        return None
    except PASSING as error:
        reason = type(getattr(error, "orig", None) or error).__name__
        raise Interrupted(f"Run {run_id} could not be taken now ({reason}); the sweep rings for it again.") from error


def _claim(state: State, engine: sa.Engine, run_id: str) -> Claimed | None:
    notices = Notices(state)
    with unit_of_work(engine) as unit:
        bound_step(unit.connection)
        seen = unit.ledger.get(Run, run_id)
        if seen is None or not _take(unit, seen, state.config):
            return None
        run = unit.ledger.get(Run, run_id, populate_existing=True)
        assert run is not None
        heard = _clear(unit, run, notices)
        if run.cancel_requested:
            _end_stopped(unit, run, notices)
        elif run.resumes > state.config.max_attempts:
            _give_up(unit, run, notices)
        unit.ledger.flush()
        notices.tell(unit, "run_changed", run)
        notices.store(unit)
        # Loaded now, for use after the transaction.
        _ = run.attachments, run.calls, [call for message in run.messages for call in message.calls]
        earlier = () if run.ended else said_before(unit.ledger, run)
        if run.ended:
            ring_for_next(state, unit, run)
    notices.flush(engine)
    return None if run.ended else Claimed(run, heard, earlier)


def renew_lease(connection: sa.Connection, run_id: str, attempt: int, until: datetime) -> bool:
    """Move the lease of a run that is still held by this attempt; False when it is not."""
    bound_step(connection)
    return connection.execute(_RENEW, _held(run_id, attempt, until)).rowcount == 1


def hold(session: Session, run_id: str, attempt: int, until: datetime) -> Run | None:
    """Move the lease of a run that is still held by this attempt, and return its row; None when it is not."""
    connection = session.connection()
    if not connection.dialect.update_returning:  # SQLite before 3.35
        held = renew_lease(connection, run_id, attempt, until)
        return session.get(Run, run_id, populate_existing=True) if held else None
    bound_step(connection)
    session.flush()
    return session.scalars(_HOLD, _held(run_id, attempt, until), execution_options=_FRESH).one_or_none()


def _held(run_id: str, attempt: int, until: datetime) -> dict[str, Any]:
    return {"held_run": run_id, "held_attempt": attempt, "held_until": until}


# Made once: they are sent more often than any other.
_RENEW = (
    sa.update(cast(sa.Table, Run.__table__))
    .where(Run.id == sa.bindparam("held_run"), Run.attempt == sa.bindparam("held_attempt"), Run.status.in_(HELD))
    .values(lease_until=sa.bindparam("held_until"))
)
_HOLD = sa.select(Run).from_statement(_RENEW.returning(Run))
_FRESH = {"populate_existing": True}


def close_open_calls(unit: Unit, run: Run, notices: Notices) -> None:
    """Answer the calls of a run that ends before they were carried out: each call has a result, always (G6)."""
    if any(call.status == "asked" for call in run.calls):
        withdraw(unit.ledger, run)
    for call in run.calls:
        if call.result is None:
            call.answer(interrupted(call.name), "interrupted")
            unit.ledger.flush()
            notices.tell(unit, "call_changed", run, call)
    for call in close_effects(unit.ledger, run):
        notices.tell(unit, "call_changed", run, call)


def _take(unit: Unit, seen: Run, config: Config) -> bool:
    moment = now()
    resumed = seen.status in HELD
    if not resumed and not has_turn(unit, seen, config):
        return False
    taken: sa.CursorResult[Any] = unit.connection.execute(
        sa.update(Run)
        .where(
            Run.id == seen.id,
            Run.attempt == seen.attempt,
            sa.or_(Run.status == "queued", sa.and_(Run.status.in_(HELD), Run.lease_until < moment)),
        )
        .values(
            status="running",
            attempt=seen.attempt + 1,
            resumes=seen.resumes + resumed,
            lease_until=moment + timedelta(seconds=config.lease),
            retry_at=None,
            started_at=seen.started_at or moment,
        )
        .execution_options(synchronize_session=False)
    )
    return taken.rowcount == 1


def _clear(unit: Unit, run: Run, notices: Notices) -> bool:
    heard = any(message.state == "streaming" and message.text for message in run.messages)
    for message in list(run.messages):
        if message.state != "complete":
            notices.tell(unit, "message_discarded", run, message)
            run.messages.remove(message)
            unit.ledger.delete(message)
    unit.ledger.flush()
    unit.ledger.execute(
        sa.update(ModelCall)
        .where(ModelCall.run_id == run.id, ModelCall.seconds.is_(None), ModelCall.error_class.is_(None))
        .values(error_class="interrupted")
    )
    for call in run.calls:
        if call.status == "running":
            call.status, call.started_at = "waiting", None
            notices.tell(unit, "call_changed", run, call)
    for call in lose_running(unit.ledger, run):
        notices.tell(unit, "call_changed", run, call)
    return heard


def _end_stopped(unit: Unit, run: Run, notices: Notices) -> None:
    """Its worker died before it could."""
    close_open_calls(unit, run, notices)
    run.status = "cancelled"
    run.lease_until, run.ended_at = None, now()


def _give_up(unit: Unit, run: Run, notices: Notices) -> None:
    close_open_calls(unit, run, notices)
    run.status = "failed"
    run.error_class, run.error_safe = "interrupted", WORN_OUT
    last = f" The last: {run.error_technical}" if run.error_technical else ""
    run.error_technical = f"{run.resumes} workers died while they held this run (INSTRUCT_MAX_ATTEMPTS).{last}"
    run.lease_until, run.ended_at = None, now()
