"""How a worker that is told to end parks its run: the work-horse leaves it in time, or the worker takes it away.

Either way the run is queued again at once, and another worker takes it up without waiting for its lease to run out.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from functools import partial
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa

from .columns import now
from .models import HELD
from .models import Run
from .notices import Notices
from .queue import ring
from .unit import Unit
from .unit import unit_of_work

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

FOR_THE_MODEL = 0.8
"""Share of the grace after which no answer of a model is waited for; the rest is for a tool to come to its end."""

_ATTEMPT = struct.Struct("q")
_MOMENT = struct.Struct("d")
_EFFECT = struct.Struct("36sq")


class Hold:
    """Memory that a worker shares with the work-horses it forks: what they hold, and when they are to let go."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ATTEMPT.size + _MOMENT.size + _EFFECT.size)

    @property
    def attempt(self) -> int:
        """Number of the attempt that the work-horse has claimed; 0 before it has."""
        found: int = _ATTEMPT.unpack_from(self._memory)[0]
        return found

    @attempt.setter
    def attempt(self, attempt: int) -> None:
        _ATTEMPT.pack_into(self._memory, 0, attempt)

    @property
    def effect(self) -> tuple[str, int] | None:
        """Id and try of the effect that the work-horse runs again for a person, while it does."""
        effect_id, tries = _EFFECT.unpack_from(self._memory, _ATTEMPT.size + _MOMENT.size)
        return (effect_id.decode(), tries) if tries else None

    @effect.setter
    def effect(self, effect: tuple[str, int] | None) -> None:
        effect_id, tries = effect or ("", 0)
        _EFFECT.pack_into(self._memory, _ATTEMPT.size + _MOMENT.size, effect_id.encode(), tries)

    def forget(self) -> None:
        """Be about to hold something else."""
        self.attempt, self.effect = 0, None

    @property
    def left(self) -> float | None:
        """Seconds until the work-horse is to let go of its run, below 0 when it should have; None while it may stay."""
        # The clock is the machine's, the same in all processes.
        moment: float = _MOMENT.unpack_from(self._memory, _ATTEMPT.size)[0]
        return moment - time.monotonic() if moment else None

    def end_in(self, seconds: float) -> None:
        """Tell the work-horse when to let go."""
        _MOMENT.pack_into(self._memory, _ATTEMPT.size, time.monotonic() + seconds)


def give_back(state: State, engine: sa.Engine, run_id: str, attempt: int) -> bool:
    """Queue a run that this attempt held, and ring for it; False when the attempt no longer had it.

    What is half done is cleared by whoever takes the run up. It does not count as a death of its worker.
    """
    notices = Notices(state)
    try:
        with unit_of_work(engine) as unit:
            given = _queue(unit, run_id, attempt)
            run = unit.ledger.get(Run, run_id, populate_existing=True)
            if run is None or (run.status, run.attempt) != ("queued", attempt):
                return False
            if given:
                notices.tell(unit, "run_changed", run)
                notices.store(unit)
            # Also where it was queued before: whoever did that may have been killed before it could ring.
            unit.after_commit(partial(ring, state, run_id, attempt))
        notices.flush(engine)
    except sa.exc.SQLAlchemyError as error:
        told = "Run %s could not be given back and waits for the end of its lease: %s"
        logger.warning(told, run_id, error, extra={"run_id": run_id})
        return False
    logger.warning("Run %s was given back, its worker ends; another one takes it up", run_id, extra={"run_id": run_id})
    return True


def _queue(unit: Unit, run_id: str, attempt: int) -> bool:
    changed: sa.CursorResult[Any] = unit.connection.execute(
        sa.update(Run)
        .where(Run.id == run_id, Run.attempt == attempt, Run.status.in_(HELD))
        .values(status="queued", queued_at=now(), lease_until=None, retry_at=None)
        .execution_options(synchronize_session=False)
    )
    return changed.rowcount == 1
