"""What a proposal would change, as people read it: row by row and field by field, each with a number to choose by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
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
from .naming import Names
from .told import told
from .values import in_words
from .values import plain
from .words import title_of

if TYPE_CHECKING:
    from ..state import State

SHOWN = 200
"""Changes of one proposal that are shown; more can only be decided about as a whole."""

ACTIONS: dict[str, str] = {
    "insert": _("New: %(what)s"),
    "update": _("Changed: %(what)s"),
    "delete": _("Deleted: %(what)s"),
}


_PLACE = re.compile(r"(?P<table>\S+) (?P<key>\[.*\]) (?P<field>\S+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Place:
    """A row that a conflict is about."""

    table: str
    key: str
    entity: str | None = None


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
    may_choose: bool


def proposal_of(state: State, approval: Approval) -> ShownProposal | None:
    """Return what an approval would change, or None where that was not found out."""
    if approval.proposal is None:
        return None
    proposal = Proposal.from_json(approval.proposal)
    changes = proposal.changes
    names = Names(state, changes[:SHOWN])
    return ShownProposal(
        [_shown(names, number, change) for number, change in enumerate(changes[:SHOWN], 1)],
        len(changes),
        [_conflict(names, text) for text in proposal.conflicts],
        [promise.method for call in proposal.calls for promise in call.promises],
        None if proposal.problem is None else told(proposal.problem),
        may_choose(proposal),
    )


def may_choose(proposal: Proposal) -> bool:
    """Tell whether some of its changes can be accepted without the others."""
    return proposal.problem is None and 1 < len(proposal.changes) <= SHOWN


def of_run(run: Run) -> Approval | None:
    """Return what a whole run proposes, or has proposed."""
    if not run.preview:
        return None
    return next((approval for approval in run.approvals if approval.call_id is None), None)


def tools(approval: Approval) -> list[str]:
    """Return the tools of a whole run's proposal, by the names of ``forms.decides``."""
    return sorted({f"preview:{call.name}" for call in Proposal.from_json(approval.proposal).calls})


def count(approval: Approval) -> str:
    """Say how much would change."""
    proposal = Proposal.from_json(approval.proposal)
    number = len(proposal.changes)
    return ngettext("%(num)s row would change.", "%(num)s rows would change.", number)


def _shown(names: Names, number: int, change: Recorded) -> Shown:
    what = names.of(change, change.before, change.after)
    before, after = (_plain(names.shown(change, values)) for values in (change.before, change.after))
    return Shown(
        number, change.action, gettext(ACTIONS[change.action], what=what), differences(before, after, in_words)
    )


def _conflict(names: Names, text: str) -> str:
    """Say of which row and field it is; its name is that of ``FieldPlan.id``."""
    place, _colon, why = text.partition(": ")
    found = _PLACE.fullmatch(place)
    if found is None:
        return told(text)
    what = names.of(_Place(found["table"], found["key"]))
    return f"{what}: {told(why)}" if found["field"] == "*" else f"{what}, {title_of(found['field'])}: {told(why)}"


def _plain(values: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else {name: plain(value) for name, value in values.items()}
