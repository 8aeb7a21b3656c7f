"""Errors of a Chat Completions server that end a turn in truth: a filtered prompt, a call that it did not accept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ProviderError
from ..messages import ToolCall
from .base import clean
from .base import new_call_id
from .names import ToolNames
from .names import legal_name

FILTERED = frozenset({"content_filter", "responsibleaipolicyviolation", "content_policy_violation"})
"""Codes of Azure and OpenAI for a prompt that the provider's filter stopped, in lower case."""

REJECTED = "tool_use_failed"
"""Groq's code for a call that its own validation refused, or that it could not read."""

NAMELESS = "unreadable_call"

_TAGGED = re.compile(r"<function[=(]\s*\"?([\w.-]+)\"?\)?[^{\[]*")
_REASON_CHARS = 2000


def is_filtered(error: ProviderError) -> bool:
    """Tell whether an error says that the prompt was filtered."""
    body = error.body
    if not isinstance(body, Mapping):
        return False
    inner = body.get("innererror")
    codes = (body.get("code"), inner.get("code") if isinstance(inner, Mapping) else None)
    return any(isinstance(code, str) and code.lower() in FILTERED for code in codes)


def rejected_call(error: ProviderError, names: ToolNames, provider: str) -> ToolCall | None:
    """Return the call that the provider rejected, as far as it can be read, or ``None`` for any other error.

    Its ``refusal`` is told to the model, which then does better, where the whole run would fail otherwise.
    """
    body = error.body
    if not isinstance(body, Mapping) or body.get("code") != REJECTED:
        return None
    written = body.get("failed_generation")
    text = written if isinstance(written, str) else json.dumps(written) if written else ""
    name, arguments = _read(text)
    said = body.get("message")
    reason = said if isinstance(said, str) and said.strip() else "The call could not be read."
    refusal = f"The AI service rejected this call: {clean(reason)[:_REASON_CHARS]}"
    ours = names.ours(name) if name else NAMELESS
    return ToolCall(new_call_id(), clean(ours), clean(arguments), provider=provider, refusal=refusal)


def _read(text: str) -> tuple[str, str]:
    """Return name and arguments of the first call in what the model wrote."""
    tagged = _TAGGED.search(text)
    if tagged is not None:
        return legal_name(tagged[1]), _first_value(text[tagged.end() :])
    call = _call_in(_parsed(text[text.find("{") :])) if "{" in text else None
    return call or ("", text.strip() or "{}")


def _call_in(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    if isinstance(function, dict):
        value = function
    name = value.get("name") or value.get("tool_name") or (function if isinstance(function, str) else None)
    if not isinstance(name, str) or not name:
        return None
    said = (value[key] for key in ("arguments", "parameters", "args") if value.get(key) is not None)
    arguments: Any = next(said, {})
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _first_value(text: str) -> str:
    value = _parsed(text)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text.strip() or "{}"


def _parsed(text: str) -> Any:
    """Return the JSON value that a text begins with, whatever follows it."""
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
