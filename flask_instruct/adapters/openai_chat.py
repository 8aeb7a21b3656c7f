"""OpenAI Chat Completions, as OpenAI and many compatible servers speak it: what is sent.

What differs by server stands in its quirks; the answer is read by ``openai_chat_answer``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Sequence

from ..attachments import Document
from ..attachments import Image
from ..dialects import told
from ..errors import ProviderError
from ..events import Event
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
from ..messages import OutputSpec
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from ..messages import ToolResult
from ..messages import ToolSpec
from .base import ProviderSettings
from .base import clean
from .base import replayed_argument_text
from .base import replayed_id
from .base import result_text
from .base import system_text
from .cache_key import cache_key
from .conversation import well_formed
from .efforts import OPENAI_EFFORTS
from .efforts import efforts_of
from .fragments import LONGEST_ID
from .names import ToolNames
from .names import legal_name
from .openai_chat_answer import finish_of_refusal
from .openai_chat_answer import parse_events
from .profiles import Quirks
from .sse import read_events
from .transport import Client
from .transport import Clients
from .transport import client_options
from .transport import exchanged
from .transport import missing_package

__all__ = ["OpenAIChat", "clients", "parse_events", "render_messages", "render_request"]

LONGEST_FOREIGN_ID = 40
"""OpenAI refuses longer ids of calls in a history."""

_OWN_OPTIONS = frozenset({"max_tokens", "parallel_tool_calls", "strict"})


class OpenAIChat:
    """Speak Chat Completions with one provider."""

    name = "openai_chat"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        payload = render_request(request, self.settings)
        client = clients.get(self.settings)
        import openai

        def parse(pieces: Iterator[bytes]) -> Iterator[Event]:
            return parse_events(read_events(pieces), request, self.settings.name)

        try:
            yield from exchanged(openai, client, self.settings, "/chat/completions", payload, parse)
        except ProviderError as error:
            # Errors inside the answer were looked at there; this is one in place of an answer.
            finish = finish_of_refusal(error, request, self.settings.name)
            if finish is None:
                raise
            yield finish


def _make_client(settings: ProviderSettings) -> Client:
    try:
        import openai
    except ImportError:
        raise missing_package("openai") from None
    return openai.OpenAI(**client_options(openai, settings))


clients = Clients(_make_client)


def render_request(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """Return the request body; ``messages``, the only part that grows, stands last.

    :raises ProviderError: ``unsupported`` for an attachment that the provider does not take.
    """
    quirks, options = settings.quirks, request.options
    payload: JsonObject = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
    payload.update({"model": request.model, "stream": True})
    if quirks.usage_option:
        payload.setdefault("stream_options", {"include_usage": True})
    if "max_tokens" in options:
        payload.setdefault(quirks.max_tokens_field, options["max_tokens"])
    for field, value in _render_effort(request, quirks).items():
        payload.setdefault(field, value)
    if request.output is not None:
        payload["response_format"] = _render_output(request.output)
    names = ToolNames(request.tools)
    payload.update(_render_tools(request, quirks, names))
    if quirks.cache_key:
        payload.setdefault("prompt_cache_key", cache_key(request))
    payload.pop("messages", None)
    payload["messages"] = render_messages(request, settings)
    return payload


def _render_effort(request: ModelRequest, quirks: Quirks) -> JsonObject:
    level, efforts = request.effort, efforts_of(quirks.efforts, request.model)
    if level is None or efforts is None or not efforts.word(level):
        return {}
    by_word: JsonObject = {"reasoning_effort": efforts.word(level)}
    on = level != "off"
    fields: dict[str, JsonObject] = {
        "reasoning_effort": by_word,
        "reasoning": {"reasoning": {"effort": efforts.word(level)}},
        "thinking": {"thinking": {"type": "enabled"}, **by_word} if on else {"thinking": {"type": "disabled"}},
        "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": on}},
        "none": {},
    }
    return by_word if efforts.by_effort else fields[quirks.effort]


def _render_output(output: OutputSpec) -> JsonObject:
    shape = told(output.schema, "openai", strict=True)
    described = {"description": output.description} if output.description else {}
    wanted = {"name": legal_name(output.name), **described, "schema": shape.schema, "strict": shape.strict}
    return {"type": "json_schema", "json_schema": wanted}


def _render_tools(request: ModelRequest, quirks: Quirks, names: ToolNames) -> JsonObject:
    """The tools and what goes with them; without tools the API refuses both others (pydantic-ai#4935)."""
    if not request.tools:
        return {}
    strict = request.options.get("strict")
    rendered: JsonObject = {"tools": [_render_tool(tool, names, quirks, strict) for tool in request.tools]}
    choice = request.tool_choice
    if choice == "required" and not quirks.forced_choice and request.effort != "off":
        choice = "auto"
    if choice != "auto":
        rendered["tool_choice"] = choice
    if "parallel_tool_calls" in request.options:
        rendered["parallel_tool_calls"] = request.options["parallel_tool_calls"]
    return rendered


def _render_tool(tool: ToolSpec, names: ToolNames, quirks: Quirks, strict: bool | None) -> JsonObject:
    shape = told(tool.parameters, "openai", strict=quirks.strict if strict is None else bool(strict))
    # A server that knows no strict schemas may refuse the word.
    said = {"strict": shape.strict} if quirks.strict or strict is not None else {}
    function = {"name": names.sent(tool.name), "description": tool.description, "parameters": shape.schema, **said}
    return {"type": "function", "function": function}


def render_messages(request: ModelRequest, settings: ProviderSettings) -> list[JsonObject]:
    """Return the conversation, instructions first, each call answered and nothing empty."""
    conversation = well_formed(request.messages)
    names, ids = ToolNames(request.tools), _wire_ids(conversation, settings)
    rendered: list[JsonObject] = []
    instructions = system_text(conversation)
    if instructions:
        rendered.append({"role": _role_of_instructions(request.model, settings.quirks), "content": instructions})
    for message in conversation:
        if message.role == "user":
            rendered.append({"role": "user", "content": _render_said(message, settings)})
        elif message.role == "assistant":
            rendered.extend(_render_assistant(message, settings, names, ids))
        elif message.role == "tool":
            rendered.extend(_render_result(result, ids) for result in message.results)
    return rendered


def _role_of_instructions(model: str, quirks: Quirks) -> str:
    efforts = efforts_of(OPENAI_EFFORTS, model) if quirks.developer_role else None
    reasons = efforts is not None and efforts.word("high") and not model.startswith("gpt-oss")
    return "developer" if reasons else "system"


def _render_said(message: Message, settings: ProviderSettings) -> str | list[JsonObject]:
    if not any(isinstance(part, Image | Document) for part in message.parts):
        return clean(message.text)
    return [rendered for part in message.parts if (rendered := _render_part(part, settings)) is not None]


def _render_part(part: Part, settings: ProviderSettings) -> JsonObject | None:
    if isinstance(part, Text):
        return {"type": "text", "text": clean(part.text)} if part.text.strip() else None
    if isinstance(part, Image):
        _require_readable(part, settings, settings.quirks.images, settings.quirks.image_urls)
        if part.data is not None and len(part.data) > settings.quirks.max_image_bytes:
            raise _unsupported(
                settings, f"an image of {len(part.data):,} bytes, but at most {settings.quirks.max_image_bytes:,}"
            )
        return {"type": "image_url", "image_url": {"url": _address(part)}}
    if isinstance(part, Document):
        _require_readable(part, settings, settings.quirks.documents, settings.quirks.document_urls)
        name = clean(part.name or "document.pdf")
        return {"type": "file", "file": {"filename": name, "file_data": _address(part)}}
    return None


def _address(part: Image | Document) -> str:
    return part.url if part.data is None and part.url else f"data:{part.media_type};base64,{part.base64}"


def _require_readable(part: Image | Document, settings: ProviderSettings, taken: bool, by_url: bool) -> None:
    what = "an image" if isinstance(part, Image) else "a document"
    if not taken:
        raise _unsupported(settings, f"{what} ({part.media_type})", "; say what is in it, or choose another model")
    if part.data is None and not by_url:
        raise _unsupported(settings, f"{what} by its address ({part.url})", "; attach its bytes")


def _unsupported(settings: ProviderSettings, what: str, instead: str = "; make it smaller") -> ProviderError:
    return ProviderError("unsupported", f"The provider {settings.name!r} does not take {what}{instead}.")


REPLAYED = ("reasoning_content", "reasoning", "reasoning_details", "content")
"""What a turn's reasoning may be in this protocol; under one provider's name another may have been spoken before."""


def _render_assistant(
    message: Message, settings: ProviderSettings, names: ToolNames, ids: dict[str, str]
) -> Iterator[JsonObject]:
    text = clean(message.text)
    if not message.calls:
        if text.strip():
            yield {"role": "assistant", "content": text}
        return
    rendered: JsonObject = {"role": "assistant", "content": text or None}
    if settings.quirks.replay_reasoning:
        for part in message.parts:
            # DeepSeek and OpenRouter want their reasoning back on turns with calls: earendil-works/pi#3636.
            if isinstance(part, Reasoning) and part.opaque and part.provider == settings.name:
                rendered.update({key: part.opaque[key] for key in REPLAYED if key in part.opaque})
    if isinstance(rendered["content"], list) and text:
        rendered["content"] = [*rendered["content"], {"type": "text", "text": text}]
    rendered["tool_calls"] = [_render_call(call, settings.name, names, ids) for call in message.calls]
    yield rendered


def _render_call(call: ToolCall, provider: str, names: ToolNames, ids: dict[str, str]) -> JsonObject:
    rendered: JsonObject = {
        "id": ids[call.id],
        "type": "function",
        "function": {"name": names.sent(call.name), "arguments": replayed_argument_text(call.raw)},
    }
    extra = (call.opaque or {}).get("extra_content") if call.provider == provider else None
    if extra:
        # Gemini's compatible endpoint keeps its thought signature here and wants it back.
        rendered["extra_content"] = extra
    return rendered


def _render_result(result: ToolResult, ids: dict[str, str]) -> JsonObject:
    """The protocol has no error flag, so the text says it."""
    text = result_text(result)
    if result.error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": ids.get(result.call_id, result.call_id), "content": text}


def _wire_ids(conversation: Sequence[Message], settings: ProviderSettings) -> dict[str, str]:
    """Return the id of each call as this provider is told it, the same in every request."""
    wire: dict[str, str] = {}
    used: set[str] = set()
    for call in (call for message in conversation for call in message.calls):
        if call.id not in wire:
            wire[call.id] = _wire_id(call, settings, used)
            used.add(wire[call.id])
    return wire


def _wire_id(call: ToolCall, settings: ProviderSettings, used: set[str]) -> str:
    length = settings.quirks.call_id_length
    if length:
        return _exact_id(call.id, length, used)
    if call.provider == settings.name:
        own = (call.opaque or {}).get("provider_id")
        # What a gateway hangs on an id is in it for the way back.
        return own if isinstance(own, str) and len(own) > LONGEST_ID and own not in used else call.id
    return replayed_id(call.id, LONGEST_FOREIGN_ID)


def _exact_id(call_id: str, length: int, used: set[str]) -> str:
    """An id of exactly so many letters and digits, as Mistral demands."""
    wanted, tries = call_id, 0
    while not (len(wanted) == length and wanted.isascii() and wanted.isalnum()) or wanted in used:
        tries += 1
        wanted = hashlib.sha256(f"{call_id}/{tries}".encode("utf-8", "replace")).hexdigest()[:length]
    return wanted
