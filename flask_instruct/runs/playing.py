"""The recorded half of a replay: a model that says its recorded turns again, effects that have happened before, and
whoever ended the run from outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any
from typing import cast
from typing import get_args

import sqlalchemy as sa

from ..adapters.scripted import turn_number
from ..effects import Fate
from ..effects import FateStatus
from ..errors import ConfigurationError
from ..errors import ProviderError
from ..errors import ProviderErrorKind
from ..errors import Stopped
from ..events import Event
from ..events import Finish
from ..events import ReasoningDelta
from ..events import TextDelta
from ..events import ToolCallDelta
from ..events import ToolCallRequest
from ..events import Usage
from ..events import UsageReported
from ..limits import Allowance
from ..limits import Reached
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall as CallPart
from ..tools import ToolOutcome
from .calling import Attempt
from .calling import Calls
from .columns import storable
from .effects import Begun
from .effects import Effects
from .file_format import CannotReplay
from .journal import Journal
from .models import Run
from .recording import Recording
from .recording import Row
from .rounds import COUNTS
from .watch import RunTimeout
from .watch import Watch

if TYPE_CHECKING:
    from ..state import State

COUNTED_FROM_THE_TALK = ("rounds", "tool_calls", "tool_failures")
"""Limits that a replay meets by itself; the others are of a clock, a purse or other runs."""

NOT_RECORDED = "it was not performed, as in any replay, and the recording has no such effect"


class Playback:
    """An adapter that gives off the recorded turns, each where the conversation stands at it."""

    name = "recorded"

    def __init__(self, recording: Recording) -> None:
        self._turns = [row for row in recording.messages if row["parts"] is not None]
        self._cut = next((row["text"] for row in recording.messages if row["parts"] is None and row["text"]), "")
        self._run = recording.run
        self._usage = {
            row["message_id"]: Usage(**{name: row.get(name) for name in COUNTS})
            for row in recording.model_calls
            if row["message_id"] is not None
        }
        self.beyond = False
        """Whether it was asked for more than was recorded."""

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        """Give off the turn that follows on the conversation; see :class:`~flask_instruct.adapters.base.Adapter`."""
        number = turn_number(request.messages)
        if number < len(self._turns):
            yield from self._tell(self._turns[number])
            return
        end = ended_from_outside(self._run) if number == len(self._turns) else None
        if end is None:
            self.beyond = True
            raise ProviderError(
                "bad_request", f"The recording ends after {len(self._turns)} turns, and no model is called in a replay."
            )
        if self._cut:
            yield TextDelta(self._cut)
        raise end

    def _tell(self, turn: Row) -> Iterator[Event]:
        message = Message.from_json(turn["parts"])
        for part in message.parts:
            match part:
                case Text():
                    yield TextDelta(part.text)
                case Reasoning():
                    yield ReasoningDelta(part.text)
                case CallPart():
                    yield ToolCallDelta(part.id, part.name, part.raw)
        yield UsageReported(self._usage.get(turn["id"], Usage()))
        yield Finish(turn["finish_reason"], turn["finish_raw"] or "", message)


def ended_from_outside(run: Row) -> BaseException | None:
    """Return what is raised where a run was ended by something that is no part of it; None when it ended by itself."""
    error_class, technical = run["error_class"] or "", run["error_technical"] or ""
    if run["status"] == "cancelled":
        return Stopped()
    if run["status"] != "failed":
        return None
    kind = error_class.removeprefix("provider_")
    if kind != error_class and kind in get_args(ProviderErrorKind):
        return ProviderError(cast(ProviderErrorKind, kind), technical, safe=run["error_safe"])
    if error_class == "configuration":
        return ConfigurationError(technical.removeprefix("ConfigurationError: "))
    if error_class == "timeout":
        return RunTimeout(technical.removeprefix("RunTimeout: "))
    return RuntimeError(technical) if error_class == "internal" else None


class PlayedEffects(Effects):
    """Effects of which nothing is performed: each ends as it did, so that no mail goes out twice."""

    def __init__(self, recording: Recording, *parts: Any) -> None:
        super().__init__(*parts)
        seqs = {call["id"]: call["seq"] for call in recording.calls}
        self._ended = {(seqs[row["call_id"]], row["seq"]): row for row in effects_as_told(recording)}

    def perform(self, begun: Begun) -> Fate:
        number = int(begun.context.idempotency_key.rpartition(":")[2])
        row = self._ended.get((begun.context.seq, number))
        if row is None or row["method"] != begun.promise.method or row["status"] not in get_args(FateStatus):
            return Fate("unknown", NOT_RECORDED)
        return Fate(row["status"], row["error_safe"] or "", row["error_class"])


_TOLD = re.compile(
    r"^After the commit, \w+: (?:(done)\.|(failed): (.*)|(unknown): (.*); it may or may not have happened\..*)$",
    re.MULTILINE,
)


def effects_as_told(recording: Recording) -> list[Row]:
    """Return the effects as they had ended when the run did: people may have decided otherwise since."""
    results = {call["id"]: call["result"] or "" for call in recording.calls}
    found = []
    for row in sorted(recording.effects, key=lambda row: (row["call_id"], row["seq"])):
        told = _TOLD.findall(results[row["call_id"]])
        number = row["seq"] - 1
        done, failed, why_failed, unknown, why_unknown = told[number] if number < len(told) else ("",) * 5
        status = done or failed or unknown or row["status"]
        if status != row["status"]:
            row = {**row, "status": status, "error_safe": why_failed or why_unknown or None, "error_class": None}
        found.append(row)
    return found


class PlayedJournal(Journal):
    """Records a replay, in which calls that were never carried out are not carried out either."""

    def __init__(self, state: State, engine: sa.Engine, run: Run, watch: Watch, recording: Recording) -> None:
        super().__init__(state, engine, run, watch)
        self._effects = PlayedEffects(recording, state, self._steps, self._notices)
        self._calls = Calls(state, self._steps, self._app_code, self._effects, self._stage, run.actor)
        self._recording = recording
        self._last_turn = recording.messages[-1]["id"] if recording.messages else ""
        self._rounds_done = sum(message.state == "complete" for message in run.messages)
        self._asked_then = {approval["call_id"] for approval in recording.approvals}
        self._waiting: dict[str, list[Row]] = {}
        answered = {call.seq for call in run.calls if call.result is not None}
        for call in [call for call in recording.calls if call["seq"] not in answered]:
            self._waiting.setdefault(call["provider_call_id"], []).append(call)

    def round_finished(self, finish: Finish) -> None:
        super().round_finished(finish)
        self._rounds_done += 1

    def execute(self, request: ToolCallRequest) -> ToolOutcome:
        """Run one tool call, unless it was interrupted in the recording.

        :raises Stopped: where the run was stopped before it.
        """
        waiting = self._waiting.get(storable(request.id))
        call = waiting.pop(0) if waiting else None
        if call is None or call["error_kind"] != "interrupted" or call["id"] in self._asked_then:
            return super().execute(request)
        end = ended_from_outside(self._recording.run)
        if call["message_id"] == self._last_turn:
            if end is not None:
                raise end
            return super().execute(request)
        outcome = ToolOutcome(call["result"] or "", "interrupted")
        return self._fail_call(request, self._begin_call(request)[0].id, Attempt(outcome))

    def allowance(self) -> Allowance:
        return self._limit_met_then

    def _limit_met_then(self) -> Reached | None:
        run, turns = self._recording.run, self._recording.messages
        name = run["limit_reached"]
        if run["status"] != "limited" or name is None or name in COUNTED_FROM_THE_TALK:
            return None
        answered = bool(turns) and turns[-1]["finish_reason"] != "tool_calls"
        if self._rounds_done < len(turns) - answered:
            return None
        return Reached(name, (run["limits"] or {}).get(name) or 0, last_answer=answered)


def refuse_unplayable(recording: Recording) -> None:
    """Say why a run cannot be replayed.

    :raises CannotReplay: when it can not.
    """
    run = recording.run
    if run.get("kind") == "undo":
        raise CannotReplay(
            f"Run {run['id']} is a person's undo: no model took part in it, so there is nothing to replay."
        )
    if run["status"] == "failed" and run["error_class"] == "interrupted":
        raise CannotReplay(
            f"Run {run['id']} was ended because its workers died again and again: what killed them is no part of the "
            "recording, and a replay of it would kill this process."
        )
