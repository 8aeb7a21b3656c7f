"""One answer served by a real server to a real adapter, or given to its parser alone, and where it may be cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from flask_instruct.adapters import anthropic_answer
from flask_instruct.adapters import google_answer
from flask_instruct.adapters import openai_chat_answer
from flask_instruct.adapters import openai_responses_answer
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.base import Adapter
from flask_instruct.adapters.google import Google
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.messages import ModelRequest
from tests.wire import Reply
from tests.wire import WireServer
from tests.wire_parts import Frame

from .hearing import settings

ADAPTERS: dict[str, Callable[[Any], Adapter]] = {
    "openai": OpenAIChat,
    "openai_responses": OpenAIResponses,
    "anthropic": Anthropic,
    "google": Google,
}
PARSERS: dict[str, Callable[[Iterable[bytes], ModelRequest, str], Iterator[Event]]] = {
    "openai": lambda pieces, *asked: openai_chat_answer.parse_events(read_events(pieces), *asked),
    "openai_responses": lambda pieces, *asked: openai_responses_answer.parse_events(read_events(pieces), *asked),
    "anthropic": lambda pieces, *asked: anthropic_answer.parse_events(read_events(pieces), *asked),
    "google": lambda pieces, *asked: google_answer.parse_payloads(google_answer.read_payloads(pieces), *asked),
}
CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]+")
BLANK_LINE = re.compile(rb"\r?\n\r?\n")
PAUSES = 20
PAUSE = 0.004
SIZES: dict[str, int] = {"1 byte": 1, "7 bytes": 7, "a line": 0, "everything": 0}


class Stage:
    """A server that plays one reply, and what the adapters hear of it."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.server = WireServer(lambda seen: self.reply)

    def stream(
        self, protocol: str, provider: str, request: ModelRequest, reply: Reply, timeout: float = 20.0
    ) -> Iterator[Event]:
        """Ask for the reply as this provider's adapter does."""
        self.reply = reply
        url, quirks = self.server.base_url(protocol), BUILT_IN[provider].quirks
        return ADAPTERS[protocol](settings(provider, url, quirks=quirks, timeout=timeout)).stream(request)


def whole(body: str, piece: str = "everything") -> Reply:
    """Return the whole answer, sent in pieces of a size."""
    return _reply(body, list(body.splitlines(keepends=True)) if piece == "a line" else None, piece=SIZES[piece])


def slow(body: str) -> Reply:
    """Return the whole answer with a pause before each of its first events."""
    data = body.encode()
    frames: list[Frame] = []
    for start, end in pairwise([0, *ends_of_events(data)[:PAUSES], len(data)]):
        frames += [PAUSE, data[start:end]]
    return _reply(body, frames)


def stalled(body: str, place: int) -> Reply:
    """Return the answer, of which nothing more comes after so many bytes."""
    data = body.encode()
    return _reply(body, [data[:place], 30.0, data[place:]])


def torn(body: str, place: int) -> Reply:
    """Return the answer, whose connection breaks after so many bytes."""
    return _reply(body, cut_after=place)


def _reply(body: str, frames: list[Frame] | None = None, **how: Any) -> Reply:
    kind = "application/json" if body.startswith("[") else "text/event-stream"
    return Reply(body if frames is None else frames, content_type=kind, **how)


def ends_of_events(body: bytes) -> list[int]:
    """The places after each event; of an array, after each line."""
    found = re.finditer(rb"\n", body) if body.startswith(b"[") else BLANK_LINE.finditer(body)
    return [match.end() for match in found]


def signal_of(protocol: str, body: bytes) -> int:
    """The place where the last byte of the terminal signal has come: nothing is lost any more from there on."""
    if body.startswith(b"["):
        return body.rindex(b"]") + 1
    place = 0
    for line in body.splitlines(keepends=True):
        data = line.removeprefix(b"data:").strip()
        place += len(line)
        if line.startswith(b"data:") and _is_signal(protocol, data):
            return place - len(line) + len(line.rstrip())
    raise AssertionError("The answer has no end.")


def _is_signal(protocol: str, data: bytes) -> bool:
    if data == b"[DONE]":
        return True
    event = json.loads(data)
    if event.get("type") == "error" or ("error" in event and "type" not in event):
        return True
    if protocol == "openai":
        return any(choice.get("finish_reason") for choice in event.get("choices") or ())
    if protocol == "google":
        ended = any(candidate.get("finishReason") for candidate in event.get("candidates", ()))
        return ended or "blockReason" in event.get("promptFeedback", {})
    return event["type"] in ("message_stop", *openai_responses_answer.TERMINAL)


def cuts_inside(protocol: str, body: bytes) -> list[int]:
    """Return places before the terminal signal: all over, dense before its last byte, and inside each character."""
    end = signal_of(protocol, body)
    inside = (place for match in CHARACTER.finditer(body, 0, end) for place in range(match.start() + 1, match.end()))
    return sorted({*range(1, end, max(1, end // 40)), *range(max(1, end - 40), end), *inside})


def cuts_between(protocol: str, body: bytes) -> list[int]:
    """Return the places after each event before the terminal signal."""
    end = signal_of(protocol, body)
    return [place for place in ends_of_events(body) if place < end]


def require_no_success(events: Iterator[Event], kind: str) -> None:
    seen: list[Event] = []
    with pytest.raises(ProviderError) as caught:
        seen.extend(events)
    assert caught.value.kind == kind
    assert not any(isinstance(event, Finish) for event in seen)
