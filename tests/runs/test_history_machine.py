"""What the ledger tells of a run, whatever workers, people and crashes do in whatever order: each call has at most one
result, exactly one before the next model call, a call that waits for a person runs once and only if it was approved,
and a run's status takes only the ways that there are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from datetime import timedelta
from typing import Any
from typing import ClassVar

import pytest
import sqlalchemy as sa
from flask import Flask
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test

from flask_instruct.errors import AlreadyDecided
from flask_instruct.errors import ProviderError
from flask_instruct.errors import Stopped
from flask_instruct.events import Finish
from flask_instruct.events import RetryScheduled
from flask_instruct.events import RoundStarted
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallRequest
from flask_instruct.orchestrator import Ending
from flask_instruct.prompt import Message
from flask_instruct.prompt import Text
from flask_instruct.prompt import ToolCall
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.claim import claim
from flask_instruct.runs.columns import now
from flask_instruct.runs.deciding import end_patience
from flask_instruct.runs.history import transcript
from flask_instruct.runs.journal import Journal
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import ENDED
from flask_instruct.runs.models import HELD
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.steps import LostLease
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.watch import Watch
from flask_instruct.tools import ToolOutcome

from .conftest import notes
from .notebook import ChiefKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]

WAYS: dict[str, set[str]] = {
    "queued": {"running", "cancelled"},
    "running": {"retrying", "waiting_approval", "queued", "cancelling", "cancelled", "succeeded", "failed"},
    "retrying": {"running", "cancelling", "cancelled", "failed"},
    "waiting_approval": {"queued", "cancelled"},
    "cancelling": {"cancelled", "succeeded", "failed"},
    "failed": {"queued"},
    "succeeded": set(),
    "cancelled": set(),
}
"""Where a run may go from each status in one step; a stop that comes too late lets it end as it does. One that is put
down is queued at once where a person was faster.
"""

TOOLS = ("write", "publish", "flush_then_refuse", "commit_then_raise", "write_and_commit", "publish", "no_such_tool")


@dataclass
class Hold:
    """What one worker believes of the run that it has taken."""

    journal: Journal
    attempt: int
    open: list[ToolCall] = field(default_factory=list)
    waits: bool = False
    receiving: bool = False
    finish: Finish | None = None


def rows() -> list[Any]:
    """Everything that stands in the ledger and in the app's own table."""
    with db.engine.connect() as connection:
        tables = [table for table in Ledger.metadata.sorted_tables if table.name != "instruct_outbox"]
        kept = [list(connection.execute(sa.select(table).order_by(*table.primary_key))) for table in tables]
        outbox = connection.scalars(sa.select(Outbox.id).order_by(Outbox.seq))
        return [*kept, list(outbox), notes()]


class History(RuleBasedStateMachine):
    """One run after the other, in the hands of workers that lose it."""

    app: Flask
    ask: Ask
    texts = itertools.count()
    seen: ClassVar[set[str]] = set()
    """What has happened to an approval in any of the histories."""

    @initialize()
    def begin(self) -> None:
        self.ask_for_a_run()

    @precondition(lambda self: self.status in ENDED)
    @rule()
    def ask_again(self) -> None:
        self.ask_for_a_run()

    def ask_for_a_run(self) -> None:
        self.run_id = type(self).ask("talk", handler=ChiefKeeper).id
        self.holds: list[Hold] = []
        self.said: list[tuple[str, ...]] = []
        self.status = "queued"

    # -- workers ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.status not in ENDED)
    @rule(data=st.data(), steps=st.integers(1, 6))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        """The worker that has the run takes its next steps; without one, another takes the run."""
        for _ in range(steps):
            held = [hold for hold in self.holds if not self.is_stale(hold)]
            if held:
                self.step(held[-1], data)
            else:
                self.lose_the_lease()
                self.take()
            self.the_history_is_well_formed()
            self.the_status_takes_only_the_ways_that_there_are()

    @precondition(lambda self: self.status == "queued")
    @rule(names=st.lists(st.sampled_from(TOOLS), max_size=2), put_down=st.booleans())
    def come_to_a_wait(self, names: list[str], put_down: bool) -> None:
        """A worker takes the run, and comes to a call about which a person has to decide."""
        self.take()
        self.the_status_takes_only_the_ways_that_there_are()
        hold = self.holds[-1] if self.holds else None
        if hold is None or self.is_stale(hold) or hold.finish is not None:
            return
        if not hold.open:
            self.ask_the_model(hold)
            self.hear(hold, [*names, "publish"])
        while hold.open:
            self.carry_out(hold)
        if put_down and hold.waits:
            self.put_down(hold)

    @precondition(lambda self: any(self.is_stale(hold) for hold in self.holds))
    @rule(data=st.data())
    def wake_up(self, data: st.DataObject) -> None:
        """A worker that has lost the run goes on as if it had not."""
        self.step(next(hold for hold in self.holds if self.is_stale(hold)), data)

    @precondition(lambda self: self.status in HELD)
    @rule(first=st.booleans())
    def take_over(self, first: bool) -> None:
        """Another worker wants the run, after the lease or before."""
        if first:
            self.lose_the_lease()
        self.take()

    @precondition(lambda self: self.status in HELD and bool(self.holds))
    @rule()
    def break_off(self) -> None:
        """The run fails, or its worker sees the stop."""
        ending = Ending(stopped=True) if self.row().cancel_requested else Ending(error=ProviderError("overloaded", ""))
        hold = self.holds[-1]
        self.does(hold, lambda: hold.journal.ended(ending))

    def take(self) -> None:
        before = self.row()
        lost = before.status in HELD and before.lease_until is not None and before.lease_until < now()
        state = self.app.extensions["instruct"]
        engine = ledger_engine(db)
        claimed = claim(state, engine, self.run_id)
        if claimed is None:
            assert before.cancel_requested or before.resumes >= state.config.max_attempts or not lost
            return
        assert before.status == "queued" or lost
        run = claimed.run
        assert all(message.state == "complete" for message in run.messages)
        assert all(call.status != "running" for call in run.calls)
        hold = Hold(Journal(state, engine, run, Watch(state, engine, db.engine, run)), run.attempt)
        if run.attempt > 1:
            hold.journal.take_up(run)
        said = transcript(run)
        answered = {result.call_id for result in said[-1].results}
        turns = [message for message in said if message.role == "assistant"]
        hold.open = [call for call in turns[-1].calls if call.id not in answered] if turns else []
        hold.finish = Finish("stop", "", turns[-1]) if turns and not turns[-1].calls else None
        self.holds.append(hold)

    def lose_the_lease(self) -> None:
        with db.engine.begin() as connection:
            past = now() - timedelta(hours=1)
            held = sa.and_(Run.id == self.run_id, Run.status.in_(HELD))
            connection.execute(sa.update(Run).where(held).values(lease_until=past))

    def step(self, hold: Hold, data: st.DataObject) -> None:
        """Do what comes next in a talk."""
        if hold.open:
            self.carry_out(hold)
        elif hold.waits:
            self.put_down(hold)
        elif hold.finish is not None:
            self.does(hold, lambda: hold.journal.ended(Ending(finish=hold.finish)))
        elif hold.receiving:
            self.receive(hold, data)
        else:
            self.ask_the_model(hold)

    def carry_out(self, hold: Hold) -> None:
        outcomes: list[ToolOutcome] = []
        request = ToolCallRequest(hold.open[0])
        if self.does(hold, lambda: outcomes.append(hold.journal.execute(request))):
            hold.open.pop(0)
            hold.waits = hold.waits or outcomes[0].waits

    def put_down(self, hold: Hold) -> None:
        decided = any(one.status != "pending" for one in self.waiting())
        if self.does(hold, lambda: hold.journal.ended(Ending(waiting=True))):
            self.seen.add("decided before it was put down" if decided else "put down")

    def ask_the_model(self, hold: Hold) -> None:
        if not self.is_stale(hold):
            assert all(len(results) == 1 for turn in self.transcript() for results in turn)
        if self.does(hold, lambda: hold.journal.round_started(RoundStarted(len(self.said) + 1, "m", "scripted"))):
            hold.receiving = True

    def receive(self, hold: Hold, data: st.DataObject) -> None:
        heard = data.draw(st.sampled_from(["calls", "calls", "text", "failure", "end", "failure"]))
        if heard == "text":
            self.does(hold, lambda: hold.journal.streamed(TextDelta("w" * 2000)))
            return
        if heard == "failure":
            if self.does(hold, lambda: hold.journal.retry_scheduled(RetryScheduled(2, 0.0, "overloaded"))):
                hold.receiving = False
            return
        self.hear(hold, data.draw(st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)) if heard == "calls" else [])

    def hear(self, hold: Hold, names: list[str]) -> None:
        """The whole turn has come, with calls of these tools."""
        calls = [ToolCall(f"call_{n}", name, f'{{"text": "{next(self.texts)}"}}') for n, name in enumerate(names)]
        finish = Finish("tool_calls" if calls else "stop", "", Message("assistant", (Text("Well."), *calls)))
        if self.does(hold, lambda: hold.journal.round_finished(finish)):
            hold.receiving, hold.open, hold.finish = False, calls, None if calls else finish
            self.said.append(tuple(call.id for call in calls))

    # -- people ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.holds))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        before = self.row()
        assert before.cancel() == (before.status not in ENDED or before.status == "cancelled")
        self.the_status_takes_only_the_ways_that_there_are()
        # The worker has not seen it yet.
        self.step(self.holds[-1], data)

    @precondition(lambda self: self.status == "waiting_approval")
    @rule()
    def stop_while_it_waits(self) -> None:
        assert self.row().cancel()
        assert self.row().status == "cancelled"
        self.seen.add("withdrawn")

    @precondition(lambda self: bool(self.pending()))
    @rule(data=st.data())
    def approve(self, data: st.DataObject) -> None:
        asked = self.one_pending(data)
        instruct.approve(asked, actor="lead")
        self.is_decided(asked, "approved")

    @precondition(lambda self: bool(self.pending()))
    @rule(data=st.data())
    def approve_with_other_arguments(self, data: st.DataObject) -> None:
        asked = self.one_pending(data)
        instruct.approve(asked, actor="lead", arguments={"text": f"{next(self.texts)} edited", "copies": 2})
        self.is_decided(asked, "approved with other arguments")

    @precondition(lambda self: bool(self.pending()))
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        asked = self.one_pending(data)
        instruct.reject(asked, actor="lead", reason="Not now.")
        self.is_decided(asked, "rejected")

    @precondition(lambda self: bool(self.pending()))
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        asked = self.one_pending(data)
        asked.expires_at = now() - timedelta(seconds=1)
        db.session.commit()
        with pytest.raises(AlreadyDecided):
            instruct.approve(asked, actor="lead")
        assert end_patience(self.app.extensions["instruct"]) == 1
        self.is_decided(asked, "expired")

    def one_pending(self, data: st.DataObject) -> Approval:
        number = data.draw(st.integers(0, len(self.pending()) - 1))
        return self.pending()[number]

    def is_decided(self, asked: Approval, how: str) -> None:
        """What was decided stays so, and a run that has been put down goes on."""
        self.seen.add(how)
        assert self.status != "waiting_approval" or self.row().status == "queued"
        known = next(one for one in self.row().approvals if one.id == sa.inspect(asked).identity[0])
        with pytest.raises(AlreadyDecided):
            instruct.reject(known, actor="chief")

    @precondition(lambda self: self.status == "failed")
    @rule()
    def start_again(self) -> None:
        instruct.retry(self.row())

    # -- what holds always -----------------------------------------------------------------------------------------

    @invariant()
    def the_history_is_well_formed(self) -> None:
        turns = self.transcript()
        run = self.row()
        asked = {approval.call_id for approval in run.approvals}
        said = [message for message in run.messages if message.role == "assistant" and message.state == "complete"]
        for message, turn in zip(said, turns, strict=True):
            places = zip(message.calls, turn, strict=True)
            answers = [len(results) for call, results in places if call.id not in asked]
            assert answers == sorted(answers, reverse=True), "a call was answered before the one before it"
            assert set(answers) <= {0, 1}
        for turn in turns[:-1]:
            assert all(turn), "the model was asked before each call had its result"
        assert not run.ended or all(call.result is not None for call in run.calls)
        assert [call.seq for call in run.calls] == list(range(1, len(run.calls) + 1))

    @invariant()
    def what_was_approved_is_done_once_and_nothing_else_is(self) -> None:
        run, there = self.row(), notes()
        assert not run.ended or all(approval.status != "pending" for approval in run.approvals)
        for approval in run.approvals:
            assert approval.call is not None
            given = json.loads(approval.edited or approval.arguments)
            written = [f"{given['text']} {copy + 1}" for copy in range(given.get("copies", 1))]
            done = approval.call.status == "done"
            assert [there.count(text) for text in written] == [done] * len(written)
            assert not done or approval.status == "approved"
            assert approval.call.result is None or done or approval.status != "pending"

    @invariant()
    def the_status_takes_only_the_ways_that_there_are(self) -> None:
        status = self.row().status
        assert status == self.status or status in WAYS[self.status], f"{self.status} became {status}"
        self.status = status

    # -- how it is asked -------------------------------------------------------------------------------------------

    def row(self) -> Run:
        db.session.remove()
        return db.session.get_one(Run, self.run_id)

    def waiting(self) -> list[Approval]:
        """What was asked about calls that wait, decided or not."""
        return [one for one in self.row().approvals if one.call is not None and one.call.status == "asked"]

    def pending(self) -> list[Approval]:
        return [one for one in self.row().approvals if one.status == "pending"]

    def transcript(self) -> list[list[list[str]]]:
        """For each turn of the model, for each of its calls, its results."""
        turns: list[list[list[str]]] = []
        messages = [message for message in transcript(self.row()) if message.role in ("assistant", "tool")]
        complete = [message for message in messages if not message.text.endswith("stopped here.]")]
        for message in complete:
            if message.role == "assistant":
                ids = [call.id for call in message.calls]
                turns.append([[] for _ in ids])
                continue
            for result in message.results:
                turns[-1][ids.index(result.call_id)].append(result.content)
        assert [tuple(call.id for call in message.calls) for message in complete if message.role == "assistant"] == (
            self.said
        )
        return turns

    def is_stale(self, hold: Hold) -> bool:
        run = self.row()
        return run.attempt != hold.attempt or run.status not in HELD

    def does(self, hold: Hold, step: Callable[[], object]) -> bool:
        """Let a worker take a step; one that has lost the run must be told so and change nothing."""
        before = rows()
        if not self.is_stale(hold):
            try:
                step()
            except Stopped:
                # Seen before a tool: nothing of it has begun.
                assert self.row().cancel_requested
                assert rows() == before
                return False
            return True
        # One that has also been stopped may hear of that first.
        with pytest.raises((LostLease, Stopped)):
            step()
        self.holds.remove(hold)
        assert rows() == before
        return False


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_g4_g6_whatever_happens_the_history_is_valid(app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "app", app, raising=False)
    monkeypatch.setattr(History, "ask", staticmethod(ask), raising=False)
    few = settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=30,
        stateful_step_count=12,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    History.seen.clear()
    run_state_machine_as_test(History, settings=few)
    assert History.seen == {
        "put down",
        "decided before it was put down",
        "approved",
        "approved with other arguments",
        "rejected",
        "expired",
        "withdrawn",
    }
