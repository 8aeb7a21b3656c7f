"""A worker that was told to stop stops, also where the exception that RQ raises in its signal handler is swallowed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from redis import Redis
from rq import Queue
from rq.exceptions import StopRequested

from flask_instruct.runs.worker import RunWorker


@pytest.fixture
def worker(redis_url: str, key_prefix: str) -> Iterator[RunWorker]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with Redis.from_url(redis_url, protocol=2) as connection:
        yield RunWorker([Queue(key_prefix, connection=connection)], connection=connection)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_an_idle_worker_remembers_a_swallowed_stop(worker: RunWorker) -> None:
    worker.set_state("idle")
    with pytest.raises(StopRequested):
        worker.request_stop(signal.SIGTERM, None)  # type: ignore[no-untyped-call]
    with pytest.raises(StopRequested):
        worker.heartbeat()


def test_a_busy_worker_finishes_what_it_has_in_hand_first(worker: RunWorker) -> None:
    worker.set_state("busy")
    worker.request_stop(signal.SIGTERM, None)  # type: ignore[no-untyped-call]
    worker.heartbeat()
    worker.set_state("idle")
    with pytest.raises(StopRequested):
        worker.heartbeat()
