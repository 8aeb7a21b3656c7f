"""The only code that writes the ledger: records each step of a run, and fences every write.

A step is one transaction: the lease is checked and renewed, the rows are written, the page's fragments go into
the outbox, and after the commit they are published.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
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
from .bounds import bound_tool
from .capture import Capture
from .change import keep
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
        self._read = run.read
        self._guard: Guard | None = None
        self._quotas = Quotas(state, state.db.engine, run, self._note_limit)

    def attach(self, handler: AiResponseHandler, offered: Iterable[type[Tool]], *, heard: bool = False) -> None:
        """Learn what the handler wants to hear, and how long its tools may take.

        :param heard: it may have heard text of an answer that was thrown away as the run was taken up again.
        """
        self._rounds.attach(handler)
        self._guard = Guard.of(self._state, handler, self._read)
        if self._guard is not None and self._read is None:
            with self._steps.step() as (unit, run):
                self._guard.begin(unit.connection)
                run.read = dict(self._guard.read)
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
        call_id = self._rounds.take_begun(request) or self._begin_call(request)
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
                capture = Capture(self._state, unit.connection)
                outcome = self._attempt_call(unit, request, call, capture)
                reach("tool returned")
                if not unit.stands:
                    raise UnitLost
                call.answer(outcome.content, outcome.kind if outcome.error else None)
                call.changed, call.undo_problem = len(capture.changes), capture.problem
                unit.ledger.flush()
                keep(unit.connection, call.run_id, call.id, capture.changes)
                # Last and not first: on PostgreSQL the run's row stays free for a person's stop while the tool runs.
                run = self._steps.fence(unit)
                run.is_doing()
                if self._guard is not None:
                    run.read = dict(self._guard.read)
                if not self._effects.wanted:
                    set_committed_value(call, "effects", [])
                self._notices.tell(unit, "call_changed", run, call)
        except LostLease:
            raise
        except (UnitLost, Interrupted):
            if outcome is None or not outcome.error:
                raise
            return self._fail_call(request, call_id, outcome)
        except REFUSED as refusal:
            # Only at the commit: a deferred constraint.
            given = outcome.arguments if outcome is not None else None
            return self._fail_call(request, call_id, failure(request.tool_name, refusal, given))
        reach("tool committed")
        if outcome.error or not self._effects.wanted:
            return outcome
        told = self._effects.carry_out(call_id)
        return replace(outcome, content=told.get(call_id, outcome.content))

    def _begin_call(self, request: ToolCallRequest) -> str:
        with self._steps.step() as (unit, run):
            call = unit.ledger.scalars(
                sa.select(ToolCall)
                .where(
                    ToolCall.run_id == run.id,
                    ToolCall.provider_call_id == request.id,
                    ToolCall.result.is_(None),
                )
                .order_by(ToolCall.seq)
                .limit(1)
            ).first()
            if call is None:
                raise LostLease(f"Call {request.id!r} of run {run.id} has been answered elsewhere.")
            call.begin(self._steps.attempt)
            unit.ledger.flush()
            run.is_doing(call)
            self._notices.tell(unit, "call_changed", run, call)
        return call.id

    def _attempt_call(self, unit: Unit, request: ToolCallRequest, call: ToolCall, capture: Capture) -> ToolOutcome:
        context = ToolContext(
            id=call.id,
            run_id=self._steps.run_id,
            name=call.name,
            seq=call.seq,
            idempotency_key=call.idempotency_key,
            actor=self._actor,
            attempt=self._steps.attempt,
            promise=self._effects.keep(unit, call),
        )
        config = self._state.config

        def work(handler: AiResponseHandler) -> ToolOutcome:
            if self._guard is not None:
                self._guard.begin(unit.connection)
            outcome = run_tool(
                handler,
                request.call,
                context,
                argument_bytes=config.argument_bytes,
                result_chars=config.result_chars,
            )
            if self._guard is None or outcome.error:
                return outcome
            self._state.db.session.flush()
            return self._guard.check(unit.connection, outcome)

        outcome = self._app_code.run_tool(unit, call.name, work, capture)
        if outcome.error and unit.stands:
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
        return outcome

    def _fail_call(self, request: ToolCallRequest, call_id: str, outcome: ToolOutcome) -> ToolOutcome:
        """Write down the failure of a call whose own transaction is gone, and every edit of the tool with it."""
        with self._steps.step() as (unit, run):
            call = unit.ledger.get(ToolCall, call_id)
            assert call is not None
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
            call.answer(outcome.content, outcome.kind if outcome.error else None)
            unit.ledger.flush()
            self._notices.tell(unit, "call_changed", run, call)
        return outcome

    # -- the end ---------------------------------------------------------------------------------------------------

    def ended(self, ending: Ending) -> None:
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

    def close(self) -> None:
        """Write down what Redis answered to the last broadcasts."""
        self._notices.flush(self._engine)
