"""Stop code that runs too long, in the main thread, without disturbing an alarm that was set outside.

Elsewhere than in the main thread, and where there is no interval timer, nothing is interrupted.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .errors import ToolTimeout

INSISTENCE = 5.0
"""Seconds after which code that swallowed the interruption is interrupted again."""

_TICK = 0.001
"""Seconds by which an alarm may come early or be late; a timer set to 0 would never strike."""


@dataclass
class Deadline:
    """A limit of seconds, and how the code under it fared.

    :param passed: whether the limit was met, also where the code swallowed the interruption.
    :param outer: what the alarm set outside raised meanwhile; not the code's own failure.
    """

    seconds: float
    passed: bool = False
    outer: BaseException | None = None


@contextmanager
def deadline(limit: Deadline) -> Iterator[None]:
    """Raise :class:`ToolTimeout` inside the block when it runs longer than the limit.

    An interval timer that was running before, such as a job's own timeout, still strikes when it is due, and runs on
    afterwards with what remains of it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    alarm = _Alarm(limit)
    try:
        alarm.start()
        try:
            yield
        finally:
            alarm.armed = False
    finally:  # reached even when the alarm strikes before the line above
        alarm.stop()


class _Alarm:
    def __init__(self, limit: Deadline) -> None:
        self.limit = limit
        self.armed = True
        self.started = time.monotonic()
        self.outer_handler: Any = signal.getsignal(signal.SIGALRM)
        self.outer_delay, self.outer_interval = signal.getitimer(signal.ITIMER_REAL)
        self.outer_waits = self.outer_delay > 0
        # The system's own action for an alarm is left until the block has ended.
        self.outer_strikes = self.outer_waits and callable(self.outer_handler)

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self._strike)
        self._wait()

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.outer_handler)
        if self.outer_waits:
            remaining = max(self.outer_delay - self._elapsed(), _TICK)
            signal.setitimer(signal.ITIMER_REAL, remaining, self.outer_interval)

    def _wait(self) -> None:
        due = min(self.limit.seconds, self.outer_delay) if self.outer_strikes else self.limit.seconds
        signal.setitimer(signal.ITIMER_REAL, max(due - self._elapsed(), _TICK), INSISTENCE)

    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def _strike(self, signum: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        if self.outer_strikes and self._elapsed() >= self.outer_delay - _TICK:
            self._strike_for_outer(signum, frame)
        if self._elapsed() >= self.limit.seconds - _TICK:
            self.limit.passed = True
            raise ToolTimeout(f"the limit of {self.limit.seconds:g} seconds was met")
        self._wait()

    def _strike_for_outer(self, signum: int, frame: FrameType | None) -> None:
        self.outer_waits = self.outer_strikes = self.outer_interval > 0
        self.outer_delay = self._elapsed() + self.outer_interval
        self._wait()
        try:
            self.outer_handler(signum, frame)
        except BaseException as exception:
            self.limit.outer = exception
            raise
