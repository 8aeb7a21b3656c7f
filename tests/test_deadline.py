"""Code that runs too long is stopped in the main thread, and an alarm that was set outside is not disturbed."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from flask_instruct.deadline import Deadline
from flask_instruct.deadline import deadline
from flask_instruct.errors import ToolTimeout


class JobTimeout(Exception):
    """As RQ's: an ordinary exception."""


@pytest.fixture
def outer_alarm() -> Iterator[None]:
    """A job's own timeout handler, as a worker installs it."""

    def strike(signum: int, frame: FrameType | None) -> None:
        raise JobTimeout

    before = signal.signal(signal.SIGALRM, strike)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_block_that_runs_too_long_is_stopped() -> None:
    limit = Deadline(0.05)
    with pytest.raises(ToolTimeout, match=r"0\.05 seconds"), deadline(limit):
        busy(10)
    assert limit.passed
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_block_that_ends_in_time_leaves_no_trace() -> None:
    before = signal.getsignal(signal.SIGALRM)
    limit = Deadline(10)
    with deadline(limit):
        assert signal.getsignal(signal.SIGALRM) != before
    assert not limit.passed
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_broad_except_does_not_swallow_the_interruption() -> None:
    with pytest.raises(ToolTimeout), deadline(Deadline(0.05)), contextlib.suppress(Exception):
        busy(10)


def test_a_bare_except_is_seen_through() -> None:
    limit = Deadline(0.05)
    with deadline(limit), contextlib.suppress(BaseException):
        busy(10)
    assert limit.passed


def test_code_that_swallows_the_interruption_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_instruct.deadline.INSISTENCE", 0.05)

    def stubborn() -> None:
        with contextlib.suppress(BaseException):
            busy(10)
        busy(10)

    with pytest.raises(ToolTimeout), deadline(Deadline(0.05)):
        stubborn()


@pytest.mark.usefixtures("outer_alarm")
def test_an_outer_alarm_runs_on_with_what_remains() -> None:
    signal.setitimer(signal.ITIMER_REAL, 30)
    outer = signal.getsignal(signal.SIGALRM)
    with pytest.raises(ToolTimeout), deadline(Deadline(0.2)):
        busy(10)
    assert signal.getsignal(signal.SIGALRM) is outer
    assert 20 < signal.getitimer(signal.ITIMER_REAL)[0] <= 29.85


@pytest.mark.usefixtures("outer_alarm")
def test_an_outer_alarm_strikes_when_it_is_due() -> None:
    limit = Deadline(10)

    def work() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with deadline(limit):
            busy(10)

    with pytest.raises(JobTimeout):
        work()
    assert isinstance(limit.outer, JobTimeout)
    assert not limit.passed
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.usefixtures("outer_alarm")
def test_an_outer_alarm_that_came_due_but_did_not_strike_does_so_afterwards() -> None:
    limit = Deadline(10)

    def work() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with deadline(limit):
            signal.setitimer(signal.ITIMER_REAL, 0)
            busy(0.3)
        busy(10)

    with pytest.raises(JobTimeout):
        work()
    assert limit.outer is None


@pytest.mark.usefixtures("outer_alarm")
def test_a_repeating_outer_alarm_goes_on() -> None:
    struck: list[float] = []
    signal.signal(signal.SIGALRM, lambda signum, frame: struck.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    with deadline(Deadline(30)):
        while len(struck) < 3:
            busy(0.01)
    while len(struck) < 5:
        busy(0.01)


@pytest.mark.usefixtures("outer_alarm")
def test_an_outer_alarm_that_is_ignored_disturbs_nothing() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(ToolTimeout, match=r"0\.2 seconds"), deadline(Deadline(0.2)):
        busy(10)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_deadlines_nest() -> None:
    outer, inner = Deadline(0.05), Deadline(10)
    with pytest.raises(ToolTimeout, match=r"0\.05"), deadline(outer), deadline(inner):
        busy(10)
    assert outer.passed
    assert not inner.passed
    with deadline(Deadline(10)), pytest.raises(ToolTimeout, match=r"0\.05"), deadline(Deadline(0.05)):
        busy(10)


def test_nothing_is_interrupted_in_another_thread() -> None:
    limit = Deadline(0.01)
    ended: list[bool] = []

    def work() -> None:
        with deadline(limit):
            busy(0.1)
        ended.append(limit.passed)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [False]
