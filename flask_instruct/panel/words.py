"""What the panel says about a run and a tool call: one table for each closed list of the ledger.

Everything is read from the row and nothing from what the model claims.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from datetime import UTC
from datetime import datetime
from typing import Literal

from flask import current_app
from flask import has_app_context
from sqlalchemy.orm import object_session

from ..runs.approval import Approval
from ..runs.models import NOT_STARTED
from ..runs.models import Effect
from ..runs.models import Message
from ..runs.models import Run
from ..runs.models import ToolCall
from ..state import ActorName
from . import threads
from . import waiting
from .language import duration
from .language import gettext
from .language import marked as _
from .language import ngettext
from .language import whole_duration
from .showing import arguments as arguments
from .showing import arguments_of as arguments_of
from .showing import hint as hint
from .showing import is_annotated as is_annotated
from .showing import is_quoted as is_quoted
from .showing import reason as reason
from .showing import shortened as shortened
from .showing import told_in_full as told_in_full
from .told import told

logger = logging.getLogger("flask_instruct")

Tone = Literal["waiting", "working", "done", "failed", "stopped"]

IN_TIME = _("in %(time)s")

_NUMBER = re.compile(r"[0-9]*|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Phrase:
    """How something stands: a tone for the eye and words for everyone."""

    tone: Tone
    text: str
    detail: str = ""


RUN: dict[str, tuple[Tone, str]] = {
    "queued": ("waiting", _("Queued, waiting for a worker")),
    "running": ("working", _("Thinking")),
    "retrying": ("waiting", _("The AI service did not answer. Trying again")),
    "waiting_approval": ("waiting", _("Waiting for approval")),
    "cancelling": ("working", _("Stopping")),
    "succeeded": ("done", _("Done")),
    "failed": ("failed", _("This did not work")),
    "cancelled": ("stopped", _("Stopped")),
    "limited": ("stopped", _("Stopped at a limit")),
}

INTERRUPTED = _("Interrupted, waiting for a worker")
INTERRUPTED_ANNOUNCED = _("The work on the request was interrupted. It waits for a worker.")
"""Of a run whose worker went silent, whatever its status says."""

PLACE = _("Queued, place %(place)s")
PLACE_ANNOUNCED = _("The request is queued, at place %(place)s.")
"""Of a run that follows others: see ``runs.line``."""

UNATTENDED = _("No worker is running, so the request waits")
UNATTENDED_ANNOUNCED = _("The request waits: no worker is running.")

RETRYING: dict[str, str] = {
    "rate_limited": _("The AI service is receiving too many requests. Trying again"),
    "overloaded": _("The AI service is overloaded. Trying again"),
    "server": _("The AI service had an internal error. Trying again"),
    "connection": _("The AI service could not be reached. Trying again"),
    "cut": _("The answer was cut off. Trying again"),
    "empty": _("The answer was empty. Asking again"),
    "malformed": _("The answer could not be understood. Asking again"),
    "context_window": _("This has become too long for the model. Asking in another way"),
    "unsupported": _("The model cannot read what was attached. Trying another"),
}
"""Why a model call is made again, by the kind of its failure; any other did not answer."""

ANNOUNCED: dict[str, str] = {
    "queued": _("The request is waiting for a worker."),
    "running": _("The AI is working on the request."),
    "retrying": _("The AI service did not answer. Trying again."),
    "waiting_approval": _("The AI waits for approval."),
    "cancelling": _("The AI is being stopped."),
    "succeeded": _("The AI has finished."),
    "failed": _("The AI could not finish the request."),
    "cancelled": _("The AI was stopped."),
    "limited": _("The AI was stopped at a limit."),
}

LIMITS: dict[str, str] = {
    "rounds": _("The AI used its tools as many times as one request allows, and had to stop."),
    "tool_failures": _("A tool failed too many times in a row, and the AI had to stop."),
    "tool_calls": _("The AI called as many tools as one request allows, and had to stop."),
    "tokens": _("The request used as many tokens as it may, and had to stop."),
    "seconds": _("The request took as long as it may, and had to stop."),
    "cost": _("The request cost as much as it may, and had to stop."),
    "actor_tokens": _("You have used as much AI as one person may today."),
    "actor_cost": _("You have spent as much on AI as one person may today."),
    "tenant_tokens": _("Your organisation has used as much AI as it may today."),
    "tenant_cost": _("Your organisation has spent as much on AI as it may today."),
}

KINDS: dict[str, str] = {"image": _("an image"), "document": _("a document")}

FAILURES: dict[str, str] = {
    "record_gone": _("What the AI was asked to work on no longer exists."),
}

CALL: dict[str, tuple[Tone, str]] = {
    "waiting": ("waiting", _("Waiting")),
    "asked": ("waiting", _("Needs approval")),
    "running": ("working", _("Running")),
    "done": ("done", _("Done")),
    "failed": ("failed", _("Failed")),
}

UNDONE = _("Undone")

SHOWN_ONLY = _("Shown, not saved")
"""Of a call in a preview that nobody has accepted."""

OWN: dict[str, str] = {"undo": _("Undo"), "redo": _("Redo")}
"""What the library does itself, in the form of a tool."""

OUTCOMES: dict[str, str] = {
    "unknown_tool": _("There is no such tool"),
    "invalid_arguments": _("The arguments did not fit"),
    "not_allowed": _("Not allowed"),
    "not_approved": _("Not approved"),
    "no_preview": _("Not possible in a preview"),
    "refused": _("Rejected by the AI service"),
    "limit": _("Over a limit, so not carried out"),
    "tool_error": _("Refused by the tool"),
    "exception": _("Internal error"),
    "timeout": _("Took too long"),
    "unrenderable": _("The result could not be told"),
    "interrupted": _("Interrupted"),
}


DECISIONS: dict[str, tuple[str, str]] = {
    "gathering": (_("Still at work"), _("Still at work")),
    "pending": (_("Needs approval"), _("Needs approval")),
    "approved": (_("Approved"), _("Approved by %(name)s")),
    "rejected": (_("Not approved"), _("Not approved by %(name)s")),
    "expired": (_("Nobody approved this in time"), _("Nobody approved this in time")),
    "withdrawn": (_("No longer asked: the request has ended"), _("No longer asked: the request has ended")),
}
"""What was decided: without a name, and with one."""

EFFECT: dict[str, tuple[Tone, str]] = {
    "pending": ("waiting", _("Waiting")),
    "running": ("working", _("Running")),
    "done": ("done", _("Done")),
    "failed": ("failed", _("Failed")),
    "unknown": ("failed", _("It may or may not have happened")),
}

UNKNOWN: dict[str, str] = {
    "": _("The worker died while it ran."),
    "ToolTimeout": _("It took too long and was stopped."),
    NOT_STARTED: _("It was not started, because the request ended before."),
}
"""Why a person has to look after an effect, by its error class."""


def run_phrase(run: Run) -> Phrase:
    """Say how a run stands, down to the tool that is running."""
    tone, text = RUN.get(run.status, ("working", run.status))
    if run.interrupted:
        return Phrase("waiting", gettext(INTERRUPTED))
    words = gettext(text)
    if run.status == "queued":
        words = _queued(run, UNATTENDED, PLACE, text)
    if run.status == "retrying":
        words = gettext(RETRYING.get(run.retry_reason or "", text))
    if run.status == "running":
        running = run.running_call
        if running is not None:
            words = gettext(_("Using “%(tool)s”"), tool=title_of(running.name))
        elif run.writing:
            words = gettext(_("Writing"))
    return Phrase(tone, words, _detail(run))


def announcement(run: Run | None) -> str:
    """Say in one sentence, for a screen reader, how a run stands; changes a handful of times in a run."""
    if run is None:
        return ""
    said = [gettext(INTERRUPTED_ANNOUNCED if run.interrupted else ANNOUNCED.get(run.status, run.status))]
    if run.status == "queued":
        said = [_queued(run, UNATTENDED_ANNOUNCED, PLACE_ANNOUNCED, ANNOUNCED["queued"])]
    if run.status == "failed":
        said.append(failure(run))
    elif run.ended and (steps := _steps(run)):
        said.append(gettext(_("%(steps)s."), steps=steps))
    return " ".join(said)


def _queued(run: Run, unattended: str, behind: str, text: str) -> str:
    if waiting.is_unattended(run):
        return gettext(unattended)
    place = waiting.place(run)
    return gettext(behind, place=place) if place > 1 else gettext(text)


def failure(run: Run) -> str:
    """Say in plain words why a run failed."""
    known = FAILURES.get(run.error_class or "")
    return gettext(known) if known else told(run.error_safe or _("Something went wrong on this site."))


def limit(run: Run) -> str:
    """Say which limit ended a run."""
    name = run.limit_reached or ""
    known = LIMITS.get(name)
    return gettext(known) if known else gettext(_("The limit “%(name)s” was reached."), name=name)


def resumed(run: Run) -> str:
    """Say that a run was taken up again after its worker died, or nothing."""
    if not run.resumes:
        return ""
    return ngettext("Resumed after an interruption", "Resumed after %(num)s interruptions", run.resumes)


def until(moment: datetime) -> str:
    """Say how long it is until something happens."""
    seconds = math.ceil((moment - datetime.now(UTC)).total_seconds())
    return gettext(IN_TIME, time=whole_duration(seconds))


def countdown() -> str:
    """Return the pattern of :func:`until` for the script that counts down."""
    return gettext(IN_TIME, time="{}")


def call_phrase(call: ToolCall) -> Phrase:
    """Say how a tool call stands, and when it failed, of which kind the failure is."""
    tone, text = CALL.get(call.status, ("working", call.status))
    if call.undone_by is not None:
        return Phrase("stopped", gettext(UNDONE))
    if call.status == "failed":
        return Phrase(tone, gettext(text), gettext(OUTCOMES.get(call.error_kind or "", "")) if call.error_kind else "")
    if call.status == "done" and call.approver is None and call.run is not None and call.run.preview:
        return Phrase("waiting", gettext(SHOWN_ONLY))
    going = next((effect for effect in call.effects if effect.status in ("running", "pending")), None)
    if going is not None:
        return Phrase(effect_phrase(going).tone, _titled(going))
    return Phrase(tone, gettext(text))


def effect_phrase(effect: Effect) -> Phrase:
    """Say how something outside the database stands, and why when that is not well."""
    tone, text = EFFECT.get(effect.status, ("working", effect.status))
    known = UNKNOWN.get(effect.error_class or "") if effect.open else None
    return Phrase(tone, gettext(text), gettext(known) if known else told(effect.error_safe or ""))


def effects_note(call: ToolCall) -> str:
    """Say on one line each, for the card's head, what of a call's effects did not go well."""
    return "\n".join(_titled(effect) for effect in call.effects if effect.status in ("failed", "unknown"))


def message_note(message: Message) -> str:
    """Return a note on an answer that was not received to its end, or nothing."""
    return gettext(_("The answer breaks off here.")) if message.state == "cut" else ""


def asked(run: Run) -> str:
    """Return what was asked; of an undo what it is called."""
    return title_of(run.user_prompt.lower()) if run.kind == "undo" else run.user_prompt


def asked_by(run: Run) -> str:
    """Name who asked."""
    return person(run.actor)


def person(actor: str | None) -> str:
    """Name a person as ``@instruct.actor_name`` does, else by an id that is a name: a number tells a reader nothing."""
    if actor is None:
        return ""
    return _named(actor) or ("" if _NUMBER.fullmatch(actor) else actor)


def _named(actor: str) -> str | None:
    rule: ActorName | None = current_app.extensions["instruct"].hooks.actor_name if has_app_context() else None
    try:
        return rule(actor) if rule is not None else None
    except Exception:
        logger.exception("The @instruct.actor_name rule failed")
        return None


def approval_title(approval: Approval) -> str:
    """Name what a person is asked about: a tool, or all that a request would change."""
    return gettext(_("What a request would change")) if approval.call_id is None else title_of(approval.tool)


def decided(approval: Approval) -> str:
    """Say what was decided, and by whom."""
    if approval.status == "approved" and approval.edited is not None:
        said, by = _("Approved with changes"), _("Approved with changes by %(name)s")
    else:
        said, by = DECISIONS.get(approval.status, (approval.status, approval.status))
    name = person(approval.decided_by)
    return gettext(by, name=name) if name else gettext(said)


def attached(run: Run) -> str:
    """Name what the model is to look at besides the request."""
    names = [gettext(KINDS.get(name, name)) for name in run.attached or ()]
    return gettext(_("Attached: %(names)s"), names=", ".join(names))


def chat_of(run: Run) -> str | None:
    """Return the id of the chat's thread that a run is part of."""
    return threads.chat_of(run)


def versions_of(run: Run) -> list[str]:
    """Return the ids of the versions of a message, oldest first, with the message's own."""
    session = object_session(run)
    return [run.id] if session is None else threads.versions_of(session, run)


def since(run: Run) -> datetime:
    """Return when what a run is doing began: waiting in the queue, or working since it was last asked to."""
    if run.status == "queued" or run.started_at is None:
        return run.queued_at
    return max(run.started_at, run.queued_at)


def took(started: datetime | None, ended: datetime | None) -> str:
    """Say how long something took; nothing while an end is missing, or when it was too short to be told."""
    seconds = (ended - started).total_seconds() if started and ended else 0.0
    return duration(seconds) if seconds >= 0.05 else ""


def elapsed(started: datetime) -> str:
    """Say how long something has been running."""
    return whole_duration(int((datetime.now(UTC) - started).total_seconds()))


def title_of(name: str) -> str:
    """Return a tool's name as a person would write it: ``update_instructions`` is "Update instructions"."""
    if name in OWN:
        return gettext(OWN[name])
    words = " ".join(name.replace("_", " ").replace("-", " ").split())
    return words[:1].upper() + words[1:] or name


def _titled(effect: Effect) -> str:
    return gettext(_("%(what)s: %(how)s"), what=title_of(effect.method), how=effect_phrase(effect).text)


def _detail(run: Run) -> str:
    if not run.ended:
        return ""
    return " · ".join(part for part in (took(since(run), run.ended_at) if run.started_at else "", _steps(run)) if part)


def _steps(run: Run) -> str:
    done = sum(1 for call in run.calls if call.status == "done")
    failed = sum(1 for call in run.calls if call.status == "failed")
    said = []
    if done:
        said.append(ngettext("%(num)s step done", "%(num)s steps done", done))
    if failed:
        said.append(ngettext("%(num)s failed", "%(num)s failed", failed))
    return ", ".join(said)
