"""A thread beside a run in hand: it renews the run's lease, and tells the job when a person has stopped the run, its
time is over or its worker is to end.

A wait for the model is broken off by a signal to the main thread, which is where a worker's job runs. Anywhere else,
and between two waits, the job looks for itself.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

import sqlalchemy as sa
from redis.exceptions import RedisError

from ..errors import InstructError
from ..errors import Stopped
from .claim import renew_lease
from .columns import now
from .interruption import Interrupted
from .models import Run
from .stopping import stop_mark

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

WAKE: signal.Signals | None = getattr(signal, "SIGUSR1", None)
"""RQ has uses for the others: alarms for its time limits, TERM and INT to end. Windows has none to spare."""


class RunTimeout(InstructError):
    """Raise when a run has passed ``INSTRUCT_RUN_TIMEOUT`` seconds."""


class Parked(Interrupted):
    """Raised when the worker is to end and its grace is over: the run goes back to the queue."""


class Watch:
    """What one job knows of its run's lease and of a stop.

    :param ledger: the engine that the ledger is written with.
    :param reader: an engine for looking only; on SQLite the ledger's own would wait for the write lock.
    """

    def __init__(self, state: State, ledger: sa.Engine, reader: sa.Engine, run: Run) -> None:
        self._lease = state.config.lease
        self._interval = state.config.stop_interval
        self._state = state
        self._mark = stop_mark(state, run.id)
        self._ledger = ledger
        self._reader = reader
        self._run_id, self._attempt = run.id, run.attempt
        self._deadline = time.monotonic() + state.config.run_timeout
        self._timeout = state.config.run_timeout
        self._hold = state.hold
        if self._hold is not None:
            self._hold.attempt = run.attempt
        self._done = threading.Event()
        self._stopped = threading.Event()
        self._listening = False
        self._heard = True
        in_main = threading.current_thread() is threading.main_thread()
        self._signal = WAKE if in_main else None

    def checkpoint(self) -> None:
        """Raise when the run has been stopped, has taken too long, or must be left.

        :raises Stopped: when a person has stopped it.
        :raises RunTimeout: when it has passed ``INSTRUCT_RUN_TIMEOUT``.
        :raises Parked: when the worker is to end and ``INSTRUCT_GRACE`` is over.
        """
        if self._stopped.is_set():
            raise Stopped
        if time.monotonic() > self._deadline:
            raise RunTimeout(f"The run took longer than INSTRUCT_RUN_TIMEOUT, {self._timeout:g} s.")
        if self._is_to_be_left():
            raise Parked(f"The worker of run {self._run_id} is to end.")

    def look(self) -> None:
        """Do as :meth:`checkpoint`, and ask first whether a stop came since the thread has last asked.

        Of a list of quick tools several would be carried out between two looks of the thread.
        """
        # Not of a Redis that did not answer the thread: each tool would wait for it.
        if self._heard and self._is_marked():
            self._stopped.set()
        self.checkpoint()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let a stop, or the end of the run's or the worker's time, break off what the block waits for."""
        self._listening = True
        try:
            # A stop that came just before sent its signal too early.
            self.checkpoint()
            yield
        finally:
            self._listening = False

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let a stop wait for the end of the block, inside of :meth:`listening`: drivers do not like to be cut off."""
        listening, self._listening = self._listening, False
        try:
            yield
        finally:
            self._listening = listening

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Keep watch for the length of the block."""
        thread = threading.Thread(target=self._watch, name=f"instruct-watch-{self._run_id}", daemon=True)
        previous = signal.signal(self._signal, self._wake) if self._signal else None
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            if self._signal:
                signal.signal(self._signal, previous)

    def _wake(self, number: int, frame: FrameType | None) -> None:
        if self._listening:
            self._listening = False
            self.checkpoint()

    def _watch(self) -> None:
        beat = time.monotonic() + self._lease / 3
        while not self._done.wait(self._pause()):
            if not self._stopped.is_set() and self._is_stopped():
                self._stopped.set()
            over = self._stopped.is_set() or time.monotonic() > self._deadline or self._is_to_be_left()
            if over and self._listening and self._signal:
                signal.pthread_kill(threading.main_thread().ident or 0, self._signal)
            if time.monotonic() >= beat:
                beat = time.monotonic() + self._lease / 3
                if not self._renew():
                    return

    def _pause(self) -> float:
        pause = min(self._interval, self._lease / 3)
        left = self._hold.left if self._hold is not None else None
        return min(pause, left) if left is not None and left > 0 else pause

    def _is_to_be_left(self) -> bool:
        left = self._hold.left if self._hold is not None else None
        return left is not None and left <= 0

    def _is_stopped(self) -> bool:
        return self._is_marked() or self._is_written()

    def _is_marked(self) -> bool:
        try:
            marked = bool(self._state.redis.exists(self._mark))
            self._heard = True
            return marked
        except RedisError as error:
            self._heard = False
            logger.debug("Whether run %s was stopped could not be asked of Redis: %s", self._run_id, error)
            return False

    def _is_written(self) -> bool:
        try:
            with self._reader.connect() as connection:
                query = sa.select(Run.cancel_requested).where(Run.id == self._run_id)
                return bool(connection.scalar(query))
        except sa.exc.SQLAlchemyError as error:
            logger.debug("Whether run %s was stopped could not be read: %s", self._run_id, error)
            return False

    def _renew(self) -> bool:
        try:
            with self._ledger.begin() as connection:
                return renew_lease(connection, self._run_id, self._attempt, now() + timedelta(seconds=self._lease))
        except sa.exc.SQLAlchemyError as error:
            told = "The lease of run %s could not be renewed: %s"
            logger.warning(told, self._run_id, error, extra={"run_id": self._run_id})
            return True
