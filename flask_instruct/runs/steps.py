"""The ledger's transactions under one worker's lease: each begins or ends with the fence, so that a worker that has
lost its run commits nothing, and each sends its fragments after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import DataError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import SQLAlchemyError

from .claim import hold
from .claim import renew_lease
from .columns import now
from .interruption import Interrupted
from .models import Message
from .models import Run
from .models import ToolCall
from .notices import Notices
from .unit import Unit
from .unit import unit_of_work
from .watch import Watch

if TYPE_CHECKING:
    from ..state import State

REFUSED = (DataError, IntegrityError)
"""Answers of the database that it would give to the same words again; any other error may be gone at a resume."""


class LostLease(Interrupted):
    """Raised when another worker has taken the run: nothing of this step is committed."""


class Steps:
    """The transactions of one attempt at one run."""

    def __init__(self, state: State, engine: sa.Engine, run: Run, notices: Notices, watch: Watch) -> None:
        self._state = state
        self._engine = engine
        self._notices = notices
        self._actor = run.actor
        self.watch = watch
        self.run_id = run.id
        self.attempt = run.attempt
        self._run: Run | None = None
        self._seqs: dict[type[Message] | type[ToolCall], int] = {}

    @contextmanager
    def unit(self) -> Iterator[Unit]:
        """A transaction of the ledger. A database that fails is not the model's fault: the run waits for a resume.

        What the database refuses for what it says is raised as it is: a resume would only bring it the same again.
        """
        try:
            with unit_of_work(self._engine) as unit:
                unit.actor = self._actor
                yield unit
                self._notices.store(unit)
        except REFUSED:
            raise
        except SQLAlchemyError as error:
            raise Interrupted(f"The ledger of run {self.run_id} could not be written.") from error

    @contextmanager
    def step(self) -> Iterator[tuple[Unit, Run]]:
        """A transaction that begins with the fence."""
        with self.unit() as unit:
            yield unit, self.fence(unit)

    def fence(self, unit: Unit) -> Run:
        """Renew the lease; fail when the run is no longer ours.

        :raises LostLease: when another worker has taken the run or it has ended.
        """
        run, self._run = self._run or unit.ledger.get(Run, self.run_id), None
        if run is None or not hold(unit, run, self.attempt, self._lease_end()):
            raise self._lost()
        unit.after_commit(partial(self._keep, run))
        return run

    def _keep(self, run: Run) -> None:
        # Only of a step that was committed: after any other it may have what its row has not.
        self._run = run

    @contextmanager
    def brief_step(self) -> Iterator[Unit]:
        """A transaction that begins with the fence and has no need of the run's row."""
        with self.unit() as unit:
            if not renew_lease(unit.connection, self.run_id, self.attempt, self._lease_end()):
                raise self._lost()
            yield unit

    def _lost(self) -> LostLease:
        return LostLease(f"Run {self.run_id} was taken over; attempt {self.attempt} stops without a trace.")

    def next_seq(self, unit: Unit, table: type[Message] | type[ToolCall], count: int = 1) -> int:
        """Return the number of the first of the run's next ``count`` rows in a table."""
        if table not in self._seqs:
            last = unit.ledger.scalar(sa.select(sa.func.max(table.seq)).where(table.run_id == self.run_id))
            self._seqs[table] = last or 0
        # Counted on from there: nobody else adds any under our lease. What is rolled back leaves a gap.
        self._seqs[table] += count
        return self._seqs[table] - count + 1

    def forget_seq(self) -> None:
        """Look again for the next number: a row was taken back."""
        self._seqs.clear()

    def wait(self, seconds: float) -> None:
        """Wait under the lease, which its own thread renews, until a stop or the end of the run's time.

        :raises Stopped: when a person has stopped the run.
        :raises RunTimeout: when it may not take that long.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.watch.checkpoint()
            time.sleep(min(left, 0.25))

    def _lease_end(self) -> datetime:
        return now() + timedelta(seconds=self._state.config.lease)
