"""``/instruct/health``: what a probe is told, in time, also when a server hangs."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from flask import Flask
from werkzeug.test import TestResponse

from flask_instruct import health
from flask_instruct.runs.ledger import Ledger

from .operating import notebook_site
from .runs.notebook import db
from .support import Process
from .support import wait_for

Open = Callable[..., Flask]


@pytest.fixture
def open_site(monkeypatch: pytest.MonkeyPatch, redis_url: str, key_prefix: str) -> Iterator[Open]:
    """Open the notebook app on a database, and on the given Redis or a real one."""
    with ExitStack() as stack:
        yield lambda database_url, redis=redis_url: stack.enter_context(
            notebook_site(
                monkeypatch,
                DATABASE_URL=database_url,
                INSTRUCT_REDIS_URL=redis,
                INSTRUCT_KEY_PREFIX=key_prefix,
                INSTRUCT_QUEUE=key_prefix,
            )
        )


def probe(app: Flask, path: str = "/instruct/health") -> TestResponse:
    return app.test_client().get(path)


def test_all_is_well_when_database_and_redis_answer(open_site: Open, database_url: str) -> None:
    answer = probe(open_site(database_url))
    assert (answer.status_code, answer.json) == (200, {"status": "ok", "database": "ok", "redis": "ok"})
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in answer.headers


def test_a_redis_that_is_gone_is_named_and_its_address_is_not(
    open_site: Open, sqlite_url: str, free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = probe(open_site(sqlite_url, redis=f"redis://:sesame@127.0.0.1:{free_port}/0"))
    assert answer.status_code == 503
    assert answer.json == {"status": "unavailable", "database": "ok", "redis": "failed"}
    assert "The health probe could not use the redis: ConnectionError" in caplog.text
    assert "sesame" not in caplog.text


def test_a_database_without_tables_is_named(open_site: Open, database_url: str) -> None:
    app = open_site(database_url)
    db.session.remove()
    Ledger.metadata.drop_all(db.engine)
    answer = probe(app)
    assert answer.status_code == 503
    assert answer.json == {"status": "unavailable", "database": "failed", "redis": "ok"}


def test_a_redis_that_hangs_is_not_waited_for(
    open_site: Open, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "IN_TIME", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = open_site(sqlite_url, redis=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        answer = probe(app)
        assert (answer.status_code, answer.json["database"], answer.json["redis"]) == (503, "ok", health.LATE)
        settled()


def test_a_database_that_hangs_is_asked_once_and_found_well_again(
    open_site: Open, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "IN_TIME", 0.2)
    app = open_site(postgres_database)
    with db.engine.begin() as connection:
        connection.execute(sa.text("LOCK TABLE instruct_run IN ACCESS EXCLUSIVE MODE"))
        answers = [probe(app) for _ in range(3)]
        asking = [thread for thread in threading.enumerate() if thread.name == "instruct-health-database"]
    assert [(answer.status_code, answer.json["database"]) for answer in answers] == [(503, health.LATE)] * 3
    assert len(asking) == 1
    settled()
    monkeypatch.setattr(health, "IN_TIME", 10.0)
    assert probe(app).status_code == 200


def test_without_a_worker_only_who_asks_for_workers_is_told(
    open_site: Open, sqlite_url: str, start: Callable[..., Process]
) -> None:
    app = open_site(sqlite_url)
    assert probe(app).status_code == 200
    answer = probe(app, "/instruct/health?workers=1")
    assert (answer.status_code, answer.json["status"], answer.json["workers"]) == (503, "unavailable", 0)
    worker = start([sys.executable, "-m", "flask", "--app", "tests.runs.notebook", "instruct", "worker"])
    wait_for(lambda: probe(app, "/instruct/health?workers=1").status_code == 200, timeout=30)
    assert probe(app, "/instruct/health?workers=1").json["workers"] == 1
    worker.stop()


def test_a_killed_worker_whose_heartbeat_has_run_out_does_not_count(open_site: Open, sqlite_url: str) -> None:
    app = open_site(sqlite_url)
    state = app.extensions["instruct"]
    # What SIGKILL leaves, once its key has expired.
    state.redis.sadd(f"rq:workers:{state.config.queue}", "rq:worker:killed")
    assert probe(app, "/instruct/health?workers=1").json["workers"] == 0


def test_the_route_follows_the_prefix(monkeypatch: pytest.MonkeyPatch, open_site: Open, sqlite_url: str) -> None:
    monkeypatch.setenv("INSTRUCT_URL_PREFIX", "/ai")
    app = open_site(sqlite_url)
    assert probe(app, "/ai/health").status_code == 200
    assert app.test_client().post("/ai/health").status_code == 405


def settled() -> None:
    """Wait until no probe is under way, so that the next test has none of this one's."""
    deadline = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name.startswith("instruct-health"):
            thread.join(max(0, deadline - time.monotonic()))
