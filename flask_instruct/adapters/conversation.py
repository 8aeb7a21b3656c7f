"""A conversation as every protocol wants it: each call answered once and at once, nothing answered that was not asked.

Adapters render what this gives them, so that no history (cut, merged, edited by hand, half run) earns a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence

from ..messages import Message
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from ..messages import ToolResult
from ..messages import ToolSpec

NUDGE = "(Your last answer was empty. Go on: use a tool, or say what you have done.)"
"""Said in the user's place to a model that said nothing; it stands in no history."""

INTERRUPTED = "This call was interrupted before it was answered; it is not known whether it ran."


def well_formed(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with the results of each turn behind it, in call order and complete.

    Results that no call asked for are left out (openai-agents#4324), missing ones are made up as interrupted, and
    assistant turns that say nothing disappear (pydantic-ai#5300).
    """
    formed: list[Message] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        if message.role == "assistant" and not _says_something(message):
            continue
        formed.append(message)
        if message.role == "assistant" and message.calls:
            formed.append(Message("tool", _results(message, messages[place + 1 :])))
    return tuple(formed)


def _says_something(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in message.parts)


def _results(turn: Message, following: Sequence[Message]) -> tuple[ToolResult, ...]:
    """The first result of each call, looked for up to the next turn."""
    given: dict[str, ToolResult] = {}
    for message in following:
        if message.role != "tool":
            break
        for result in message.results:
            given.setdefault(result.call_id, result)
    return tuple(given.get(call.id) or ToolResult(call.id, call.name, INTERRUPTED, error=True) for call in turn.calls)


def without_calls(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return a turn's parts without its calls, and without the reasoning that led to each (openai-agents#3207)."""
    kept: list[Part] = []
    for part in parts:
        if not isinstance(part, ToolCall):
            kept.append(part)
            continue
        while kept and isinstance(kept[-1], Reasoning):
            kept.pop()
    return tuple(kept)


def tools_of_history(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Return a declaration for each tool that a history has called: some servers refuse calls of undeclared tools."""
    names = dict.fromkeys(call.name for message in messages for call in message.calls)
    return tuple(ToolSpec(name, "No longer available.", {"type": "object", "properties": {}}) for name in names)
