"""What the first page says of queue and workers, with Redis there and with Redis away."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from flask.testing import FlaskClient
from redis.exceptions import ConnectionError as Unreachable
from rq import Worker

from flask_instruct.dashboard.condition import condition
from flask_instruct.runs.columns import now
from flask_instruct.runs.queue import ring
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.sweep import last_sweep
from flask_instruct.runs.sweep import sweep
from tests.panel.board import db

from .ledger import a_run


@pytest.fixture
def worker(app: Flask) -> Worker:
    """A worker that Redis knows of and that does nothing."""
    state = app.extensions["instruct"]
    worker = Worker([run_queue(state)], connection=state.redis, name=f"worker-{state.config.key_prefix}")
    worker.register_birth()
    return worker


@pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)
def test_it_counts_what_waits_works_asks_and_was_left(context: Flask, worker: Worker) -> None:
    moment = now()
    a_run("queued", at=moment - timedelta(seconds=90))
    a_run("queued")
    a_run("running", lease_until=moment + timedelta(seconds=50))
    a_run("retrying", lease_until=moment - timedelta(seconds=50))
    a_run("waiting_approval")
    a_run("succeeded")
    found = condition(context.extensions["instruct"])
    assert (found.waiting, found.at_work, found.asking, found.interrupted) == (2, 1, 1, 1)
    assert found.waiting_since == moment - timedelta(seconds=90)
    assert [member.pid for member in found.workers] == [worker.pid]
    assert not found.well


def test_a_site_that_is_well_says_so(context: Flask, client: FlaskClient, worker: Worker) -> None:
    state = context.extensions["instruct"]
    assert last_sweep(state) is None
    sweep(state)
    found = condition(state)
    assert found.swept_at is not None
    assert now() - found.swept_at < timedelta(seconds=30)
    assert found.well
    assert "All is well." in client.get("/instruct/").text


def test_jobs_in_the_queue_are_counted(context: Flask) -> None:
    state = context.extensions["instruct"]
    run = a_run("queued")
    assert ring(state, run.id, run.attempt)
    assert condition(state).jobs == 1


def test_without_a_worker_or_a_sweep_it_says_what_to_do(context: Flask, client: FlaskClient, worker: Worker) -> None:
    assert "Nobody has looked for lost runs of late." in client.get("/instruct/").text
    worker.register_death()
    assert "No worker is there: runs wait." in client.get("/instruct/").text


def test_a_silent_worker_is_named(context: Flask, client: FlaskClient, worker: Worker) -> None:
    old = (now() - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    context.extensions["instruct"].redis.hset(worker.key, "last_heartbeat", old)
    assert f"The worker with pid {worker.pid}" in client.get("/instruct/").text


def test_with_redis_away_the_page_says_so_and_shows_the_rest(
    context: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run("queued")
    db.session.remove()

    def away(*arguments: object, **options: object) -> object:
        raise Unreachable("down")

    monkeypatch.setattr("redis.Redis.execute_command", away)
    page = client.get("/instruct/")
    assert page.status_code == 200
    assert "Redis cannot be reached" in page.text
    assert "Waiting for a worker" in page.text
