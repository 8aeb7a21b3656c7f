"""What a request that waits says: its place, or that no worker is running; and how pages learn the latter.

Nothing happens on the server while nobody works, so a page asks when it has waited for long enough, and all pages that
follow are told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING

from flask import current_app
from flask import g
from flask import has_app_context
from redis.exceptions import RedisError
from sqlalchemy.orm import object_session

from ..errors import ConfigurationError
from ..runs.columns import now
from ..runs.crew import count_of_queue
from ..runs.line import place_of
from ..runs.models import Run

if TYPE_CHECKING:
    from ..state import State

COUNTED_FOR = 1.0
"""Seconds for which workers that were counted are not counted again: a page may show many runs that wait."""

TOLD_FOR = 2
"""Seconds for which pages that ask the same are not all answered: they were all told."""


_places: ContextVar[dict[str, int] | None] = ContextVar("instruct_places", default=None)


@contextmanager
def counting_once() -> Iterator[None]:
    """Ask for each run's place once in the block, in which nobody leaves a line: a run's card says it several times."""
    if _places.get() is not None:
        yield
        return
    token = _places.set({})
    try:
        yield
    finally:
        _places.reset(token)


def place(run: Run) -> int:
    """Return a queued run's place in its line, from 1."""
    session = object_session(run)
    if session is None or run not in session or run in session.new:
        return 1
    known = _places.get()
    if known is None:
        return place_of(session, run)
    if run.id not in known:
        known[run.id] = place_of(session, run)
    return known[run.id]


def patience() -> float:
    """Return the seconds that a request waits before its page says that no worker is running."""
    return _state().config.no_worker_notice


def is_unattended(run: Run) -> bool:
    """Tell whether a run has waited for so long while no worker is running; where Redis does not say, it has not."""
    if run.status != "queued" or not has_app_context():
        return False
    return now() - run.queued_at >= timedelta(seconds=patience()) and _workers() == 0


def is_news(run: Run, shown: bool) -> bool:
    """Tell whether pages have to be told, of which one shows that no worker is running, or does not."""
    truth = is_unattended(run)
    if run.status != "queued" or truth == shown:
        return False
    state = _state()
    mark = f"{state.config.key_prefix}:unattended:{run.id}:{int(truth)}"
    try:
        return bool(state.redis.set(mark, "1", nx=True, ex=TOLD_FOR))
    except RedisError:
        return False


def _workers() -> int | None:
    counted: tuple[float, int | None] | None = g.get("instruct_workers")
    moment = time.monotonic()
    if counted is None or moment - counted[0] > COUNTED_FOR:
        try:
            counted = moment, count_of_queue(_state())
        except (RedisError, ConfigurationError):
            counted = moment, None
        g.instruct_workers = counted
    return counted[1]


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
