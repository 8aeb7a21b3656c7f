"""Whatever stands in RQ's queue, a worker drops what is no job of ours, says so, and goes on with the same process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from flask import Flask
from rq.exceptions import DequeueTimeout
from rq.serializers import JSONSerializer

from flask_instruct.doctor import examine
from flask_instruct.runs import admission
from flask_instruct.runs.admission import RunQueue
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import ENTRY
from flask_instruct.runs.queue import RunJob
from flask_instruct.runs.queue import run_queue
from tests.support import Process
from tests.support import wait_for

from .conftest import wait_for_end

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

Ask = Callable[..., Run]
StartWorker = Callable[..., Process]

CALL = zlib.compress(json.dumps([ENTRY, None, ["no such run"], {}]).encode())


def call(*parts: Any) -> bytes:
    return zlib.compress(json.dumps(parts).encode())


IDS: list[bytes] = [b"\xff\xfe", b"", b"a b", b"a:b", b"x" * 100_000, b"\x00", b"*", "é".encode()]

JOBS: dict[str, dict[str, Any] | bytes] = {
    "text": b"text in the place of a job",
    "nothing": {"status": "queued"},
    "no-json": {"data": b"\x80\x04\x95 a pickle"},
    "bad-text": {"data": b"\xff\xff"},
    "short": {"data": call(ENTRY, None)},
    "number": {"data": call(7)},
    "object": {"data": zlib.compress(b'{"a": 1}')},
    "arguments": {"data": call(ENTRY, None, "abc", {})},
    "words": {"data": call(ENTRY, None, ["x"], ["y"])},
    "deep": {"data": zlib.compress(b"[" * 100_000)},
    "packed": {"data": zlib.compress(b" " * 50_000_000 + b"[]")},
    "large": {"data": CALL, "description": "x" * 300_000},
    "fields": {"data": CALL, **{f"field{number}": "1" for number in range(200)}},
    "status": {"data": CALL, "status": "asleep"},
    "times": {"data": CALL, "created_at": "yesterday"},
    "worker": {"data": CALL, "worker_name": b"\xff"},
    "timeout": {"data": CALL, "timeout": "soon"},
    "long": {"data": CALL, "timeout": str(10**30)},
    "lasting": {"data": CALL, "failure_ttl": str(10**30)},
    "elsewhere": {"data": CALL, "origin": "another-queue"},
    "retries": {"data": CALL, "retry_intervals": "[["},
}
"""Jobs that cannot be taken up."""


def put(queue: RunQueue, job_id: bytes, job: dict[str, Any] | bytes | None) -> None:
    key = b"rq:job:" + job_id
    if isinstance(job, dict):
        queue.connection.hset(key, mapping={"origin": queue.name, "status": "queued", "timeout": "-1", **job})
    elif job is not None:
        queue.connection.set(key, job)
    queue.connection.rpush(queue.key, job_id)


def workers_of(process: Process) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children()}


@pytest.fixture
def queue(app: Flask) -> RunQueue:
    return run_queue(app.extensions["instruct"])


def test_a_worker_drops_each_kind_of_garbage_and_its_process_lives_on(
    queue: RunQueue, ask: Ask, worker: StartWorker
) -> None:
    process = worker()
    assert wait_for_end(ask("talk")).status == "succeeded"
    before = workers_of(process)
    for job_id in IDS:
        put(queue, job_id, None)
    for name, job in JOBS.items():
        put(queue, f"{queue.name}-{name}".encode(), job)
    put(queue, f"{queue.name}-gone".encode(), None)
    run = ask("write_two")
    assert wait_for_end(run, 40).status == "succeeded"
    assert workers_of(process) == before, process.output
    assert "unhandled exception" not in process.output
    dropped = [line for line in process.output.splitlines() if " was dropped, " in line]
    assert len(dropped) == len(IDS) + len(JOBS), process.output
    for name in JOBS:
        assert any(f"{queue.name}-{name}'" in line for line in dropped), name
    wait_for(lambda: not queue.intermediate_queue.get_job_ids(), message="the last job to be done")
    for name in JOBS:
        assert 0 < queue.connection.ttl(f"rq:job:{queue.name}-{name}") <= admission.KEPT


def test_what_a_worker_that_died_had_in_hand_is_tidied_too(queue: RunQueue, ask: Ask, worker: StartWorker) -> None:
    queue.connection.rpush(queue.intermediate_queue_key, *IDS)
    process = worker()
    assert wait_for_end(ask("talk")).status == "succeeded"
    wait_for(lambda: not queue.intermediate_queue.get_job_ids(), message="the last job to be done")
    assert "is started again" not in process.output


@pytest.mark.parametrize("registry", ["started_job_registry", "failed_job_registry", "finished_job_registry"])
def test_garbage_in_a_registry_of_rq_costs_no_worker(
    queue: RunQueue, ask: Ask, worker: StartWorker, registry: str
) -> None:
    queue.connection.zadd(getattr(queue, registry).key, {b"\xff": 1, b"": 2, b"a:b:c": 3})
    process = worker()
    assert wait_for_end(ask("talk")).status == "succeeded"
    assert "is started again" not in process.output
    assert "Traceback" not in process.output


def test_a_job_that_is_refused_as_it_runs_costs_no_worker(queue: RunQueue, ask: Ask, worker: StartWorker) -> None:
    """Well formed, and still nothing for us: another function, no arguments, too many, an argument of another kind."""
    process = worker()
    assert wait_for_end(ask("talk")).status == "succeeded"
    before = workers_of(process)
    calls = [("os.system", None, ["true"], {}), (ENTRY, None, [], {}), (ENTRY, None, ["a", "b"], {}), (7, 7, [7], {})]
    calls += [(ENTRY, None, [{"a": []}], {}), (ENTRY, None, [], {"run_id": "x"}), (ENTRY, None, ["x"], {"y": 1})]
    for number, parts in enumerate(calls):
        put(queue, f"{queue.name}-{number}".encode(), {"data": call(*parts)})
    assert wait_for_end(ask("talk"), 40).status == "succeeded"
    assert workers_of(process) == before, process.output


def test_much_garbage_lets_the_worker_show_that_it_is_alive(queue: RunQueue) -> None:
    for number in range(admission.AT_ONCE + 1):
        queue.connection.rpush(queue.key, f"\xff {number}".encode("latin-1"))
    with pytest.raises(DequeueTimeout):
        RunQueue.dequeue_any([queue], 1, queue.connection, job_class=RunJob, serializer=JSONSerializer)
    assert queue.count == 1


def test_the_doctor_can_look_at_a_queue_with_garbage(app: Flask, queue: RunQueue) -> None:
    queue.connection.rpush(queue.key, b"\xff")
    (found,) = [finding for finding in examine(lambda: app) if finding.check == "neighbours"]
    assert (found.level, "for runs that are not in this database: 1" in found.sentence) == ("error", True)
