"""The board app over a database file, with real Redis, and runs carried out in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page

from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.testing import LivePage
from tests.support import Process

from .board import Board
from .board import create_app
from .board import db
from .pages import Open

ROOT = Path(__file__).parents[2]


@pytest.fixture
def board_database(request: pytest.FixtureRequest) -> str:
    """URL of the app's database; a test parametrises this with ``sqlite`` and ``postgresql`` to run over both."""
    kind = getattr(request, "param", "sqlite")
    url: str = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_database")
    return url


@pytest.fixture
def settings() -> dict[str, Any]:
    """Further settings of the app; a test parametrises this with its own."""
    return {}


@pytest.fixture
def app(board_database: str, redis_url: str, key_prefix: str, settings: dict[str, Any]) -> Iterator[Flask]:
    """The app with two boards; no context is pushed, so that each request has its own."""
    app = create_app(board_database, redis_url, key_prefix, **settings)
    with app.app_context():
        db.create_all()
        db.session.add_all([Board(), Board()])
        db.session.commit()
    yield app
    with app.app_context():
        state = app.extensions["instruct"]
        state.live.close()
        state.redis.close()
        ledger_engine(db).dispose()
        for engine in db.engines.values():
            engine.dispose()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """Ada's browser without a screen."""
    client = app.test_client()
    client.get("/as/Ada")
    return client


@pytest.fixture
def lead(app: Flask) -> FlaskClient:
    """The browser without a screen of somebody who may approve."""
    client = app.test_client()
    client.get("/as/Lead Lea")
    return client


@pytest.fixture
def work(app: Flask) -> Callable[[], list[str]]:
    """Carry out every queued run, as the worker's job does; gives their ids."""

    def work() -> list[str]:
        with app.app_context():
            ids = list(db.session.scalars(sa.select(Run.id).where(Run.status == "queued").order_by(Run.id)))
            db.session.remove()
        for run_id in ids:
            with app.app_context():
                generate(run_id)
        return ids

    return work


@pytest.fixture
def worker(
    board_database: str,
    redis_url: str,
    key_prefix: str,
    settings: dict[str, Any],
    start: Callable[..., Process],
) -> Callable[[], Process]:
    """Start a worker process, as people have it."""
    app = {"database_url": board_database, "redis_url": redis_url, "key_prefix": key_prefix, **settings}
    command = [sys.executable, "-m", "flask", "--app", "tests.panel.board:from_environment()", "instruct", "worker"]
    return lambda: start(command, env={"BOARD": json.dumps(app)}, cwd=ROOT)


@pytest.fixture
def work_aside(work: Callable[[], list[str]]) -> Iterator[Callable[[], Thread]]:
    """Carry out every queued run in a thread, beside the test; it has ended after the test."""
    threads: list[Thread] = []

    def work_aside() -> Thread:
        threads.append(Thread(target=work))
        threads[-1].start()
        return threads[-1]

    yield work_aside
    for thread in threads:
        thread.join(30)


@pytest.fixture
def runs(app: Flask) -> Callable[[], list[Run]]:
    """Read all runs as they stand in the database, oldest first, with what belongs to them."""

    def runs() -> list[Run]:
        with app.app_context():
            found = list(db.session.scalars(sa.select(Run).order_by(Run.created_at, Run.id)))
            for run in found:
                _ = run.messages, run.calls
            db.session.expunge_all()
            return found

    return runs


@pytest.fixture
def site(app: Flask, serve: Callable[..., str]) -> str:
    """Address of the served app."""
    return serve(app)


@pytest.fixture
def enter(site: str, new_page: Callable[..., Page]) -> Open:
    """Open the board as someone, and wait until the page is live."""

    def enter(name: str = "Ada", *, live: bool = True, **options: Any) -> Page:
        page = new_page(**options)
        page.goto(f"{site}/as/{name}")
        if live:
            LivePage(page).wait_connected()
        return page

    return enter
