"""Deleting what is no longer needed: runs that ended long ago with all their rows, and broadcasts that went out.

An active run is never touched, however old it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from .columns import now
from .ledger import Ledger
from .models import ENDED
from .models import Effect
from .models import Outbox
from .models import Run

BATCH = 200
"""Rows of one transaction: a writer of SQLite waits for it, and a parameter of a statement is spent on each."""


UNDER_WAY = ("pending", "running")
"""Statuses of an effect that a worker has in hand, or will take."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many runs and broadcasts were deleted, or would be."""

    runs: int
    broadcasts: int


def prune(session: Session, older_than: timedelta, *, dry_run: bool = False, batch: int = BATCH) -> Pruned:
    """Delete the runs that ended longer ago than an age, and published broadcasts of that age; commit each batch.

    Messages, calls and model calls go with their run, so the sums of ``instruct.spending`` lose them too.

    :param dry_run: only count.
    """
    before = now() - older_than
    # A person may have asked for an effect to be carried out again, long after the run.
    at_work = sa.select(Effect.id).where(Effect.run_id == Run.id, Effect.status.in_(UNDER_WAY)).exists()
    old = (Run.status.in_(ENDED), Run.ended_at < before, ~at_work)
    sent = (Outbox.position.is_not(None), Outbox.created_at < before)
    if dry_run:
        return Pruned(_count(session, *old), _count(session, *sent))
    return Pruned(_prune_runs(session, old, batch), _prune_broadcasts(session, sent, batch))


def _count(session: Session, *conditions: sa.ColumnElement[bool]) -> int:
    return session.scalar(sa.select(sa.func.count()).where(*conditions)) or 0


def _prune_runs(session: Session, old: tuple[sa.ColumnElement[bool], ...], batch: int) -> int:
    """Delete runs first: what a person starts again in this moment is either gone or left whole."""
    total = 0
    while True:
        some = sa.select(Run.id).where(*old).order_by(Run.ended_at).limit(batch).scalar_subquery()
        gone = list(session.scalars(_quietly(sa.delete(Run).where(Run.id.in_(some), *old).returning(Run.id))))
        for column in _columns_of_a_run():
            # SQLite cascades only where the app has switched foreign keys on.
            session.execute(sa.delete(column.table).where(column.in_(gone)))
        session.commit()
        total += len(gone)
        if len(gone) < batch:
            return total


def _prune_broadcasts(session: Session, sent: tuple[sa.ColumnElement[bool], ...], batch: int) -> int:
    total = 0
    while True:
        some = sa.select(Outbox.seq).where(*sent).order_by(Outbox.seq).limit(batch).scalar_subquery()
        gone: sa.CursorResult[Any] = session.execute(  # type: ignore[assignment]
            _quietly(sa.delete(Outbox).where(Outbox.seq.in_(some)))
        )
        session.commit()
        total += gone.rowcount
        if gone.rowcount < batch:
            return total


def _quietly(statement: Any) -> Any:
    return statement.execution_options(synchronize_session=False)


def _columns_of_a_run() -> list[sa.Column[Any]]:
    """The columns by which rows belong to a run, those of rows that others point at last."""
    runs = Ledger.metadata.tables[Run.__tablename__]
    keys = (key for table in reversed(Ledger.metadata.sorted_tables) for key in table.foreign_keys if table is not runs)
    return [key.parent for key in keys if key.column.table is runs]
