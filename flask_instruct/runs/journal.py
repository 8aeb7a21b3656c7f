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

import sqlalchemy as sa
from sqlalchemy.orm.attributes import set_committed_value

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
from ..tools import ToolContext
from ..tools import ToolOutcome
from ..tools import failure
from ..tools import run_tool
from ..tools import settle
from .app_code import AppCode
from .asking import Verdict
from .asking import approval_of
from .asking import ask
from .asking import has_decision
from .asking import refused
from .asking import verdict
from .bounds import bound_tool
from .claim import close_open_calls
from .columns import now
from .effects import Effects
from .endings import describe
from .interruption import Interrupted
from .models import Run
from .models import ToolCall
from .notices import Notices
from .points import reach
from .queue import ring
from .quotas import Quotas
from .rounds import Rounds
from .steps import REFUSED
from .steps import LostLease
from .steps import Steps
from .turns import ring_for_next
from .unit import Unit
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

    def __init__(self, state: State, engine: sa.Engine, run: Run, watch: Watch) -> None:
        self._state = state
        self._watch = watch
        self._engine = engine
        self._actor = run.actor
        self._notices = Notices(state)
        self._app_code = AppCode(state, self._notices, run.handler)
        self._steps = Steps(state, engine, run, self._notices, watch)
        self._rounds = Rounds(state, self._steps, self._notices, run.handler)
        self._effects = Effects(state, self._steps, self._notices)
        self._limits: dict[str, float] = {}
        self._asked: list[str] = []
        self._quotas = Quotas(state, state.db.engine, run, self._note_limit)

    def attach(self, handler: AiResponseHandler, offered: Iterable[type[Tool]], *, heard: bool = False) -> None:
        """Learn what the handler wants to hear, and how long its tools may take.

        :param heard: it may have heard text of an answer that was thrown away as the run was taken up again.
        """
        self._rounds.attach(handler)
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
        self._watch.checkpoint()
        begun = self._rounds.take_begun(request)
        call_id, decided = (begun, None) if begun is not None else self._begin_call(request)
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
                call = unit.ledger.get(ToolCall, call_id, with_for_update=True)
                assert call is not None
                if call.status != "running" or call.attempt != self._steps.attempt:
                    raise LostLease(f"Call {call.id} is no longer ours.")
                outcome = self._attempt_call(unit, request, call, decided)
                reach("tool returned")
                if not unit.stands:
                    raise UnitLost
                self._write_outcome(unit, call, outcome, decided)
                unit.ledger.flush()
                # Last and not first: on PostgreSQL the run's row stays free for a person's stop while the tool runs.
                run = self._steps.fence(unit)
                run.is_doing()
                if not self._effects.wanted:
                    set_committed_value(call, "effects", [])
                self._notices.tell(unit, "call_changed", run, call)
        except LostLease:
            raise
        except (UnitLost, Interrupted):
            if outcome is None or not outcome.error:
                raise
            return self._fail_call(request, call_id, outcome, decided)
        except REFUSED as refusal:
            # Only at the commit: a deferred constraint.
            given = outcome.arguments if outcome is not None else None
            return self._fail_call(request, call_id, failure(request.tool_name, refusal, given), decided)
        reach("tool committed")
        if outcome.asks is not None:
            self._asked.append(call_id)
            return WAITS
        if outcome.error or not self._effects.wanted:
            return outcome
        told = self._effects.carry_out(call_id)
        return replace(outcome, content=told.get(call_id, outcome.content))

    def _begin_call(self, request: ToolCallRequest) -> tuple[str, Verdict | None]:
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
            decided = self._verdict(unit, call, request)
            if decided is not None and decided.pending:
                self._asked.append(call.id)
                return call.id, decided
            call.begin(self._steps.attempt)
            unit.ledger.flush()
            run.is_doing(call)
            self._notices.tell(unit, "call_changed", run, call)
        return call.id, decided

    def _verdict(self, unit: Unit, call: ToolCall, request: ToolCallRequest) -> Verdict | None:
        """Return what a person has decided about a call, or None where nobody was asked."""
        # In a first attempt nobody can have been asked before.
        approval = approval_of(unit.ledger, call) if self._steps.attempt > 1 else None
        return None if approval is None else verdict(approval, request.call)

    def _attempt_call(
        self, unit: Unit, request: ToolCallRequest, call: ToolCall, decided: Verdict | None
    ) -> ToolOutcome:
        outcome = self._decided_call(unit, request, call, decided)
        if outcome.error and outcome.asks is None and unit.stands:
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
        return outcome

    def _decided_call(
        self, unit: Unit, request: ToolCallRequest, call: ToolCall, decided: Verdict | None
    ) -> ToolOutcome:
        if decided is not None and decided.refusal is not None:
            return refused(decided)
        part = request.call if decided is None else decided.part
        context = ToolContext(
            id=call.id,
            run_id=self._steps.run_id,
            name=call.name,
            seq=call.seq,
            idempotency_key=call.idempotency_key,
            actor=self._actor,
            attempt=self._steps.attempt,
            approved=decided is not None,
            promise=self._effects.keep(unit, call),
        )
        config = self._state.config

        def work(handler: AiResponseHandler) -> ToolOutcome:
            return run_tool(
                handler,
                part,
                context,
                argument_bytes=config.argument_bytes,
                result_chars=config.result_chars,
            )

        outcome = self._app_code.run_tool(unit, call.name, work)
        if decided is None or not decided.note:
            return outcome
        return replace(outcome, content=f"{decided.note}\n{outcome.content}")

    def _write_outcome(self, unit: Unit, call: ToolCall, outcome: ToolOutcome, decided: Verdict | None) -> None:
        if outcome.asks is not None:
            ask(unit.ledger, call, outcome.asks, self._state.config)
            return
        call.approver = decided.by if decided is not None else None
        call.answer(outcome.content, outcome.kind if outcome.error else None)

    def _fail_call(
        self, request: ToolCallRequest, call_id: str, outcome: ToolOutcome, decided: Verdict | None = None
    ) -> ToolOutcome:
        """Write down the failure of a call whose own transaction is gone, and every edit of the tool with it."""
        with self._steps.step() as (unit, run):
            call = unit.ledger.get(ToolCall, call_id)
            assert call is not None
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
            self._write_outcome(unit, call, outcome, decided)
            unit.ledger.flush()
            self._notices.tell(unit, "call_changed", run, call)
        return outcome

    # -- the end ---------------------------------------------------------------------------------------------------

    def ended(self, ending: Ending) -> None:
        if ending.waiting:
            self._put_down()
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
