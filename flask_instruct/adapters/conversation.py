"""A conversation as every protocol wants it: each call answered once and at once, nothing answered that was not asked.

Adapters render what this gives them, so that no history (cut, merged, edited by hand, half run) earns a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import replace

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

    Results that no call asked for are left out (openai-agents#4324), missing ones are made up as interrupted, ids that
    were used before get another, and assistant turns that say nothing disappear (pydantic-ai#5300).
    """
    formed: list[Message] = []
    taken: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        if message.role == "assistant" and not _says_something(message):
            continue
        if message.role != "assistant" or not message.calls:
            formed.append(message)
            continue
        results = _results(message, messages[place + 1 :])
        ids = [_free_id(call.id, taken) for call in message.calls]
        formed.append(_with_ids(message, ids))
        formed.append(
            Message("tool", tuple(replace(result, call_id=free) for result, free in zip(results, ids, strict=True)))
        )
    return tuple(formed)


def _free_id(call_id: str, taken: set[str]) -> str:
    """Return the id, or where it was used before one made from it that is the same in every turn."""
    free, number = call_id, 1
    while not free or free in taken:
        number += 1
        free = f"{call_id or 'call'}_{number}"
    taken.add(free)
    return free


def _with_ids(message: Message, ids: Sequence[str]) -> Message:
    coming = iter(ids)
    parts = tuple(replace(part, id=next(coming)) if isinstance(part, ToolCall) else part for part in message.parts)
    return replace(message, parts=parts) if parts != message.parts else message


def _says_something(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in message.parts)


def _results(turn: Message, following: Sequence[Message]) -> tuple[ToolResult, ...]:
    """One result for each call, looked for up to the next turn; calls of one id take theirs in order."""
    given: dict[str, list[ToolResult]] = {}
    for message in following:
        if message.role != "tool":
            break
        for result in message.results:
            given.setdefault(result.call_id, []).append(result)
    return tuple(
        given[call.id].pop(0) if given.get(call.id) else ToolResult(call.id, call.name, INTERRUPTED, error=True)
        for call in turn.calls
    )


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
