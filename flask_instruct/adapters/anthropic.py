"""Anthropic Messages: the adapter and the request it makes; the answer is read in ``anthropic_answer``.

Which model takes what stands in ``anthropic_models``. Prompt caching is marked on the last block of the instructions,
of the tools and of the last two turns of the user (the API allows four marks): the older of the two is where the call
before this one wrote, so that it is found again however many blocks a turn adds; the API itself looks back over 20.
The marks move, and the API does not count them as content; without them each request begins with the bytes of the one
before. The API's own moving mark (``cache_control`` of the whole request) would leave even the marks in place, but it
has no second point to be found at, and servers that only imitate the API refuse or overlook it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Literal

from ..dialects import told
from ..errors import ProviderError
from ..events import Event
from ..events import RetryScheduled
from ..messages import Effort
from ..messages import JsonObject
from ..messages import ModelRequest
from ..messages import ToolSpec
from .anthropic_answer import parse_events
from .anthropic_messages import mark_cached
from .anthropic_messages import render_messages
from .anthropic_messages import thinks_in_its_loop
from .anthropic_messages import with_an_open_end
from .anthropic_models import Abilities
from .anthropic_models import abilities_of
from .base import ProviderSettings
from .base import system_text
from .conversation import tools_of_history
from .names import ToolNames
from .sse import read_events
from .transport import Client
from .transport import Clients
from .transport import client_options
from .transport import exchanged
from .transport import missing_package
from .wire_values import as_count
from .wire_values import as_object

TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

BUDGETS: dict[Effort, int] = {"low": 2_000, "medium": 8_000, "high": 16_000}
"""Tokens of thinking by effort; models that think as they like are only given that much more room."""
LEAST_BUDGET = 1_024
"""The API refuses less."""

SHAPE_IN_WORDS = "Answer with one JSON object of the following JSON Schema and with nothing else.\n"
"""For a shape that the API cannot hold an answer to."""

Feature = Literal["thinking_blocks", "strict", "forced_choice", "thinking", "sampling", "cache"]
SECOND_CHANCES: tuple[tuple[Feature, re.Pattern[str]], ...] = (
    # Signatures do not outlive a change of instructions, tools, model or account: anomalyco/opencode#48637.
    ("thinking_blocks", re.compile(r"signature`? in `?thinking|bound to a different conversation|cannot be modified")),
    # All strict tools of a request become one grammar, whose limit is not documented: alphaXiv/agents#49.
    ("strict", re.compile(r"grammar is too large|too many (parameters|strict)|tools\.\d+\.(custom\.)?strict")),
    ("forced_choice", re.compile(r"tool_choice")),
    ("thinking", re.compile(r"thinking\.(type|adaptive|enabled)|thinking is not supported|\beffort\b")),
    ("sampling", re.compile(r"(temperature|top_p|top_k)\b.*(deprecated|not supported|cannot both|must be unset)")),
    ("cache", re.compile(r"cache_control")),
)
"""What a request may lack, by the words with which it is refused for it: it is then sent once more without."""

_OWN_OPTIONS = frozenset({"max_tokens", "stop", "parallel_tool_calls", "strict", "cache", "output_config", "messages"})
_SAMPLING = ("temperature", "top_p", "top_k")


class Anthropic:
    """Speak Messages with one provider."""

    name = "anthropic"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        client = clients.get(self.settings)
        import anthropic

        def parse(pieces: Iterator[bytes]) -> Iterator[Event]:
            return parse_events(read_events(pieces), request, self.settings.name)

        without: frozenset[Feature] = frozenset()
        while True:
            payload = render_request(request, self.settings, without)
            try:
                yield from exchanged(anthropic, client, self.settings, "/v1/messages", payload, parse)
                return
            except ProviderError as error:
                feature = _refused_feature(error, without)
                if feature is None or render_request(request, self.settings, without | {feature}) == payload:
                    raise
                without |= {feature}
                yield RetryScheduled(0, 0.0, error.kind, error.technical)


def _refused_feature(error: ProviderError, without: frozenset[Feature]) -> Feature | None:
    """Only a call that was refused has this status; nothing of an answer was shown then."""
    if error.status != 400:
        return None
    found = (feature for feature, words in SECOND_CHANCES if words.search(error.technical))
    feature = next(found, None)
    return None if feature in without else feature


def _make_client(settings: ProviderSettings) -> Client:
    try:
        import anthropic
    except ImportError:
        raise missing_package("anthropic") from None
    return anthropic.Anthropic(**client_options(anthropic, settings))


clients = Clients(_make_client)


def render_request(
    request: ModelRequest, settings: ProviderSettings, without: frozenset[Feature] = frozenset()
) -> JsonObject:
    """Return the request body; what grows from call to call comes last.

    Own options: ``cache=False`` marks nothing for the prompt cache, ``strict=True`` holds tools to their schemas.

    :param without: what the provider refused of this request before.
    :raises ProviderError: ``unsupported`` for an attachment that the API does not take.
    """
    abilities, options = abilities_of(request.model), request.options
    # The API refuses calls in a history when no tool is declared, so old ones are, but may not be used.
    tools = request.tools or tools_of_history(request.messages)
    names = ToolNames(tools)
    messages = render_messages(request, settings, names, keep_thinking="thinking_blocks" not in without)
    payload: JsonObject = {
        **{key: value for key, value in options.items() if key not in _OWN_OPTIONS},
        "model": request.model,
        "max_tokens": _max_tokens(request, abilities),
        "stream": True,
    }
    if tools:
        strict = "strict" not in without and bool(options.get("strict", settings.quirks.strict))
        payload["tools"] = [_render_tool(tool, names, strict=strict) for tool in tools]
    if instructions := system_text(request.messages):
        payload["system"] = [{"type": "text", "text": instructions}]
    if "thinking" not in payload and "thinking" not in without:
        payload |= _render_thinking(request, abilities, payload, messages)
    if tools:
        payload["tool_choice"] = _tool_choice(request, abilities, payload, may_force="forced_choice" not in without)
    payload |= _render_output(request, payload)
    if stops := options.get("stop"):
        payload["stop_sequences"] = [stops] if isinstance(stops, str) else list(stops)
    _drop_sampling(payload, abilities, may_sample="sampling" not in without)
    if not abilities.prefill or _thinks(payload) or request.output is not None:
        messages = with_an_open_end(messages)
    payload["messages"] = messages
    if options.get("cache", True) and "cache" not in without:
        mark_cached(payload)
    return payload


def _max_tokens(request: ModelRequest, abilities: Abilities) -> int:
    given = request.options.get("max_tokens")
    if given:
        return int(given)
    thinking = as_count(as_object(request.options.get("thinking")).get("budget_tokens"))
    room = thinking or (BUDGETS.get(request.effort, 0) if request.effort and abilities.thinking != "none" else 0)
    return min(abilities.answer + room, max(abilities.most, room + LEAST_BUDGET))


def _render_tool(tool: ToolSpec, names: ToolNames, *, strict: bool) -> JsonObject:
    schema = told(tool.parameters, "anthropic", strict=strict)
    block: JsonObject = {
        "name": names.sent(tool.name),
        "description": tool.description,
        "input_schema": schema.schema,
    }
    return {**block, "strict": True} if schema.strict else block


def _render_thinking(
    request: ModelRequest, abilities: Abilities, payload: JsonObject, messages: list[JsonObject]
) -> JsonObject:
    effort = request.effort
    if effort is None and request.tool_choice == "required" and request.tools and abilities.forced:
        # Models that think unasked refuse to be made to call a tool: Adam-CAD/CADAM#220.
        return _render_off(abilities) if abilities.thinking == "adaptive" else {}
    if effort is None or abilities.thinking == "none":
        return {}
    if effort == "off":
        return _render_off(abilities)
    told_effort: JsonObject = {"output_config": {"effort": effort}} if abilities.effort else {}
    if abilities.thinking == "adaptive":
        shown = {"display": "summarized"} if abilities.hidden else {}
        return {"thinking": {"type": "adaptive", **shown}, **told_effort}
    most = payload["max_tokens"]
    # A turn that is still at its tools and began without thinking cannot go on with it.
    if most <= LEAST_BUDGET or not thinks_in_its_loop(messages):
        return told_effort
    budget = max(LEAST_BUDGET, min(BUDGETS[effort], most // 2))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, **told_effort}


def _render_off(abilities: Abilities) -> JsonObject:
    if abilities.off == "nothing":
        return {}
    return {"output_config": {"effort": "low"}} if abilities.off == "lowest" else {"thinking": {"type": abilities.off}}


def _thinks(payload: Mapping[str, Any]) -> bool:
    return as_object(payload.get("thinking")).get("type") in ("enabled", "adaptive")


def _tool_choice(
    request: ModelRequest, abilities: Abilities, payload: Mapping[str, Any], *, may_force: bool
) -> JsonObject:
    choice: JsonObject = {"type": TOOL_CHOICES[request.tool_choice] if request.tools else "none"}
    if choice["type"] == "any" and (not may_force or not abilities.forced or _thinks(payload)):
        choice["type"] = "auto"
    if choice["type"] != "none" and request.options.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    return choice


def _render_output(request: ModelRequest, payload: Mapping[str, Any]) -> JsonObject:
    """Effort and shape share a field with what the caller puts there, which counts most."""
    config = {**as_object(payload.get("output_config")), **as_object(request.options.get("output_config"))}
    if request.output is None:
        return {"output_config": config} if config else {}
    shape = told(request.output.schema, "anthropic", strict=True)
    if shape.strict:
        return {"output_config": {**config, "format": {"type": "json_schema", "schema": shape.schema}}}
    # The API refuses such a schema; the answer is checked here in any case.
    words = SHAPE_IN_WORDS + json.dumps(shape.schema, ensure_ascii=False)
    said: JsonObject = {"system": [*payload.get("system", ()), {"type": "text", "text": words}]}
    return {**said, "output_config": config} if config else said


def _drop_sampling(payload: JsonObject, abilities: Abilities, *, may_sample: bool) -> None:
    """Leave out what the model refuses with a 400: new ones any of it, all beside thinking (Portkey-AI/models#794)."""
    if abilities.sampling == "none" or _thinks(payload) or not may_sample:
        dropped: tuple[str, ...] = _SAMPLING
    elif abilities.sampling == "one" and payload.get("temperature") is not None:
        dropped = ("top_p",)
    else:
        dropped = ()
    for key in dropped:
        payload.pop(key, None)
