"""Reading the streamed answer of Anthropic Messages: raw events to ours, and the blocks to one finished message.

What the stop reasons mean stands in tables; what of the provider's own must return goes with its part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from ..errors import ProviderError
from ..events import Event
from ..events import Finish
from ..events import FinishReason
from ..events import ReasoningDelta
from ..events import TextDelta
from ..events import ToolCallDelta
from ..events import Usage
from ..events import UsageReported
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from .base import TextPieces
from .base import call_ids
from .base import clean
from .base import clean_data
from .base import id_for_call
from .base import replayed_arguments
from .conversation import without_calls
from .names import ToolNames
from .sse import ServerSentEvent
from .wire_values import as_count
from .wire_values import as_object
from .wire_values import as_text
from .wire_values import payload_of

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}
"""The API's stop reasons; any other is ``other``."""

RUNS_TOOLS = frozenset({"tool_use", "end_turn"})
"""Stop reasons after which calls may run; ``stop_sequence`` may have cut one short."""


def parse_events(
    events: Iterable[ServerSentEvent], request: ModelRequest, provider: str = "anthropic"
) -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks the provider's own parts of the answer, which go back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without ``message_stop``, and for errors sent inside the stream.
    """
    turn = _Turn(request, provider)
    for event in events:
        payload = payload_of(event)
        if payload.get("type") == "message_stop":
            yield from turn.finish(forbid_calls=request.tool_choice == "none")
            return
        heard = turn.feed(payload)
        if heard is not None:
            yield heard
    raise ProviderError("cut", "The stream ended without message_stop.")


@dataclass(slots=True)
class _Block:
    """A content block while it streams in; ``start`` is what the server opened it with."""

    start: JsonObject
    text: TextPieces = field(default_factory=TextPieces)
    json: TextPieces = field(default_factory=TextPieces)
    signature: str = ""
    call_id: str = ""
    name: str = ""
    closed: bool = False
    known: bool = True

    @property
    def type(self) -> str:
        return as_text(self.start.get("type"))

    @property
    def untouched(self) -> bool:
        return not (self.closed or self.signature or self.text.whole() or self.json.whole())


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        self._taken = call_ids(request.messages)
        self._names = ToolNames(request.tools)
        self._provider = provider
        self._message_id: str | None = None
        self._blocks: list[tuple[int, _Block]] = []
        self._usage: dict[str, Any] = {}
        self._raw = ""
        self._explanation = ""

    def feed(self, payload: Mapping[str, Any]) -> Event | None:
        """Take an event of the API; one means at most one of ours."""
        kind = payload.get("type")
        if kind == "content_block_delta":
            block = self._at(_index(payload))
            return None if block is None else self._feed_delta(block, as_object(payload.get("delta")))
        if kind == "content_block_start":
            return self._open(_index(payload), as_object(payload.get("content_block")))
        if kind == "content_block_stop":
            block = self._at(_index(payload))
            if block is not None:
                block.closed = True
        elif kind == "message_start":
            message = as_object(payload.get("message"))
            self._begin(as_text(message.get("id")))
            return self._count(message.get("usage"))
        elif kind == "message_delta":
            delta = as_object(payload.get("delta"))
            self._raw = as_text(delta.get("stop_reason")) or self._raw
            explanation = clean(as_text(as_object(delta.get("stop_details")).get("explanation")))
            self._explanation = explanation or self._explanation
            return self._count(payload.get("usage"))
        return None

    def _begin(self, message_id: str) -> None:
        """A start may come twice, but of one answer: vercel/ai#18402."""
        if self._message_id is not None and message_id != self._message_id:
            raise ProviderError(
                "malformed", f"Two answers were mixed in one stream: {self._message_id} and {message_id}."
            )
        self._message_id = message_id

    def _count(self, usage: Any) -> Event | None:
        """Totals replace what was said before, they are not added to it (pydantic-ai#2771)."""
        said = {key: value for key, value in as_object(usage).items() if value is not None}
        if not said or said.items() <= self._usage.items():
            return None
        self._usage.update(said)
        return UsageReported(_usage(self._usage))

    def _at(self, index: int) -> _Block | None:
        """The latest block of an index: servers that imitate the API may use one twice."""
        for place, block in reversed(self._blocks):
            if place == index:
                return block
        return None

    def _open(self, index: int, start: Mapping[str, Any]) -> Event | None:
        known = self._at(index)
        if known is not None and known.untouched and known.start == start:
            return None
        block = _Block(dict(start))
        self._blocks.append((index, block))
        if block.type != "tool_use":
            return _said(block, as_text(start.get("text")) or as_text(start.get("thinking")))
        provider_id = as_text(start.get("id"))
        block.call_id = id_for_call(provider_id, self._taken)
        block.name = self._names.ours(clean(as_text(start.get("name"))))
        return ToolCallDelta(block.call_id, block.name, "")

    def _feed_delta(self, block: _Block, delta: Mapping[str, Any]) -> Event | None:
        kind = delta.get("type")
        if kind == "text_delta":
            return _said(block, as_text(delta.get("text")))
        if kind == "thinking_delta":
            return _said(block, as_text(delta.get("thinking")))
        if kind == "input_json_delta":
            piece = block.json.add(as_text(delta.get("partial_json")))
            return ToolCallDelta(block.call_id, block.name, piece) if piece and block.call_id else None
        if kind == "signature_delta":
            block.signature += as_text(delta.get("signature"))
        elif kind == "compaction_delta":
            block.start.update({key: value for key, value in delta.items() if key != "type"})
        elif kind != "citations_delta":
            block.known = False
        return None

    def finish(self, *, forbid_calls: bool) -> Iterator[Event]:
        found = (self._part(block) for _, block in sorted(self._blocks, key=lambda placed: placed[0]))
        parts = tuple(part for part in found if part is not None)
        reason = FINISH_REASONS.get(self._raw, "other")
        if self._raw in RUNS_TOOLS:
            self._require_closed()
            calls = any(isinstance(part, ToolCall) for part in parts)
            reason = "tool_calls" if calls and not forbid_calls else "stop"
        if reason == "refusal":
            yield from self._explain(parts)
            parts = self._refused(parts)
        elif reason != "tool_calls":
            parts = without_calls(parts)
        yield Finish(reason, self._raw, Message("assistant", parts))

    def _require_closed(self) -> None:
        if any(block.call_id and not block.closed for _, block in self._blocks):
            raise ProviderError("cut", "The stream ended inside a tool call.")

    def _explain(self, parts: tuple[Part, ...]) -> Iterator[Event]:
        if self._explanation and not _texts(parts):
            yield TextDelta(self._explanation)

    def _refused(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Of a refused turn only the words stay: its thinking and its calls must not be sent back."""
        return _texts(parts) or ((Text(self._explanation),) if self._explanation else ())

    def _part(self, block: _Block) -> Part | None:
        text = block.text.whole()
        if block.type == "tool_use":
            return self._call(block)
        # What was shown stays, whatever block it came in.
        if block.type == "text" or (text and block.type != "thinking"):
            return Text(text) if text else None
        if block.type == "thinking":
            signature = block.signature or as_text(block.start.get("signature"))
            opaque = {**block.start, "thinking": text, "signature": signature} if signature else None
            return Reasoning(text, self._provider, clean_data(opaque)) if text or opaque else None
        return self._foreign(block)

    def _call(self, block: _Block) -> ToolCall:
        whole = as_object(block.start.get("input"))
        raw = block.json.whole() or (json.dumps(whole) if whole else "{}")
        provider_id = as_text(block.start.get("id"))
        if provider_id == block.call_id:
            return ToolCall(block.call_id, block.name, raw)
        return ToolCall(block.call_id, block.name, raw, {"provider_id": clean(provider_id)}, self._provider)

    def _foreign(self, block: _Block) -> Part | None:
        """Keep a block of the provider's own: redacted thinking, a server tool's call, which model stepped in."""
        if not block.type or not block.closed or not block.known:
            return None
        opaque = dict(block.start)
        if block.json.whole():
            opaque["input"] = replayed_arguments(block.json.whole())
        return Reasoning("", self._provider, clean_data(opaque))


def _said(block: _Block, text: str) -> Event | None:
    shown = block.text.add(text)
    if not shown:
        return None
    return ReasoningDelta(shown) if block.type == "thinking" else TextDelta(shown)


def _texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if isinstance(part, Text))


def _index(payload: Mapping[str, Any]) -> int:
    return as_count(payload.get("index")) or 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    """The API counts cached input apart; ours includes it."""
    read, written = as_count(usage.get("cache_read_input_tokens")), as_count(usage.get("cache_creation_input_tokens"))
    fresh = as_count(usage.get("input_tokens"))
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=as_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
    )
