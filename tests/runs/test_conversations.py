"""Conversations: runs that continue a thread, one after the other; and the same request twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import ConversationBusy
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.messages import ModelRequest
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.claim import claim
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.stopping import stop_mark
from flask_instruct.runs.unit import ledger_engine
from tests.support import Process

from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import Planner
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


def held(app: Flask, run: Run) -> bool:
    """Try to take a run as a worker does."""
    return claim(app.extensions["instruct"], ledger_engine(db), run.id) is not None


def test_the_next_run_hears_what_was_said_before(ask: Ask, app: Flask) -> None:
    heard: list[ModelRequest] = []

    def listen(request: ModelRequest) -> Turn:
        heard.append(request)
        return [Say("Second answer.")]

    register_script("listen", listen)
    generate(ask(turns=[[Use("write", text="a")], [Say("First answer.")]], conversation="c").id)
    generate(ask("listen", conversation="c").id)
    generate(ask("listen", conversation="another").id)
    roles = [[message.role for message in request.messages] for request in heard]
    assert roles == [["user", "assistant", "tool", "assistant", "user"], ["user"]]
    assert heard[0].messages[3].text == "First answer."


def test_a_branch_hears_only_what_it_continues(ask: Ask, app: Flask) -> None:
    heard: list[list[str]] = []

    def listen(request: ModelRequest) -> Turn:
        heard.append([message.text for message in request.messages])
        return [Say(f"Answer {len(heard)}.")]

    register_script("listen", listen)
    first = ask("listen", conversation="c")
    generate(first.id)
    second = ask("listen", conversation="c")
    generate(second.id)
    for after in (reread(first), "", reread(first)):
        generate(ask("listen", conversation="c", continues=after).id)
    generate(ask("listen", conversation="c").id)
    go = "Go."
    assert heard == [
        [go],
        [go, "Answer 1.", go],
        [go, "Answer 1.", go],
        [go],
        [go, "Answer 1.", go],
        [go, "Answer 1.", go, "Answer 5.", go],
    ]


@pytest.mark.parametrize(
    ("chosen", "told"), [(None, "All of its changes"), ([1], "1 of its changes"), ([], "None of its")]
)
def test_the_next_run_hears_what_became_of_a_preview(ask: Ask, app: Flask, chosen: list[int] | None, told: str) -> None:
    heard: list[str] = []
    register_script("listen", lambda request: heard.append(request.messages[-2].text) or [Say("Well.")])
    turns = [[Use("jot", text="a"), Use("jot", text="b")], [Say("Done.")]]
    run = ask(turns=turns, handler=Planner, conversation="c", preview=True, actor="author")
    generate(run.id)
    instruct.approve(db.session.scalars(sa.select(Approval)).one(), actor="author", chosen=chosen)
    generate(run.id)
    generate(ask("listen", conversation="c").id)
    assert told in heard[0]


def test_only_a_run_of_the_conversation_can_be_continued(ask: Ask, app: Flask) -> None:
    first = ask("talk", conversation="c")
    for conversation in (None, "another"):
        with pytest.raises(ValueError, match="is no part of the conversation"):
            ask("talk", conversation=conversation, continues=reread(first))


def test_what_was_stopped_is_heard_as_far_as_it_was_said(ask: Ask, app: Flask) -> None:
    heard: list[ModelRequest] = []

    def listen(request: ModelRequest) -> Turn:
        heard.append(request)
        return [Say("So.")]

    register_script("listen", listen)
    run = ask("slow", conversation="c")
    assert held(app, run)
    with ledger_engine(db).begin() as connection:
        connection.execute(sa.text("update instruct_run set cancel_requested = true"))
        connection.execute(
            sa.text(
                "insert into instruct_message (id, run_id, seq, role, state, text, created_at) "
                "values ('m', :run, 1, 'assistant', 'cut', 'Half of', current_timestamp)"
            ),
            {"run": run.id},
        )
        connection.execute(sa.text("update instruct_run set status = 'cancelled'"))
    generate(ask("listen", conversation="c").id)
    assert [message.text for message in heard[0].messages] == ["Go.", "Half of\n[The answer was stopped here.]", "Go."]


def test_one_run_of_a_conversation_is_at_work_and_the_next_waits(ask: Ask, app: Flask) -> None:
    first, second, third = (ask("talk", conversation="c") for _ in range(3))
    assert not held(app, second)
    assert held(app, first)
    assert not held(app, second)
    assert not held(app, third)
    assert held(app, ask("talk", conversation="other"))
    assert held(app, ask("talk"))


def test_the_database_itself_holds_a_conversation_to_one_run_at_work(ask: Ask, app: Flask) -> None:
    first, second = ask("talk", conversation="c"), ask("talk", conversation="c")
    with pytest.raises(sa.exc.IntegrityError), db.engine.begin() as connection:
        connection.execute(sa.update(Run).where(Run.id.in_([first.id, second.id])).values(status="running"))


def test_the_next_begins_as_the_last_ends(ask: Ask, worker: Callable[..., Process]) -> None:
    """Without the sweep: the end of the one rings for the next."""
    runs = [ask("talk", conversation="c") for _ in range(3)]
    worker(INSTRUCT_SWEEP_INTERVAL="600")
    ended = [wait_for_end(run) for run in runs]
    assert [run.status for run in ended] == ["succeeded"] * 3
    moments = [moment for run in runs for moment in (reread(run).started_at, reread(run).ended_at)]
    assert moments == sorted(moments, key=lambda moment: moment or now())


def test_a_stopped_run_makes_way_for_the_next(ask: Ask, worker: Callable[..., Process]) -> None:
    first, second = ask("slow", conversation="c"), ask("talk", conversation="c")
    assert reread(first).cancel()
    worker(INSTRUCT_SWEEP_INTERVAL="600")
    assert wait_for_end(second).status == "succeeded"


def test_a_request_may_refuse_to_wait(ask: Ask, app: Flask) -> None:
    ask("talk", conversation="c")
    with pytest.raises(ConversationBusy, match="'c'"):
        ask("talk", conversation="c", when_busy="reject")
    assert db.session.scalar(sa.select(sa.func.count(Run.id))) == 1
    ask("talk", conversation="free", when_busy="reject")


def test_a_request_may_take_the_place_of_those_before(ask: Ask, app: Flask) -> None:
    at_work, waiting = ask("talk", conversation="c"), ask("talk", conversation="c")
    assert held(app, at_work)
    latest = ask("talk", conversation="c", when_busy="supersede")
    assert reread(waiting).status == "cancelled"
    assert (reread(at_work).status, reread(at_work).cancel_requested) == ("cancelling", True)
    assert reread(latest).status == "queued"


def test_what_takes_the_place_of_others_and_is_rolled_back_leaves_them_alone(ask: Ask, app: Flask) -> None:
    before = ask("talk", conversation="c")
    ask("talk", conversation="c", when_busy="supersede", commit=False)
    db.session.rollback()
    assert reread(before).status == "queued"
    state = app.extensions["instruct"]
    assert not state.redis.exists(stop_mark(state, before.id))


def test_an_unknown_policy_is_named(ask: Ask, app: Flask) -> None:
    with pytest.raises(ValueError, match="queue, reject, supersede"):
        ask("talk", conversation="c", when_busy="panic")


# -- the same request twice --------------------------------------------------------------------------------------------


def test_the_same_request_twice_is_one_run(ask: Ask, app: Flask) -> None:
    first = ask("write_two", idempotency_key="order-7")
    second = ask("write_two", idempotency_key="order-7")
    assert first.id == second.id
    generate(first.id)
    assert ask("write_two", idempotency_key="order-7").id == first.id
    assert ask("write_two", idempotency_key="order-8").id != first.id


def test_a_key_of_another_request_is_an_error_and_the_first_goes_on(ask: Ask, app: Flask) -> None:
    """A second start under one id with other work is a clear error (dbos-transact-ts#725)."""
    first = ask("talk", idempotency_key="k")
    record = db.session.scalars(sa.select(Notebook)).one()
    with pytest.raises(ValueError, match="used for another request"):
        instruct.generate_for(NoteKeeper(record), user_prompt="Something else.", idempotency_key="k")
    db.session.rollback()
    generate(first.id)
    assert reread(first).status == "succeeded"


def test_two_at_once_with_one_key_are_one_run(app: Flask, settings: dict[str, str]) -> None:
    found: list[str] = []
    together = threading.Barrier(4)

    def ask_at_once() -> None:
        with app.app_context():
            record = db.session.scalars(sa.select(Notebook)).one()
            together.wait()
            run = instruct.generate_for(
                NoteKeeper(record), user_prompt="Go.", model="scripted:talk", idempotency_key="k"
            )
            found.append(run.id)
            db.session.remove()

    threads = [threading.Thread(target=ask_at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (4, 1)


# -- a share for each person -------------------------------------------------------------------------------------------


def test_one_person_has_so_many_runs_at_work(ask: Ask, app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    state = app.extensions["instruct"]
    monkeypatch.setattr(state, "config", replace(state.config, runs_per_actor=2))
    ada = [ask("talk", actor="ada") for _ in range(3)]
    assert [held(app, run) for run in ada] == [True, True, False]
    assert held(app, ask("talk", actor="bob"))
    assert held(app, ask("talk", actor=None))


def test_g3_a_keyed_request_that_is_rolled_back_starts_no_run(ask: Ask, app: Flask) -> None:
    record = db.session.scalars(sa.select(Notebook)).one()
    record.title = "Never"
    instruct.generate_for(
        NoteKeeper(record), user_prompt="Go.", model="scripted:talk", idempotency_key="k", commit=False
    )
    db.session.rollback()
    assert db.session.scalar(sa.select(sa.func.count(Run.id))) == 0
    assert db.session.scalars(sa.select(Notebook)).one().title == "Field notes"
