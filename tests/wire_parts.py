"""What the test server's wire formats share: how a script's steps fall into pieces, and how a request is read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Use
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.messages import Message
from flask_instruct.messages import Part
from flask_instruct.messages import Role
from flask_instruct.messages import ToolResult

Frame = str | bytes | float
"""A part of a body, or seconds of silence."""

INPUT_TOKENS = 100
OUTPUT_TOKENS = 20
"""What each told turn is said to have cost, reasoning included."""

ERRORS: dict[str, tuple[int, str, str]] = {
    "authentication": (401, "invalid_api_key", "authentication_error"),
    "permission": (403, "permission_denied", "permission_error"),
    "not_found": (404, "model_not_found", "not_found_error"),
    "bad_request": (400, "invalid_request_error", "invalid_request_error"),
    "context_window": (400, "context_length_exceeded", "request_too_large"),
    "rate_limited": (429, "rate_limit_exceeded", "rate_limit_error"),
    "overloaded": (529, "overloaded", "overloaded_error"),
    "server": (500, "server_error", "api_error"),
    "timeout": (504, "timeout", "timeout_error"),
}
"""Kind of failure: HTTP status, OpenAI's code, Anthropic's type."""


def pieces(step: Say | Think) -> Iterator[tuple[float, str]]:
    """Return the pieces of a text, each with the silence before it."""
    for start in range(0, len(step.text), step.size):
        yield float(step.every), step.text[start : start + step.size]


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def reason_of(turn: Sequence[Step]) -> str:
    """Return why a turn ends, in our words."""
    stop = next((step.reason for step in turn if isinstance(step, Stop)), None)
    return stop or ("tool_calls" if any(isinstance(step, Use) for step in turn) else "stop")


def broken(step: Fail, error: dict[str, Any]) -> Iterator[Frame]:
    """Return how an answer goes wrong in its middle; a cut one just ends."""
    if step.kind == "malformed":
        yield "data: {this is no JSON\n\n"
    elif step.kind not in ("cut", "connection"):
        yield f"event: error\ndata: {json.dumps(error)}\n\n"


def named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Give each result the name of its tool, which not every protocol repeats."""
    names = {call.id: call.name for message in messages for call in message.calls}

    def with_name(part: Part) -> Part:
        return replace(part, name=names.get(part.call_id, "")) if isinstance(part, ToolResult) else part

    return tuple(replace(message, parts=tuple(map(with_name, message.parts))) for message in messages)


def grown(messages: Sequence[Message], role: Role, *parts: Part) -> list[Message]:
    """Return the messages with these parts, joined to the last one where it has the same role."""
    if messages and messages[-1].role == role:
        return [*messages[:-1], Message(role, (*messages[-1].parts, *parts))]
    return [*messages, Message(role, parts)]


def attached(kind: type[Image] | type[Document], address: str, name: str | None = None) -> Image | Document:
    """Return what an address stands for; ``data:`` holds the bytes themselves."""
    if not address.startswith("data:"):
        return kind("", url=address, name=name)
    media_type, _, coded = address.removeprefix("data:").partition(";base64,")
    return kind(media_type, base64.b64decode(coded, validate=True), name=name)
