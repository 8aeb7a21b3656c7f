"""What the panel says about changes that can be taken back, and about the values in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..runs.models import Run
from ..runs.models import ToolCall
from ..runs.plans import RowPlan
from ..runs.provenance import Entry
from . import words
from .language import gettext
from .language import marked as _
from .language import whole
from .told import told

SHOWN_CHARS = 2000
"""Characters of one value."""
SHOWN_FIELDS = 500
"""Fields that one page has boxes for: Flask reads no more than 500 kB of a form."""

_NOT_SHOWN = {
    "redacted": _("not shown"),
    "unknown": _("a value that was not kept"),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What the card of a call says about undoing it: a link's label, or why there is none."""

    label: str = ""
    note: str = ""


def of_call(run: Run, call: ToolCall) -> Offer:
    """Return what a call's card offers; an undo is taken back as a run."""
    if run.kind == "undo" or call.undone_by is not None or call.status != "done":
        return Offer()
    if call.undo_problem:
        return Offer(note=gettext(_("This cannot be undone: %(why)s"), why=told(call.undo_problem)))
    return Offer(label=gettext(_("Undo…"))) if call.changed else Offer()


def of_run(run: Run) -> str:
    """Return the label of a run's link, or nothing while there is nothing to undo."""
    if not run.ended or not any(call.changed and not call.undone_by and not call.undo_problem for call in run.calls):
        return ""
    return label(run)


def label(run: Run) -> str:
    """Return what taking a run back is called."""
    undo = run.kind == "undo" and any(call.name == "undo" for call in run.calls)
    return gettext(_("Redo…")) if undo else gettext(_("Undo…"))


def shown(rows: list[RowPlan]) -> list[RowPlan]:
    """Return the rows that a page has room for; the others are put back as well."""
    count = 0
    for number, row in enumerate(rows):
        count += len(row.fields)
        if count > SHOWN_FIELDS:
            return rows[:number]
    return rows


def value(written: Any) -> str:
    """Return typed JSON as a person reads it."""
    if written is None:
        return gettext(_("empty"))
    if isinstance(written, bool):
        return gettext(_("yes")) if written else gettext(_("no"))
    if not isinstance(written, dict):
        return _cut(str(written))
    name, inner = next(iter(written.items()))
    if name in _NOT_SHOWN:
        return gettext(_NOT_SHOWN[name])
    if name == "bytes":
        return gettext(_("%(n)s bytes"), n=whole(inner["size"]))
    if name == "stored":
        return gettext(_NOT_SHOWN["redacted"])
    return _cut(inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False, default=str))


def row(written: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the fields of a whole row that say something."""
    return [(name, value(one)) for name, one in (written or {}).items() if one is not None]


def who(entry: Entry) -> str:
    """Say who made a change, and for whom."""
    name = words.person(entry.actor)
    if entry.by == "undo":
        return gettext(_("%(name)s, by an undo"), name=name) if name else gettext(_("An undo"))
    return gettext(_("The AI, asked by %(name)s"), name=name) if name else gettext(_("The AI"))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
