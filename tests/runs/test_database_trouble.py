"""A database that hangs up, or that a stopped worker keeps waiting: the run waits too, and nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs import bounds
from flask_instruct.runs.claim import claim
from flask_instruct.runs.columns import now
from flask_instruct.runs.interruption import Interrupted
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.unit import ledger_engine
from tests.support import Process
from tests.support import alive
from tests.support import wait_for

from .conftest import ROOT
from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import db
from .notebook import instruct
from .troubled import Troubled
from .troubled import hang_up_on

Ask = Callable[..., Run]
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture
def ask(app: Flask) -> Ask:
    """Start a run that calls one tool, then writes a note."""

    def ask(tool: str, **arguments: Any) -> Run:
        record = db.session.scalars(sa.select(Notebook)).one()
        asked = json.dumps([tool, arguments])
        run = instruct.generate_for(Troubled(record), user_prompt=asked, model="scripted:troubled")
        db.session.refresh(run)
        db.session.expunge(run)
        return run

    return ask


def resume(run: Run) -> Run:
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).where(Run.id == run.id).values(lease_until=now()))
    generate(run.id)
    return reread(run)


def calls(run: Run) -> list[tuple[str, str | None]]:
    return [(call.status, call.error_kind) for call in reread(run).calls]


# -- the database hangs up ---------------------------------------------------------------------------------------------


@pytest.fixture
def hang_up_at(app: Flask) -> Iterator[Callable[[str, int], list[int]]]:
    """Have PostgreSQL close the connection on which the nth statement of a kind is about to run; gives whose."""
    struck: list[int] = []
    seen = 0
    wanted: list[tuple[str, int]] = []

    def strike(connection: sa.Connection, _: Any, statement: str, *rest: Any) -> None:
        nonlocal seen
        if struck or not wanted or wanted[0][0] not in statement:
            return
        seen += 1
        if seen == wanted[0][1]:
            pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
            struck.append(pid)
            hang_up_on(pid)

    def hang_up_at(statement: str, nth: int) -> list[int]:
        wanted.append((statement, nth))
        return struck

    sa.event.listen(db.engine, "before_cursor_execute", strike)
    yield hang_up_at
    sa.event.remove(db.engine, "before_cursor_execute", strike)


@on_postgresql
@pytest.mark.parametrize("nth", [2, 3, 4])
def test_g4_a_connection_that_is_lost_as_the_record_of_a_call_is_read_is_no_failure_of_the_tool(
    app: Flask, ask: Ask, hang_up_at: Callable[[str, int], list[int]], nth: int
) -> None:
    """A hiccup while the record is loaded: the run waits, and the model hears nothing of it (rails#57742).

    The notebook is read as the run begins, for each of two tools, and for the end.
    """
    run = ask("write", text="first")
    struck = hang_up_at("FROM notebook", nth)
    generate(run.id)
    assert struck
    assert reread(run).status == "running"
    assert resume(run).status == "succeeded"
    assert calls(run) == [("done", None), ("done", None)]
    assert notes() == ["first", "after", "finished: stop"]


@on_postgresql
def test_g1_a_connection_that_is_lost_before_the_savepoint_of_a_tool_is_none_either(
    app: Flask, ask: Ask, hang_up_at: Callable[[str, int], list[int]]
) -> None:
    run = ask("write", text="first")
    struck = hang_up_at("FOR UPDATE", 1)
    generate(run.id)
    assert struck
    assert calls(run) == [("running", None)]
    assert resume(run).status == "succeeded"
    assert notes() == ["first", "after", "finished: stop"]


@on_postgresql
@pytest.mark.parametrize("swallow", [False, True])
def test_g1_a_connection_that_is_lost_in_a_tool_lets_it_run_again(
    app: Flask, ask: Ask, tmp_path: Path, swallow: bool
) -> None:
    """Nothing of it was kept, whatever the tool makes of the error, so that its second run is the first that counts."""
    run = ask("lose_connection", flag=str(tmp_path / "flag"), swallow=swallow)
    generate(run.id)
    assert (reread(run).status, calls(run), notes()) == ("running", [("running", None)], [])
    assert resume(run).status == "succeeded"
    assert calls(run) == [("done", None), ("done", None)]
    assert notes() == ["kept", "after", "finished: stop"]


def test_an_error_that_a_tool_raises_itself_stays_its_failure(app: Flask, ask: Ask) -> None:
    run = ask("fail_by_itself")
    generate(run.id)
    assert reread(run).status == "succeeded"
    assert calls(run) == [("failed", "exception"), ("done", None)]
    assert "never" not in notes()


# -- a worker is stopped in the middle of a tool -----------------------------------------------------------------------


@pytest.fixture
def worker(start: Callable[..., Process], settings: dict[str, str]) -> Callable[..., Process]:
    def worker(**env: str) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "tests.runs.troubled", "instruct", "worker"]
        return start(command, env={**settings, **env}, cwd=ROOT)

    return worker


@on_postgresql
def test_g4_a_worker_that_is_stopped_in_a_tool_for_good_does_not_keep_the_run(
    app: Flask, ask: Ask, worker: Callable[..., Process], tmp_path: Path
) -> None:
    """The server ends its transaction, so that another takes the run up; woken, the first commits nothing."""
    run = ask("be_stopped", folder=str(tmp_path))
    worker(INSTRUCT_TEST_MARGIN="1")
    begun = tmp_path / "begun"
    asleep = int(wait_for(lambda: begun.exists() and begun.read_text(), 30, "the tool to begin"))
    os.kill(asleep, signal.SIGSTOP)
    worker(INSTRUCT_TEST_MARGIN="1")
    ended = wait_for_end(run, 40)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 2, 1)
    assert alive(asleep)
    assert notes() == ["held", "after", "finished: stop"]
    (tmp_path / "go on").touch()
    os.kill(asleep, signal.SIGCONT)
    wait_for(lambda: not alive(asleep), message="the first to give up")
    assert (reread(run).attempt, calls(run)) == (2, [("done", None), ("done", None)])
    assert notes() == ["held", "after", "finished: stop"]


@on_postgresql
def test_g4_a_run_whose_row_is_held_is_not_waited_for_for_ever(
    app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "LOCK_WAIT", 0.2)
    run = ask("write", text="first")
    with db.engine.begin() as stopped:
        stopped.execute(sa.select(Run).where(Run.id == run.id).with_for_update())
        with pytest.raises(Interrupted, match=f"Run {run.id} could not be taken now .LockNotAvailable"):
            claim(app.extensions["instruct"], ledger_engine(db), run.id)
        generate(run.id)
    assert "the sweep rings for it again" in caplog.text
    assert (reread(run).status, reread(run).attempt) == ("queued", 0)
    generate(run.id)
    assert reread(run).status == "succeeded"


@on_postgresql
def test_g4_a_step_of_a_run_whose_row_is_held_leaves_it_for_a_resume(
    app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOCK_WAIT", 0.2)
    run = ask("write", text="first")
    held = db.engine.connect()
    holding = held.begin()

    def hold(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if "INSERT INTO note " in statement and not held.info.get("held"):
            held.info["held"] = True
            held.execute(sa.select(Run).where(Run.id == run.id).with_for_update())

    sa.event.listen(db.engine, "after_cursor_execute", hold)
    try:
        generate(run.id)
    finally:
        sa.event.remove(db.engine, "after_cursor_execute", hold)
        holding.rollback()
        held.close()
    assert (reread(run).status, calls(run), notes()) == ("running", [("running", None)], [])
    assert resume(run).status == "succeeded"
    assert notes() == ["first", "after", "finished: stop"]


NAMES = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


def settings_of(connection: sa.Connection) -> list[str]:
    return [connection.scalar(sa.text(f"SELECT current_setting('{name}')")) or "" for name in NAMES]


@on_postgresql
def test_bounds_hold_for_the_transaction_alone_and_never_loosen_the_apps_own(app: Flask) -> None:
    with db.engine.connect() as connection:
        with connection.begin():
            bounds.bound_step(connection)
            assert settings_of(connection) == ["5s", "0", "2min"]
        assert settings_of(connection) == ["0", "0", "0"]
        connection.rollback()
        with connection.begin():
            connection.execute(sa.text("SET LOCAL statement_timeout = '700ms'"))
            bounds.bound_tool(connection, 10.5)
            assert settings_of(connection) == ["0", "700ms", "40500ms"]
            bounds.bound_step(connection)
            assert settings_of(connection) == ["5s", "700ms", "40500ms"]


def test_on_sqlite_there_is_nothing_to_bound(app: Flask) -> None:
    with db.engine.connect() as connection:
        bounds.bound_step(connection)
        assert connection.in_transaction() is (connection.dialect.name == "postgresql")
