"""OpenAI Responses: what a streamed answer means.

Deltas are only shown. The turn is built from items as they are when done, and what it means is the terminal event's to
say; an item is found by its place in the output, since some servers give it another id in each event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
from .base import new_call_id
from .base import parse_object
from .conversation import without_calls
from .failures import failure
from .names import ToolNames
from .sse import ServerSentEvent
from .wire_values import as_count
from .wire_values import as_object
from .wire_values import as_objects
from .wire_values import as_text
from .wire_values import payload_of

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})

INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Why an answer is incomplete; any other reason is ``other``."""

UNFINISHED = frozenset({"cancelled", "queued", "in_progress"})
"""What a response that has ended cannot be."""

FAULTS_OF_REQUEST = frozenset(
    {
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""Codes of a failed response that asking again does not change."""

WRAPPER = "parallel"
"""A call under which some models hand in several: vercel/ai#19098."""

_BLANK_LINE = "\n\n"


def parse_events(events: Iterable[ServerSentEvent], request: ModelRequest, provider: str = "openai") -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks the parts of the answer that go back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without its terminal event, and for errors sent inside the stream.
    """
    turn = _Turn(request, provider)
    for event in events:
        if event.data.startswith("[DONE]"):
            break
        payload = _payload(event)
        if as_text(payload.get("type")) in TERMINAL:
            yield from turn.end(payload)
            return
        yield from turn.feed(payload)
    raise ProviderError("cut", "The stream ended without a terminal event such as response.completed.")


def _payload(event: ServerSentEvent) -> Mapping[str, Any]:
    """An error comes flat, as documented, or nested, as recorded (vercel/ai#15922)."""
    try:
        payload = payload_of(event)
    except ProviderError as error:
        raise (_failed(error.body) if error.body else error) from None
    if payload.get("type") == "error":
        raise _failed(payload)
    return payload


def _failed(detail: Any) -> ProviderError:
    if as_text(as_object(detail).get("code")) in FAULTS_OF_REQUEST:
        detail = {**detail, "type": "invalid_request_error"}
    return failure(detail, fallback="The response failed; the provider does not say why.")


@dataclass(slots=True, eq=False)
class _Item:
    """An output item while it streams in; ``done`` is the item as the provider finished it."""

    place: int | None
    kind: str
    name: str = ""
    provider_id: str = ""
    id: str = ""
    shown: bool = False
    done: Mapping[str, Any] | None = None
    calls: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class _Shown:
    """What a page sees of one kind; a blank line keeps apart what belongs to different parts."""

    make: Callable[[str], Event]
    pieces: dict[object, TextPieces] = field(default_factory=dict)
    latest: object = None

    def add(self, part: object, piece: str) -> tuple[Event, ...]:
        known = self.pieces.get(part)
        if known is None:
            known = self.pieces[part] = TextPieces()
        text = known.add(piece)
        if not text:
            return ()
        begins, self.latest = self.latest not in (None, part), part
        return (self.make(_BLANK_LINE), self.make(text)) if begins else (self.make(text),)

    def whole(self, part: object) -> str:
        return self.pieces[part].whole() if part in self.pieces else ""


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        self._provider = provider
        self._names = ToolNames(request.tools)
        self._declared = {tool.name for tool in request.tools}
        self._may_call = request.tool_choice != "none"
        self._taken = call_ids(request.messages)
        self._items: list[_Item] = []
        self._texts = _Shown(TextDelta)
        self._thoughts = _Shown(ReasoningDelta)
        self._refused = False

    def feed(self, payload: Mapping[str, Any]) -> Iterable[Event]:
        read = READERS.get(as_text(payload.get("type")))
        return read(self, payload) if read is not None else ()

    def say(self, payload: Mapping[str, Any]) -> Iterable[Event]:
        item = self._at(payload) or self._begin(payload, "message")
        return self._texts.add(item, as_text(payload.get("delta")))

    def think(self, payload: Mapping[str, Any]) -> Iterable[Event]:
        item = self._at(payload) or self._begin(payload, "reasoning")
        item.shown = True
        part = payload.get("summary_index", payload.get("content_index"))
        return self._thoughts.add((item, as_count(part)), as_text(payload.get("delta")))

    def grow_call(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        item = self._at(payload)
        piece = clean(as_text(payload.get("delta")))
        if item is not None and piece and self._may_show(item):
            item.shown = True
            yield ToolCallDelta(item.id, item.name, piece)

    def open(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        start = as_object(payload.get("item"))
        item = self._begin(payload, as_text(start.get("type")))
        if item.kind == "function_call":
            self._name(item, start)
            if self._may_show(item):
                yield ToolCallDelta(item.id, item.name, "")

    def close(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        done = as_object(payload.get("item"))
        item = self._unfinished(payload, done) or self._begin(payload, as_text(done.get("type")))
        item.done = done
        if item.kind == "function_call":
            yield from self._close_call(item, done)
        elif item.kind == "message":
            self._refused = self._refused or any(part.get("refusal") for part in as_objects(done.get("content")))
            # Some servers send the item whole, without deltas before it.
            if not self._texts.whole(item):
                yield from self._texts.add(item, _said(done))
        elif item.kind == "reasoning" and not item.shown:
            for number, text in enumerate(_thought(done)):
                yield from self._thoughts.add((item, number), text)

    def _close_call(self, item: _Item, done: Mapping[str, Any]) -> Iterator[Event]:
        self._name(item, done)
        arguments = done.get("arguments")
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
        item.calls = self._unwrapped(item, raw) or (self._call(item, raw),)
        if not item.shown:
            for call in item.calls:
                yield ToolCallDelta(call.id, call.name, call.raw)

    def _call(self, item: _Item, raw: str) -> ToolCall:
        opaque: JsonObject | None = None if item.id == item.provider_id else {"provider_id": clean(item.provider_id)}
        return ToolCall(item.id, item.name, clean(raw) or "{}", opaque, self._provider)

    def _unwrapped(self, item: _Item, raw: str) -> tuple[ToolCall, ...]:
        """The calls in a wrapper; none when it is a tool of that name, or wraps anything but declared tools."""
        if item.name != WRAPPER or WRAPPER in self._declared:
            return ()
        uses = list(as_objects((parse_object(raw) or {}).get("tool_uses")))
        wrapped = [(self._recipient(use), use.get("parameters")) for use in uses]
        if not all(name in self._declared and isinstance(arguments, dict) for name, arguments in wrapped):
            return ()
        opaque = {"provider_id": clean(item.provider_id)}
        return tuple(
            ToolCall(new_call_id(), name, json.dumps(arguments, ensure_ascii=False), opaque, self._provider)
            for name, arguments in wrapped
        )

    def _recipient(self, use: Mapping[str, Any]) -> str:
        kind, _, name = as_text(use.get("recipient_name")).partition(".")
        return self._names.ours(name) if kind == "functions" else ""

    def _may_show(self, item: _Item) -> bool:
        """A wrapper is shown when it is known what it holds."""
        return bool(item.name) and (item.name != WRAPPER or WRAPPER in self._declared)

    def _at(self, payload: Mapping[str, Any]) -> _Item | None:
        place = as_count(payload.get("output_index"))
        for item in reversed(self._items):
            if item.place == place and item.done is None:
                return item
        return None

    def _begin(self, payload: Mapping[str, Any], kind: str) -> _Item:
        item = _Item(as_count(payload.get("output_index")), kind)
        self._items.append(item)
        return item

    def _unfinished(self, payload: Mapping[str, Any], done: Mapping[str, Any]) -> _Item | None:
        """The item that is done now: of its call id where two share a place, else the first there of its kind."""
        place, kind = as_count(payload.get("output_index")), done.get("type")
        there = [item for item in self._items if item.place == place and item.kind == kind and item.done is None]
        named = (item for item in there if item.provider_id and item.provider_id == done.get("call_id"))
        return next(named, None) or next(iter(there), None)

    def _name(self, item: _Item, said: Mapping[str, Any]) -> None:
        item.name = self._names.ours(clean(as_text(said.get("name")))) or item.name
        item.provider_id = as_text(said.get("call_id")) or item.provider_id
        if not item.id:
            item.id = id_for_call(item.provider_id, self._taken)

    def end(self, payload: Mapping[str, Any]) -> Iterator[Event]:
        response = as_object(payload.get("response"))
        usage = _usage(response.get("usage"))
        if usage is not None:
            yield UsageReported(usage)
        event = as_text(payload.get("type")).removeprefix("response.")
        status = as_text(response.get("status")) or event
        if "failed" in (event, status) or response.get("error"):
            raise _failed(response.get("error"))
        if status in UNFINISHED:
            raise ProviderError("cut", f"The stream ended with the response {status}.")
        if not self._items:
            # A server that streams nothing but the end.
            for place, item in enumerate(as_objects(response.get("output"))):
                yield from self.close({"output_index": place, "item": item})
        why = as_text(as_object(response.get("incomplete_details")).get("reason"))
        yield self._finish(status, why)

    def _finish(self, status: str, why: str) -> Finish:
        calls = [call for item in self._items for call in item.calls]
        reason: FinishReason = "other"
        if status == "incomplete":
            reason = INCOMPLETE.get(why, "other")
        elif status == "completed":
            reason = self._reason_of_completed(bool(calls))
        parts = self._parts()
        raw = f"{status}:{why}" if status == "incomplete" and why else status
        return Finish(reason, raw, Message("assistant", parts if reason == "tool_calls" else without_calls(parts)))

    def _reason_of_completed(self, calls: bool) -> FinishReason:
        of_calls = [item for item in self._items if item.kind == "function_call"]
        if any(item.done is None for item in of_calls):
            raise ProviderError("cut", "The response completed, yet one of its tool calls never did.")
        if self._refused:
            return "refusal"
        if any((item.done or {}).get("status") == "incomplete" for item in of_calls):
            return "malformed"
        return "tool_calls" if calls and self._may_call else "stop"

    def _parts(self) -> tuple[Part, ...]:
        answered = any(_phase(item) == "final_answer" and self._text_of(item) for item in self._items)
        parts: list[Part] = []
        for item in self._items:
            if item.kind == "function_call":
                parts.extend(item.calls)
            elif item.kind == "message":
                parts.extend(self._message(item, parts, aside=answered and _phase(item) == "commentary"))
            elif item.kind == "reasoning":
                parts.extend(self._reasoning(item))
            elif item.done is not None:
                # An item that is not ours to replay: the reasoning that led to it would stand alone.
                while parts and isinstance(parts[-1], Reasoning):
                    parts.pop()
        return tuple(parts)

    def _message(self, item: _Item, before: list[Part], *, aside: bool) -> Iterator[Part]:
        """A message as a text, or beside a final answer as an aside: a turn's text is what it answers."""
        text, phase = self._text_of(item), _phase(item)
        if not text:
            return
        if aside:
            yield Reasoning(text, self._provider, {"type": "message", "phase": phase})
            return
        if any(isinstance(part, Text) for part in before):
            yield Text(_BLANK_LINE)
        yield Text(text, self._provider, {"phase": phase} if phase else None)

    def _text_of(self, item: _Item) -> str:
        if item.kind != "message":
            return ""
        return self._texts.whole(item) if item.done is None else clean(_said(item.done))

    def _reasoning(self, item: _Item) -> Iterator[Part]:
        """Text and encrypted reasoning come from one place: they differ between events (llm 0.32)."""
        if item.done is None:
            return
        text = clean(_BLANK_LINE.join(_thought(item.done)))
        if text or item.done.get("encrypted_content"):
            yield Reasoning(text, self._provider, clean_data(item.done))


READERS: dict[str, Callable[[_Turn, Mapping[str, Any]], Iterable[Event]]] = {
    "response.output_text.delta": _Turn.say,
    "response.refusal.delta": _Turn.say,
    "response.reasoning_summary_text.delta": _Turn.think,
    "response.reasoning_text.delta": _Turn.think,
    "response.function_call_arguments.delta": _Turn.grow_call,
    "response.output_item.added": _Turn.open,
    "response.output_item.done": _Turn.close,
}
"""What is read of a stream; all other events repeat it or are of no concern."""


def _phase(item: _Item) -> str:
    return clean(as_text((item.done or {}).get("phase")))


def _said(message: Mapping[str, Any]) -> str:
    parts = as_objects(message.get("content"))
    return "".join(as_text(part.get("text")) or as_text(part.get("refusal")) for part in parts)


def _thought(reasoning: Mapping[str, Any]) -> list[str]:
    """The summary's paragraphs, or the reasoning itself where a server shows it."""
    parts = [*as_objects(reasoning.get("summary"))] or [*as_objects(reasoning.get("content"))]
    return [text for part in parts if (text := as_text(part.get("text")))]


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    read, written = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
    return Usage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_read_tokens=as_count(read.get("cached_tokens")),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        reasoning_tokens=as_count(written.get("reasoning_tokens")),
    )
