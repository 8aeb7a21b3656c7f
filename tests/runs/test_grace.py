"""A worker that is told to end leaves within its grace, and another takes up what it had in hand at once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.runs.claim import claim
from flask_instruct.runs.grace import Hold
from flask_instruct.runs.grace import give_back
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import is_waiting
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.unit import ledger_engine
from tests.support import Process
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import Seen
from tests.wire import WireServer
from tests.wire_format import DONE
from tests.wire_format import openai_chunk

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]
StartWorker = Callable[..., Process]

SHORT = {"INSTRUCT_GRACE": "1", "INSTRUCT_LEASE": "60", "INSTRUCT_SWEEP_INTERVAL": "60"}
"""Nothing but the ring of the worker that leaves can bring the run to another one within a test's time."""
LEAVES_WITHIN = 8.0
"""Seconds: the grace, and a slow machine."""


class SilentModel:
    """A model that never answers the first who asks, and answers all later ones."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked = 0

    def __call__(self, seen: Seen) -> Reply:
        self.asked += 1
        if self.asked == 1:
            self.released.wait()
        return Reply(openai_chunk({"role": "assistant", "content": "Here I am."}) + DONE)


@pytest.fixture
def model() -> Iterator[tuple[SilentModel, dict[str, str]]]:
    """The model, and the environment of a worker that asks it."""
    silent = SilentModel()
    with WireServer(silent) as server:
        providers = {"near": {"protocol": "openai_chat", "base_url": server.base_url("openai_chat")}}
        try:
            yield silent, {**SHORT, "INSTRUCT_PROVIDERS": json.dumps(providers)}
        finally:
            silent.released.set()


def ask_near() -> Run:
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="near:m")
    db.session.refresh(run)
    db.session.expunge(run)
    return run


def assert_said_to_be_given_back(app: Flask, run: Run, process: Process) -> None:
    """It did not fail: neither in the log nor in RQ's registries, which hold nothing of it any more."""
    assert f"Run {run.id} was given back" in process.output
    assert "failed" not in process.output, process.output
    assert "terminated unexpectedly" not in process.output
    queue = run_queue(app.extensions["instruct"])
    assert queue.failed_job_registry.get_job_count(cleanup=False) == 0
    assert queue.started_job_registry.get_job_count(cleanup=False) == 0
    assert queue.intermediate_queue.get_job_ids() == []
    assert queue.job_ids == [f"{run.id}-{run.attempt + 1}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_g4_a_run_that_waits_for_a_silent_model_is_taken_up_by_a_worker_that_was_there(
    app: Flask, worker: StartWorker, model: tuple[SilentModel, dict[str, str]], number: int
) -> None:
    silent, env = model
    run = ask_near()
    first = worker(**env)
    wait_for(lambda: silent.asked, message="the model to be asked")
    worker(**env)
    first.signal(number)
    assert first.wait(LEAVES_WITHIN) == 0
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 2, 0)
    assert [message.text for message in ended.messages] == ["Here I am."]


def test_g4_a_worker_that_comes_later_takes_it_up_too(
    app: Flask, worker: StartWorker, model: tuple[SilentModel, dict[str, str]]
) -> None:
    silent, env = model
    run = ask_near()
    first = worker(**env)
    wait_for(lambda: silent.asked, message="the model to be asked")
    first.signal(signal.SIGTERM)
    assert first.wait(LEAVES_WITHIN) == 0
    parked = reread(run)
    assert (parked.status, parked.attempt, parked.lease_until) == ("queued", 1, None)
    assert_said_to_be_given_back(app, run, first)
    assert is_waiting(app.extensions["instruct"], parked)
    worker(**env)
    assert wait_for_end(run).status == "succeeded"


def test_g4_a_tool_that_outlasts_the_grace_is_taken_away_and_leaves_nothing(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    hold = json.dumps({"begun": str(begun), "go_on": str(go_on), "text": "first"})
    run = ask("hold_and_write")
    first = worker(INSTRUCT_TEST_HOLD=hold, **SHORT)
    wait_for(begun.exists, message="the tool to begin")
    first.signal(signal.SIGTERM)
    assert first.wait(LEAVES_WITHIN) == 0
    assert notes() == []
    assert reread(run).status == "queued"
    assert_said_to_be_given_back(app, run, first)
    go_on.touch()
    worker(INSTRUCT_TEST_HOLD=hold, **SHORT)
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 2, 0)
    assert notes() == ["first", "second", "finished: stop"]


def test_a_tool_that_ends_within_the_grace_is_committed_and_the_run_ends_here(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    hold = json.dumps({"begun": str(begun), "go_on": str(go_on), "text": "first"})
    run = ask("hold_and_write")
    process = worker(INSTRUCT_TEST_HOLD=hold, **SHORT | {"INSTRUCT_GRACE": "20"})
    wait_for(begun.exists, message="the tool to begin")
    process.signal(signal.SIGTERM)
    go_on.touch()
    assert process.wait() == 0
    assert (reread(run).status, reread(run).attempt) == ("succeeded", 1)


def test_g4_a_signal_to_the_whole_group_gives_the_run_back_at_once(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    """Its work-horse is told to end as well and dies: that is no death either, and no lease is waited for."""
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    hold = json.dumps({"begun": str(begun), "go_on": str(go_on), "text": "first"})
    run = ask("hold_and_write")
    first = worker(INSTRUCT_TEST_HOLD=hold, **SHORT | {"INSTRUCT_GRACE": "60"})
    wait_for(begun.exists, message="the tool to begin")
    for process in reversed([first.pid, *(each.pid for each in psutil.Process(first.pid).children(recursive=True))]):
        os.kill(process, signal.SIGTERM)
    assert first.wait(LEAVES_WITHIN) == 0
    assert (reread(run).status, reread(run).attempt, notes()) == ("queued", 1, [])
    assert_said_to_be_given_back(app, run, first)
    go_on.touch()
    worker(INSTRUCT_TEST_HOLD=hold, **SHORT)
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 2, 0)


def test_a_second_signal_ends_at_once(
    app: Flask, worker: StartWorker, model: tuple[SilentModel, dict[str, str]]
) -> None:
    silent, env = model
    run = ask_near()
    process = worker(**env | {"INSTRUCT_GRACE": "300"})
    wait_for(lambda: silent.asked, message="the model to be asked")
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGINT)
    process.wait(LEAVES_WITHIN)
    assert reread(run).status == "running"


def test_a_run_that_is_to_be_left_is_given_back_before_it_asks_the_model(app: Flask, ask: Ask) -> None:
    state = app.extensions["instruct"]
    run = ask(turns=[[Use("write", text="a")], [Say("Done.")]])
    state.hold = Hold()
    state.hold.end_in(0)
    generate(run.id)
    parked = reread(run)
    assert (parked.status, parked.attempt, parked.messages) == ("queued", 1, [])
    state.hold = Hold()
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.attempt, ended.resumes, state.hold.attempt) == ("succeeded", 2, 0, 2)


def test_a_wait_for_the_model_is_broken_off_and_the_half_of_its_answer_is_discarded_later(app: Flask, ask: Ask) -> None:
    state = app.extensions["instruct"]
    run = ask(turns=[[Say("One "), Wait(120), Say("two.")]])
    state.hold = Hold()
    state.hold.end_in(0.7)
    generate(run.id)
    parked = reread(run)
    assert parked.status == "queued"
    assert [(message.text, message.state) for message in parked.messages] == [("One ", "streaming")]
    assert claim(state, ledger_engine(db), run.id)
    assert reread(run).messages == []


def test_only_the_attempt_that_holds_a_run_gives_it_back(app: Flask, ask: Ask) -> None:
    state = app.extensions["instruct"]
    engine = ledger_engine(db)
    run = ask("talk")
    claimed = claim(state, engine, run.id)
    assert claimed is not None
    assert not give_back(state, engine, run.id, 2)
    assert reread(run).status == "running"
    assert give_back(state, engine, run.id, 1)
    assert give_back(state, engine, run.id, 1), "one that was killed before it could ring"
    generate(run.id)
    assert reread(run).status == "succeeded"
    assert not give_back(state, engine, run.id, 1)


def test_a_stop_goes_before_the_end_of_the_worker(app: Flask, ask: Ask) -> None:
    """A run that a person has stopped ends as such, also when its worker gave it back first."""
    state = app.extensions["instruct"]
    engine = ledger_engine(db)
    run = ask("talk")
    assert claim(state, engine, run.id)
    assert reread(run).cancel()
    assert give_back(state, engine, run.id, 1)
    generate(run.id)
    assert reread(run).status == "cancelled"


def test_a_hold_tells_how_long_the_work_horse_may_stay() -> None:
    hold = Hold()
    assert (hold.attempt, hold.left) == (0, None)
    hold.end_in(100)
    hold.attempt = 3
    left = hold.left
    assert left is not None
    assert 90 < left <= 100
    hold.end_in(-1)
    assert hold.attempt == 3
    assert hold.left is not None
    assert hold.left < 0
