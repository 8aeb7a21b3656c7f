"""What a worker does when the process that carried out a run is dead: it alone knows that, how, and at once."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

import sqlalchemy as sa

from .again import lose
from .grace import Hold
from .grace import give_back
from .models import HELD
from .models import Run
from .unit import ledger_engine

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")


def mourn(state: State, run_id: str, hold: Hold, status: int | None, *, given_back: bool) -> None:
    """Say how a work-horse died, and what becomes of what it held.

    :param status: as ``os.wait`` gives it.
    :param given_back: it was killed because its worker ends: the run goes back to the queue, and that is no death.
    """
    engine = ledger_engine(state.db)
    try:
        if hold.effect is not None:
            lose(state, engine, *hold.effect)
        if not hold.attempt:
            return
        if given_back:
            give_back(state, engine, run_id, hold.attempt)
        else:
            _note(engine, run_id, hold.attempt, cause_of(status))
    except sa.exc.SQLAlchemyError as error:
        told = "What the dead process of run %s held waits for the end of its lease: %s"
        logger.warning(told, run_id, error, extra={"run_id": run_id})
    finally:
        # This process forks: no child may inherit an open connection.
        for each in (engine, *state.db.engines.values()):
            each.dispose()


def cause_of(status: int | None) -> str:
    """Say of what a process died, such as ``signal 9 (SIGKILL)``."""
    if status is None:
        return "an unknown cause"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"signal {number} ({signal.Signals(number).name})"
    return f"exit status {os.waitstatus_to_exitcode(status)}"


def _note(engine: sa.Engine, run_id: str, attempt: int, cause: str) -> None:
    """Keep the cause in the run's row, for whoever has to find out why its workers die (rq/rq#1966)."""
    told = f"the process of attempt {attempt} died of {cause}."
    with engine.begin() as connection:
        connection.execute(
            sa.update(Run)
            .where(Run.id == run_id, Run.attempt == attempt, Run.status.in_(HELD))
            .values(error_technical=told)
            .execution_options(synchronize_session=False)
        )
    logger.warning("Run %s: %s It is resumed when its lease has run out.", run_id, told, extra={"run_id": run_id})
