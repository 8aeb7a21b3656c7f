"""Limits of one run: one last answer without tools, an end by their name, also after a crash and over all attempts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.exc import OperationalError

from flask_instruct import Limits
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import Stopped
from flask_instruct.events import Usage
from flask_instruct.orchestrator import Ending
from flask_instruct.panel import words
from flask_instruct.prompt import ModelRequest
from flask_instruct.runs.columns import now
from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.journal import Journal
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.steps import Interrupted
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.watch import WAKE
from flask_instruct.runs.watch import Watch
from tests.support import Process

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


@pytest.fixture
def heard(app: Flask, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that ``handle_limit`` was called with."""
    heard: list[str] = []
    monkeypatch.setattr(NoteKeeper, "handle_limit", lambda self, name: heard.append(name))
    return heard


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model of the script ``eager`` was allowed, call by call: it writes a note as long as it may.

    Each of its calls counts ten tokens and costs a dollar.
    """
    asked: list[str] = []

    def eager(request: ModelRequest) -> list[Any]:
        asked.append(request.tool_choice)
        return [Say("I stop here.")] if request.tool_choice == "none" else [Use("write", text=str(len(asked)))]

    register_script("eager", eager)
    monkeypatch.setattr("flask_instruct.adapters.scripted._estimate", lambda request, parts: Usage(8, 2))
    monkeypatch.setattr("flask_instruct.runs.rounds.cost", lambda *_, **__: Decimal(1))
    return asked


@pytest.fixture
def setting(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change settings of the app in this process."""
    state = app.extensions["instruct"]

    def setting(**values: object) -> None:
        monkeypatch.setattr(state, "config", replace(state.config, **values))

    return setting


def carry_out(run: Run) -> Run:
    generate(run.id)
    return reread(run)


def take_up_again(run: Run) -> Run:
    """Let the lease run out and the run be taken up, as the sweep does."""
    db.session.execute(sa.update(Run).where(Run.id == run.id).values(lease_until=now() - timedelta(hours=1)))
    db.session.commit()
    return carry_out(run)


def begun_ago(run: Run, seconds: float) -> None:
    """Let a run have begun some time ago, under a worker that has died."""
    began = now() - timedelta(seconds=seconds)
    lost = {"status": "running", "attempt": 1, "queued_at": began, "started_at": began, "lease_until": began}
    db.session.execute(sa.update(Run).where(Run.id == run.id).values(**lost))
    db.session.commit()


# -- each limit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "name", "allowed"),
    [
        ({"rounds": 2}, "rounds", ["auto", "auto", "none"]),
        ({"tool_calls": 2}, "tool_calls", ["auto", "auto", "auto", "none"]),
        ({"tokens": 20}, "tokens", ["auto", "auto", "none"]),
        ({"cost": "2"}, "cost", ["auto", "auto", "none"]),
    ],
)
def test_a_limit_that_is_met_ends_the_run_by_its_name_after_one_last_answer(
    ask: Ask, asked: list[str], heard: list[str], limits: dict[str, Any], name: str, allowed: list[str]
) -> None:
    run = carry_out(ask("eager", limits=limits))
    assert (run.status, run.limit_reached, run.error_class) == ("limited", name, None)
    assert asked == allowed
    assert notes() == ["1", "2"]
    assert heard == [name]
    assert all(call.result for call in run.calls)
    assert transcript(run)[-1].text == "I stop here."
    assert words.limit(run) == words.LIMITS[name]


@pytest.mark.parametrize("limits", [{"tokens": 7}, {"cost": "0.75"}])
def test_a_limit_that_is_far_behind_ends_the_run_without_an_answer(
    ask: Ask, asked: list[str], heard: list[str], limits: dict[str, Any]
) -> None:
    run = carry_out(ask("eager", limits=limits))
    (name,) = limits
    assert (run.status, run.limit_reached) == ("limited", name)
    assert (asked, notes(), heard) == (["auto"], ["1"], [name])
    assert [message.role for message in transcript(run)] == ["user", "assistant", "tool"]


def test_a_batch_that_would_pass_the_limit_is_refused_whole(app: Flask, ask: Ask, heard: list[str]) -> None:
    def turns(request: ModelRequest) -> list[Any]:
        if request.tool_choice == "none":
            return [Say("One of three.")]
        first = not any(message.role == "assistant" for message in request.messages)
        return [Use("write", text="a")] if first else [Use("write", text="b"), Use("write", text="c")]

    register_script("greedy", turns)
    run = carry_out(ask("greedy", limits={"tool_calls": 2}))
    assert (run.limit_reached, notes(), heard) == ("tool_calls", ["a"], ["tool_calls"])
    assert [(call.status, call.error_kind) for call in run.calls] == [
        ("done", None),
        ("failed", "limit"),
        ("failed", "limit"),
    ]
    assert all((call.result or "").startswith("Not carried out: ") for call in run.calls[1:])


def test_of_settings_and_request_the_smaller_counts(ask: Ask, asked: list[str], setting: Callable[..., None]) -> None:
    setting(max_tokens=20, max_rounds=20, max_cost=Decimal(50))
    assert carry_out(ask("eager", limits=Limits(tokens=1000, cost=Decimal(1)))).limit_reached == "cost"
    asked.clear()
    run = carry_out(ask("eager", limits=Limits(tokens=1000)))
    assert (run.limit_reached, run.limits, len(asked)) == ("tokens", {"tokens": 1000}, 3)


def test_the_setting_alone_limits_every_run(ask: Ask, asked: list[str], setting: Callable[..., None]) -> None:
    setting(max_tool_calls=1)
    run = carry_out(ask("eager"))
    assert (run.limit_reached, run.limits, notes()) == ("tool_calls", None, ["1"])


def test_rounds_of_the_settings_may_be_more_than_a_prompts_default(
    ask: Ask, asked: list[str], setting: Callable[..., None]
) -> None:
    setting(max_rounds=10)
    assert (carry_out(ask("eager")).limit_reached, len(notes())) == ("rounds", 10)


def test_a_worker_keeps_the_limits_of_its_environment(ask: Ask, worker: Callable[..., Process]) -> None:
    run = ask("loop")
    worker(INSTRUCT_MAX_TOOL_CALLS="3")
    ended = wait_for_end(run)
    assert (ended.status, ended.limit_reached, len([call for call in ended.calls if call.status == "done"])) == (
        "limited",
        "tool_calls",
        3,
    )


@pytest.mark.parametrize("wrong", [{"token": 5}, {"tokens": -5}, {"cost": "cheap"}, ["tokens"]])
def test_a_limit_that_cannot_be_read_is_refused_before_a_run_exists(ask: Ask, wrong: Any) -> None:
    with pytest.raises(ValueError, match="limit"):
        ask("eager", limits=wrong)
    assert db.session.scalar(sa.select(sa.func.count(Run.id))) == 0


# -- over all attempts -------------------------------------------------------------------------------------------------


def test_seconds_count_from_the_start_of_the_first_attempt(ask: Ask, asked: list[str], heard: list[str]) -> None:
    run = ask("eager", limits={"seconds": 100})
    begun_ago(run, 110)
    ended = carry_out(run)
    assert (ended.status, ended.limit_reached, asked, heard) == ("limited", "seconds", ["none"], ["seconds"])
    assert words.limit(ended) == words.LIMITS["seconds"]


def test_seconds_that_are_far_behind_leave_no_time_for_an_answer(ask: Ask, asked: list[str], heard: list[str]) -> None:
    run = ask("eager", limits={"seconds": 100})
    begun_ago(run, 200)
    ended = carry_out(run)
    assert (ended.limit_reached, asked, heard) == ("seconds", [], ["seconds"])


def test_a_run_that_a_person_starts_again_has_its_seconds_again(ask: Ask, app: Flask, asked: list[str]) -> None:
    register_script("passing", [[Fail("overloaded")]])
    run = ask("passing", limits={"seconds": 100, "rounds": 1})
    begun_ago(run, 50)
    assert carry_out(run).status == "failed"
    db.session.execute(sa.update(Run).values(started_at=now() - timedelta(hours=1), model="scripted:eager"))
    db.session.commit()
    instruct.retry(reread(run))
    assert carry_out(run).limit_reached == "rounds"


def test_failed_and_interrupted_calls_of_earlier_attempts_count(ask: Ask, asked: list[str]) -> None:
    run = ask("eager", limits={"tokens": 100})
    lost = {"run_id": run.id, "provider": "scripted", "model": "eager", "attempt": 1}
    db.session.add(ModelCall(**lost, input_tokens=60, error_class="provider_cut"))
    db.session.add(ModelCall(**lost, input_tokens=30, output_tokens=5, error_class="interrupted"))
    db.session.commit()
    run = carry_out(run)
    assert (run.limit_reached, asked, notes()) == ("tokens", ["auto", "none"], ["1"])


def test_calls_without_a_known_price_are_no_cost(ask: Ask, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_instruct.runs.rounds.cost", lambda *_, **__: None)
    assert carry_out(ask("eager", limits={"cost": "0.01", "rounds": 1})).limit_reached == "rounds"


def test_g6_a_run_that_dies_in_its_last_answer_is_asked_for_it_again_and_ends_limited(
    ask: Ask, asked: list[str], heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask("eager", limits={"tokens": 20})
    finished = Journal.round_finished

    def die(journal: Journal, finish: Any) -> None:
        if asked[-1] == "none":
            monkeypatch.setattr(Journal, "round_finished", finished)
            raise Interrupted("The worker died here.")
        finished(journal, finish)

    monkeypatch.setattr(Journal, "round_finished", die)
    assert carry_out(run).limit_reached == "tokens"
    ended = take_up_again(run)
    assert (ended.status, ended.limit_reached, heard) == ("limited", "tokens", ["tokens"])
    assert asked == ["auto", "auto", "none", "none"]
    assert transcript(ended)[-1].text == "I stop here."


def test_g6_a_run_whose_end_alone_was_not_written_is_limited_without_another_call(
    ask: Ask, asked: list[str], heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask("eager", limits={"tokens": 20})
    ended = Journal.ended

    def die(journal: Journal, ending: Ending) -> None:
        monkeypatch.setattr(Journal, "ended", ended)
        raise Interrupted("The worker died here.")

    monkeypatch.setattr(Journal, "ended", die)
    assert carry_out(run).status == "running"
    again = take_up_again(run)
    assert (again.status, again.limit_reached, heard) == ("limited", "tokens", ["tokens"])
    assert asked == ["auto", "auto", "none"]


def test_a_ledger_that_cannot_be_read_leaves_the_run_for_a_resume(
    ask: Ask, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask("eager", limits={"tokens": 20})

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise OperationalError("select", {}, Exception("the server closed the connection"))

    monkeypatch.setattr("flask_instruct.runs.quotas.spent_by_run", fail)
    assert carry_out(run).status == "running"
    assert asked == []


def test_g5_no_connection_is_held_by_a_look_at_the_limits(ask: Ask, app: Flask) -> None:
    held: list[int] = []

    def turns(request: ModelRequest) -> list[Any]:
        held.append(db.engine.pool.checkedout())  # type: ignore[attr-defined]
        return [Say("Done.")]

    state = app.extensions["instruct"]
    state.config = replace(state.config, lease=600)
    register_script("watching", turns)
    run = ask("watching", limits={"tokens": 100}, actor="ada", tenant="acme")
    db.session.remove()
    state.hooks.quota = lambda actor, tenant: Limits(tokens=db.session.scalar(sa.select(sa.func.count(Run.id))) + 50)
    try:
        generate(run.id)
    finally:
        state.hooks.quota = None
    assert (held, reread(run).status) == ([0], "succeeded")


def test_where_nothing_is_limited_the_ledger_is_not_asked(
    ask: Ask, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("flask_instruct.runs.quotas.spent_by_run")
    monkeypatch.delattr("flask_instruct.runs.quotas.spent_on_day")
    assert carry_out(ask("eager", actor="ada", tenant="acme")).limit_reached == "rounds"


def test_g8_a_stop_waits_until_the_ledger_was_read_and_comes_then(ask: Ask, app: Flask) -> None:
    run = ask("talk")
    watch = Watch(app.extensions["instruct"], ledger_engine(db), db.engine, run)
    read: list[bool] = []

    def look() -> None:
        with watch.listening():
            with watch.undisturbed():
                watch._stopped.set()
                signal.raise_signal(WAKE)
                read.append(True)
            signal.raise_signal(WAKE)

    with watch.beside(), pytest.raises(Stopped):
        look()
    assert read
