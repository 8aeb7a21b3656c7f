"""G3: a run is written with the caller's transaction and its job enqueued after the commit, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import g
from flask_sqlalchemy import SQLAlchemy

from flask_instruct import HandlerError
from flask_instruct import Instruct
from flask_instruct.adapters.scripted import Use
from flask_instruct.connections import connect
from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import RunEnded
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.sweep import sweep
from tests.support import wait_for

from .conftest import reread
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


def queued(app: Flask) -> list[str]:
    return [str(job_id) for job_id in run_queue(app.extensions["instruct"]).job_ids]


def test_it_returns_the_run_and_enqueues_one_job(app: Flask, ask: Ask) -> None:
    run = ask("talk")
    assert run.status == "queued"
    assert queued(app) == [f"{run.id}-0"]
    assert run.job is not None
    assert run.job.args == [run.id]
    assert "Go." not in run.job.description


def test_the_job_is_plain_json_without_the_prompt(app: Flask, ask: Ask) -> None:
    run = ask("talk")
    stored = app.extensions["instruct"].redis.hgetall(f"rq:job:{run.id}-0")
    assert b"Go." not in b"".join(stored.values())


def test_without_commit_it_waits_for_the_callers_commit(app: Flask, ask: Ask) -> None:
    run = ask("talk", commit=False)
    assert queued(app) == []
    db.session.commit()
    assert queued(app) == [f"{run.id}-0"]


def test_a_rolled_back_view_starts_no_run(app: Flask, ask: Ask) -> None:
    """What a request asked for before it rolled back is never carried out (rq/rq#327)."""
    ask("talk", commit=False)
    db.session.rollback()
    db.session.execute(sa.text("select 1"))
    db.session.commit()
    assert queued(app) == []
    assert db.session.scalar(sa.select(sa.func.count()).select_from(Run)) == 0


def test_a_rolled_back_savepoint_takes_its_run_with_it(app: Flask, ask: Ask) -> None:
    run = ask("talk", commit=False)
    savepoint = db.session.begin_nested()
    ask("talk", commit=False)
    savepoint.rollback()
    db.session.commit()
    assert queued(app) == [f"{run.id}-0"]


def test_a_run_started_by_a_tool_is_its_askers_and_starts_with_the_tools_commit(app: Flask, ask: Ask) -> None:
    run = ask(turns=[[Use("delegate"), Use("delegate", give_up=True)], []], actor=7)
    generate(run.id)
    [nested] = db.session.scalars(sa.select(Run).where(Run.id != run.id))
    assert (nested.status, nested.actor) == ("queued", "7")
    assert f"{nested.id}-0" in queued(app)


def test_a_record_without_a_key_is_flushed_with_the_run(app: Flask) -> None:
    record = Notebook(title="New")
    db.session.add(record)
    run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="scripted:talk")
    assert run.handler == f"instruct://NoteKeeper/{record.id}"


def test_a_record_outside_the_session_is_refused(app: Flask) -> None:
    with pytest.raises(HandlerError, match="flush"):
        instruct.generate_for(NoteKeeper(Notebook(title="Loose")), user_prompt="Go.")


def test_an_empty_prompt_and_a_foreign_handler_are_refused(app: Flask, ask: Ask) -> None:
    record = db.session.scalars(sa.select(Notebook)).one()
    with pytest.raises(ValueError, match="user_prompt"):
        instruct.generate_for(NoteKeeper(record), user_prompt="  ")
    foreign: Any = record
    with pytest.raises(HandlerError, match=r"This Notebook is no handler: give one .* NotebookEditor\(record\)"):
        instruct.generate_for(foreign, user_prompt="Go.")
    foreign = NoteKeeper
    with pytest.raises(HandlerError, match=r"NoteKeeper is a class, .* NoteKeeper\(record\)"):
        instruct.generate_for(foreign, user_prompt="Go.")


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_context_that_json_cannot_hold_is_refused_in_words(app: Flask, ask: Ask, value: object) -> None:
    with pytest.raises(ValueError, match="context must be data"):
        ask("talk", context={"value": value})


def test_redis_down_keeps_the_run_queued_and_the_sweep_rings_later(
    app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = app.extensions["instruct"]
    with monkeypatch.context() as patch:
        patch.setattr(state, "_redis", (os.getpid(), connect("redis://127.0.0.1:1")))
        run = ask("talk")
    assert run.status == "queued"
    assert queued(app) == []
    wait_for(lambda: sweep(state).runs, message="the sweep to ring")
    assert queued(app) == [f"{run.id}-0"]
    assert sweep(state).runs == 0


def test_a_run_that_no_worker_will_take_is_told_of(app: Flask, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    run = ask("talk")
    assert f"Run {run.id} waits: no worker is there. Start one: flask instruct worker" in caplog.messages


def test_a_run_of_another_apps_database_is_told_of(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    generate("01a22f2a-1607-7537-9e2d-d54d8b78aef2")
    (told,) = caplog.messages
    assert "is not in the database of this app" in told
    assert "INSTRUCT_QUEUE" in told


def test_outside_a_request_nobody_is_acting(app: Flask, ask: Ask) -> None:
    app.extensions["instruct"].hooks.actor = lambda: g.user
    try:
        assert ask("talk").actor is None
        with app.test_request_context():
            g.user = 7
            assert ask("talk").actor == "7"
    finally:
        app.extensions["instruct"].hooks.actor = None


def test_the_run_keeps_who_asked_and_what_data_was_given(app: Flask, ask: Ask) -> None:
    run = ask("talk", actor=7, context={"level": 3}, system_prompt="Be brief.")
    assert (run.actor, run.context, run.system_prompt) == ("7", {"level": 3}, "Be brief.")


def test_a_job_that_comes_twice_or_late_changes_nothing(app: Flask, ask: Ask) -> None:
    run = ask("talk")
    generate(run.id)
    first = reread(run)
    generate(run.id)
    second = reread(run)
    assert (first.status, first.attempt) == (second.status, second.attempt) == ("succeeded", 1)
    assert len(second.messages) == 1
    generate("no-such-run")


def test_a_failed_run_goes_on_where_it_stopped(app: Flask, ask: Ask) -> None:
    run = ask("fail")
    generate(run.id)
    failed = reread(run)
    assert (failed.status, failed.error_class) == ("failed", "provider_overloaded")
    assert failed.error_safe == "The AI service is overloaded."
    assert failed.messages[0].text == "Well, "
    retried = instruct.retry(failed)
    assert (retried.status, retried.error_class) == ("queued", None)
    assert queued(app)[-1] == f"{run.id}-1"
    with pytest.raises(RunEnded):
        instruct.retry(reread(run))


@pytest.mark.parametrize("what", ["conversation", "idempotency_key", "tenant"])
@pytest.mark.parametrize(
    ("given", "error"),
    [("", ValueError), ("  ", ValueError), ("x" * 201, ValueError), ("a\x00", ValueError), (5, TypeError)],
)
def test_a_name_that_is_none_is_refused_alike_on_every_database(
    ask: Ask, what: str, given: object, error: type[Exception]
) -> None:
    """An empty field of a form must not become a thread that everybody shares."""
    with pytest.raises(error, match=what):
        ask("talk", **{what: given})
    assert not db.session.scalars(sa.select(Run.id)).all()


def test_a_job_that_names_no_run_is_told_in_one_line(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    for forged in (5, ["a"], {"a": 1}, None):
        generate(forged)  # type: ignore[arg-type]
    assert caplog.text.count("names no run") == 4


def test_the_ledger_is_in_the_apps_own_metadata(app: Flask) -> None:
    assert {"instruct_run", "instruct_tool_call", "notebook"} <= set(db.metadata.tables)


def test_an_app_that_is_not_set_up_is_told_what_to_do() -> None:
    app = Flask(__name__)
    with pytest.raises(ConfigurationError, match=r"db\.init_app"):
        Instruct(app)
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"
    database = SQLAlchemy(app)
    with pytest.raises(ConfigurationError, match="SECRET_KEY"):
        Instruct(app, database)


def test_sqlite_in_memory_is_refused_with_a_sentence(redis_url: str) -> None:
    app = Flask(__name__)
    app.config.update(SECRET_KEY="x", SQLALCHEMY_DATABASE_URI="sqlite://", INSTRUCT_REDIS_URL=redis_url)
    database = SQLAlchemy(app)
    extension = Instruct(app, database)
    record = Notebook(title="In memory")
    with app.app_context(), pytest.raises(ConfigurationError, match="in memory"):
        extension.generate_for(NoteKeeper(record), user_prompt="Go.")
    with app.app_context():
        database.engine.dispose()
