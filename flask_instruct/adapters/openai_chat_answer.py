"""A streamed Chat Completions answer, as events: text, reasoning, calls, usage and what its end means."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from ..errors import ProviderError
from ..events import Event
from ..events import Finish
from ..events import FinishReason
from ..events import ReasoningDelta
from ..events import TextDelta
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
from .base import clean_data
from .base import parse_object
from .conversation import without_calls
from .fragments import Fragment
from .fragments import GrowingCalls
from .names import ToolNames
from .rejections import is_filtered
from .rejections import rejected_call
from .sse import ServerSentEvent
from .wire_values import as_count
from .wire_values import as_object
from .wire_values import as_objects
from .wire_values import as_text
from .wire_values import payload_of

logger = logging.getLogger("flask_instruct")

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "function_call_filter": "malformed",
    "error": "error",
}
"""The protocol's words and those of compatible servers, up to a colon; any other is ``other``."""

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where compatible servers stream reasoning: DeepSeek and vLLM the first, Ollama, Groq and OpenRouter the second."""


def parse_events(events: Iterable[ServerSentEvent], request: ModelRequest, provider: str = "openai") -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks the reasoning and the calls of the answer, whose data goes back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without its terminal signal, and for errors sent inside the stream.
    """
    turn = _Turn(request, provider)
    try:
        for event in events:
            if event.event != "error" and event.data.startswith("[DONE]"):
                turn.done = True
                break
            yield from turn.feed(payload_of(event))
    except ProviderError as error:
        finish = turn.finish_of(error)
        if finish is None:
            raise
        yield finish
        return
    yield turn.finish()


def finish_of_refusal(error: ProviderError, request: ModelRequest, provider: str) -> Finish | None:
    """Return the turn that an error in place of an answer stands for, ``None`` where it is but an error."""
    return _Turn(request, provider).finish_of(error)


Reader = Callable[["_Turn", Any, list[Event]], None]


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        self.done = False
        self._request = request
        self._provider = provider
        self._names = ToolNames(request.tools)
        self._text = TextPieces()
        self._refused = False
        self._reasoning = TextPieces()
        self._reasoning_field = ""
        self._reasoning_details: list[JsonObject] = []
        self._calls = GrowingCalls(call_ids(request.messages), provider)
        self._usage: Usage | None = None
        self._raw = ""

    def feed(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Take a chunk and return what to show of it; a list, since generators in generators cost more than JSON."""
        shown: list[Event] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                for field, value in as_object(choice.get("delta")).items():
                    read = READERS.get(field) if value else None
                    if read is not None:
                        read(self, value, shown)
                # A usage chunk may follow whose finish_reason is null again.
                self._raw = self._raw or as_text(choice.get("finish_reason"))
        reported = chunk.get("usage")
        usage = _usage(reported) if reported else None
        if usage is not None and usage != self._usage:
            self._usage = usage
            shown.append(UsageReported(usage))
        return shown

    def read_content(self, content: Any, shown: list[Event]) -> None:
        if isinstance(content, str):
            self._say(content, shown)
            return
        # Mistral's reasoning models stream lists of text and thinking parts.
        for part in as_objects(content):
            self._say(as_text(part.get("text")), shown)
            thought = "".join(as_text(piece.get("text")) for piece in as_objects(part.get("thinking")))
            if thought:
                self._reasoning_field = "content"
                self._think(thought, shown)

    def read_refusal(self, refusal: Any, shown: list[Event]) -> None:
        self._refused = self._refused or bool(as_text(refusal))
        self._say(as_text(refusal), shown)

    def read_calls(self, calls: Any, shown: list[Event]) -> None:
        for call in as_objects(calls):
            growing = self._calls.add(_fragment(call, self._names))
            if growing is not None:
                shown.append(growing)

    def read_reasoning(self, field: str, thought: Any, shown: list[Event]) -> None:
        # A server that sends both fields says the same in each.
        if as_text(thought) and self._reasoning_field in ("", field):
            self._reasoning_field = field
            self._think(thought, shown)

    def read_details(self, details: Any, shown: list[Event]) -> None:
        for detail in as_objects(details):
            _merge_detail(self._reasoning_details, detail)

    def _say(self, text: str, shown: list[Event]) -> None:
        piece = self._text.add(text) if text else ""
        if piece:
            shown.append(TextDelta(piece))

    def _think(self, text: str, shown: list[Event]) -> None:
        piece = self._reasoning.add(text)
        if piece:
            shown.append(ReasoningDelta(piece))

    def finish(self) -> Finish:
        """Return the whole turn, with its calls only where they may be run."""
        calls = self._calls.finished()
        reason = self._reason(calls)
        if reason == "tool_calls" and (self._request.tool_choice == "none" or not calls):
            reason = "stop"
        parts = self._parts(calls)
        kept = parts if reason == "tool_calls" else without_calls(parts)
        return Finish(reason, self._raw, Message("assistant", kept))

    def finish_of(self, error: ProviderError) -> Finish | None:
        """Return the turn that an error ends: a filtered prompt, or a call that the provider itself rejected."""
        if is_filtered(error):
            return Finish("content_filter", "content_filter", Message("assistant", without_calls(self._parts(()))))
        if not self._request.tools or self._request.tool_choice == "none":
            return None
        call = rejected_call(error, self._names, self._provider)
        if call is None:
            return None
        return Finish("tool_calls", "tool_use_failed", Message("assistant", self._parts((call,))))

    def _parts(self, calls: tuple[ToolCall, ...]) -> tuple[Part, ...]:
        parts: list[Part] = []
        reasoning, text = self._reasoning.whole(), self._text.whole()
        if reasoning or self._reasoning_details:
            parts.append(Reasoning(reasoning, self._provider, self._opaque_reasoning(reasoning)))
        if text:
            parts.append(Text(text))
        return (*parts, *calls)

    def _reason(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        if not self._raw:
            self._require_whole(calls)
        # Without the word, a stream that was ended with [DONE] counts as stopped.
        word = self._raw.partition(":")[0].strip() or "stop"
        reason = FINISH_REASONS.get(word, "other")
        if reason == "stop" and self._refused:
            return "refusal"
        return "tool_calls" if reason == "stop" and calls else reason

    def _require_whole(self, calls: tuple[ToolCall, ...]) -> None:
        """Accept ``[DONE]`` without a finish_reason, as OpenRouter and Ollama end some streams, if nothing is torn."""
        if not self.done:
            raise ProviderError("cut", "The stream ended without finish_reason and without [DONE].")
        if any(parse_object(call.raw) is None for call in calls):
            raise ProviderError("cut", "The stream ended without finish_reason inside the arguments of a tool call.")
        if not calls and not self._text.whole():
            raise ProviderError("cut", "The stream ended without finish_reason and without an answer.")
        logger.warning("Provider %s ended an answer without a finish_reason; taken as complete", self._provider)

    def _opaque_reasoning(self, text: str) -> JsonObject | None:
        opaque: JsonObject = {}
        if self._reasoning_field == "content":
            opaque["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
        elif self._reasoning_field:
            opaque[self._reasoning_field] = text
        if self._reasoning_details:
            opaque["reasoning_details"] = self._reasoning_details
        return clean_data(opaque) or None


def _fragment(call: Mapping[str, Any], names: ToolNames) -> Fragment:
    function = as_object(call.get("function"))
    arguments = function.get("arguments")
    extra = call.get("extra_content")
    return Fragment(
        id=as_text(call.get("id")),
        index=as_count(call.get("index")),
        name=names.ours(as_text(function.get("name"))),
        # Some servers send the arguments as the object itself.
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else "",
        opaque={"extra_content": extra} if extra else None,
    )


def _merge_detail(details: list[JsonObject], detail: Mapping[str, Any]) -> None:
    """Join the streamed pieces of one reasoning detail: texts grow, everything else is set."""
    last = details[-1] if details else None
    if last is None or (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
        details.append(dict(detail))
        return
    for key, value in detail.items():
        grows = key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str)
        if grows:
            last[key] += value
        elif value is not None:
            last[key] = value


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt = as_object(usage.get("prompt_tokens_details"))
    completion = as_object(usage.get("completion_tokens_details"))
    cached = as_count(prompt.get("cached_tokens"))
    return Usage(
        input_tokens=as_count(usage.get("prompt_tokens")),
        output_tokens=as_count(usage.get("completion_tokens")),
        # DeepSeek counts them beside the details.
        cache_read_tokens=as_count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write_tokens=as_count(prompt.get("cache_write_tokens")),
        reasoning_tokens=as_count(completion.get("reasoning_tokens")),
    )


def _reasoning_in(field: str) -> Reader:
    return lambda turn, thought, shown: turn.read_reasoning(field, thought, shown)


READERS: dict[str, Reader] = {
    "content": _Turn.read_content,
    "refusal": _Turn.read_refusal,
    "tool_calls": _Turn.read_calls,
    "reasoning_details": _Turn.read_details,
    **{name: _reasoning_in(name) for name in REASONING_FIELDS},
}
"""What reads each field of a delta; only what is there costs anything."""
