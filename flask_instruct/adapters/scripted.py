"""A model that follows a script: texts, tool calls, delays and errors, for demonstrations and tests.

It is stateless as a real model is: which turn comes next follows from the conversation it is given.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError
from ..errors import ProviderError
from ..errors import ProviderErrorKind
from ..events import Event
from ..events import Finish
from ..events import FinishReason
from ..events import ReasoningDelta
from ..events import TextDelta
from ..events import ToolCallDelta
from ..events import Usage
from ..events import UsageReported
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from ..messages import ToolResult
from .base import new_call_id
from .conversation import NUDGE

PIECE = 6
PAUSE = 0.02
CHARACTERS_PER_TOKEN = 4
AFTER_THE_END = "Done."
"""Said when a conversation goes on after a script's last turn."""


@dataclass(frozen=True, slots=True)
class Say:
    """Stream a text in pieces of ``size`` characters, with ``every`` seconds before each."""

    text: str
    every: float = PAUSE
    size: int = PIECE


@dataclass(frozen=True, slots=True)
class Think:
    """Stream reasoning; ``every`` and ``size`` are as for :class:`Say`."""

    text: str
    every: float = PAUSE
    size: int = PIECE


@dataclass(frozen=True, slots=True, init=False)
class Use:
    """Call a tool: ``Use("add_comment", text="…")``, or with an argument text of any kind as ``raw``."""

    tool: str
    raw: str

    def __init__(self, tool: str, /, *, raw: str | None = None, **arguments: Any) -> None:
        text = json.dumps(arguments, ensure_ascii=False) if raw is None else raw
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "raw", text)


@dataclass(frozen=True, slots=True)
class Wait:
    """Stay silent for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail as a provider would, at this place of the answer."""

    kind: ProviderErrorKind
    technical: str = "The script says so."


@dataclass(frozen=True, slots=True)
class Stop:
    """End the turn for this reason; only ``tool_calls`` and ``stop`` keep its tool calls."""

    reason: FinishReason


Step = Say | Think | Use | Wait | Fail | Stop
Turn = Sequence[Step]
Script = Sequence[Turn] | Callable[[ModelRequest], Turn]
"""The turns after each word of the user, or a function that makes the next turn from the request."""

_scripts: dict[str, Script] = {}


def register_script(name: str, script: Script) -> None:
    """Make a script usable as the model ``scripted:name``; a second one of the name replaces the first."""
    _scripts[name] = script


def script_names() -> tuple[str, ...]:
    """Return the names of the known scripts."""
    return tuple(sorted(_scripts))


def turn_number(messages: Sequence[Message]) -> int:
    """Return how many turns the model has taken since the user last spoke."""
    number = 0
    for message in reversed(messages):
        if message.role == "user" and message.text != NUDGE:
            break
        number += message.role == "assistant"
    return number


def next_turn(script: Script, request: ModelRequest) -> Turn:
    """Return the steps that the script has for this request; forbidden tools are talked about, not used."""
    if callable(script):
        turn = script(request)
    else:
        number = turn_number(request.messages)
        turn = script[number] if number < len(script) else [Say(AFTER_THE_END)]
    if request.tool_choice == "none":
        return [_spoken(step) if isinstance(step, Use) else step for step in turn]
    return turn


def _spoken(step: Use) -> Say:
    return Say(f"I would now use {step.tool}, but tools are switched off for this answer.")


def find_script(name: str) -> Script:
    """Return the script of a name.

    :raises ConfigurationError: when there is none; lists those there are.
    """
    if name not in _scripts:
        known = ", ".join(script_names()) or "none"
        raise ConfigurationError(
            f"No script is named {name!r}; known: {known}. Make it known with register_script({name!r}, …)."
        )
    return _scripts[name]


class Scripted:
    """Speak as a registered script says.

    :param sleep: waits for that many seconds.
    """

    name = "scripted"

    def __init__(self, sleep: Callable[[float], object] = time.sleep) -> None:
        self._sleep = sleep

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Give off the events of the script's next turn; see :class:`~flask_instruct.adapters.base.Adapter`.

        :raises ConfigurationError: when no script has the model's name.
        :raises ProviderError: where the script says :class:`Fail`.
        """
        return _Performance(request, self._sleep).play(next_turn(find_script(request.model), request))


class _Performance:
    """One turn while it is played."""

    def __init__(self, request: ModelRequest, sleep: Callable[[float], object]) -> None:
        self._request = request
        self._sleep = sleep
        self._parts: list[Part] = []
        self._reason: FinishReason | None = None

    def play(self, turn: Turn) -> Generator[Event, None, None]:
        for step in turn:
            if isinstance(step, Stop):
                self._reason = step.reason
                break
            yield from self._act(step)
        reason = self._reason or "stop"
        if reason == "stop" and any(isinstance(part, ToolCall) for part in self._parts):
            reason = "tool_calls"
        if reason != "tool_calls":
            self._parts = [part for part in self._parts if not isinstance(part, ToolCall)]
        yield UsageReported(_estimate(self._request, self._parts))
        yield Finish(reason, reason, Message("assistant", tuple(self._parts)))

    def _act(self, step: Say | Think | Use | Wait | Fail) -> Iterator[Event]:
        match step:
            case Say():
                yield from self._say(step)
            case Think():
                yield from self._think(step)
            case Use():
                yield from self._use(step)
            case Wait():
                self._sleep(step.seconds)
            case Fail():
                raise ProviderError(step.kind, step.technical)

    def _say(self, step: Say) -> Iterator[Event]:
        for piece in self._pieces(step):
            yield TextDelta(piece)
        self._parts.append(Text(step.text))

    def _think(self, step: Think) -> Iterator[Event]:
        for piece in self._pieces(step):
            yield ReasoningDelta(piece)
        self._parts.append(Reasoning(step.text))

    def _pieces(self, step: Say | Think) -> Iterator[str]:
        for start in range(0, len(step.text), step.size):
            if step.every > 0:
                self._sleep(step.every)
            yield step.text[start : start + step.size]

    def _use(self, step: Use) -> Iterator[Event]:
        call = ToolCall(new_call_id(), step.tool, step.raw)
        yield ToolCallDelta(call.id, call.name, call.raw)
        self._parts.append(call)


def _estimate(request: ModelRequest, parts: Sequence[Part]) -> Usage:
    heard = sum(_length(part) for message in request.messages for part in message.parts)
    said = sum(_length(part) for part in parts)
    return Usage(input_tokens=_tokens(heard), output_tokens=_tokens(said))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _length(part: Part) -> int:
    if isinstance(part, ToolCall):
        return len(part.name) + len(part.raw)
    if isinstance(part, Text | Reasoning):
        return len(part.text)
    return len(part.content) if isinstance(part, ToolResult) else 0
