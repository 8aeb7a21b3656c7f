"""One tool call inside its transaction: what a person has decided about it, the tool itself, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

from ..events import ToolCallRequest
from ..handlers import AiResponseHandler
from ..prompt import ToolCall as CallPart
from ..tools import ToolContext
from ..tools import ToolOutcome
from ..tools import run_tool
from ..tools import settle
from .app_code import AppCode
from .asking import Verdict
from .asking import approval_of
from .asking import ask
from .asking import refused
from .asking import verdict
from .capture import Capture
from .change import keep
from .effects import Effects
from .models import ToolCall
from .rows import update
from .steps import Steps
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a call ended, and what it changed; ``capture`` is None where nothing of it was kept."""

    outcome: ToolOutcome
    decided: Verdict | None = None
    capture: Capture | None = None


class Calls:
    """The tool calls of one attempt at one run."""

    def __init__(self, state: State, steps: Steps, app_code: AppCode, effects: Effects, actor: str | None) -> None:
        self._state = state
        self._steps = steps
        self._app_code = app_code
        self._effects = effects
        self._actor = actor

    def verdict(self, unit: Unit, call: ToolCall, request: ToolCallRequest) -> Verdict | None:
        """Return what a person has decided about a call, or None where nobody was asked."""
        # In a first attempt nobody can have been asked before.
        approval = approval_of(unit.ledger, call) if self._steps.attempt > 1 else None
        return None if approval is None else verdict(approval, request.call)

    def carry_out(self, unit: Unit, request: ToolCallRequest, call: ToolCall, decided: Verdict | None) -> Attempt:
        """Run the tool, unless a person said no, and tell the handler of a failure."""
        capture = Capture(self._state, unit.connection)
        if decided is not None and decided.refusal is not None:
            outcome = refused(decided)
        else:
            outcome = self._run(unit, request.call if decided is None else decided.part, call, decided, capture)
        if outcome.error and outcome.asks is None and unit.stands:
            self.tell_failure(unit, request, outcome)
        return Attempt(outcome, decided, capture)

    def tell_failure(self, unit: Unit, request: ToolCallRequest, outcome: ToolOutcome) -> None:
        """Call the handler's callback for a call that did not succeed."""
        self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))

    def write(self, unit: Unit, call: ToolCall, attempt: Attempt) -> None:
        """Write what came of a call: its result and its changes, or that a person is asked."""
        outcome, capture = attempt.outcome, attempt.capture
        if outcome.asks is not None:
            ask(unit.ledger, call, outcome.asks, self._state.config)
            return
        values = call.answered(outcome.content, outcome.kind if outcome.error else None)
        if attempt.decided is not None:
            values["approver"] = attempt.decided.by
        if capture is not None and capture.problem is not None:
            values["undo_problem"] = capture.problem
        # The object is not flushed with the tool's edits, and has nothing that a rollback would leave in it.
        update(unit, call, **values)
        if capture is not None:
            keep(unit.connection, call.run_id, call.id, capture.changes)

    def _run(
        self, unit: Unit, part: CallPart, call: ToolCall, decided: Verdict | None, capture: Capture
    ) -> ToolOutcome:
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

        outcome = self._app_code.run_tool(unit, call.name, work, capture)
        if decided is None or not decided.note:
            return outcome
        return replace(outcome, content=f"{decided.note}\n{outcome.content}")
