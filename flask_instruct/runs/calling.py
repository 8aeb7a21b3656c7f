"""One tool call inside its transaction: what a person has decided about it, the tool itself, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from ..effects import Promise
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
from .asking import ask_again
from .asking import refused
from .asking import verdict
from .capture import Capture
from .change import keep
from .effects import Effects
from .guard import Guard
from .models import ToolCall
from .proposals import Proposal
from .proposals import Proposed
from .proposals import Stage
from .proposals import in_order
from .proposals import unseen
from .rows import update
from .steps import Steps
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State

ACCEPTED = "A person has seen what this call would change, and accepted all of it."
ACCEPTED_SOME = (
    "A person has seen what this call would change, and accepted {some} of {all} changes; the others were not made."
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a call ended, and what it changed; ``capture`` is None where nothing of it was kept.

    :param proposal: what a person is to decide about.
    """

    outcome: ToolOutcome
    decided: Verdict | None = None
    capture: Capture | None = None
    proposal: Proposal | None = None


class Calls:
    """The tool calls of one attempt at one run."""

    def __init__(
        self, state: State, steps: Steps, app_code: AppCode, effects: Effects, stage: Stage, actor: str | None
    ) -> None:
        self._state = state
        self._steps = steps
        self._app_code = app_code
        self._effects = effects
        self._stage = stage
        self._actor = actor
        self.guard: Guard | None = None
        """Keeps a tool from writing over what a person changed meanwhile, where the handler wants that."""

    def verdict(self, unit: Unit, call: ToolCall, request: ToolCallRequest) -> Verdict | None:
        """Return what a person has decided about a call, or None where nobody was asked."""
        # In a first attempt nobody can have been asked before.
        approval = approval_of(unit.ledger, call) if self._steps.attempt > 1 else None
        return None if approval is None else verdict(approval, request.call)

    def carry_out(self, unit: Unit, request: ToolCallRequest, call: ToolCall, decided: Verdict | None) -> Attempt:
        """Run the tool, show what it would do, do what was accepted, or none of it; tell the handler of a failure."""
        attempt = self._attempt(unit, request.call, call, decided)
        if attempt.outcome.error and attempt.outcome.asks is None and unit.stands:
            self.tell_failure(unit, request, attempt.outcome)
        return attempt

    def rehearse(self, unit: Unit, part: CallPart, call: ToolCall, before: Proposal) -> Proposed | ToolOutcome:
        """Carry a call out and roll it back; gives what it would do, or how it failed.

        :param before: what earlier calls of a preview would have done by then.
        """
        capture = Capture(self._state, unit.connection)
        promises: list[Promise] = []
        # What is rolled back is nothing that the run has read.
        guard, self.guard = self.guard, None
        try:
            with self._stage.rehearsing(unit, before) as streams:
                outcome = self._run(unit, part, call, capture, promises.append, approved=True, rehearsal=True)
        finally:
            self.guard = guard
        if outcome.error or not unit.stands:
            return outcome
        return Proposed(
            call.id,
            call.name,
            outcome.content,
            in_order(capture.changes),
            tuple(streams),
            tuple(promises),
            capture.problem or capture.once or unseen(capture.changes),
        )

    def tell_failure(self, unit: Unit, request: ToolCallRequest, outcome: ToolOutcome) -> None:
        """Call the handler's callback for a call that did not succeed."""
        self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))

    def write(self, unit: Unit, call: ToolCall, attempt: Attempt) -> None:
        """Write what came of a call: its result and its changes, or that a person is asked."""
        outcome, capture = attempt.outcome, attempt.capture
        if outcome.asks is not None:
            self._ask(unit, call, attempt)
            return
        values = call.answered(outcome.content, outcome.kind if outcome.error else None)
        if attempt.decided is not None:
            values["approver"] = attempt.decided.by
        if capture is not None:
            values |= {"changed": len(capture.changes), "undo_problem": capture.problem}
        # The object is not flushed with the tool's edits, and has nothing that a rollback would leave in it.
        update(unit, call, **values)
        if capture is not None:
            keep(unit.connection, call.run_id, call.id, capture.changes)

    def _ask(self, unit: Unit, call: ToolCall, attempt: Attempt) -> None:
        proposal = None if attempt.proposal is None else attempt.proposal.to_json()
        approval = None if attempt.decided is None else attempt.decided.approval
        if approval is None:
            ask(unit.ledger, call, attempt.outcome.asks or "", self._state.config, proposal)
        else:
            call.ask()
            ask_again(approval, self._state.config, proposal or Proposal().to_json())
        unit.ledger.flush()

    # -- one of the ways -------------------------------------------------------------------------------------------

    def _attempt(self, unit: Unit, part: CallPart, call: ToolCall, decided: Verdict | None) -> Attempt:
        if decided is not None and decided.refusal is not None:
            return Attempt(refused(decided), decided)
        if decided is not None and decided.approval is not None and decided.approval.proposal is not None:
            proposal = Proposal.from_json(decided.approval.proposal)
            if proposal.problem is None:
                return self._accept(unit, call, decided, proposal)
        capture = Capture(self._state, unit.connection)
        part = part if decided is None else decided.part
        outcome = self._run(unit, part, call, capture, self._effects.keep(unit, call), approved=decided is not None)
        if outcome.asks is not None and outcome.previews:
            return self._show(unit, part, call, outcome)
        if decided is not None and decided.note:
            outcome = replace(outcome, content=f"{decided.note}\n{outcome.content}")
        return Attempt(outcome, decided, capture)

    def _show(self, unit: Unit, part: CallPart, call: ToolCall, asked: ToolOutcome) -> Attempt:
        proposed = self.rehearse(unit, part, call, Proposal())
        if isinstance(proposed, ToolOutcome):
            return Attempt(proposed)
        return Attempt(asked, proposal=Proposal((proposed,)))

    def _accept(self, unit: Unit, call: ToolCall, decided: Verdict, proposal: Proposal) -> Attempt:
        """Do just what a person has seen and accepted; where the rows have moved on, or the arguments, show it anew."""
        assert decided.approval is not None
        numbers = decided.approval.chosen
        chosen = proposal.chosen(numbers)
        conflicts: tuple[str, ...] = ()
        if proposal.calls:
            accepted = self._stage.accept(unit, proposal, numbers)
            if not accepted.conflicts:
                return self._accepted(unit, call, decided, proposal, chosen, accepted.captures[call.id])
            conflicts = tuple(accepted.conflicts)
        proposed = self.rehearse(unit, decided.part, call, Proposal())
        if isinstance(proposed, ToolOutcome):
            return Attempt(proposed, decided)
        asked = ToolOutcome("", "not_approved", asks=decided.approval.reason or "", previews=True)
        return Attempt(asked, decided, proposal=Proposal((proposed,), conflicts))

    def _accepted(
        self, unit: Unit, call: ToolCall, decided: Verdict, proposal: Proposal, chosen: Proposal, capture: Capture
    ) -> Attempt:
        [proposed] = chosen.calls
        if proposed.promises:
            self._effects.keep_all(unit, call, proposed.promises)
        if self.guard is not None:
            self.guard.read.clear()
            self.guard.begin(unit.connection)
        some, every = len(chosen.changes), len(proposal.changes)
        note = ACCEPTED if some == every else ACCEPTED_SOME.format(some=some, all=every)
        told = "\n".join(line for line in (decided.note, note, proposed.result if some == every else "") if line)
        return Attempt(ToolOutcome(told, "ok"), decided, capture)

    def _run(
        self,
        unit: Unit,
        part: CallPart,
        call: ToolCall,
        capture: Capture,
        promise: Callable[[Promise], Any],
        *,
        approved: bool,
        rehearsal: bool = False,
    ) -> ToolOutcome:
        context = ToolContext(
            id=call.id,
            run_id=self._steps.run_id,
            name=call.name,
            seq=call.seq,
            idempotency_key=call.idempotency_key,
            actor=self._actor,
            attempt=self._steps.attempt,
            approved=approved,
            rehearsal=rehearsal,
            promise=promise,
        )
        config = self._state.config

        def work(handler: AiResponseHandler) -> ToolOutcome:
            if self.guard is not None:
                self.guard.begin(unit.connection)
            outcome = run_tool(
                handler,
                part,
                context,
                argument_bytes=config.argument_bytes,
                result_chars=config.result_chars,
            )
            if self.guard is None or outcome.error:
                return outcome
            self._state.db.session.flush()
            return self.guard.check(unit.connection, outcome)

        return self._app_code.run_tool(unit, call.name, work, capture)
