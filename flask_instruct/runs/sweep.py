"""The look for what was lost: runs that no job rings for, runs whose worker went silent, broadcasts that were
committed and never published. Safe to do anywhere, any number of times.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC
from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING
from typing import cast

import sqlalchemy as sa
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from .again import neglected
from .columns import now
from .deciding import end_patience
from .models import HELD
from .models import Outbox
from .models import Run
from .notices import publish_late
from .notices import settle
from .notices import unpublished
from .queue import is_waiting
from .queue import ring
from .unit import ledger_engine

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

PUBLISH_AFTER = 5.0
"""Seconds after which a committed broadcast that nobody reported as published counts as left behind."""
REMEMBERED = timedelta(days=30)
"""How long Redis keeps when the last sweep was."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep found: runs rung for again, and broadcasts that had not been published."""

    runs: int
    broadcasts: int


def sweep(state: State) -> Swept:
    """Ring for forgotten and interrupted runs, refresh the pages that missed a broadcast; needs an app context."""
    engine = ledger_engine(state.db)
    end_patience(state)
    with Session(engine) as session:
        runs = _forgotten(session, state.config.sweep_interval)
        waiting = unpublished(session, now() - timedelta(seconds=PUBLISH_AFTER))
        session.expunge_all()
    try:
        rung = sum(ring(state, run.id, run.attempt) for run in runs if not is_waiting(state, run))
        state.redis.set(_mark(state), now().timestamp(), ex=REMEMBERED)
    except RedisError as error:
        logger.warning("The sweep could not reach Redis: %s", error)
        return Swept(0, 0)
    positions = publish_late(state, waiting)
    _tidy(state, engine, positions)
    return Swept(rung, len(positions))


def last_sweep(state: State) -> datetime | None:
    """Return when the last sweep looked for forgotten runs, or None where Redis knows of none.

    :raises redis.RedisError: when Redis does not answer.
    """
    told = cast("bytes | None", state.redis.get(_mark(state)))
    return None if told is None else datetime.fromtimestamp(float(told), UTC)


def _mark(state: State) -> str:
    return f"{state.config.key_prefix}:swept"


def _forgotten(session: Session, interval: float) -> list[Run]:
    moment = now()
    queued = sa.and_(Run.status == "queued", Run.queued_at < moment - timedelta(seconds=interval))
    silent = sa.and_(Run.status.in_(HELD), Run.lease_until < moment)
    found = sa.select(Run).where(sa.or_(queued, silent)).order_by(Run.created_at)
    return [*session.scalars(found), *neglected(session, interval)]


def _tidy(state: State, engine: sa.Engine, positions: dict[str, str]) -> None:
    """Note what was published, and drop broadcasts that are too old to be replayed to any page."""
    expired = now() - timedelta(seconds=state.config.stream_ttl)
    with Session(engine) as session:
        settle(session, positions)
        session.execute(sa.delete(Outbox).where(Outbox.position.is_not(None), Outbox.created_at < expired))
        session.commit()
