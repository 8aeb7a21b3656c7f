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
from sqlalchemy.orm import undefer

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
from .models import ToolCall
from .notices import Notices
from .prepared import Prepared
from .rows import know
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
    :param notices: what is still to be noted of the pages that were told.
    """

    run: Run
    heard: bool
    earlier: tuple[Message, ...]
    notices: Notices


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
        run = unit.ledger.get(Run, run_id, options=_WHOLE)
        if run is not None and run.status in HELD:
            # In the order of a tool that is still alive: its call first, the run last. The other way each would wait
            # for the other on PostgreSQL, which ends the tool's transaction then.
            unit.connection.execute(_RUNNING, {"run_id": run_id})
        if run is None or not _take(unit, run, state.config):
            return None
        is_new = run.attempt == 1
        heard = _has_nothing(run) if is_new else _clear(unit, run, notices)
        if run.cancel_requested:
            _end_stopped(unit, run, notices)
        elif run.resumes > state.config.max_attempts:
            _give_up(unit, run, notices)
        unit.ledger.flush()
        notices.tell(unit, "run_changed", run)
        notices.store(unit)
        if is_new:
            # The panel has forgotten it again, as it does of every run that it has told of.
            know(run, messages=[], calls=[])
        # Loaded now, for use after the transaction.
        _ = run.calls, [call for message in run.messages for call in message.calls]
        earlier = () if run.ended else said_before(unit.ledger, run)
        if run.ended:
            ring_for_next(state, unit, run)
    if run.ended:
        notices.flush(engine)
        return None
    return Claimed(run, heard, earlier, notices)


def renew_lease(connection: sa.Connection, run_id: str, attempt: int, until: datetime) -> bool:
    """Move the lease of a run that is still held by this attempt; False when it is not."""
    bound_step(connection)
    return _RENEW.plain.execute(connection, _held(run_id, attempt, until)).rowcount == 1


def hold(unit: Unit, run: Run, attempt: int, until: datetime) -> bool:
    """Move the lease of a run that is still held by this attempt, and read what others write into its row meanwhile.

    :param run: its object of earlier steps of this attempt, which stands in the unit's session then.
    """
    bound_step(unit.connection)
    found = _RENEW.told(unit.connection, _held(run.id, attempt, until), run.id)
    if found is None:
        return False
    know(run, lease_until=until, **found)
    unit.ledger.add(run)
    # Read in an earlier step, if at all.
    unit.ledger.expire(run, ["messages", "calls"])
    run.is_doing_something()
    return True


def _held(run_id: str, attempt: int, until: datetime) -> dict[str, Any]:
    return {"held_run": run_id, "held_attempt": attempt, "held_until": until}


class _Renewal:
    """An update of one run's row; it can tell what others may have written into that."""

    def __init__(self, update: sa.Update, *names: str) -> None:
        self.plain = Prepared(update, *names)
        self._telling = Prepared(update.returning(*_TOLD.selected_columns), *names)

    def told(self, connection: sa.Connection, values: dict[str, Any], run_id: str) -> dict[str, Any] | None:
        """Execute it; None where its condition did not hold."""
        if connection.dialect.update_returning:
            found: sa.Row[*tuple[Any, ...]] | None = self._telling.execute(connection, values).first()
        else:  # SQLite before 3.35
            changed = self.plain.execute(connection, values).rowcount == 1
            found = connection.execute(_TOLD.where(_RUNS.c.id == run_id)).first() if changed else None
        if found is None:
            return None
        return {**found._mapping, "cancel_requested": bool(found.cancel_requested)}


# Made once: they are sent more often than any other.
_RUNS = cast(sa.Table, Run.__table__)
# Not IN, whose list is written anew each time that it is sent: a third of what the statement takes.
_IS_HELD = sa.or_(*(_RUNS.c.status == status for status in HELD))
_TOLD = sa.select(_RUNS.c.status, _RUNS.c.cancel_requested, _RUNS.c.error_technical)
"""What a person's stop and a worker's supervisor write into a run that a worker holds."""
_RENEW = _Renewal(
    sa.update(_RUNS)
    .where(_RUNS.c.id == sa.bindparam("held_run"), _RUNS.c.attempt == sa.bindparam("held_attempt"))
    .where(_IS_HELD)
    .values(lease_until=sa.bindparam("held_until"))
)
_TAKE = _Renewal(
    sa.update(_RUNS)
    .where(_RUNS.c.id == sa.bindparam("taken_run"), _RUNS.c.attempt == sa.bindparam("seen_attempt"))
    .where(
        sa.or_(
            _RUNS.c.status == "queued",
            sa.and_(_IS_HELD, _RUNS.c.lease_until < sa.bindparam("moment")),
        )
    ),
    *("status", "attempt", "resumes", "lease_until", "retry_at", "started_at"),
)
_WHOLE = (undefer(Run.attachments),)
_RUNNING = (
    sa.select(ToolCall.id)
    .where(ToolCall.run_id == sa.bindparam("run_id"), ToolCall.status == "running")
    .with_for_update()
)


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


def _take(unit: Unit, run: Run, config: Config) -> bool:
    moment = now()
    resumed = run.status in HELD
    if not resumed and (run.status != "queued" or not has_turn(unit, run, config)):
        return False
    values: dict[str, Any] = {
        "status": "running",
        "attempt": run.attempt + 1,
        "resumes": run.resumes + resumed,
        "lease_until": moment + timedelta(seconds=config.lease),
        "retry_at": None,
        "started_at": run.started_at or moment,
    }
    condition = {"taken_run": run.id, "seen_attempt": run.attempt, "moment": moment}
    found = _TAKE.told(unit.connection, condition | values, run.id)
    if found is None:
        return False
    know(run, **{**values, **found})
    return True


def _has_nothing(run: Run) -> bool:
    """Let a run that nobody has had in hand before be as it is: nothing of it is looked for."""
    know(run, messages=[], calls=[])
    run.is_doing()
    return False


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
