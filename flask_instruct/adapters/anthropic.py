"""Anthropic Messages.

``render_request`` makes the request, ``parse_events`` reads the answer; what differs by model or word stands in tables.
"""

from __future__ import annotations

import json
from collections.abc import Generator
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
from ..messages import ToolSpec
from .base import ProviderSettings
from .base import TextPieces
from .base import call_ids
from .base import clean
from .base import new_call_id
from .base import replayed_arguments
from .base import replayed_id
from .base import result_text
from .base import system_text
from .names import legal_name
from .sse import ServerSentEvent
from .sse import read_events
from .transport import Client
from .transport import Clients
from .transport import client_options
from .transport import missing_package
from .transport import posted
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

TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

DEFAULT_MAX_TOKENS = 16_000
MAX_TOKENS_OF = (("claude-2", 4_096), ("claude-3-5", 8_192), ("claude-3-7", 16_000), ("claude-3", 4_096))
"""The API demands ``max_tokens`` and refuses more than the model can; prefixes of old models, first match counts."""

PLACEHOLDER = "(no text)"
"""Stands where the API wants a text and there is none."""

_THINKING = frozenset({"thinking", "redacted_thinking"})
_OWN_OPTIONS = frozenset({"max_tokens", "stop", "parallel_tool_calls"})


class Anthropic:
    """Speak Messages with one provider."""

    name = "anthropic"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        client = clients.get(self.settings)
        import anthropic

        payload = render_request(request, self.settings)
        with posted(anthropic, client, self.settings, "/v1/messages", payload) as chunks:
            yield from parse_events(read_events(chunks), request, self.settings.name)


def _make_client(settings: ProviderSettings) -> Client:
    try:
        import anthropic
    except ImportError:
        raise missing_package("anthropic") from None
    return anthropic.Anthropic(**client_options(anthropic, settings))


clients = Clients(_make_client)


def render_request(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """Return the request body: our messages, tools and options as the API wants them."""
    options = request.options
    payload: JsonObject = {
        **{key: value for key, value in options.items() if key not in _OWN_OPTIONS},
        "model": request.model,
        "max_tokens": options.get("max_tokens") or _max_tokens(request),
        "messages": render_messages(request, settings),
        "stream": True,
    }
    instructions = system_text(request.messages)
    if instructions:
        payload["system"] = instructions
    stops = [options["stop"]] if isinstance(options.get("stop"), str) else options.get("stop")
    if stops:
        payload["stop_sequences"] = list(stops)
    tools = request.tools or _tools_of_history(request.messages)
    if tools:
        payload["tools"] = [_render_tool(tool) for tool in tools]
        payload["tool_choice"] = _tool_choice(request)
    return payload


def _max_tokens(request: ModelRequest) -> int:
    thinking = as_count(as_object(request.options.get("thinking")).get("budget_tokens")) or 0
    known = next((most for prefix, most in MAX_TOKENS_OF if request.model.startswith(prefix)), DEFAULT_MAX_TOKENS)
    return known + thinking


def _tool_choice(request: ModelRequest) -> JsonObject:
    choice: JsonObject = {"type": TOOL_CHOICES[request.tool_choice] if request.tools else "none"}
    if choice["type"] != "none" and request.options.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    return choice


def _render_tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _tools_of_history(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Declare what a history has called: without it the API refuses a request that has no tools of its own."""
    names = dict.fromkeys(legal_name(call.name) for message in messages for call in message.calls)
    return tuple(ToolSpec(name, "No longer available.", {"type": "object"}) for name in names)


def render_messages(request: ModelRequest, settings: ProviderSettings) -> list[JsonObject]:
    """Return the conversation: roles alternate from user on, results of a turn share a message, no text is blank."""
    rendered: list[JsonObject] = []
    for message in request.messages:
        if message.role == "assistant":
            _append(rendered, "assistant", _assistant_blocks(message, settings.name))
        elif message.role == "user":
            _append(rendered, "user", _text_blocks(message) or [_text_block(PLACEHOLDER)])
        elif message.role == "tool":
            _append(rendered, "user", _result_blocks(message))
    if not rendered or rendered[0]["role"] != "user":
        rendered.insert(0, {"role": "user", "content": [_text_block(PLACEHOLDER)]})
    _strip_prefill(rendered)
    return rendered


def _append(rendered: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    if not blocks:
        return
    if rendered and rendered[-1]["role"] == role:
        rendered[-1]["content"].extend(blocks)
    else:
        rendered.append({"role": role, "content": blocks})


def _strip_prefill(rendered: list[JsonObject]) -> None:
    """An assistant message at the end is continued by the model; the API refuses it with blanks at its end."""
    last = rendered[-1]
    if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        block = last["content"][-1]
        last["content"][-1] = {**block, "text": block["text"].rstrip()}


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _text_blocks(message: Message) -> list[JsonObject]:
    texts = (clean(part.text) for part in message.parts if isinstance(part, Text))
    return [_text_block(text) for text in texts if text.strip()]


def _result_blocks(message: Message) -> list[JsonObject]:
    blocks = []
    for result in message.results:
        block: JsonObject = {
            "type": "tool_result",
            "tool_use_id": replayed_id(result.call_id),
            "content": result_text(result),
        }
        blocks.append({**block, "is_error": True} if result.error else block)
    return blocks


def _assistant_blocks(message: Message, provider: str) -> list[JsonObject]:
    blocks = [block for part in message.parts if (block := _assistant_block(part, provider)) is not None]
    # A turn that was cut after its thinking would end in it, which the API refuses.
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    return blocks


def _assistant_block(part: Part, provider: str) -> JsonObject | None:
    if isinstance(part, Text):
        text = clean(part.text)
        return _text_block(text) if text.strip() else None
    if isinstance(part, ToolCall):
        return {
            "type": "tool_use",
            "id": replayed_id(part.id),
            "name": legal_name(part.name),
            "input": replayed_arguments(part.raw),
        }
    if not isinstance(part, Reasoning) or part.opaque is None or part.provider != provider:
        return None
    # A block without its signature is refused: pydantic-ai#7601.
    unsigned = part.opaque.get("type") == "thinking" and not part.opaque.get("signature")
    return None if unsigned else part.opaque


def parse_events(
    events: Iterable[ServerSentEvent], request: ModelRequest, provider: str = "anthropic"
) -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks the thinking of the answer, which goes back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without ``message_stop``, and for errors sent inside the stream.
    """
    turn = _Turn(call_ids(request.messages), provider)
    for event in events:
        payload = payload_of(event)
        if payload.get("type") == "message_stop":
            yield from turn.finish(forbid_calls=request.tool_choice == "none")
            return
        yield from turn.feed(payload)
    raise ProviderError("cut", "The stream ended without message_stop.")


@dataclass(slots=True)
class _Block:
    """A content block while it streams in; ``start`` is what the server opened it with."""

    start: JsonObject
    text: TextPieces = field(default_factory=TextPieces)
    json: TextPieces = field(default_factory=TextPieces)
    signature: str = ""
    call_id: str = ""
    closed: bool = False
    known: bool = True

    @property
    def type(self) -> str:
        return as_text(self.start.get("type"))


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, taken: set[str], provider: str) -> None:
        self._taken = taken
        self._provider = provider
        self._message_id: str | None = None
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._raw = ""
        self._explanation = ""

    def feed(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        kind = payload.get("type")
        if kind == "content_block_delta":
            block = self._blocks.get(_index(payload))
            if block is not None:
                yield from self._feed_delta(block, as_object(payload.get("delta")))
        elif kind == "content_block_start":
            yield from self._open(_index(payload), as_object(payload.get("content_block")))
        elif kind == "content_block_stop":
            block = self._blocks.get(_index(payload))
            if block is not None:
                block.closed = True
        elif kind == "message_start":
            message = as_object(payload.get("message"))
            self._begin(as_text(message.get("id")))
            yield from self._count(message.get("usage"))
        elif kind == "message_delta":
            delta = as_object(payload.get("delta"))
            self._raw = as_text(delta.get("stop_reason")) or self._raw
            self._explanation = as_text(as_object(delta.get("stop_details")).get("explanation")) or self._explanation
            yield from self._count(payload.get("usage"))

    def _begin(self, message_id: str) -> None:
        if self._message_id is not None and message_id != self._message_id:
            raise ProviderError(
                "malformed", f"Two answers were mixed in one stream: {self._message_id} and {message_id}."
            )
        self._message_id = message_id

    def _count(self, usage: Any) -> Iterator[Event]:
        """Totals replace what was said before, they are not added to it (pydantic-ai#2771)."""
        said = {key: value for key, value in as_object(usage).items() if value is not None}
        if said and not said.items() <= self._usage.items():
            self._usage.update(said)
            yield UsageReported(_usage(self._usage))

    def _open(self, index: int, start: Mapping[str, Any]) -> Iterator[Event]:
        block = self._blocks[index] = _Block(dict(start))
        if block.type == "tool_use":
            provider_id = as_text(start.get("id"))
            block.call_id = provider_id if provider_id and provider_id not in self._taken else new_call_id()
            self._taken.add(block.call_id)
            yield ToolCallDelta(block.call_id, clean(as_text(start.get("name"))), "")
        elif start.get("text") or start.get("thinking"):
            yield from self._say(block, as_text(start.get("text")) or as_text(start.get("thinking")))

    def _feed_delta(self, block: _Block, delta: Mapping[str, Any]) -> Iterator[Event]:
        kind = delta.get("type")
        if kind == "text_delta":
            yield from self._say(block, as_text(delta.get("text")))
        elif kind == "thinking_delta":
            yield from self._say(block, as_text(delta.get("thinking")))
        elif kind == "input_json_delta":
            piece = block.json.add(as_text(delta.get("partial_json")))
            if piece and block.call_id:
                yield ToolCallDelta(block.call_id, clean(as_text(block.start.get("name"))), piece)
        elif kind == "signature_delta":
            block.signature += as_text(delta.get("signature"))
        elif kind == "compaction_delta":
            block.start.update({key: value for key, value in delta.items() if key != "type"})
        elif kind != "citations_delta":
            block.known = False

    def _say(self, block: _Block, text: str) -> Iterator[Event]:
        shown = block.text.add(text)
        if shown:
            yield ReasoningDelta(shown) if block.type == "thinking" else TextDelta(shown)

    def finish(self, *, forbid_calls: bool) -> Iterator[Event]:
        parts = [part for index in sorted(self._blocks) if (part := self._part(self._blocks[index])) is not None]
        reason = FINISH_REASONS.get(self._raw, "other")
        calls = [part for part in parts if isinstance(part, ToolCall)]
        if self._raw in RUNS_TOOLS:
            self._require_closed()
            reason = "tool_calls" if calls and not forbid_calls else "stop"
        if reason != "tool_calls":
            parts = [part for part in parts if not isinstance(part, ToolCall)]
        if reason == "refusal" and self._explanation and not any(isinstance(part, Text) for part in parts):
            yield TextDelta(self._explanation)
            parts.append(Text(self._explanation))
        yield Finish(reason, self._raw, Message("assistant", tuple(parts)))

    def _require_closed(self) -> None:
        if any(block.call_id and not block.closed for block in self._blocks.values()):
            raise ProviderError("cut", "The stream ended inside a tool call.")

    def _part(self, block: _Block) -> Part | None:
        text = block.text.whole()
        if block.type == "text":
            return Text(text) if text else None
        if block.type == "tool_use":
            return self._call(block)
        if block.type == "thinking":
            signature = block.signature or as_text(block.start.get("signature"))
            opaque = {**block.start, "thinking": text, "signature": signature} if signature else None
            return Reasoning(text, self._provider, opaque) if text or opaque else None
        return self._foreign(block)

    def _call(self, block: _Block) -> ToolCall:
        provider_id = as_text(block.start.get("id"))
        whole = as_object(block.start.get("input"))
        raw = block.json.whole() or (json.dumps(whole) if whole else "{}")
        opaque = None if provider_id == block.call_id else {"provider_id": provider_id}
        return ToolCall(block.call_id, clean(as_text(block.start.get("name"))), raw, opaque)

    def _foreign(self, block: _Block) -> Part | None:
        """Keep a block of the provider's own, such as redacted thinking, a server tool's call or its result."""
        if not block.type or not block.closed or not block.known:
            return None
        opaque = dict(block.start)
        if block.json.whole():
            opaque["input"] = replayed_arguments(block.json.whole())
        return Reasoning("", self._provider, opaque)


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
