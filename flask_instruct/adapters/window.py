"""A conversation cut to what a model takes: its oldest rounds are left out, whole, until the rest fits.

Sizes are estimated from the text, on the safe side. The cut moves in steps of a quarter of the space, so that most
turns begin with the bytes of the turn before and the provider's cache keeps working.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..attachments import Document
from ..attachments import Image
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from ..messages import ToolResult

NOTE = "[Earlier parts of this conversation were left out because it had become too long.]"

ANSWER_SHARE = 8
"""One part in so many of the window is kept free for an answer whose length is not limited by ``max_tokens``."""
STEPS = 4

BYTES_A_TOKEN = 3
"""English, German and Python have 3.9 to 4.2 bytes a token, Chinese 3.2, other scripts more (Mistral's Tekken
tokenizer, measured); the newest Claude models make up to a third more tokens of a text than those before."""
DENSE = b"!\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~\t\n\r\xf0\xf1\xf2\xf3\xf4"
"""Bytes that may each be a token: digits and signs, as in tables and JSON, and the beginning of an emoji."""
BYTES_A_HIDDEN_TOKEN = 5
"""Signatures and encrypted reasoning: 5.8 or more for each token of reasoning, in recorded answers of Gemini and
OpenAI."""

MESSAGE = 8
CALL = 40
RESULT = 24
TOOL = 40
TOOLS = 600
"""What providers wrap around each of these; most of all Anthropic, whose recorded requests with one short tool count
up to 550 tokens more than their text."""
IMAGE = 4_800
"""The most that a picture costs at Claude, 2,576 pixels wide; elsewhere it is less."""
PAGE = 3_000
BYTES_A_PAGE = 50_000
MOST_PAGES = 100
UNSEEN_PAGES = 10
"""A page of a PDF costs its text and a picture, up to 3,000 tokens at Claude, and less elsewhere. Pages are guessed
from the size; providers take about 100. A PDF that the provider fetches itself counts as ten."""


def fitted(request: ModelRequest, window: int | None) -> ModelRequest:
    """Return the request with its oldest rounds left out as far as needed, or itself when it fits.

    A round is a user message with everything up to the next one; behind the newest user message it is one turn of the
    model with its results. System messages, the newest user message and the last turn always stay, even where they
    alone are too much. The first user message that is kept tells the model of the gap.

    :param window: tokens that the model takes, its answer included; ``None``: not known, nothing is left out.
    """
    if window is None:
        return request
    space = window - _reserved(request.options, window)
    sizes = [_message_size(message) for message in request.messages]
    excess = _frame_size(request) + sum(sizes) - space
    if excess <= 0:
        return request
    rounds = _droppable(request.messages)
    count = _cut([sum(sizes[place] for place in places) for places in rounds], excess + _text_size(NOTE), space)
    dropped = {place for places in rounds[:count] for place in places}
    if not dropped:
        return request
    kept = [message for place, message in enumerate(request.messages) if place not in dropped]
    return replace(request, messages=_noted(kept))


def estimated(request: ModelRequest) -> int:
    """Return about how many tokens a request has; rather too many than too few."""
    return _frame_size(request) + sum(map(_message_size, request.messages))


def _reserved(options: JsonObject, window: int) -> int:
    limit = options.get("max_tokens")
    return min(limit, window // 2) if isinstance(limit, int) and limit > 0 else window // ANSWER_SHARE


def _droppable(messages: Sequence[Message]) -> list[list[int]]:
    """The places of the rounds that may go, oldest first."""
    newest = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    rounds: list[list[int]] = []
    before: Message | None = None
    for place, message in enumerate(messages):
        if message.role == "system":
            continue
        if place == newest:
            before = None
            continue
        if before is None or _begins(message, before, in_newest=place > newest):
            rounds.append([])
        rounds[-1].append(place)
        before = message
    return rounds[:-1] if rounds and rounds[-1][0] > newest else rounds


def _begins(message: Message, before: Message, *, in_newest: bool) -> bool:
    # Turns in a row are one turn that the provider paused.
    return message.role == "user" or (in_newest and message.role == "assistant" and before.role != "assistant")


def _cut(sizes: Sequence[int], excess: int, space: int) -> int:
    """How many rounds to leave out. What goes is rounded up to whole steps, where there is so much to leave out."""
    step = max(space // STEPS, 1)
    goal = -(-excess // step) * step
    if sum(sizes) < goal:
        goal = excess
    return next((count for count, gone in enumerate(accumulate(sizes), 1) if gone >= goal), len(sizes))


def _noted(messages: list[Message]) -> tuple[Message, ...]:
    first = next((place for place, message in enumerate(messages) if message.role == "user"), None)
    if first is not None:
        messages[first] = replace(messages[first], parts=(Text(NOTE), *messages[first].parts))
    return tuple(messages)


# -- sizes, in tokens --------------------------------------------------------------------------------------------------


def _frame_size(request: ModelRequest) -> int:
    """The size of all that is no message."""
    schemas = [{"description": tool.description, **tool.parameters} for tool in request.tools]
    frame = len(request.tools) * TOOL + sum(_text_size(tool.name) for tool in request.tools)
    frame += TOOLS if request.tools else 0
    if request.output is not None:
        schemas.append(request.output.schema)
    # Not by _text_size: of the signs in a schema, providers leave most out.
    return frame + sum(len(json.dumps(schema, ensure_ascii=False).encode()) // BYTES_A_TOKEN for schema in schemas)


def _message_size(message: Message) -> int:
    return MESSAGE + sum(_PART_SIZES[type(part)](part) for part in message.parts)


def _text_size(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    plain = len(data.translate(None, DENSE))
    return len(data) - plain + -(-plain // BYTES_A_TOKEN)


def _hidden_size(value: Any) -> int:
    """The size of a provider's own data: that of the texts in it."""
    length, waiting = 0, [value]
    while waiting:
        match waiting.pop():
            case str(text):
                length += len(text)
            case dict(fields):
                waiting.extend(fields.values())
            case list(items):
                waiting.extend(items)
    return length // BYTES_A_HIDDEN_TOKEN


def _document_size(document: Document) -> int:
    if document.data is None:
        return UNSEEN_PAGES * PAGE
    return min(1 + len(document.data) // BYTES_A_PAGE, MOST_PAGES) * PAGE


_PART_SIZES: dict[type[Part], Callable[[Any], int]] = {
    Text: lambda part: _text_size(part.text) + _hidden_size(part.opaque),
    # The provider's own part holds the text once more.
    Reasoning: lambda part: max(_text_size(part.text), _hidden_size(part.opaque)),
    ToolCall: lambda part: CALL + _text_size(part.name) + _text_size(part.raw) + _hidden_size(part.opaque),
    ToolResult: lambda part: RESULT + _text_size(part.name) + _text_size(part.content),
    Image: lambda part: IMAGE,
    Document: _document_size,
}
