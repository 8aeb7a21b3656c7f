"""G2: what a tool does outside the database happens at most once, and is said to be done only when it was."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.errors import RunEnded
from flask_instruct.orchestrator import Orchestrator
from flask_instruct.prompt import Gen
from flask_instruct.prompt import Message
from flask_instruct.prompt import Text
from flask_instruct.runs.again import mark_as_done
from flask_instruct.runs.again import run_again
from flask_instruct.runs.columns import now
from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.sweep import sweep
from tests.support import Process
from tests.support import wait_for

from .conftest import ROOT
from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .letters import AFTER
from .letters import Correspondent
from .letters import WorkerDied
from .letters import sent
from .notebook import Notebook
from .notebook import db
from .notebook import instruct

Write = Callable[..., Run]

UNKNOWN = (
    "After the commit, send: unknown: the worker died while it ran; it may or may not have happened. "
    "Do not repeat it without asking."
)
DONE = "After the commit, send: done."


@pytest.fixture
def write(app: Flask, tmp_path: Path) -> Write:
    """Start a run whose one tool writes letters: ``write("reader", "failure", then="refuse")``."""

    def write(*to: str, tool: str = "write_letters", **arguments: Any) -> Run:
        arguments |= {"to": to} if to else {}
        record = db.session.scalars(sa.select(Notebook)).one()
        asked = json.dumps([[tool, {"folder": str(tmp_path), **arguments}]])
        run = instruct.generate_for(Correspondent(record), user_prompt=asked, model="scripted:letters")
        db.session.refresh(run)
        db.session.expunge(run)
        return run

    return write


@pytest.fixture
def post(write: Write) -> Write:
    """The same, carried out in this process; a worker that dies leaves what it has."""

    def post(*to: str, **arguments: Any) -> Run:
        run = write(*to, **arguments)
        try:
            generate(run.id)
        except WorkerDied:
            expire_lease(run)
        return reread(run)

    return post


@pytest.fixture
def worker(start: Callable[..., Process], settings: dict[str, str]) -> Callable[[], Process]:
    command = [sys.executable, "-m", "flask", "--app", "tests.runs.letters", "instruct", "worker"]
    return lambda: start(command, env=settings, cwd=ROOT)


def expire_lease(run: Run) -> None:
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).where(Run.id == run.id).values(lease_until=now()))


def effects(run: Run) -> list[Effect]:
    return [effect for call in reread(run).calls for effect in call.effects]


def fates(run: Run) -> list[tuple[str, str | None]]:
    return [(effect.status, effect.error_class) for effect in effects(run)]


def told(run: Run) -> list[str]:
    """What the model was told of the effects, live; a later reader of the ledger is told the same."""
    ended = reread(run)
    live = ended.messages[-1].text
    assert transcript(ended)[2].results[0].content == live == ended.calls[0].result
    first, *lines = live.splitlines()
    assert first == "Letters written."
    return lines


# -- how it goes well --------------------------------------------------------------------------------------------------


def test_g2_it_happens_after_the_commit_and_outside_any_transaction(post: Write, tmp_path: Path) -> None:
    run = post("looker")
    assert fates(run) == [("done", None)]
    assert sent(tmp_path) == [f"looker {run.id}:1:effect:1"]
    assert told(run) == [DONE]
    assert notes() == ["letters written", "looked", "finished: stop"]


def test_g2_several_happen_in_order_whatever_becomes_of_the_first(post: Write, tmp_path: Path) -> None:
    run = post("reader", "bouncer", "other reader")
    assert fates(run) == [("done", None), ("failed", "ToolError"), ("done", None)]
    assert [line.rsplit(" ", 1) for line in sent(tmp_path)] == [
        ["reader", f"{run.id}:1:effect:1"],
        ["other reader", f"{run.id}:1:effect:3"],
    ]
    assert told(run) == [DONE, "After the commit, send: failed: Nobody lives there.", DONE]


def test_what_it_writes_is_committed_when_it_went_well(post: Write, tmp_path: Path) -> None:
    run = post("bookkeeper")
    assert fates(run) == [("done", None)]
    assert notes() == ["letters written", "sent", "finished: stop"]


def test_a_tool_class_sends_its_own_methods_and_its_handlers(post: Write, tmp_path: Path) -> None:
    run = post(tool="greet")
    assert sent(tmp_path) == [f"wave {run.id}:1:effect:1", f"reader {run.id}:1:effect:2"]
    assert [effect.owner for effect in effects(run)] == ["tool", "handler"]


def test_a_tool_class_that_its_own_edits_have_hidden_is_found(
    post: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = Correspondent.ai_tools

    def hide(self: Correspondent) -> Any:
        return [] if self.call is not None and "effect" in self.call.idempotency_key else offered(self)

    monkeypatch.setattr(Correspondent, "ai_tools", hide)
    assert fates(post(tool="greet")) == [("done", None), ("done", None)]


def test_a_coroutine_is_awaited(post: Write, tmp_path: Path) -> None:
    run = post(tool="write_async")
    assert fates(run) == [("done", None)]
    assert len(sent(tmp_path)) == 1


def test_a_prompt_without_a_ledger_does_it_when_the_tool_has_returned(app: Flask, tmp_path: Path) -> None:
    record = db.session.scalars(sa.select(Notebook)).one()
    handler = Correspondent(record)
    gen = Gen(model="scripted:letters", tools=tuple(tool.spec() for tool in handler.ai_tools()))
    asked = json.dumps([["write_letters", {"folder": str(tmp_path), "to": ["reader", "failure", "sleeper"]}]])
    messages = [Message("user", (Text(asked),))]
    Orchestrator(handler, messages, gen).start()
    assert [line.split()[0] for line in sent(tmp_path)] == ["reader", "sleeper"]
    lines = messages[-1].text.splitlines()
    assert [line.split(":")[1].strip(" .") for line in lines[1:]] == ["done", "failed", "unknown"]
    assert handler.call is None


# -- what never happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["refuse", "roll back"])
def test_g2_what_is_rolled_back_never_happens(post: Write, tmp_path: Path, then: str) -> None:
    run = post("reader", then=then)
    assert effects(run) == []
    assert sent(tmp_path) == []
    assert "After the commit" not in reread(run).messages[-1].text


def test_g2_a_savepoint_takes_back_what_was_asked_for_inside(post: Write, tmp_path: Path) -> None:
    run = post("reader", then="roll back inside")
    assert fates(run) == [("done", None)]
    assert len(sent(tmp_path)) == 1


def test_a_thread_of_the_tool_can_promise_nothing(
    post: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = post("reader", then="promise in a thread")
    assert (effects(run), sent(tmp_path)) == ([], [])
    assert "beside its tool's transaction" in caplog.text
    assert reread(run).calls[0].status == "failed"


# -- how it fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "fate", "line"),
    [
        ("bouncer", ("failed", "ToolError"), "failed: Nobody lives there."),
        ("failure", ("failed", "RuntimeError"), "failed: an internal error."),
        ("leaver", ("failed", "SystemExit"), "failed: an internal error."),
        ("promiser", ("failed", "InstructError"), "failed: an internal error."),
        (
            "bad bookkeeper",
            ("unknown", "IntegrityError"),
            "unknown: it ran, but what it wrote to the database was refused; it may or may not have happened. "
            "Do not repeat it without asking.",
        ),
        (
            "half taken",
            ("unknown", "Uncertain"),
            "unknown: The post office hung up in the middle of it; it may or may not have happened. "
            "Do not repeat it without asking.",
        ),
        (
            "sleeper",
            ("unknown", "ToolTimeout"),
            "unknown: it did not finish within 0.5 seconds and was stopped; it may or may not have happened. "
            "Do not repeat it without asking.",
        ),
    ],
)
def test_g2_a_failure_is_told_and_costs_the_tool_nothing(
    post: Write, to: str, fate: tuple[str, str], line: str
) -> None:
    run = post(to)
    assert run.status == "succeeded"
    assert fates(run) == [fate]
    assert told(run) == [f"After the commit, send: {line}"]
    assert reread(run).calls[0].status == "done"
    assert "letters written" in notes()


def test_a_record_that_its_own_tool_deleted_is_told(post: Write, tmp_path: Path) -> None:
    run = post("reader", then="delete")
    assert fates(run) == [("failed", "RecordGone")]
    assert reread(run).calls[0].result == (
        "Letters written.\nAfter the commit, send: failed: the record no longer exists."
    )
    assert sent(tmp_path) == []


# -- what dies ---------------------------------------------------------------------------------------------------------


def test_g2_killed_before_it_began_it_happens_once(write: Write, worker: Callable[[], Process], tmp_path: Path) -> None:
    run = write("reader", "other reader", then="die at commit")
    worker()
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt) == ("succeeded", 2)
    assert [line.split(":")[0].rsplit(" ", 1)[0] for line in sent(tmp_path)] == ["reader", "other reader"]
    assert told(run) == [DONE, DONE]
    assert fates(run) == [("done", None), ("done", None)]
    assert notes().count("letters written") == 1


@pytest.mark.parametrize(("to", "happened"), [("killer before", 0), ("killer after", 1)])
def test_g2_killed_in_it_nobody_knows_and_it_is_not_repeated(
    write: Write, worker: Callable[[], Process], tmp_path: Path, to: str, happened: int
) -> None:
    run = write(to, "reader")
    worker()
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt) == ("succeeded", 2)
    assert [line.startswith(to) for line in sent(tmp_path)] == [True] * happened + [False]
    assert fates(run) == [("unknown", None), ("done", None)]
    assert told(run) == [UNKNOWN, DONE]


def test_g2_g4_a_stale_worker_begins_nothing(post: Write, tmp_path: Path) -> None:
    run = post("reader", then="lose at commit")
    assert (fates(run), sent(tmp_path)) == ([("pending", None)], [])
    expire_lease(run)
    generate(run.id)
    assert told(run) == [DONE]
    assert len(sent(tmp_path)) == 1


def test_g2_g4_a_worker_that_lost_the_run_meanwhile_calls_nothing_done(post: Write, tmp_path: Path) -> None:
    run = post("taker")
    assert (fates(run), len(sent(tmp_path))) == ([("running", None)], 1)
    expire_lease(run)
    generate(run.id)
    assert (fates(run), len(sent(tmp_path))) == ([("unknown", None)], 1)
    assert told(run) == [UNKNOWN]


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_g2_g8_a_stop_lets_the_effects_of_a_committed_tool_happen_and_nothing_else(post: Write, tmp_path: Path) -> None:
    run = post("stopper", "reader")
    assert run.status == "cancelled"
    assert fates(run) == [("done", None), ("done", None)]
    assert len(sent(tmp_path)) == 2
    assert "Never said." not in [message.text for message in reread(run).messages]


def test_g2_g8_what_a_dead_worker_had_not_begun_is_not_begun_after_a_stop(post: Write, tmp_path: Path) -> None:
    run = post("reader", then="give up at commit")
    assert fates(run) == [("pending", None)]
    assert run.cancel()
    generate(run.id)
    assert fates(run) == [("failed", "not_started")]
    assert sent(tmp_path) == []
    assert "not started" in (reread(run).calls[0].result or "")
    assert effects(run)[0].open


def test_g2_a_run_that_is_stopped_while_its_worker_is_dead_does_not_know(post: Write) -> None:
    run = post("quitter")
    assert run.cancel()
    assert fates(run) == [("unknown", None)]


# -- what a person decides ---------------------------------------------------------------------------------------------


def only(run: Run) -> Effect:
    [effect] = effects(run)
    return effect


def lost(post: Write) -> Run:
    """Return a run that has ended, with an effect that is unknown."""
    run = post("quitter")
    generate(run.id)
    assert fates(run) == [("unknown", None)]
    return reread(run)


def test_g2_a_person_knows_that_it_happened(post: Write, tmp_path: Path) -> None:
    run = lost(post)
    mark_as_done(only(run))
    assert fates(run) == [("done", None)]
    with pytest.raises(RunEnded, match="not open"):
        mark_as_done(only(run))
    with pytest.raises(RunEnded, match="not open"):
        run_again(only(run))
    generate(run.id)
    assert len(sent(tmp_path)) == 1
    assert told(run) == [UNKNOWN], "the history is what was told"


def test_g2_a_person_has_it_run_again_by_a_worker_after_the_run_has_ended(
    post: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lost(post)
    monkeypatch.delitem(AFTER, "quitter")
    run_again(only(run))
    assert fates(run) == [("pending", None)]
    assert len(sent(tmp_path)) == 1, "not in the request"
    generate(run.id)
    assert (fates(run), only(run).tries) == ([("done", None)], 2)
    first, second = sent(tmp_path)
    assert first == second, "the key is the same"
    generate(run.id)
    assert len(sent(tmp_path)) == 2
    assert told(run) == [UNKNOWN]
    assert reread(run).status == "succeeded"


def test_g2_what_was_never_begun_can_be_run_by_a_real_worker(
    post: Write, worker: Callable[[], Process], tmp_path: Path
) -> None:
    run = post("reader", then="give up at commit")
    run.cancel()
    worker()
    run_again(only(run))
    wait_for(lambda: fates(run) == [("done", None)], message="the effect")
    assert len(sent(tmp_path)) == 1
    assert reread(run).status == "cancelled"


def test_g2_a_worker_that_dies_in_the_second_run_leaves_it_unknown_again(app: Flask, post: Write) -> None:
    run = lost(post)
    run_again(only(run))
    with pytest.raises(WorkerDied):
        generate(run.id)
    generate(run.id)
    assert fates(run) == [("running", None)], "its worker may be alive"
    with db.engine.begin() as connection:
        connection.execute(sa.update(Effect).values(lease_until=now()))
    state = app.extensions["instruct"]
    run_queue(state).empty()
    assert sweep(state).runs == 1
    generate(run.id)
    assert fates(run) == [("unknown", None)]


def test_g2_two_workers_that_hear_the_same_ring_run_it_once(app: Flask, post: Write, tmp_path: Path) -> None:
    run = post("reader", then="give up at commit")
    run_id = run.id
    run.cancel()
    run_again(only(run))

    def work() -> None:
        with app.app_context():
            generate(run_id)

    with ThreadPoolExecutor(2) as workers:
        for done in [workers.submit(work) for _ in range(2)]:
            done.result()
    assert (fates(run), len(sent(tmp_path))) == ([("done", None)], 1)


def test_g2_the_sweep_rings_for_what_was_asked_for_and_lost(app: Flask, post: Write) -> None:
    run = lost(post)
    run_again(only(run))
    state = app.extensions["instruct"]
    run_queue(state).empty()
    assert sweep(state).runs == 0
    with db.engine.begin() as connection:
        connection.execute(sa.update(Effect).values(asked_at=only(run).created_at - (now() - run.created_at) * 1000))
    assert sweep(state).runs == 1
