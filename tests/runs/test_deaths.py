"""What becomes of effects, and what is said of a run, when the process that carries it out is killed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.again import run_again
from flask_instruct.runs.claim import claim
from flask_instruct.runs.columns import now
from flask_instruct.runs.deaths import cause_of
from flask_instruct.runs.deaths import mourn
from flask_instruct.runs.grace import Hold
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Run
from flask_instruct.runs.unit import ledger_engine
from tests.support import Process
from tests.support import wait_for

from .conftest import ROOT
from .conftest import reread
from .conftest import wait_for_end
from .letters import Correspondent
from .letters import sent
from .notebook import Notebook
from .notebook import db
from .notebook import instruct
from .test_effects import UNKNOWN
from .test_effects import fates
from .test_grace import LEAVES_WITHIN
from .test_grace import SHORT

StartWorker = Callable[..., Process]
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture
def worker(start: Callable[..., Process], settings: dict[str, str]) -> StartWorker:
    def worker(**env: str) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "tests.runs.letters", "instruct", "worker"]
        return start(command, env={**settings, **env}, cwd=ROOT)

    return worker


def write(folder: Path, tool: str, to: Any) -> Run:
    record = db.session.scalars(sa.select(Notebook)).one()
    asked = json.dumps([[tool, {"folder": str(folder), "to": to}]])
    run = instruct.generate_for(Correspondent(record), user_prompt=asked, model="scripted:letters")
    db.session.refresh(run)
    db.session.expunge(run)
    return run


@on_sqlite
def test_g2_an_effect_in_hand_as_the_grace_ends_is_unknown_and_not_repeated(
    app: Flask, worker: StartWorker, tmp_path: Path
) -> None:
    run = write(tmp_path, "write_patiently", "waiter")
    first = worker(**SHORT)
    wait_for((tmp_path / "begun").exists, 30, "the effect to begin")
    first.signal(signal.SIGTERM)
    assert first.wait(LEAVES_WITHIN) == 0
    assert (reread(run).status, fates(run)) == ("queued", [("running", None)])
    (tmp_path / "go on").touch()
    worker(**SHORT)
    ended = wait_for_end(run, 40)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 2, 0)
    assert fates(run) == [("unknown", None)]
    assert reread(run).calls[0].result == f"Letters written.\n{UNKNOWN}"
    assert sent(tmp_path) == []


@pytest.mark.chaos
@on_postgresql
def test_g2_an_effect_that_a_person_has_run_again_is_unknown_as_soon_as_its_process_is_dead(
    app: Flask, worker: StartWorker, tmp_path: Path
) -> None:
    """Its lease has minutes to go: the worker knows better."""
    run = write(tmp_path, "write_letters", ["killer before"])
    process = worker(INSTRUCT_LEASE="0.5", INSTRUCT_SWEEP_INTERVAL="0.1")
    wait_for_end(run, 40)
    assert fates(run) == [("unknown", None)]
    process.stop()
    worker(INSTRUCT_LEASE="60", INSTRUCT_SWEEP_INTERVAL="60")
    [effect] = [effect for call in reread(run).calls for effect in call.effects]
    run_again(effect)
    wait_for(lambda: only(run).tries == 2, 30, "the effect to be run again")
    wait_for(lambda: only(run).status == "unknown", message="the effect to be given up")
    assert only(run).lease_until is None
    assert only(run).open
    assert sent(tmp_path) == []


def only(run: Run) -> Effect:
    [effect] = [effect for call in reread(run).calls for effect in call.effects]
    return effect


@pytest.mark.chaos
@on_sqlite
def test_a_run_whose_process_was_killed_says_of_which_signal(app: Flask, worker: StartWorker, tmp_path: Path) -> None:
    """An error names the signal, and not "waitpid returned None" (rq/rq#1966)."""
    run = write(tmp_path, "write_letters", ["killer before", "killer after"])
    process = worker(INSTRUCT_MAX_ATTEMPTS="1", INSTRUCT_LEASE="0.5", INSTRUCT_SWEEP_INTERVAL="0.1")
    ended = wait_for_end(run, 40)
    assert (ended.status, ended.error_class) == ("failed", "interrupted")
    assert ended.error_technical == (
        "2 workers died while they held this run (INSTRUCT_MAX_ATTEMPTS). "
        "The last: the process of attempt 2 died of signal 9 (SIGKILL)."
    )
    assert f"Run {run.id}: the process of attempt 1 died of signal 9 (SIGKILL)." in process.output


def die(app: Flask, run: Run, hold: Hold, status: int, *, given_back: bool = False) -> None:
    """Let a worker find its work-horse dead; it has no connection of its own open."""
    run_id = run.id
    db.session.remove()
    mourn(app.extensions["instruct"], run_id, hold, status, given_back=given_back)


def test_a_worker_that_mourns_notes_the_cause_in_the_run_that_was_held_and_in_no_other(
    app: Flask, tmp_path: Path
) -> None:
    state, engine = app.extensions["instruct"], ledger_engine(db)
    run = write(tmp_path, "write_letters", ["reader"])
    hold = Hold()
    die(app, run, hold, 9)
    assert reread(run).error_technical is None, "it held nothing"
    assert claim(state, engine, run.id) is not None
    hold.attempt = 2
    die(app, run, hold, 9)
    assert reread(run).error_technical is None, "another attempt has it"
    hold.attempt = 1
    die(app, run, hold, 11)
    assert reread(run).error_technical == "the process of attempt 1 died of signal 11 (SIGSEGV)."
    with engine.begin() as connection:
        connection.execute(sa.update(Run).values(lease_until=now()))
    object.__setattr__(state.config, "max_attempts", 0)
    assert claim(state, engine, run.id) is None
    assert "(INSTRUCT_MAX_ATTEMPTS). The last: the process of attempt 1 died" in (reread(run).error_technical or "")


def test_g2_a_worker_that_mourns_gives_up_the_one_effect_that_was_in_hand(app: Flask, tmp_path: Path) -> None:
    run = write(tmp_path, "write_letters", ["bouncer", "bouncer"])
    generate(run.id)
    with db.engine.begin() as connection:
        running = {"status": "running", "asked_at": now(), "tries": 2, "lease_until": now() + timedelta(hours=1)}
        connection.execute(sa.update(Effect).values(**running))
    first, second = (effect.id for call in reread(run).calls for effect in call.effects)
    hold = Hold()
    hold.effect = first, 1
    die(app, run, hold, 9)
    assert {status for status, _ in fates(run)} == {"running"}, "an earlier try"
    hold.effect = second, 2
    die(app, run, hold, 9, given_back=True)
    assert {effect.id: effect.status for call in reread(run).calls for effect in call.effects} == {
        first: "running",
        second: "unknown",
    }


@pytest.mark.parametrize(
    ("status", "cause"),
    [(9, "signal 9 (SIGKILL)"), (11, "signal 11 (SIGSEGV)"), (256, "exit status 1"), (None, "an unknown cause")],
)
def test_a_cause_of_death_has_words(status: int | None, cause: str) -> None:
    assert cause_of(status) == cause


def test_a_hold_remembers_one_effect_until_it_holds_something_else() -> None:
    hold = Hold()
    assert hold.effect is None
    hold.effect = ("0197a3f2-0000-7000-8000-000000000001", 2)
    hold.attempt = 4
    hold.end_in(100)
    assert hold.effect == ("0197a3f2-0000-7000-8000-000000000001", 2)
    hold.forget()
    assert (hold.effect, hold.attempt) == (None, 0)
    assert hold.left is not None
