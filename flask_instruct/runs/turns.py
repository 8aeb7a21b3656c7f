"""Whose turn it is: the runs of one conversation go one after the other, and one person has so many at a time.

A run that has to wait stays queued; whoever ends the one before rings for it, and the sweep does if that is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..config import Config
from .models import BUSY
from .models import HELD
from .models import Run
from .queue import ring
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State


def has_turn(unit: Unit, run: Run, config: Config) -> bool:
    """Tell whether a queued run may start: nothing before it in its conversation, and its actor's share not used up."""
    if run.conversation is not None and _is_behind(unit.ledger, run):
        return False
    return run.actor is None or config.runs_per_actor is None or _has_share(unit, run.actor, config.runs_per_actor)


def ring_for_next(state: State, unit: Unit, ended: Run) -> None:
    """Ring for the runs that waited for this one, after the commit of its end."""
    for run_id, attempt in list(_waiting_for(unit.ledger, ended, state.config)):
        unit.after_commit(partial(ring, state, run_id, attempt))


def waiting_for(session: Session, ended: Run, config: Config) -> list[tuple[str, int]]:
    """Return id and attempt of the runs that may start now that this one has ended."""
    return list(_waiting_for(session, ended, config))


def busy_in(session: Session, conversation: str) -> list[Run]:
    """Return the runs of a conversation that are at work or wait for it, oldest first."""
    query = sa.select(Run).where(Run.conversation == conversation, Run.status.in_(("queued", *BUSY)))
    return list(session.scalars(query.order_by(Run.id)))


def _is_behind(session: Session, run: Run) -> bool:
    before = sa.or_(Run.status.in_(BUSY), sa.and_(Run.status == "queued", Run.id < run.id))
    query = sa.select(Run.id).where(Run.conversation == run.conversation, Run.id != run.id, before)
    return session.scalar(query.limit(1)) is not None


def _has_share(unit: Unit, actor: str, most: int) -> bool:
    if unit.connection.dialect.name == "postgresql":
        # Two workers that count at the same time would both find room.
        unit.connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"instruct:{actor}"))))
    at_work = sa.select(sa.func.count(Run.id)).where(Run.actor == actor, Run.status.in_(HELD))
    return (unit.ledger.scalar(at_work) or 0) < most


def _waiting_for(session: Session, ended: Run, config: Config) -> Iterator[tuple[str, int]]:
    groups = []
    if ended.conversation is not None:
        groups.append(Run.conversation == ended.conversation)
    if ended.actor is not None and config.runs_per_actor is not None:
        groups.append(Run.actor == ended.actor)
    for group in groups:
        query = sa.select(Run.id, Run.attempt).where(Run.status == "queued", group).order_by(Run.id).limit(1)
        found = session.execute(query).first()
        if found is not None:
            yield found[0], found[1]
