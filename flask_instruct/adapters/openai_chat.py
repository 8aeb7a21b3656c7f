"""OpenAI Chat Completions, as OpenAI and many compatible servers speak it.

``render_request`` makes the request, ``parse_events`` reads the answer; what differs by server stands in tables.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Generator
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
from ..messages import ToolResult
from .base import ProviderSettings
from .base import TextPieces
from .base import call_ids
from .base import clean
from .base import parse_object
from .base import replayed_argument_text
from .base import result_text
from .base import system_text
from .fragments import Fragment
from .fragments import GrowingCalls
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
    "error": "error",
}
"""The protocol's words and those of compatible servers; any other is ``other``."""

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where compatible servers stream reasoning: DeepSeek and vLLM the first, Ollama, Groq and OpenRouter the second."""

_REASONING_MODEL = re.compile(r"(o\d|gpt-[5-9])")
_OWN_OPTIONS = frozenset({"max_tokens", "parallel_tool_calls"})


class OpenAIChat:
    """Speak Chat Completions with one provider."""

    name = "openai_chat"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        client = clients.get(self.settings)
        import openai

        payload = render_request(request, self.settings)
        with posted(openai, client, self.settings, "/chat/completions", payload) as chunks:
            yield from parse_events(read_events(chunks), request, self.settings.name)


def _make_client(settings: ProviderSettings) -> Client:
    try:
        import openai
    except ImportError:
        raise missing_package("openai") from None
    return openai.OpenAI(**client_options(openai, settings))


clients = Clients(_make_client)


def render_request(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """Return the request body: our messages, tools and options as the protocol wants them."""
    payload: JsonObject = {
        **{key: value for key, value in request.options.items() if key not in _OWN_OPTIONS},
        "model": request.model,
        "messages": render_messages(request, settings),
        "stream": True,
    }
    payload.setdefault("stream_options", {"include_usage": True})
    if "max_tokens" in request.options:
        # OpenAI's reasoning models refuse max_tokens, most compatible servers know nothing else.
        field = "max_completion_tokens" if settings.base_url is None else "max_tokens"
        payload.setdefault(field, request.options["max_tokens"])
    if request.tools:
        payload["tools"] = [tool.to_json() for tool in request.tools]
        if request.tool_choice != "auto":
            payload["tool_choice"] = request.tool_choice
        if "parallel_tool_calls" in request.options:
            payload["parallel_tool_calls"] = request.options["parallel_tool_calls"]
    return payload


def render_messages(request: ModelRequest, settings: ProviderSettings) -> list[JsonObject]:
    """Return the conversation, instructions first; turns that say nothing are left out."""
    rendered: list[JsonObject] = []
    instructions = system_text(request.messages)
    if instructions:
        reasons = settings.base_url is None and _REASONING_MODEL.match(request.model)
        rendered.append({"role": "developer" if reasons else "system", "content": instructions})
    for message in request.messages:
        if message.role == "user":
            rendered.append({"role": "user", "content": clean(message.text)})
        elif message.role == "assistant":
            rendered.extend(_render_assistant(message, settings.name))
        elif message.role == "tool":
            rendered.extend(_render_result(result) for result in message.results)
    return rendered


def _render_assistant(message: Message, provider: str) -> Iterator[JsonObject]:
    text = clean(message.text)
    if not message.calls:
        if text:
            yield {"role": "assistant", "content": text}
        return
    rendered: JsonObject = {"role": "assistant", "content": text or None}
    for part in message.parts:
        # DeepSeek and OpenRouter want their reasoning back on turns with calls: earendil-works/pi#3636.
        if isinstance(part, Reasoning) and part.opaque and part.provider == provider:
            rendered.update(part.opaque)
    rendered["tool_calls"] = [_render_call(call) for call in message.calls]
    yield rendered


def _render_call(call: ToolCall) -> JsonObject:
    rendered: JsonObject = {
        "id": call.id,
        "type": "function",
        "function": {"name": legal_name(call.name), "arguments": replayed_argument_text(call.raw)},
    }
    extra = (call.opaque or {}).get("extra_content")
    if extra:
        # Gemini's compatible endpoint keeps its thought signature here and wants it back.
        rendered["extra_content"] = extra
    return rendered


def _render_result(result: ToolResult) -> JsonObject:
    """The protocol has no error flag, so the text says it."""
    text = result_text(result)
    if result.error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": result.call_id, "content": text}


def parse_events(events: Iterable[ServerSentEvent], request: ModelRequest, provider: str = "openai") -> Iterator[Event]:
    """Read the streamed answer.

    :param provider: marks the reasoning of the answer, which goes back to the same provider only.
    :raises ProviderError: ``cut`` for a stream without its terminal signal, and for errors sent inside the stream.
    """
    turn = _Turn(call_ids(request.messages), provider)
    for event in events:
        if event.event != "error" and event.data.startswith("[DONE]"):
            turn.done = True
            break
        yield from turn.feed(payload_of(event))
    yield turn.finish(forbid_calls=request.tool_choice == "none")


class _Turn:
    """What one streamed answer has said so far."""

    def __init__(self, taken: set[str], provider: str) -> None:
        self.done = False
        self._provider = provider
        self._text = TextPieces()
        self._refused = False
        self._reasoning = TextPieces()
        self._reasoning_field = ""
        self._reasoning_details: list[JsonObject] = []
        self._calls = GrowingCalls(taken)
        self._usage: Usage | None = None
        self._raw = ""

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        for choice in as_objects(chunk.get("choices")):
            if not choice.get("index"):
                yield from self._feed_delta(as_object(choice.get("delta")))
                # A usage chunk may follow whose finish_reason is null again.
                self._raw = self._raw or as_text(choice.get("finish_reason"))
        usage = _usage(chunk.get("usage"))
        if usage is not None and usage != self._usage:
            self._usage = usage
            yield UsageReported(usage)

    def _feed_delta(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._feed_reasoning(delta)
        yield from self._feed_content(delta.get("content"))
        refusal = as_text(delta.get("refusal"))
        if refusal:
            self._refused = True
            yield from self._say(refusal)
        for call in as_objects(delta.get("tool_calls")):
            shown = self._calls.add(_fragment(call))
            if shown is not None:
                yield shown

    def _feed_content(self, content: Any) -> Iterator[Event]:
        yield from self._say(as_text(content))
        # Mistral's reasoning models stream lists of text and thinking parts.
        for part in as_objects(content):
            yield from self._say(as_text(part.get("text")))
            yield from self._think("".join(as_text(piece.get("text")) for piece in as_objects(part.get("thinking"))))

    def _feed_reasoning(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        field = next((name for name in REASONING_FIELDS if as_text(delta.get(name))), None)
        if field is not None:
            self._reasoning_field = field
            yield from self._think(as_text(delta.get(field)))
        for detail in as_objects(delta.get("reasoning_details")):
            _merge_detail(self._reasoning_details, detail)

    def _say(self, text: str) -> Iterator[Event]:
        shown = self._text.add(text)
        if shown:
            yield TextDelta(shown)

    def _think(self, text: str) -> Iterator[Event]:
        shown = self._reasoning.add(text)
        if shown:
            yield ReasoningDelta(shown)

    def finish(self, *, forbid_calls: bool) -> Finish:
        calls = self._calls.finished()
        reason = self._reason(calls)
        if reason == "tool_calls" and (forbid_calls or not calls):
            reason = "stop"
        parts: list[Part] = []
        reasoning, text = self._reasoning.whole(), self._text.whole()
        if reasoning or self._reasoning_details:
            parts.append(Reasoning(reasoning, self._provider, self._opaque_reasoning(reasoning)))
        if text:
            parts.append(Text(text))
        if reason == "tool_calls":
            parts.extend(calls)
        return Finish(reason, self._raw, Message("assistant", tuple(parts)))

    def _reason(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        if not self._raw:
            self._require_whole(calls)
        # Without the word, a stream that was ended with [DONE] counts as stopped.
        reason = FINISH_REASONS.get(self._raw or "stop", "other")
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
        opaque: JsonObject = {self._reasoning_field: text} if self._reasoning_field else {}
        if self._reasoning_details:
            opaque["reasoning_details"] = self._reasoning_details
        return opaque or None


def _fragment(call: Mapping[str, Any]) -> Fragment:
    function = as_object(call.get("function"))
    arguments = function.get("arguments")
    extra = call.get("extra_content")
    return Fragment(
        id=as_text(call.get("id")),
        index=as_count(call.get("index")),
        name=as_text(function.get("name")),
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
    return Usage(
        input_tokens=as_count(usage.get("prompt_tokens")),
        output_tokens=as_count(usage.get("completion_tokens")),
        cache_read_tokens=as_count(prompt.get("cached_tokens")),
        cache_write_tokens=as_count(prompt.get("cache_write_tokens")),
        reasoning_tokens=as_count(completion.get("reasoning_tokens")),
    )
