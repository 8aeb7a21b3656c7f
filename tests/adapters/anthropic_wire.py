"""What the tests of Anthropic Messages share: pieces of a streamed answer, and bodies of requests."""

from __future__ import annotations

from typing import Any

from flask_instruct.adapters.anthropic import render_request
from flask_instruct.adapters.anthropic_answer import parse_events
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.sse import read_events
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from tests.wire_format import anthropic_delta
from tests.wire_format import anthropic_event

from .hearing import Heard
from .hearing import asking
from .hearing import cut_in
from .hearing import settings

OFFICIAL = settings("anthropic", quirks=BUILT_IN["anthropic"].quirks)
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}


def hear(*parts: str, request: ModelRequest | None = None, size: int = 4096) -> Heard:
    return Heard(parse_events(read_events(cut_in("".join(parts), size)), request or asking()))


def opened(index: int, **block: Any) -> str:
    return anthropic_event("content_block_start", index=index, content_block=block)


def closed(index: int) -> str:
    return anthropic_event("content_block_stop", index=index)


def said(text: str, index: int = 0) -> str:
    return opened(index, type="text", text="") + anthropic_delta(index, "text_delta", text=text) + closed(index)


def called(*pieces: str, index: int = 0, id: str = "toolu_a", name: str = "add", open_end: bool = False) -> str:
    start = opened(index, type="tool_use", id=id, name=name, input={})
    deltas = "".join(anthropic_delta(index, "input_json_delta", partial_json=piece) for piece in pieces)
    return start + deltas + ("" if open_end else closed(index))


def body_of(*messages: Message, options: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The body without the marks of the prompt cache."""
    return render_request(asking(*messages, options={"cache": False, **(options or {})}, **fields), OFFICIAL)


def rendered(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    messages_of_body: list[dict[str, Any]] = body_of(*messages, **fields)["messages"]
    return messages_of_body


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
