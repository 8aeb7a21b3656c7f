"""Effects in the ledger: written in their tool's own transaction, begun in a committed step of their own, and noted as
done or failed in another. What dies between these two is unknown, and is never repeated unless a person says so.

See docs/decisions/0010.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..calls import ToolContext
from ..calls import failure
from ..effects import WORKER_DIED
from ..effects import Fate
from ..effects import Owner
from ..effects import Promise
from ..effects import fate_of
from ..effects import fulfil
from ..effects import told_with
from ..errors import InstructError
from ..handlers import AiResponseHandler
from ..handlers import locate
from .app_code import FAILURES
from .columns import now
from .models import NOT_STARTED
from .models import Effect
from .models import Run
from .models import ToolCall
from .notices import Notices
from .points import reach
from .unit import Unit
from .unit import joined_session

if TYPE_CHECKING:
    from ..live.reader import Reader
    from ..state import State
    from .steps import Steps

logger = logging.getLogger("flask_instruct")

REFUSED = "it ran, but what it wrote to the database was refused"
ENDED_BEFORE = "it was not started, because the request ended before"


@dataclass(frozen=True, slots=True)
class Begun:
    """An effect whose row says that it is running."""

    effect_id: str
    tries: int
    promise: Promise
    context: ToolContext
    gid: str
    reader: Reader


class Effects:
    """The effects of one run, under the lease of the worker that has it in hand."""

    def __init__(self, state: State, steps: Steps, notices: Notices) -> None:
        self._state = state
        self._steps = steps
        self._notices = notices
        self._written = 0

    @property
    def wanted(self) -> bool:
        """Whether the last tool has asked for any, which it may have rolled back since."""
        return self._written > 0

    def keep(self, unit: Unit, call: ToolCall) -> Callable[[Promise], None]:
        """Return what writes down the promises of a call, in the session of its tool: a rollback takes them along."""
        call_id, self._written = call.id, 0

        def keep(promise: Promise) -> None:
            session = self._state.db.session()
            if session.info.get("flask_instruct.unit") is not unit:
                raise InstructError(
                    "after_commit was called beside its tool's transaction, in a thread or an app context of its own: "
                    "call it in the tool itself."
                )
            self._written += 1
            # Not through the mapper, which would flush the tool's edits at this line.
            session.execute(
                sa.insert(cast(sa.Table, Effect.__table__)).values(
                    run_id=self._steps.run_id,
                    call_id=call_id,
                    seq=self._written,
                    owner=promise.owner,
                    method=promise.method,
                    arguments=promise.arguments,
                    timeout=promise.timeout,
                )
            )

        return keep

    def keep_all(self, unit: Unit, call: ToolCall, promises: Iterable[Promise]) -> None:
        """Write promises down that were made at another time, in a session that is joined to the unit."""
        keep = self.keep(unit, call)
        with joined_session(self._state.db, unit):
            for promise in promises:
                keep(promise)

    def carry_out(self, call_id: str | None = None) -> dict[str, str]:
        """Carry out, in order, what is pending of one call, or of the whole run.

        :returns: by the ids of the calls, what the model is told of them now.
        :raises LostLease: when another worker has the run.
        """
        told: dict[str, str] = {}
        while (begun := self._begin(call_id)) is not None:
            reach("effect begun")
            fate = self.perform(begun)
            reach("effect returned")
            with self._steps.step() as (unit, run):
                effect = unit.ledger.get_one(Effect, begun.effect_id)
                end(effect, fate)
                unit.ledger.flush()
                self._notices.tell(unit, "call_changed", run, effect.call)
                told[effect.call_id] = effect.call.result or ""
        return told

    def perform(self, begun: Begun) -> Fate:
        """Do it; a replay has what became of it instead."""
        return perform(self._state, begun)

    def _begin(self, call_id: str | None) -> Begun | None:
        with self._steps.step() as (unit, run):
            wanted = [Effect.run_id == run.id, Effect.status == "pending", Effect.asked_at.is_(None)]
            if call_id is not None:
                wanted.append(Effect.call_id == call_id)
            effect = _first(unit.ledger, *wanted)
            if effect is None:
                return None
            effect.status, effect.started_at, effect.tries = "running", now(), 1
            unit.ledger.flush()
            self._notices.tell(unit, "call_changed", run, effect.call)
            return begin(effect, run)


def begin(effect: Effect, run: Run) -> Begun:
    """Return what it takes to run an effect when the transaction has ended; its key is the same every time."""
    call = effect.call
    context = ToolContext(
        id=call.id,
        run_id=run.id,
        name=call.name,
        seq=call.seq,
        idempotency_key=f"{call.idempotency_key}:effect:{effect.seq}",
        actor=run.actor,
        attempt=run.attempt,
        timeout=effect.timeout,
    )
    promise = Promise(cast(Owner, effect.owner), effect.method, effect.arguments, effect.timeout)
    return Begun(effect.id, effect.tries, promise, context, run.handler, run.reader)


def perform(state: State, begun: Begun) -> Fate:
    """Do it, outside any transaction of ours, and leave none of the app's open (G5).

    What it writes in ``db.session`` is committed when it has gone well, and rolled back when it has not.
    """
    promise = begun.promise
    try:
        outcome = fulfil(_found(state, begun.gid), begun.context, promise)
    except FAILURES as error:
        outcome = failure(promise.method, error)
    try:
        fate = fate_of(promise, outcome)
        return _committed(state, fate) if fate.status == "done" else fate
    finally:
        _let_go(state)


def _found(state: State, gid: str) -> AiResponseHandler:
    """Return the handler of an effect that has not begun yet; a connection that has died meanwhile is replaced."""
    try:
        return locate(gid)
    except sa.exc.OperationalError:
        state.db.session.remove()
        return locate(gid)


def end(effect: Effect, fate: Fate) -> None:
    """Write down how an effect ended, and tell the model in its call's result, unless it was told before."""
    effect.end(fate.status, fate.why, fate.error_class)
    if effect.asked_at is None:
        effect.call.result = told_with(effect.call.result or "", [fate.told(effect.method)])


def lose_running(session: Session, run: Run) -> Iterator[ToolCall]:
    """Mark what a dead worker was in the middle of as unknown; give the calls that changed."""
    yield from _end_all(session, run, "running", Fate("unknown", WORKER_DIED))


def close_effects(session: Session, run: Run) -> Iterator[ToolCall]:
    """Close what is open of a run that ends, as nothing of it may be begun afterwards; give the calls that changed."""
    yield from lose_running(session, run)
    yield from _end_all(session, run, "pending", Fate("failed", f"{ENDED_BEFORE}.", NOT_STARTED))


def _end_all(session: Session, run: Run, status: str, fate: Fate) -> Iterator[ToolCall]:
    wanted = (Effect.run_id == run.id, Effect.status == status, Effect.asked_at.is_(None))
    while (effect := _first(session, *wanted)) is not None:
        end(effect, fate)
        session.flush()
        yield effect.call


def _first(session: Session, *wanted: sa.ColumnElement[bool]) -> Effect | None:
    query = sa.select(Effect).join(ToolCall).where(*wanted).order_by(ToolCall.seq, Effect.seq).limit(1)
    return session.scalars(query).first()


def _committed(state: State, fate: Fate) -> Fate:
    try:
        state.db.session.commit()
    except FAILURES as error:
        logger.exception("What an effect wrote in db.session could not be committed")
        return Fate("unknown", REFUSED, type(error).__name__)
    return fate


def _let_go(state: State) -> None:
    try:
        state.db.session.remove()
    except Exception as error:
        # A session that a timeout has left in the middle of something refuses to be closed.
        logger.warning("The session of an effect could not be closed: %r", error)
        state.db.session.registry.clear()
