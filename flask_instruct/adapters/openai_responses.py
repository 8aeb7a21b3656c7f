"""OpenAI Responses: what is sent.

The provider keeps nothing (``store`` is false): the whole conversation goes out each time, with the model's encrypted
reasoning in its place. What differs by model stands in tables; the answer is read by ``openai_responses_answer``.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping

from ..attachments import MEGABYTE
from ..attachments import Document
from ..attachments import Image
from ..dialects import told
from ..errors import ProviderError
from ..events import Event
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
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
from .efforts import efforts_of
from .names import ToolNames
from .names import legal_name
from .openai_chat import clients
from .openai_responses_answer import parse_events
from .sse import read_events
from .transport import exchanged
from .wire_values import as_object
from .wire_values import as_text

logger = logging.getLogger("flask_instruct")

ENCRYPTED_REASONING = "reasoning.encrypted_content"
ENCRYPTING = re.compile(r"(.*/)?(ft:)?(gpt-(?!5-chat)([5-9]|\d\d)|o\d|codex-)")
"""Models that give their reasoning out encrypted; all others refuse to be asked for it (pydantic-ai#2865)."""

LONGEST_CALL_ID = 64
MOST_ATTACHED = 50 * MEGABYTE
"""What one request may hold of images and files together, by OpenAI's guides."""

_OWN_OPTIONS = frozenset({"max_tokens", "stop", "strict", "parallel_tool_calls", "reasoning", "include", "text"})


class OpenAIResponses:
    """Speak Responses with one provider."""

    name = "openai_responses"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        payload = render_request(request, self.settings)
        client = clients.get(self.settings)
        import openai

        def parse(pieces: Iterator[bytes]) -> Iterator[Event]:
            return parse_events(read_events(pieces), request, self.settings.name)

        yield from exchanged(openai, client, self.settings, "/responses", payload, parse)


def render_request(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """Return the request body; ``input``, the only part that grows, stands last.

    :raises ProviderError: ``unsupported`` for an attachment that the provider does not take.
    """
    options = request.options
    payload: JsonObject = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
    payload.update({"model": request.model, "stream": True})
    payload.setdefault("store", False)
    payload.update(_render_reasoning(request, settings))
    payload.update(_render_text(request))
    if "max_tokens" in options:
        payload.setdefault("max_output_tokens", options["max_tokens"])
    if options.get("stop"):
        logger.warning("OpenAI Responses knows no stop sequences; %r is not sent", options["stop"])
    payload.update(_render_tools(request, settings))
    if settings.quirks.cache_key:
        payload.setdefault("prompt_cache_key", cache_key(request))
    instructions = system_text(request.messages)
    if instructions:
        payload["instructions"] = instructions
    payload["input"] = render_input(request, settings)
    return payload


def _render_reasoning(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """The effort in the model's words, and the wish for encrypted reasoning where there is any.

    A summary is asked for only by the app's own option ``reasoning``: accounts that have not shown OpenAI who they
    are would get an error in place of an answer (BerriAI/litellm#16032).
    """
    reasoning = dict(as_object(request.options.get("reasoning")))
    effort = _effort(request, settings)
    if effort:
        reasoning.setdefault("effort", effort)
    encrypted = [ENCRYPTED_REASONING] if ENCRYPTING.match(request.model) else []
    include = [*(request.options.get("include") or ()), *encrypted]
    rendered: JsonObject = {"include": list(dict.fromkeys(include))} if include else {}
    return {**rendered, "reasoning": reasoning} if reasoning else rendered


def _effort(request: ModelRequest, settings: ProviderSettings) -> str:
    if request.effort is None or settings.quirks.effort == "none":
        return ""
    # Gateways write the maker before the name, as in openai/gpt-….
    names = (request.model, request.model.rpartition("/")[2])
    family = next((found for name in names if (found := efforts_of(settings.quirks.efforts, name))), None)
    return family.word(request.effort) if family is not None else ""


def _render_text(request: ModelRequest) -> JsonObject:
    text = dict(as_object(request.options.get("text")))
    if request.output is not None:
        shape = told(request.output.schema, "openai", strict=True)
        described = {"description": request.output.description} if request.output.description else {}
        text["format"] = {
            "type": "json_schema",
            "name": legal_name(request.output.name),
            **described,
            "schema": shape.schema,
            "strict": shape.strict,
        }
    return {"text": text} if text else {}


def _render_tools(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    if not request.tools:
        return {}
    names = ToolNames(request.tools)
    strict = bool(request.options.get("strict", settings.quirks.strict))
    rendered: JsonObject = {"tools": [_render_tool(tool, names, strict) for tool in request.tools]}
    if request.tool_choice != "auto":
        rendered["tool_choice"] = request.tool_choice
    if "parallel_tool_calls" in request.options:
        rendered["parallel_tool_calls"] = request.options["parallel_tool_calls"]
    return rendered


def _render_tool(tool: ToolSpec, names: ToolNames, strict: bool) -> JsonObject:
    """``strict`` is always said: this API takes it for granted where it is missing."""
    shape = told(tool.parameters, "openai", strict=strict)
    return {
        "type": "function",
        "name": names.sent(tool.name),
        "description": tool.description,
        "parameters": shape.schema,
        "strict": shape.strict,
    }


def render_input(request: ModelRequest, settings: ProviderSettings) -> list[JsonObject]:
    """Return the conversation as items, without the instructions.

    Items carry no ids: the provider would look for what it did not keep (langchain-ai/langchain#38372). Nor do they
    carry a status, which vLLM refuses (pydantic-ai#3245).
    """
    names = ToolNames(request.tools)
    _require_small(request)
    rendered: list[JsonObject] = []
    for message in well_formed(request.messages):
        if message.role == "user":
            rendered.append(_render_user(message, settings))
        elif message.role == "assistant":
            rendered.extend(_render_assistant(message, settings.name, names))
        elif message.role == "tool":
            rendered.extend(_render_result(result) for result in message.results)
    return rendered


def _require_small(request: ModelRequest) -> None:
    attached = (part for message in request.messages for part in message.parts if isinstance(part, Image | Document))
    size = sum(len(part.data or b"") for part in attached)
    if size > MOST_ATTACHED:
        raise ProviderError(
            "unsupported",
            f"The images and documents of this conversation have {size / MEGABYTE:.1f} MB together; OpenAI takes "
            f"{MOST_ATTACHED / MEGABYTE:g} MB in one request: attach less, or smaller ones.",
        )


def _render_user(message: Message, settings: ProviderSettings) -> JsonObject:
    if not any(isinstance(part, Image | Document) for part in message.parts):
        return {"role": "user", "content": clean(message.text)}
    contents = (_render_content(part, settings) for part in message.parts)
    return {"role": "user", "content": [content for content in contents if content is not None]}


def _render_content(part: Part, settings: ProviderSettings) -> JsonObject | None:
    if isinstance(part, Image):
        _require_taken(part, settings, settings.quirks.images, settings.quirks.image_urls)
        return {"type": "input_image", "detail": "auto", "image_url": part.url or _data_url(part)}
    if isinstance(part, Document):
        _require_taken(part, settings, settings.quirks.documents, settings.quirks.document_urls)
        if part.url:
            return {"type": "input_file", "file_url": part.url}
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": _data_url(part)}
    if isinstance(part, Text) and part.text.strip():
        return {"type": "input_text", "text": clean(part.text)}
    return None


def _require_taken(part: Image | Document, settings: ProviderSettings, taken: bool, taken_by_url: bool) -> None:
    size = len(part.data or b"")
    most = settings.quirks.max_image_bytes
    if not taken:
        problem = f"takes no {part.kind}: choose another provider, or put what it says into the text"
    elif part.url and not taken_by_url:
        problem = f"takes no address: give its bytes with {type(part).__name__}.from_bytes or from_path"
    elif isinstance(part, Image) and size > most:
        problem = f"takes up to {most / MEGABYTE:g} MB, it has {size / MEGABYTE:.1f} MB: make it smaller"
    else:
        return
    what = part.name or part.url or part.media_type
    raise ProviderError("unsupported", f"The {part.kind} {what} was not sent. {settings.name} {problem}.")


def _data_url(part: Image | Document) -> str:
    return f"data:{part.media_type};base64,{part.base64}"


def _render_assistant(message: Message, provider: str, names: ToolNames) -> list[JsonObject]:
    """Return a turn's items. Reasoning goes only before the item it led to: alone it is refused.

    Encrypted reasoning holds everything in its place. Otherwise the calls come last: DeepSeek takes nothing between
    them and their outputs (pydantic-ai#7448).
    """
    rendered: list[JsonObject] = []
    waiting: list[JsonObject] = []
    for part in message.parts:
        item = _render_item(part, provider, names)
        if item is None:
            continue
        if item.get("type") == "reasoning":
            waiting.append(item)
            continue
        # What was edited or came from elsewhere is not what the reasoning led to.
        rendered.extend(waiting if _provider_of(part) == provider else ())
        waiting = []
        rendered.append(item)
    if not any(item.get("encrypted_content") for item in rendered):
        rendered.sort(key=lambda item: item.get("type") == "function_call")
    return rendered


def _provider_of(part: Part) -> str:
    return part.provider if isinstance(part, Text | Reasoning | ToolCall) else ""


def _render_item(part: Part, provider: str, names: ToolNames) -> JsonObject | None:
    if isinstance(part, Text):
        return _render_text_item(part.text, _opaque(part, provider))
    if isinstance(part, ToolCall):
        return {
            "type": "function_call",
            "call_id": _call_id(part.id),
            "name": names.sent(part.name),
            "arguments": replayed_argument_text(part.raw),
        }
    if isinstance(part, Reasoning):
        opaque = _opaque(part, provider)
        kind = opaque.get("type")
        if kind == "message":
            return _render_text_item(part.text, opaque)
        return _render_reasoning_item(opaque) if kind == "reasoning" else None
    return None


def _opaque(part: Text | Reasoning, provider: str) -> Mapping[str, object]:
    return part.opaque or {} if part.provider == provider else {}


def _render_text_item(text: str, opaque: Mapping[str, object]) -> JsonObject | None:
    if not text.strip():
        return None
    phase = as_text(opaque.get("phase"))
    return {"role": "assistant", "content": clean(text), **({"phase": phase} if phase else {})}


def _render_reasoning_item(item: Mapping[str, object]) -> JsonObject | None:
    """Return a reasoning item as it came, as far as a provider that kept nothing of it can use it."""
    kept = {key: item[key] for key in ("content", "encrypted_content") if item.get(key)}
    if not kept:
        # Its id alone stands for something that the provider does not have: vercel/ai#7543.
        return None
    # Servers with open reasoning check for an id; for encrypted reasoning it names what was not kept.
    identity = {} if "encrypted_content" in kept or not item.get("id") else {"id": item["id"]}
    return {"type": "reasoning", **identity, "summary": item.get("summary") or [], **kept}


def _render_result(result: ToolResult) -> JsonObject:
    """The protocol has no error flag, so the text says it."""
    text = result_text(result)
    if result.error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"type": "function_call_output", "call_id": _call_id(result.call_id), "output": text}


def _call_id(call_id: str) -> str:
    """Return a call id that the API takes, equal for equal ids; proxies make very long ones."""
    if len(call_id) <= LONGEST_CALL_ID:
        return replayed_id(call_id)
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"
