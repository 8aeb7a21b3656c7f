"""What Gemini's streamed answer means: chunks of parts in, our events out, and at the end the whole turn."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from itertools import chain
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
from .conversation import without_calls
from .google_calls import ArrivingCall
from .google_calls import ArrivingCalls
from .json_stream import read_objects
from .names import ToolNames
from .sse import ServerSentEvent
from .sse import read_events
from .wire_values import as_count
from .wire_values import as_object
from .wire_values import as_objects
from .wire_values import as_text
from .wire_values import payload_of

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "PUP_LIMITED_DISABLED": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_OTHER": "content_filter",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
}
"""The API's words; any other is ``other``. Only ``STOP`` lets calls run."""

NOT_FINISHED = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
SIGNATURE = "thoughtSignature"


def read_payloads(chunks: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Read the response objects of a body: server-sent events as asked for, else a JSON array or one object.

    :raises ProviderError: for an error in the stream, and for anything that is no JSON object.
    """
    pieces = iter(chunks)
    begin = b""
    for piece in pieces:
        begin = (begin + piece).lstrip(b" \t\r\n\xef\xbb\xbf")
        if begin:
            break
    whole = chain((begin,), pieces)
    if begin[:1] in (b"[", b"{"):
        yield from (payload_of(ServerSentEvent("", text)) for text in read_objects(whole))
        return
    for event in read_events(whole):
        # Some gateways end the stream as OpenAI does.
        if event.data.strip() != "[DONE]":
            yield payload_of(event)


def parse_payloads(
    payloads: Iterable[Mapping[str, Any]], request: ModelRequest, provider: str = "google"
) -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks signatures, ids and parts of the provider's own, which go back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without a finish reason, or one that stops inside a call.
    """
    turn = _Turn(request, provider)
    for payload in payloads:
        yield from turn.feed(payload)
    yield turn.finish(forbid_calls=request.tool_choice == "none")


@dataclass(slots=True)
class _Words:
    """Text or a thought while it streams in. One with a signature stands alone: parts may not be merged with it."""

    thought: bool
    signature: str = ""
    text: TextPieces = field(default_factory=TextPieces)


_Arriving = _Words | ArrivingCall | JsonObject


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        self._provider = provider
        self._calls = ArrivingCalls(call_ids(request.messages), ToolNames(request.tools))
        self._parts: list[_Arriving] = []
        self._usage: dict[str, Any] = {}
        self._raw = ""
        self._blocked = ""

    def feed(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        for candidate in as_objects(payload.get("candidates")):
            if candidate.get("index"):
                continue
            for part in as_objects(as_object(candidate.get("content")).get("parts")):
                yield from self._feed_part(part)
            self._raw = as_text(candidate.get("finishReason")) or self._raw
        self._blocked = as_text(as_object(payload.get("promptFeedback")).get("blockReason")) or self._blocked
        yield from self._count(payload.get("usageMetadata"))

    def _feed_part(self, part: Mapping[str, Any]) -> Iterator[Event]:
        if isinstance(part.get("functionCall"), dict):
            yield from self._feed_call(part["functionCall"], as_text(part.get(SIGNATURE)))
        elif isinstance(part.get("text"), str):
            yield from self._say(part["text"], bool(part.get("thought")), as_text(part.get(SIGNATURE)))
        elif part:
            # Code that the server ran, a picture, a tool of the server: it must come back as it is.
            self._parts.append(dict(part))

    def _feed_call(self, said: Mapping[str, Any], signature: str) -> Iterator[Event]:
        call, begins = self._calls.add(said)
        if call is None:
            return
        if begins:
            self._parts.append(call)
        call.signature = signature or call.signature
        if begins or call.closed:
            yield ToolCallDelta(call.id, call.name, call.raw if call.closed else "")

    def _say(self, text: str, thought: bool, signature: str) -> Iterator[Event]:
        if not text and not signature:
            return
        last = self._parts[-1] if self._parts else None
        joins = isinstance(last, _Words) and last.thought == thought and not last.signature and not signature
        words = last if joins and isinstance(last, _Words) else _Words(thought, signature)
        if words is not last:
            self._parts.append(words)
        shown = words.text.add(text)
        if shown:
            yield ReasoningDelta(shown) if thought else TextDelta(shown)

    def _count(self, usage: Any) -> Iterator[Event]:
        """Values are those of the whole response so far, so later ones replace earlier ones."""
        said = {key: count for key, value in as_object(usage).items() if (count := as_count(value)) is not None}
        if said and not said.items() <= self._usage.items():
            self._usage.update(said)
            yield UsageReported(_usage(self._usage))

    def finish(self, *, forbid_calls: bool) -> Finish:
        if self._raw in NOT_FINISHED:
            if self._blocked:
                return Finish("content_filter", self._blocked, self._message("content_filter"))
            raise ProviderError("cut", "The stream ended without a finishReason.")
        reason = FINISH_REASONS.get(self._raw, "other")
        if reason == "stop" and self._calls.any:
            if self._calls.unfinished:
                # The closing piece of a call may be missing; then nothing tells whether its arguments are whole.
                raise ProviderError("cut", "The stream ended inside a tool call.")
            reason = "stop" if forbid_calls else "tool_calls"
        return Finish(reason, self._raw, self._message(reason))

    def _message(self, reason: FinishReason) -> Message:
        parts = tuple(self._part(part) for part in self._parts)
        return Message("assistant", parts if reason == "tool_calls" else without_calls(parts))

    def _part(self, part: _Arriving) -> Part:
        if isinstance(part, ArrivingCall):
            opaque = {
                **({"provider_id": part.provider_id} if part.provider_id else {}),
                **({SIGNATURE: part.signature} if part.signature else {}),
            }
            return ToolCall(part.id, part.name, part.raw, clean_data(opaque) or None, self._provider if opaque else "")
        if not isinstance(part, _Words):
            return Reasoning("", self._provider, clean_data(part))
        text, signed = part.text.whole(), {SIGNATURE: clean(part.signature)} if part.signature else None
        if part.thought:
            whole = {"text": text, "thought": True, **signed} if signed else None
            return Reasoning(text, self._provider, whole)
        return Text(text, self._provider, signed) if signed else Text(text)


def _usage(usage: Mapping[str, int]) -> Usage:
    """The API counts thoughts apart from the answer, and what its own tools read apart from the prompt; ours do not."""
    return Usage(
        input_tokens=_sum(usage, "promptTokenCount", "toolUsePromptTokenCount"),
        output_tokens=_sum(usage, "candidatesTokenCount", "thoughtsTokenCount"),
        cache_read_tokens=usage.get("cachedContentTokenCount"),
        reasoning_tokens=usage.get("thoughtsTokenCount"),
    )


def _sum(usage: Mapping[str, int], *keys: str) -> int | None:
    counts = [usage[key] for key in keys if key in usage]
    return sum(counts) if counts else None
