"""What a tool commits beside its transaction is outside of "exactly once": it is seen, and said."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.strays import KEPT
from tests.support import Process

from . import strayed
from .conftest import ROOT
from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import db
from .notebook import instruct
from .strayed import Strayer

Ask = Callable[..., Run]
WARNED = "Tool stray committed edits through a connection of its own"
LOCKED_OUT = "Tool stray could not write through a connection of its own"
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def ask(app: Flask) -> Ask:
    def ask(way: str, *, refuse: bool = False) -> Run:
        record = db.session.scalars(sa.select(Notebook)).one()
        asked = json.dumps([way, refuse])
        run = instruct.generate_for(Strayer(record), user_prompt=asked, model="scripted:strayed")
        db.session.refresh(run)
        db.session.expunge(run)
        return run

    return ask


@pytest.fixture
def stray(ask: Ask) -> Ask:
    """The same, carried out in this process."""

    def stray(way: str, *, refuse: bool = False) -> Run:
        run = ask(way, refuse=refuse)
        generate(run.id)
        return reread(run)

    return stray


@on_postgresql
@pytest.mark.parametrize("way", ["engine", "text", "session", "own engine"])
def test_a_commit_beside_the_transaction_is_warned_of(stray: Ask, caplog: pytest.LogCaptureFixture, way: str) -> None:
    run = stray(way)
    assert f"{WARNED}, in thread MainThread" in caplog.text
    assert (run.calls[0].status, run.calls[0].result) == ("done", "Written.")
    assert sorted(notes()) == ["finished: stop", "own", "stray"]


@on_postgresql
def test_where_the_call_fails_the_model_is_told_that_something_stays(stray: Ask) -> None:
    run = stray("engine", refuse=True)
    assert run.calls[0].result == f"Not today. {KEPT}"
    assert [text for text in notes() if text in ("own", "stray")] == ["stray"]


@pytest.mark.parametrize("way", ["reading", "giving up"])
def test_what_commits_no_edit_is_no_stray(
    stray: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if db.engine.dialect.name == "sqlite":  # its write waits for the lock, and only then can be given up
        monkeypatch.setitem(strayed.WAYS, "giving up", strayed.by_reading)
    run = stray(way, refuse=True)
    assert "of its own" not in caplog.text
    assert run.calls[0].result == "Not today."


@on_sqlite
def test_on_sqlite_it_cannot_write_at_all_and_the_log_says_why(
    app: Flask, stray: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    sa.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout = 100"))
    db.engine.dispose()
    run = stray("engine")
    assert f"{LOCKED_OUT}, in thread MainThread: SQLite has one writer" in caplog.text
    assert (run.calls[0].status, run.calls[0].error_kind) == ("failed", "exception")
    assert KEPT not in (run.calls[0].result or "")
    assert "stray" not in notes()


@on_postgresql
def test_a_commit_of_somebody_elses_thread_is_not_the_tools(
    app: Flask, stray: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a job other threads of the process serve other people."""

    def in_context() -> None:
        with app.app_context():
            strayed.by_engine()

    def elsewhere() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(in_context).result()

    monkeypatch.setitem(strayed.WAYS, "engine", elsewhere)
    stray("engine")
    assert "stray" in notes()
    assert WARNED not in caplog.text


@pytest.mark.parametrize("database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.chaos)], indirect=True)
def test_a_worker_sees_what_a_thread_of_a_tool_commits(
    app: Flask, ask: Ask, start: Callable[..., Process], settings: dict[str, str]
) -> None:
    """A thread with a session of its own is outside the guarantee, and detected where it can be."""
    run = ask("thread", refuse=True)
    command = [sys.executable, "-m", "flask", "--app", "tests.runs.strayed", "instruct", "worker"]
    process = start(command, env=settings, cwd=ROOT)
    ended = wait_for_end(run, 40)
    if db.engine.dialect.name == "postgresql":
        process.wait_for_output(f"{WARNED}, in thread helper")
        assert ended.calls[0].result == f"Not today. {KEPT}"
        assert "stray" in notes()
    else:
        process.wait_for_output(f"{LOCKED_OUT}, in thread helper")
        assert ended.calls[0].result == "Not today."
        assert "stray" not in notes()
    assert "own" not in notes()
