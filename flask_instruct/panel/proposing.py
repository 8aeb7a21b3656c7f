"""What a proposal would change, as people read it: row by row and field by field, each with a number to choose by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runs.approval import Approval
from ..runs.change import Recorded
from ..runs.models import Run
from ..runs.proposals import Proposal
from .differences import Difference
from .differences import differences
from .language import gettext
from .language import marked as _
from .language import ngettext
from .told import told
from .values import in_words
from .values import key_in_words
from .values import plain

SHOWN = 200
"""Changes of one proposal that are shown; more can only be decided about as a whole."""

ACTIONS: dict[str, str] = {
    "insert": _("New: %(what)s"),
    "update": _("Changed: %(what)s"),
    "delete": _("Deleted: %(what)s"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One row that would change."""

    number: int
    action: str
    title: str
    fields: list[Difference]


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """A proposal on a page.

    :param conflicts: why an earlier one could not be done.
    :param outside: what is done outside the database once all of it is accepted, by its method's name.
    :param problem: why not all of it can be shown, so that it is accepted as a whole or not at all.
    """

    changes: list[Shown]
    count: int
    conflicts: list[str]
    outside: list[str]
    problem: str | None

    @property
    def may_choose(self) -> bool:
        return self.problem is None and 1 < self.count <= SHOWN


def proposal_of(approval: Approval) -> ShownProposal | None:
    """Return what an approval would change, or None where that was not found out."""
    if approval.proposal is None:
        return None
    proposal = Proposal.from_json(approval.proposal)
    changes = proposal.changes
    return ShownProposal(
        [_shown(number, change) for number, change in enumerate(changes[:SHOWN], 1)],
        len(changes),
        [_conflict(text) for text in proposal.conflicts],
        [promise.method for call in proposal.calls for promise in call.promises],
        None if proposal.problem is None else told(proposal.problem),
    )


def of_run(run: Run) -> Approval | None:
    """Return what a whole run proposes, or has proposed."""
    if not run.preview:
        return None
    return next((approval for approval in run.approvals if approval.call_id is None), None)


def count(approval: Approval) -> str:
    """Say how much would change."""
    proposal = Proposal.from_json(approval.proposal or Proposal().to_json())
    number = len(proposal.changes)
    return ngettext("%(num)s row would change.", "%(num)s rows would change.", number)


def _shown(number: int, change: Recorded) -> Shown:
    what = f"{change.entity or change.table} {key_in_words(change.key)}"
    before = None if change.before is None else _plain(change.before)
    after = None if change.after is None else _plain(change.after)
    return Shown(
        number, change.action, gettext(ACTIONS[change.action], what=what), differences(before, after, in_words)
    )


def _conflict(text: str) -> str:
    """Return what was in the way, behind the place where it was."""
    place, colon, why = text.partition(" *: ")
    if not colon:
        place, colon, why = text.partition(": ")
    return f"{place}: {told(why)}" if colon else told(text)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in values.items()}
