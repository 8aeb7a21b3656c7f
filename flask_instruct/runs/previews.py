"""The preview of a whole run: its calls only show what they would do, a person decides about all of it at the end, and
what was accepted is done in one transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..errors import ToolError
from ..events import ToolCallRequest
from ..prompt import ToolCall as CallPart
from ..tools import ToolOutcome
from .approval import Approval
from .asking import ask_again
from .asking import asking_now
from .asking import digest_of
from .calling import Calls
from .change import keep
from .columns import now
from .effects import Effects
from .models import Run
from .models import ToolCall
from .proposals import Proposal
from .proposals import Stage
from .rows import update
from .strays import BESIDE
from .strays import KEPT
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State

WHOLE_RUN = "*"
"""In the place of a tool's name: the proposal is that of a whole run."""

NOTE = "(This is a preview: nothing was saved. A person decides about all of it when you have finished.)"


class Preview:
    """The preview of one run, under the lease of the worker that has it in hand."""

    def __init__(self, state: State, calls: Calls, effects: Effects, stage: Stage) -> None:
        self._state = state
        self._calls = calls
        self._effects = effects
        self._stage = stage

    def carry_out(self, unit: Unit, request: ToolCallRequest, call: ToolCall) -> ToolOutcome:
        """Show what a call would do, after those before it, and write it down with the others."""
        approval = proposal_of(unit.ledger, call.run_id)
        before = Proposal.from_json(None if approval is None else approval.proposal)
        proposed = self._calls.rehearse(unit, request.call, call, before)
        if isinstance(proposed, ToolOutcome):
            return proposed
        if proposed.problem is not None:
            told = f"{call.name} cannot be shown in a preview, so nothing of it was kept: {proposed.problem}"
            if proposed.problem == BESIDE:
                told = f"{call.name} cannot be shown in a preview: {proposed.problem} {KEPT}"
            return ToolOutcome(told, "no_preview", ToolError(told))
        if proposed.changes or proposed.promises:
            self._gather(unit.ledger, call.run_id, approval, before.and_(proposed))
        return ToolOutcome(f"{proposed.result}\n{NOTE}" if proposed.changes else proposed.result, "ok")

    def _gather(self, session: Session, run_id: str, approval: Approval | None, proposal: Proposal) -> None:
        if approval is None:
            digest = digest_of(WHOLE_RUN, run_id)
            approval = Approval(run_id=run_id, tool=WHOLE_RUN, arguments="{}", digest=digest, status="gathering")
            session.add(approval)
        approval.proposal = proposal.to_json()
        session.flush()

    def settle(self, unit: Unit, run: Run) -> bool:
        """Do what was accepted, as the run comes to its end; True while a person has to decide first."""
        approval = proposal_of(unit.ledger, run.id)
        if approval is None or approval.applied_at is not None:
            return False
        if approval.status == "gathering":
            approval.status = "pending"
            for name, value in asking_now(self._state.config).items():
                setattr(approval, name, value)
        elif approval.status == "approved":
            self._accept(unit, run, approval)
        unit.ledger.flush()
        return approval.status == "pending"

    def _accept(self, unit: Unit, run: Run, approval: Approval) -> None:
        proposal = Proposal.from_json(approval.proposal)
        chosen = proposal.chosen(approval.chosen)
        accepted = self._stage.accept(unit, proposal, approval.chosen)
        if accepted.conflicts:
            again = replace(self._anew(unit, run, proposal), conflicts=tuple(accepted.conflicts))
            ask_again(approval, self._state.config, again.to_json())
            return
        approval.applied_at = now()
        calls = {call.id: call for call in unit.ledger.scalars(sa.select(ToolCall).where(ToolCall.run_id == run.id))}
        for proposed in chosen.calls:
            call, capture = calls[proposed.call_id], accepted.captures[proposed.call_id]
            changed = len(capture.changes)
            update(unit, call, approver=approval.decided_by, changed=changed, undo_problem=capture.problem)
            keep(unit.connection, run.id, call.id, capture.changes)
            if proposed.promises:
                self._effects.keep_all(unit, call, proposed.promises)

    def _anew(self, unit: Unit, run: Run, proposal: Proposal) -> Proposal:
        """Carry the calls out once more, one after the other; what fails by now is proposed no longer."""
        anew = Proposal()
        for proposed in proposal.calls:
            call = unit.ledger.get_one(ToolCall, proposed.call_id)
            part = CallPart(call.provider_call_id, call.name, call.arguments)
            found = self._calls.rehearse(unit, part, call, anew)
            if not isinstance(found, ToolOutcome) and found.problem is None:
                anew = anew.and_(found)
        return anew


def proposal_of(session: Session, run_id: str) -> Approval | None:
    """Return what a whole run proposes, as it stands now."""
    query = sa.select(Approval).where(Approval.run_id == run_id, Approval.call_id.is_(None))
    return session.scalars(query).one_or_none()
