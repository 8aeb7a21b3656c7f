"""Gemini generateContent, of the Gemini API and of Vertex AI.

``render_request`` makes the request; what differs by model or word stands in tables. The answer is read in
``google_answer.py``, the way there is in ``google_transport.py``.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from ..attachments import Document
from ..attachments import Image
from ..dialects import told
from ..errors import ProviderError
from ..events import Event
from ..messages import Effort
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
from .base import replayed_arguments
from .base import result_text
from .base import system_text
from .conversation import well_formed
from .google_answer import SIGNATURE
from .google_answer import parse_payloads
from .google_answer import read_payloads
from .google_transport import posted
from .names import ToolNames
from .profiles import NativeOutput
from .wire_values import as_object

GENERATION_KEYS = frozenset(
    {
        *("audioTimestamp", "audioTranscriptionConfig", "candidateCount", "enableAffectiveDialog"),
        *("enableEnhancedCivicAnswers", "frequencyPenalty", "logprobs", "maxOutputTokens", "mediaResolution"),
        *("modelSelectionConfig", "presencePenalty", "responseFormat", "responseJsonSchema", "responseLogprobs"),
        *("responseMimeType", "responseModalities", "responseSchema", "routingConfig", "seed", "speechConfig"),
        *("stopSequences", "temperature", "thinkingConfig", "topK", "topP", "translationConfig"),
    }
)
"""Options of ``generationConfig``, as the SDK's ``types.GenerationConfig`` has them; others stand beside it."""

RENAMED = {"max_tokens": "maxOutputTokens", "stop": "stopSequences"}
NOT_SENT = frozenset({"parallel_tool_calls", "strict"})
"""The API has no switch for parallel calls."""

TOOL_MODES = {"none": "NONE", "required": "ANY"}
_HOLDS_TO_SCHEMAS = re.compile(r"gemini-(?!1|2\.0)")
"""Models with the mode VALIDATED: 2.5 and newer (pydantic-ai#5366)."""

_NEEDS_SIGNATURE = re.compile(r"gemini-(?![12][.-])")
NO_SIGNATURE = "skip_thought_signature_validator"
"""Gemini 3 and newer refuse a step whose first call has no signature; this documented word stands in for the one that
a foreign call cannot have: https://ai.google.dev/gemini-api/docs/thought-signatures, and so on Vertex AI."""

_BUDGETS: dict[Effort, JsonObject] = {
    "off": {"thinkingBudget": 0},
    "low": {"thinkingBudget": 1_024},
    "medium": {"thinkingBudget": 8_192},
    "high": {"thinkingBudget": 24_576},
}
_LEVELS: dict[Effort, JsonObject] = {
    "off": {"thinkingLevel": "LOW"},
    "low": {"thinkingLevel": "LOW"},
    "medium": {"thinkingLevel": "MEDIUM"},
    "high": {"thinkingLevel": "HIGH"},
}
EFFORTS: tuple[tuple[re.Pattern[str], dict[Effort, JsonObject]], ...] = (
    (re.compile(r"gemini-(1|2\.0)|.*-(image|tts|live|embedding)|(?!gemini-)"), {}),
    (re.compile(r"gemini-2\.5-pro"), {**_BUDGETS, "off": {"thinkingBudget": 128}, "high": {"thinkingBudget": 32_768}}),
    (re.compile(r"gemini-2"), _BUDGETS),
    (re.compile(r"gemini-3-pro"), {**_LEVELS, "medium": {"thinkingLevel": "HIGH"}}),
    (re.compile(r"gemini-3(\.[1-6])?-flash"), {**_LEVELS, "off": {"thinkingLevel": "MINIMAL"}}),
    (re.compile(r""), _LEVELS),
)
"""How much a model thinks, by the start of its name; the first match counts. Pro models cannot stop thinking, nor can
Flash from 3.7 on. Budgets are those of Google's own compatible endpoint, levels those of its documentation."""

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
_FETCHES_NOTHING = re.compile(r"gemini-(1|2\.0)")
MAX_INLINE = 100_000_000
"""Characters of base64 in one request: https://blog.google/innovation-and-ai/technology/developers-tools/gemini-api-new-file-limits"""

PLACEHOLDER = "(no text)"
"""Stands where the API wants something said and there is nothing."""


class Google:
    """Speak Gemini generateContent with one provider."""

    name = "google"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        payload = render_request(request, self.settings)
        with posted(self.settings, request.model, payload) as chunks:
            yield from parse_payloads(read_payloads(chunks), request, self.settings.name)


def native_output(model: str) -> NativeOutput:
    """Return whether the API holds a model's answers to a JSON Schema; up to 2.5 it refuses one beside tools.

    Source: googleapis/python-genai#867; Google's page on combining tools for Gemini 3.
    """
    return "always" if _NEEDS_SIGNATURE.match(model.rpartition("/")[2]) else "without_tools"


def render_request(request: ModelRequest, settings: ProviderSettings) -> JsonObject:
    """Return the request body: our messages, tools and options as the API wants them.

    :raises ProviderError: ``unsupported`` for an attachment that the model cannot take.
    """
    names = ToolNames(request.tools)
    extras, generation = _options(request.options)
    payload: JsonObject = {**extras}
    instructions = system_text(request.messages)
    if instructions:
        payload["systemInstruction"] = {"parts": [{"text": instructions}]}
    strict = bool(request.options.get("strict", settings.quirks.strict))
    if request.tools:
        declared = {"functionDeclarations": [_render_tool(tool, names, strict=strict) for tool in request.tools]}
        payload["tools"] = [declared, *extras.get("tools", ())]
        config = {**_tool_config(request, strict=strict), **as_object(extras.get("toolConfig"))}
        payload.update({"toolConfig": config} if config else {})
    generation = {**_thinking(request), **_output(request), **generation}
    if generation:
        payload["generationConfig"] = generation
    payload.pop("contents", None)
    payload["contents"] = render_contents(request, settings, names)
    return payload


def _options(options: Mapping[str, Any]) -> tuple[JsonObject, JsonObject]:
    """Return the options that stand in the body itself, and those of ``generationConfig``; both by the wire's names."""
    named = {RENAMED.get(key) or _camel(key): value for key, value in options.items() if key not in NOT_SENT}
    generation = {**as_object(named.pop("generationConfig", None))}
    generation.update({key: value for key, value in named.items() if key in GENERATION_KEYS and value is not None})
    if isinstance(generation.get("stopSequences"), str):
        generation["stopSequences"] = [generation["stopSequences"]]
    return {key: value for key, value in named.items() if key not in GENERATION_KEYS}, generation


def _camel(name: str) -> str:
    return re.sub(r"(?<=.)_([a-z])", lambda match: match[1].upper(), name)


def _render_tool(tool: ToolSpec, names: ToolNames, *, strict: bool) -> JsonObject:
    schema = told(tool.parameters, "google", strict=strict).schema
    return {"name": names.sent(tool.name), "description": tool.description, "parametersJsonSchema": schema}


def _tool_config(request: ModelRequest, *, strict: bool) -> JsonObject:
    mode = TOOL_MODES.get(request.tool_choice)
    if mode is None and strict and _HOLDS_TO_SCHEMAS.match(_bare(request.model)):
        mode = "VALIDATED"
    return {"functionCallingConfig": {"mode": mode}} if mode else {}


def _thinking(request: ModelRequest) -> JsonObject:
    model = _bare(request.model)
    by_effort = next(efforts for pattern, efforts in EFFORTS if pattern.match(model))
    if request.effort is None or not by_effort:
        return {}
    seen = {} if request.effort == "off" else {"includeThoughts": True}
    return {"thinkingConfig": {**by_effort[request.effort], **seen}}


def _output(request: ModelRequest) -> JsonObject:
    if request.output is None:
        return {}
    schema = told(request.output.schema, "google", strict=True).schema
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}


def _bare(model: str) -> str:
    """The name without its place: ``publishers/google/models/…``."""
    return model.rpartition("/")[2]


def render_contents(request: ModelRequest, settings: ProviderSettings, names: ToolNames) -> list[JsonObject]:
    """Return the conversation: from user to user, roles alternating, all results of a turn in one."""
    calls: dict[str, ToolCall] = {}
    contents: list[JsonObject] = []
    for message in well_formed(request.messages):
        if message.role == "user":
            _append(contents, "user", list(_user_parts(message, request.model, settings)))
        elif message.role == "assistant":
            calls.update({call.id: call for call in message.calls})
            _append(contents, "model", list(_model_parts(message.parts, names, settings.name)))
        elif message.role == "tool":
            _append(contents, "user", [_response(item, calls, names, settings.name) for item in message.results])
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": PLACEHOLDER}]})
    if contents[-1]["role"] != "user":
        contents.append({"role": "user", "parts": [{"text": PLACEHOLDER}]})
    if _NEEDS_SIGNATURE.match(_bare(request.model)):
        _sign_steps(contents)
    _require_size(contents)
    return contents


def _append(contents: list[JsonObject], role: str, parts: list[JsonObject]) -> None:
    if not parts:
        return
    if contents and contents[-1]["role"] == role:
        contents[-1]["parts"].extend(parts)
    else:
        contents.append({"role": role, "parts": parts})


def _user_parts(message: Message, model: str, settings: ProviderSettings) -> Iterator[JsonObject]:
    empty = True
    for part in message.parts:
        if isinstance(part, Image | Document):
            yield _attachment(part, model, settings)
        elif isinstance(part, Text) and part.text.strip():
            yield {"text": clean(part.text)}
        else:
            continue
        empty = False
    if empty:
        yield {"text": PLACEHOLDER}


def _attachment(part: Image | Document, model: str, settings: ProviderSettings) -> JsonObject:
    quirks = settings.quirks
    taken, by_url = (
        (quirks.images and part.media_type in IMAGE_TYPES, quirks.image_urls)
        if isinstance(part, Image)
        else (quirks.documents, quirks.document_urls)
    )
    if not taken:
        raise _unsupported(part, f"{settings.name} does not take {part.media_type}", "Attach a PNG, JPEG or WebP image")
    if part.url is None:
        return {"inlineData": {"mimeType": part.media_type, "data": part.base64}}
    if not by_url or _FETCHES_NOTHING.match(_bare(model)):
        raise _unsupported(part, f"{model} of {settings.name} fetches no address", "Attach the bytes")
    return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}


def _unsupported(part: Image | Document, problem: str, remedy: str) -> ProviderError:
    return ProviderError(
        "unsupported", f"The {part.kind} {part.name or part.url or ''} cannot be sent: {problem}. {remedy}."
    )


def _model_parts(parts: Iterable[Part], names: ToolNames, provider: str) -> Iterator[JsonObject]:
    for part in parts:
        own = as_object(getattr(part, "opaque", None)) if getattr(part, "provider", "") == provider else {}
        if isinstance(part, Text) and (part.text.strip() or own):
            yield {"text": clean(part.text), **own}
        elif isinstance(part, ToolCall):
            call = {**_own_id(part, provider), "name": names.sent(part.name), "args": replayed_arguments(part.raw)}
            signed = {SIGNATURE: own[SIGNATURE]} if SIGNATURE in own else {}
            yield {"functionCall": call, **signed}
        elif isinstance(part, Reasoning) and own:
            yield dict(own)


def _own_id(call: ToolCall | None, provider: str) -> JsonObject:
    """Only an id that the server gave goes back to it: Vertex AI refuses any other (vercel/ai#17902)."""
    if call is None or call.provider != provider or not (call.opaque or {}).get("provider_id"):
        return {}
    return {"id": (call.opaque or {})["provider_id"]}


def _response(result: ToolResult, calls: Mapping[str, ToolCall], names: ToolNames, provider: str) -> JsonObject:
    call = calls.get(result.call_id)
    return {
        "functionResponse": {
            **_own_id(call, provider),
            "name": names.sent(call.name if call else result.name),
            "response": {"error" if result.error else "output": result_text(result)},
        }
    }


def _sign_steps(contents: Iterable[JsonObject]) -> None:
    """Give the first call of each step a signature where it has none (pydantic-ai#3647)."""
    for content in contents:
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None:
            first.setdefault(SIGNATURE, NO_SIGNATURE)


def _require_size(contents: Iterable[JsonObject]) -> None:
    parts = (part for content in contents for part in content["parts"])
    size = sum(len(part["inlineData"]["data"]) for part in parts if "inlineData" in part)
    if size > MAX_INLINE:
        raise ProviderError(
            "unsupported",
            f"The attachments of this conversation come to {size / 1e6:.0f} MB of base64, more than the "
            f"{MAX_INLINE / 1e6:.0f} MB that Gemini takes in a request: attach smaller ones, or their addresses.",
        )
