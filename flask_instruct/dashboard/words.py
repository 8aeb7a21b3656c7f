"""What the dashboard's pages say: one table for each closed list, and the sentences that depend on a row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..panel.language import gettext
from ..panel.language import marked as _
from ..panel.words import RUN
from ..panel.words import Phrase
from ..panel.words import Tone

STATUS: dict[str, str] = {
    "queued": _("Queued"),
    "running": _("Running"),
    "retrying": _("Trying again"),
    "waiting_approval": _("Waiting for approval"),
    "cancelling": _("Stopping"),
    "succeeded": _("Done"),
    "failed": _("Failed"),
    "cancelled": _("Stopped"),
    "limited": _("Stopped at a limit"),
}
INTERRUPTED = _("Interrupted")

KIND: dict[str, str] = {"ai": _("By the AI"), "undo": _("Taken back by a person")}

OUTCOME: dict[str, tuple[Tone, str]] = {
    "done": ("done", _("Done")),
    "failed": ("failed", _("Failed")),
    "stopped": ("stopped", _("Stopped")),
    "active": ("working", _("Not ended yet")),
}

ACTION: dict[str, str] = {"insert": _("Added"), "update": _("Changed"), "delete": _("Deleted")}

DECISION: dict[str, tuple[Tone, str]] = {
    "pending": ("waiting", _("Waiting for approval")),
    "approved": ("done", _("Approved")),
    "rejected": ("stopped", _("Rejected")),
    "expired": ("stopped", _("Nobody decided in time")),
    "withdrawn": ("stopped", _("The request ended before anyone decided")),
}

RANGE: dict[str, str] = {
    "24h": _("24 hours"),
    "7d": _("7 days"),
    "30d": _("30 days"),
    "90d": _("90 days"),
}

LIMIT: dict[str, str] = {
    "rounds": _("Tool rounds"),
    "tool_calls": _("Tool calls"),
    "seconds": _("Seconds"),
    "tokens": _("Tokens"),
    "cost": _("Dollars"),
}

MESSAGE: dict[str, str] = {
    "streaming": _("Being received"),
    "cut": _("Broke off"),
}


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody by id, in the form in which ``instruct/actor.html`` is given a run."""

    actor: str


def status(name: str, *, interrupted: bool = False) -> Phrase:
    """Say how a run stands in a word or two."""
    if interrupted:
        return Phrase("waiting", gettext(INTERRUPTED))
    tone = RUN[name][0] if name in RUN else "working"
    return Phrase(tone, gettext(STATUS.get(name, name)))


def decision(name: str) -> Phrase:
    """Say how a decision stands."""
    tone, text = DECISION.get(name, ("waiting", name))
    return Phrase(tone, gettext(text))


def said(table: dict[str, str], name: str) -> str:
    """Return a word of a table in the reader's language; a name that is not in it stays."""
    return gettext(table.get(name, name))


def as_text(value: object) -> str:
    """Write JSON data so that a person can read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)
