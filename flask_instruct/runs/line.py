"""The line that a run waits in: the requests before it that it follows, and its place among them.

A conversation is one line, whatever it is about; the requests about a record outside of any conversation are another.
Other records have lines of their own, and a free worker may take a run whatever its place: a place says how many
requests of the line have not ended, and promises no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session

from .models import BUSY
from .models import HELD
from .models import Run

MOST_TOLD = 100
"""Runs of one line whose places are told as one before them ends."""

AnySession = Session | scoped_session[Any]


def place_of(session: AnySession, run: Run) -> int:
    """Return the place of a queued run, from 1: it is the next then."""
    before: sa.ColumnElement[bool]
    if run.conversation is not None:
        # In the order in which they get their turn: see ``turns``.
        before = sa.or_(Run.status.in_(BUSY), sa.and_(Run.status == "queued", Run.id < run.id))
    else:
        earlier = sa.tuple_(Run.queued_at, Run.id) < sa.tuple_(sa.literal(run.queued_at, Run.queued_at.type), run.id)
        before = sa.and_(Run.status.in_(("queued", *HELD)), earlier)
    counted = sa.select(sa.func.count(Run.id)).where(_line_of(run), Run.id != run.id, before)
    return 1 + (session.scalar(counted) or 0)


def queued_beside(session: AnySession, run: Run) -> Sequence[Run]:
    """Return the queued runs of a run's line, without itself: those whose places may change with it."""
    query = sa.select(Run).where(_line_of(run), Run.status == "queued", Run.id != run.id)
    return session.scalars(query.order_by(Run.queued_at, Run.id).limit(MOST_TOLD)).all()


def _line_of(run: Run) -> sa.ColumnElement[bool]:
    if run.conversation is not None:
        return Run.conversation == run.conversation
    return sa.and_(Run.handler == run.handler, Run.conversation.is_(None))
