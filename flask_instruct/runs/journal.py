"""The only code that writes the ledger: records each step of a run, and fences every write.

A step is one transaction: the lease is checked and renewed, the rows are written, the page's fragments go into
the outbox, and after the commit they are published.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from typing import cast

import sqlalchemy as sa

from ..events import Event
from ..events import Finish
from ..events import LimitReached
from ..events import RetryScheduled
from ..events import RoundStarted
from ..events import ToolCallRequest
from ..events import UsageReported
from ..handlers import AiResponseHandler
from ..limits import Allowance
from ..limits import Reached
from ..orchestrator import Ending
from ..orchestrator import Recorder
from ..orchestrator import tell_ending
from ..tools import ToolOutcome
from ..tools import failure
from .app_code import AppCode
from .asking import Verdict
from .asking import has_decision
from .bounds import bound_tool
from .calling import Attempt
from .calling import Calls
from .claim import close_open_calls
from .columns import now
from .effects import Effects
from .endings import describe
from .guard import Guard
from .interruption import Interrupted
from .models import Run
from .models import ToolCall
from .notices import Notices
from .points import reach
from .prepared import Prepared
from .previews import Preview
from .proposals import Stage
from .queue import ring
from .quotas import Quotas
from .rounds import Rounds
from .rows import know
from .rows import update
from .steps import REFUSED
from .steps import LostLease
from .steps import Steps
from .turns import ring_for_next
from .watch import Watch

if TYPE_CHECKING:
    from ..state import State
    from ..tools import Tool


WAITS = ToolOutcome("", "not_approved", waits=True)
"""Of a call about which a person has to decide first."""


class UnitLost(Exception):
    """Raised when a tool has taken its unit of work down with it."""


class Journal(Recorder):
    """One worker's hold on one run."""

    def __init__(self, state: State, engine: sa.Engine, run: Run, watch: Watch, notices: Notices | None = None) -> None:
        self._state = state
        self._watch = watch
        self._engine = engine
        self._notices = notices or Notices(state)
        self._app_code = AppCode(state, self._notices, run.handler)
        self._steps = Steps(state, engine, run, self._notices, watch)
        self._rounds = Rounds(state, self._steps, self._notices, run.handler)
        self._effects = Effects(state, self._steps, self._notices)
        self._stage = Stage(state, self._notices)
        self._calls = Calls(state, self._steps, self._app_code, self._effects, self._stage, run.actor)
        self._preview = Preview(state, self._calls, self._effects, self._stage) if run.preview else None
        self._limits: dict[str, float] = {}
        self._asked: list[str] = []
        self._read = run.read
        self._quotas = Quotas(state, state.db.engine, run, self._note_limit)

    def attach(self, handler: AiResponseHandler, offered: Iterable[type[Tool]], *, heard: bool = False) -> None:
        """Learn what the handler wants to hear, and how long its tools may take.

        :param heard: it may have heard text of an answer that was thrown away as the run was taken up again.
        """
        self._rounds.attach(handler)
        guard = self._calls.guard = Guard.of(self._state, handler, self._read)
        if guard is not None and self._read is None:
            with self._steps.step() as (unit, run):
                guard.begin(unit.connection)
                run.read = dict(guard.read)
        self._limits = {tool.identifier: tool.timeout for tool in (*type(handler)._instruct_toolbox.tools, *offered)}
        if heard:
            self._rounds.lost(heard=True)

    def take_up(self, run: Run) -> None:
        """Carry out the effects that a dead worker had not begun, and put what became of them into the results."""
        told = self._effects.carry_out()
        for call in [call for message in run.messages for call in message.calls]:
            call.result = told.get(call.id, call.result)

    def checkpoint(self) -> None:
        self._watch.checkpoint()

    def listening(self) -> AbstractContextManager[None]:
        return self._watch.listening()

    # -- limits ----------------------------------------------------------------------------------------------------

    def allowance(self) -> Allowance:
        return self._limit_met

    def limit_noted(self) -> LimitReached | None:
        return self._quotas.noted()

    def _limit_met(self) -> Reached | None:
        with self._watch.undisturbed():
            return self._quotas.met()

    def _note_limit(self, name: str | None) -> None:
        with self._steps.step() as (_unit, run):
            run.limit_reached = name

    # -- the model's turn ------------------------------------------------------------------------------------------

    def round_started(self, event: RoundStarted) -> None:
        self._rounds.started(event)

    def streamed(self, event: Event) -> None:
        self._rounds.streamed(event)

    def usage(self, event: UsageReported) -> None:
        self._rounds.counted(event.usage)

    def round_finished(self, finish: Finish) -> None:
        self._rounds.finished(finish)

    def may_discard(self) -> bool:
        return self._rounds.may_discard()

    def retry_scheduled(self, event: RetryScheduled) -> None:
        self._rounds.discarded(event)

    def wait(self, seconds: float) -> None:
        self._steps.wait(seconds)

    # -- tools -----------------------------------------------------------------------------------------------------

    def execute(self, request: ToolCallRequest) -> ToolOutcome:
        """Run one tool call: its edits, result and broadcasts are committed together, or not at all.

        What it asked for after the commit follows, before anything else of the run.

        :raises LostLease: when another worker has the run.
        """
        self._watch.look()
        begun = self._rounds.take_begun(request)
        call, decided = (begun, None) if begun is not None else self._begin_call(request)
        if decided is not None and decided.pending:
            return WAITS
        reach("tool begun")
        outcome: ToolOutcome | None = None
        try:
            with self._steps.unit() as unit:
                # A name that is not among them is no tool, or was hidden as the run began.
                bound_tool(
                    unit.connection, self._limits.get(request.tool_name, max(self._limits.values(), default=0.0))
                )
                held = _HELD_CALL.execute(unit.connection, {"call": call.id}).first()
                if held != ("running", self._steps.attempt):
                    raise LostLease(f"Call {call.id} is no longer ours.")
                unit.ledger.add(call)
                if self._preview is not None:
                    attempt = Attempt(self._preview.carry_out(unit, request, call))
                else:
                    attempt = self._calls.carry_out(unit, request, call, decided)
                outcome = attempt.outcome
                reach("tool returned")
                if not unit.stands:
                    raise UnitLost
                self._calls.write(unit, call, attempt)
                # Last and not first: on PostgreSQL the run's row stays free for a person's stop while the tool runs.
                run = self._steps.fence(unit)
                run.is_doing()
                if self._calls.guard is not None:
                    run.read = dict(self._calls.guard.read)
                if self._effects.wanted:
                    unit.ledger.expire(call, ["effects"])
                else:
                    know(call, effects=[])
                self._notices.tell(unit, "call_changed", run, call)
        except LostLease:
            raise
        except (UnitLost, Interrupted):
            if outcome is None or not outcome.error:
                raise
            return self._fail_call(request, call.id, Attempt(outcome, decided))
        except REFUSED as refusal:
            # Only at the commit: a deferred constraint.
            given = outcome.arguments if outcome is not None else None
            return self._fail_call(request, call.id, Attempt(failure(request.tool_name, refusal, given), decided))
        reach("tool committed")
        if outcome.asks is not None:
            self._asked.append(call.id)
            return WAITS
        if outcome.error or not self._effects.wanted:
            return outcome
        told = self._effects.carry_out(call.id)
        return replace(outcome, content=told.get(call.id, outcome.content))

    def _begin_call(self, request: ToolCallRequest) -> tuple[ToolCall, Verdict | None]:
        """Write down that a call is carried out now, unless a person has not decided about it."""
        with self._steps.step() as (unit, run):
            call = unit.ledger.scalars(
                sa.select(ToolCall)
                .where(
                    ToolCall.run_id == run.id,
                    ToolCall.provider_call_id == request.id,
                    ToolCall.result.is_(None),
                    ToolCall.id.not_in(self._asked),
                )
                .order_by(ToolCall.seq)
                .limit(1)
            ).first()
            if call is None:
                raise LostLease(f"Call {request.id!r} of run {run.id} has been answered elsewhere.")
            decided = self._calls.verdict(unit, call, request)
            if decided is not None and decided.pending:
                self._asked.append(call.id)
                return call, decided
            update(unit, call, **call.begun(self._steps.attempt))
            run.is_doing(call)
            self._notices.tell(unit, "call_changed", run, call)
        return call, decided

    def _fail_call(self, request: ToolCallRequest, call_id: str, attempt: Attempt) -> ToolOutcome:
        """Write down the failure of a call whose own transaction is gone, and every edit of the tool with it."""
        with self._steps.step() as (unit, run):
            call = unit.ledger.get(ToolCall, call_id)
            assert call is not None
            self._calls.tell_failure(unit, request, attempt.outcome)
            self._calls.write(unit, call, attempt)
            self._notices.tell(unit, "call_changed", run, call)
        return attempt.outcome

    # -- the end ---------------------------------------------------------------------------------------------------

    def ended(self, ending: Ending) -> None:
        if ending.waiting:
            self._put_down()
            return
        if self._preview is not None and ending.error is None and not ending.stopped and self._waits(self._preview):
            return
        reach("before the end")
        status, error_class, safe, technical = describe(ending)
        with self._steps.step() as (unit, run):
            self._rounds.cut_off(unit, run, status if ending.stopped else error_class)
            close_open_calls(unit, run, self._notices)
            self._app_code.call_back(unit, lambda handler: tell_ending(handler, ending))
            run.status = status
            run.cancel_requested = run.cancel_requested or ending.stopped
            run.error_class, run.error_safe, run.error_technical = error_class, safe, technical
            run.limit_reached = ending.limit.limit if ending.limit is not None else None
            run.lease_until = run.retry_at = None
            run.ended_at = now()
            unit.ledger.flush()
            self._notices.tell(unit, "run_changed", run)
            ring_for_next(self._state, unit, run)
        reach("ended")

    def _waits(self, preview: Preview) -> bool:
        """Do what was accepted of a preview, or put the run down until a person has decided about it."""
        reach("before the wait")
        with self._steps.step() as (unit, run):
            waits = preview.settle(unit, run) and not run.cancel_requested
            if waits:
                run.status, run.lease_until, run.queued_at = "waiting_approval", None, now()
            unit.ledger.flush()
            unit.ledger.expire(run, ["calls", "approvals"])
            self._notices.tell(unit, "run_changed", run)
            for call in () if waits else run.calls:
                self._notices.tell(unit, "call_changed", run, call)
        reach("put down")
        if not waits and self._effects.wanted:
            self._effects.carry_out()
        return waits

    def _put_down(self) -> None:
        """Leave the run until a person has decided; the worker is free for others."""
        reach("before the wait")
        with self._steps.step() as (unit, run):
            stopped = run.cancel_requested
            if not stopped:
                decided = has_decision(unit.ledger, run)
                run.status = "queued" if decided else "waiting_approval"
                run.lease_until = run.retry_at = None
                run.queued_at = now()
                unit.ledger.flush()
                self._notices.tell(unit, "run_changed", run)
                if decided:
                    unit.after_commit(partial(ring, self._state, run.id, run.attempt))
        reach("put down")
        if stopped:
            self.ended(Ending(stopped=True))

    def close(self) -> None:
        """Write down what Redis answered to the last broadcasts."""
        self._notices.flush(self._engine)


_CALLS = cast(sa.Table, ToolCall.__table__)
_HELD_CALL = Prepared(
    sa.select(_CALLS.c.status, _CALLS.c.attempt).where(_CALLS.c.id == sa.bindparam("call")).with_for_update()
)
