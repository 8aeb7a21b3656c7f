"""A call that needs a person waits for one without a worker: decided once, by whoever may, for just these arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from pydantic import ValidationError

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.arguments import InvalidArguments
from flask_instruct.errors import AlreadyDecided
from flask_instruct.errors import HandlerError
from flask_instruct.errors import NotAllowed
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from flask_instruct.runs.sweep import sweep
from flask_instruct.tools import Tool
from tests.support import Process
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import ChiefKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


@pytest.fixture
def asked(app: Flask, ask: Ask) -> Callable[..., Run]:
    """Start a run of the chief's with these calls in its first turn, and carry it out as far as it goes."""

    def asked(*tools: Use, then: list[list[object]] | None = None, **options: Any) -> Run:
        turns = [[Say("Let me see. "), *tools], *(then or [[Say("Done.")]])]
        run = ask(turns=turns, handler=ChiefKeeper, actor="author", **options)
        generate(run.id)
        return reread(run)

    return asked


def test_a_call_that_needs_approval_waits_without_a_worker(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    assert (run.status, run.lease_until, notes()) == ("waiting_approval", None, [])
    [call] = run.calls
    assert (call.status, call.result, call.started_at) == ("asked", None, None)
    approval = only()
    assert (approval.status, approval.tool, approval.arguments) == ("pending", "publish", '{"text":"one"}')
    go_on(run)
    assert (reread(run).status, notes()) == ("waiting_approval", [])


def test_an_approved_call_runs_once_and_the_talk_goes_on(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one", copies=2))
    instruct.approve(only(), actor="lead")
    assert reread(run).status == "queued"
    go_on(run)
    run = reread(run)
    assert (run.status, notes()) == ("succeeded", ["one 1", "one 2", "finished: stop"])
    [call] = run.calls
    assert (call.status, call.result, call.approver) == ("done", "Published 2.", "lead")
    assert [message.text for message in run.messages] == ["Let me see. ", "Done."]
    go_on(run)
    assert notes() == ["one 1", "one 2", "finished: stop"]


def test_the_other_calls_of_the_turn_run_meanwhile(asked: Callable[..., Run]) -> None:
    run = asked(Use("write", text="a"), Use("publish", text="b"), Use("write", text="c"))
    assert notes() == ["a", "c"]
    assert [call.status for call in run.calls] == ["done", "asked", "done"]
    instruct.approve(only(), actor="lead")
    go_on(run)
    assert notes() == ["a", "c", "b 1", "finished: stop"]
    assert [call.result for call in reread(run).calls] == ["Wrote a.", "Published 1.", "Wrote c."]


def test_of_several_each_runs_as_it_is_decided(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="a"), Use("publish", text="b"))
    first, second = approvals()
    instruct.approve(second, actor="lead")
    go_on(run)
    assert (reread(run).status, notes()) == ("waiting_approval", ["b 1"])
    first, _ = approvals()
    instruct.reject(first, actor="chief", reason="Not yet.")
    go_on(run)
    run = reread(run)
    assert (run.status, notes()[:1]) == ("succeeded", ["b 1"])
    assert run.calls[0].result == "A person did not approve this call; it did not run. The reason: Not yet."
    assert (run.calls[0].status, run.calls[0].error_kind) == ("failed", "not_approved")
    assert "error in publish: ToolError" in notes()


def test_changed_arguments_run_and_the_model_hears_of_them(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one", copies=9))
    instruct.approve(only(), actor="lead", arguments={"text": "better", "copies": 1})
    go_on(run)
    run = reread(run)
    assert notes()[0] == "better 1"
    [call] = run.calls
    assert call.arguments == '{"text": "one", "copies": 9}'
    assert only().edited == '{"copies":1,"text":"better"}'
    assert call.result is not None
    assert call.result.endswith('it ran with these: {"copies":1,"text":"better"}\nPublished 1.')


@pytest.mark.parametrize("arguments", [{"text": "x", "copies": 99}, {"copies": 1}, {"text": "x", "evil": 1}, "{", "[]"])
def test_changed_arguments_that_do_not_fit_are_refused_and_nothing_is_decided(
    asked: Callable[..., Run], arguments: Any
) -> None:
    asked(Use("publish", text="one"))
    with pytest.raises((InvalidArguments, ValidationError)):
        instruct.approve(only(), actor="lead", arguments=arguments)
    assert only().status == "pending"


def test_malformed_arguments_are_told_to_the_model_and_nobody_is_asked(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text=["no", "text"], copies="many"))
    assert (run.status, approvals()) == ("succeeded", [])
    assert run.calls[0].error_kind == "invalid_arguments"


def test_a_rule_decides_by_the_arguments_and_says_why(asked: Callable[..., Run]) -> None:
    asked(Use("announce", text="hi"), Use("announce", text="hello all"))
    assert notes() == ["hi"]
    assert only().reason == "“hello all” is long"


def test_only_who_may_decides(asked: Callable[..., Run]) -> None:
    asked(Use("publish", text="one"))
    with pytest.raises(NotAllowed):
        instruct.approve(only(), actor="author")
    with pytest.raises(NotAllowed):
        instruct.reject(only(), actor="author")
    with pytest.raises(NotAllowed):  # the rule is asked for the new arguments too
        instruct.approve(only(), actor="lead", arguments={"text": "never"})
    assert only().status == "pending"
    assert [one.id for one in instruct.approvals(actor="lead")] == [only().id]
    assert instruct.approvals(actor="author") == []


def test_a_second_decision_hears_who_was_faster(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    approval = only()
    instruct.approve(approval, actor="lead")
    with pytest.raises(AlreadyDecided) as told:
        instruct.reject(approval, actor="chief")
    assert (told.value.status, told.value.decided_by) == ("approved", "lead")
    go_on(run)
    with pytest.raises(AlreadyDecided):
        instruct.approve(only(), actor="lead")
    assert notes()[:1] == ["one 1"]


def test_of_two_at_the_same_moment_one_decides(app: Flask, asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    approval_id = only().id
    start, outcomes = threading.Barrier(2), list[str]()

    def decide(actor: str) -> None:
        with app.app_context():
            approval = db.session.get_one(Approval, approval_id)
            start.wait()
            try:
                outcomes.append(instruct.approve(approval, actor=actor).decided_by or "")
            except AlreadyDecided as error:
                outcomes.append(f"lost to {error.decided_by}")
            finally:
                db.session.remove()

    threads = [threading.Thread(target=decide, args=[actor]) for actor in ("lead", "chief")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = only().decided_by
    assert sorted(outcomes) == sorted([winner, f"lost to {winner}"])
    go_on(run)
    assert notes() == ["one 1", "finished: stop"]


def test_an_approval_is_for_these_arguments_only(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    instruct.approve(only(), actor="lead")
    db.session.execute(sa.update(Approval).values(digest="0" * 64))
    db.session.commit()
    go_on(run)
    run = reread(run)
    assert run.calls[0].result == "The approval of this call was given for other arguments; it did not run."
    assert "one 1" not in notes()


def test_an_approval_expires_and_the_model_hears_so(app: Flask, asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    approval = only()
    approval.expires_at = now() - timedelta(seconds=1)
    db.session.commit()
    with pytest.raises(AlreadyDecided, match="expired"):
        instruct.approve(approval, actor="lead")
    sweep(app.extensions["instruct"])
    go_on(run)
    run = reread(run)
    assert (run.status, run.calls[0].result) == ("succeeded", "Nobody approved this call in time; it did not run.")
    assert only().status == "expired"


def test_a_reminder_comes_once(app: Flask, asked: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(instruct._hooks, "remind_approval", lambda approval: heard.append(approval.tool))
    asked(Use("publish", text="one"))
    sweep(app.extensions["instruct"])
    assert heard == []
    approval = db.session.get_one(Approval, only().id)
    approval.asked_at = now() - timedelta(days=2)
    db.session.commit()
    for _ in range(2):
        sweep(app.extensions["instruct"])
    assert heard == ["publish"]


def test_a_stop_ends_the_wait_and_the_approval(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"))
    assert run.cancel()
    run = reread(run)
    assert (run.status, run.calls[0].error_kind, only().status) == ("cancelled", "interrupted", "withdrawn")
    with pytest.raises(AlreadyDecided, match="withdrawn"):
        instruct.approve(only(), actor="lead")
    assert notes() == []


def test_a_worker_that_dies_in_an_approved_call_runs_it_once(
    app: Flask, asked: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(Use("publish", text="one"))
    instruct.approve(only(), actor="lead")
    db.session.execute(sa.update(Run).values(status="running", attempt=2, lease_until=now() - timedelta(seconds=1)))
    db.session.execute(sa.update(ToolCall).values(status="running", attempt=2))
    db.session.commit()
    go_on(run)
    assert (reread(run).status, notes()) == ("succeeded", ["one 1", "finished: stop"])
    assert len(approvals()) == 1


def test_the_wait_does_not_count_as_the_runs_time(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish", text="one"), limits={"seconds": 60})
    db.session.execute(sa.update(Run).values(queued_at=now() - timedelta(days=3), started_at=now() - timedelta(days=3)))
    db.session.commit()
    instruct.approve(only(), actor="lead")
    go_on(run)
    assert reread(run).status == "succeeded"


def test_a_decision_while_the_run_is_still_at_work_is_not_lost(app: Flask, ask: Ask) -> None:
    run = ask(turns=[[Use("publish", text="a"), Use("write", text="b")], []], handler=ChiefKeeper)
    from flask_instruct.runs.points import listen
    from flask_instruct.runs.points import unheard

    decided: list[str] = []

    def decide(point: str) -> None:
        if point == "before the wait" and not decided:
            decided.append(point)
            with app.app_context():
                instruct.approve(db.session.scalars(sa.select(Approval)).one(), actor="lead")
                db.session.remove()

    with unheard():
        listen(decide)  # type: ignore[arg-type]
        go_on(run)
    assert reread(run).status == "queued"
    go_on(run)
    assert (reread(run).status, notes()) == ("succeeded", ["b", "a 1", "finished: stop"])


def test_effects_of_an_approved_call_are_carried_out(asked: Callable[..., Run]) -> None:
    run = asked(Use("publish_by_mail", text="one"))
    assert notes() == []
    instruct.approve(only(), actor="lead")
    go_on(run)
    assert notes()[:2] == ["one", "mailed one"]
    assert "After the commit, mail: done." in (reread(run).calls[0].result or "")


def test_a_person_decides_and_another_worker_goes_on(ask: Ask, worker: Callable[..., Process]) -> None:
    first = worker()
    run = ask("ask_chief", handler=ChiefKeeper)
    wait_for(lambda: reread(run).status == "waiting_approval", 20)
    first.stop()
    assert notes() == ["a"]
    worker()
    instruct.approve(only(), actor="lead")
    assert wait_for_end(run).status == "succeeded"
    assert notes() == ["a", "b 1", "finished: stop"]


def test_a_call_whose_tool_has_changed_can_be_rejected_and_not_approved(
    asked: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(Use("publish", text="one"))
    monkeypatch.setattr(ChiefKeeper, "ai_tools", lambda self: [])
    with pytest.raises(HandlerError):
        instruct.approve(only(), actor="lead")
    assert instruct.approvals(actor="lead") == [only()]
    instruct.reject(only(), actor="lead", reason="It is no more.")
    go_on(run)
    assert "The reason: It is no more." in (reread(run).calls[0].result or "")


@pytest.mark.parametrize("answer", [None, (False, "not you"), ZeroDivisionError()])
def test_a_rule_that_fails_is_a_no_and_costs_nobody_their_other_approvals(
    asked: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    def rule(self: ChiefKeeper, tool: type[Tool], arguments: dict[str, object], actor: object) -> object:
        if arguments["text"] == "odd" and isinstance(answer, Exception):
            raise answer
        return answer if arguments["text"] == "odd" else True

    asked(Use("publish", text="odd"), Use("publish", text="even"))
    monkeypatch.setattr(ChiefKeeper, "authorize_approval", rule)
    odd, even = approvals()
    assert instruct.approvals(actor="lead") == [even]
    with pytest.raises(NotAllowed):
        instruct.approve(odd, actor="lead")


def go_on(run: Run) -> None:
    """Do what a worker does that hears of the run."""
    [run_id] = sa.inspect(run).identity
    generate(run_id)


def approvals() -> list[Approval]:
    """Return what people were asked, as it stands now."""
    return list(db.session.scalars(sa.select(Approval).order_by(Approval.id)))


def only() -> Approval:
    [approval] = approvals()
    return approval
