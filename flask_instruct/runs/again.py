"""Effects that a person decides about: marked as done, or run again by a worker, also after their run has ended.

Each has a lease of its own, and changes hands by conditional updates alone.
"""

from __future__ import annotations

from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from flask import current_app
from sqlalchemy.orm import Session

from ..effects import WORKER_DIED
from ..effects import Fate
from ..errors import RunEnded
from .columns import now
from .effects import Begun
from .effects import begin
from .effects import end
from .effects import perform
from .models import NOT_STARTED
from .models import Effect
from .models import Run
from .notices import Notices
from .notices import announce
from .queue import ring
from .unit import Unit
from .unit import unit_of_work

if TYPE_CHECKING:
    from ..state import State

OPEN = sa.or_(Effect.status == "unknown", sa.and_(Effect.status == "failed", Effect.error_class == NOT_STARTED))
"""What a person may decide about: as :attr:`Effect.open`."""


def mark_as_done(effect: Effect) -> None:
    """Write down that an effect has happened, as a person knows, and commit the session.

    :raises RunEnded: when it is open no longer.
    """
    _decide(effect, status="done", ended_at=now())


def run_again(effect: Effect) -> None:
    """Have a worker run an effect once more, and commit the session; its idempotency key is the same.

    :raises RunEnded: when it is open no longer.
    """
    state: State = current_app.extensions["instruct"]
    state.redis_url()
    _decide(effect, status="pending", asked_at=now(), started_at=None, ended_at=None, ring_for_it=True)


def neglected(session: Session, interval: float) -> list[Run]:
    """Return the runs where nobody came for what a person wanted run again, or whose worker went silent in it."""
    moment = now()
    unheard = sa.and_(Effect.status == "pending", Effect.asked_at < moment - timedelta(seconds=interval))
    theirs = sa.select(Effect.run_id).where(sa.or_(unheard, _silent(moment)))
    return list(session.scalars(sa.select(Run).where(Run.id.in_(theirs))))


def carry_out_asked(state: State, engine: sa.Engine, run_id: str) -> bool:
    """Run what a person wanted run again of a run, whoever holds the run. False when there was nothing."""
    with state.db.engine.connect() as connection:
        asked = sa.select(Effect.id).where(Effect.run_id == run_id, Effect.asked_at.is_not(None))
        if connection.scalar(asked.limit(1)) is None:
            return False
    notices = Notices(state)
    _give_up_silent(engine, notices, run_id)
    found = False
    while (begun := _begin(state, engine, notices, run_id)) is not None:
        found = True
        if state.hold is not None:
            state.hold.effect = begun.effect_id, begun.tries
        with begun.reader.looking(state.app):
            fate = perform(state, begun)
        with unit_of_work(engine) as unit:
            _end(unit, notices, begun.effect_id, begun.tries, fate)
    notices.flush(engine)
    return found


def lose(state: State, engine: sa.Engine, effect_id: str, tries: int) -> None:
    """Mark an effect as unknown at once: the process that ran it again for a person is known to be dead."""
    notices = Notices(state)
    with unit_of_work(engine) as unit:
        _end(unit, notices, effect_id, tries, Fate("unknown", WORKER_DIED))
    notices.flush(engine)


def _decide(effect: Effect, *, ring_for_it: bool = False, **values: Any) -> None:
    state: State = current_app.extensions["instruct"]
    session = state.db.session()
    effect_id = effect.id
    cleared = {"error_class": None, "error_safe": None, "lease_until": None}
    changed = _set(session, effect_id, OPEN, **cleared, **values)
    if not changed:
        session.rollback()
        raise RunEnded(f"Effect {effect_id} is not open, so there is nothing to decide.")
    effect = session.get_one(Effect, effect_id, populate_existing=True)
    run = session.get_one(Run, effect.run_id)
    run_id, attempt = run.id, run.attempt
    then = (lambda: ring(state, run_id, attempt)) if ring_for_it else None
    announce(state, ("call_changed", run, effect.call), then=then)
    session.commit()


def _begin(state: State, engine: sa.Engine, notices: Notices, run_id: str) -> Begun | None:
    with unit_of_work(engine) as unit:
        wanted = (Effect.run_id == run_id, Effect.status == "pending", Effect.asked_at.is_not(None))
        effect = unit.ledger.scalars(sa.select(Effect).where(*wanted).order_by(Effect.asked_at).limit(1)).first()
        if effect is None:
            return None
        moment = now()
        lease = timedelta(seconds=effect.timeout + 2 * state.config.lease)
        tries = effect.tries + 1
        values = {"status": "running", "started_at": moment, "lease_until": moment + lease, "tries": tries}
        if not _set(unit.ledger, effect.id, Effect.status == "pending", Effect.tries == effect.tries, **values):
            return None
        unit.ledger.refresh(effect)
        run = unit.ledger.get_one(Run, run_id)
        notices.tell(unit, "call_changed", run, effect.call)
        notices.store(unit)
        return begin(effect, run)


def _give_up_silent(engine: sa.Engine, notices: Notices, run_id: str) -> None:
    with unit_of_work(engine) as unit:
        silent = sa.select(Effect).where(Effect.run_id == run_id, _silent(now()))
        for effect in unit.ledger.scalars(silent).all():
            _end(unit, notices, effect.id, effect.tries, Fate("unknown", WORKER_DIED))


def _end(unit: Unit, notices: Notices, effect_id: str, tries: int, fate: Fate) -> None:
    """Write down how it ended, unless it was taken for lost meanwhile: then it stays unknown."""
    held = (Effect.status == "running", Effect.tries == tries)
    if not _set(unit.ledger, effect_id, *held, ended_at=now()):
        return
    effect = unit.ledger.get_one(Effect, effect_id, populate_existing=True)
    end(effect, fate)
    unit.ledger.flush()
    notices.tell(unit, "call_changed", unit.ledger.get_one(Run, effect.run_id), effect.call)
    notices.store(unit)


def _silent(moment: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(Effect.status == "running", Effect.lease_until < moment)


def _set(session: Any, effect_id: str, *conditions: sa.ColumnElement[bool], **values: Any) -> bool:
    changed = session.execute(
        sa.update(Effect)
        .where(Effect.id == effect_id, *conditions)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return bool(changed.rowcount == 1)
