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
    if run.conversation is not None:
        before = session.scalar(_IN_CONVERSATION, {"conversation": run.conversation, "run": run.id})
    else:
        about = {"handler": run.handler, "run": run.id, "queued_at": run.queued_at}
        before = session.scalar(_ABOUT_RECORD, about)
    return 1 + (before or 0)


def queued_beside(session: AnySession, run: Run) -> Sequence[Run]:
    """Return the queued runs of a run's line, without itself: those whose places may change with it."""
    query = sa.select(Run).where(_line_of(run), Run.status == "queued", Run.id != run.id)
    return session.scalars(query.order_by(Run.queued_at, Run.id).limit(MOST_TOLD)).all()


def _line_of(run: Run) -> sa.ColumnElement[bool]:
    if run.conversation is not None:
        return Run.conversation == run.conversation
    return sa.and_(Run.handler == run.handler, Run.conversation.is_(None))


def _counted(*conditions: sa.ColumnElement[bool]) -> sa.Select[int]:
    return sa.select(sa.func.count(Run.id)).where(*conditions)


_RUN: sa.BindParameter[str] = sa.bindparam("run")
_SINCE = sa.tuple_(sa.bindparam("queued_at", type_=Run.queued_at.type), _RUN)

# Made once: building them takes longer than asking them. In a conversation the order is that of turns: see ``turns``.
_IN_CONVERSATION = _counted(
    Run.conversation == sa.bindparam("conversation"),
    Run.id != _RUN,
    sa.or_(Run.status.in_(BUSY), sa.and_(Run.status == "queued", Run.id < _RUN)),
)
_ABOUT_RECORD = _counted(
    Run.handler == sa.bindparam("handler"),
    Run.conversation.is_(None),
    Run.id != _RUN,
    Run.status.in_(("queued", *HELD)),
    sa.tuple_(Run.queued_at, Run.id) < _SINCE,
)
