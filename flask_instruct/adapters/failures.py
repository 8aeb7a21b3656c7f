"""What a provider's error means: from its words, its status and its headers to one :class:`ProviderError`."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from ..errors import ProviderError
from ..errors import ProviderErrorKind

KIND_OF_WORD: dict[str, ProviderErrorKind] = {
    "invalid_api_key": "authentication",
    "authentication_error": "authentication",
    "invalid_authentication": "authentication",
    "permission_error": "permission",
    "permission_denied": "permission",
    "insufficient_quota": "permission",
    "billing_error": "permission",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "context_length_exceeded": "context_window",
    "request_too_large": "context_window",
    "string_above_max_length": "context_window",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "overloaded_error": "overloaded",
    "overloaded": "overloaded",
    "engine_overloaded": "overloaded",
    "service_unavailable": "overloaded",
    "api_error": "server",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "timeout_error": "timeout",
    "timeout": "timeout",
    "tool_use_failed": "malformed",
}
"""Words that decide by themselves, in ``code``, ``type`` or ``status``; others leave it to the status."""

KIND_OF_STATUS: dict[int, ProviderErrorKind] = {
    400: "bad_request",
    401: "authentication",
    402: "permission",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "context_window",
    422: "bad_request",
    429: "rate_limited",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}

UNPAID_WORDS = frozenset({"insufficient_quota", "billing_error"})
UNPAID = "This site's account at the AI service has no credit left."

_TOO_LONG = re.compile(
    r"prompt is too long|maximum context length|context (length|window|size)|too many (input )?tokens", re.IGNORECASE
)
_LONGEST_TEXT = 4000


def failure(
    body: object, *, status: int | None = None, headers: Mapping[str, str] | None = None, fallback: str = ""
) -> ProviderError:
    """Return the error that a provider's error body means.

    :param body: what the provider sent, parsed or as text: a body, its ``error`` member, or a bare string.
    :param status: the HTTP status; ``None`` for an error inside a stream that had begun well.
    :param fallback: told when the body says nothing.
    """
    detail = _detail(body)
    words = tuple(_words(detail))
    message = _message(detail) or fallback or "no message"
    number = status if status is not None else _status_in(detail)
    unpaid = number == 402 or bool(UNPAID_WORDS.intersection(words))
    said = " ".join(dict.fromkeys(words))
    return ProviderError(
        _kind(words, message, number),
        f"{said}: {message}" if said and said not in message else message,
        safe=UNPAID if unpaid else None,
        status=status,
        retry_after=_retry_after(headers or {}),
        body=detail,
    )


def _kind(words: tuple[str, ...], message: str, status: int | None) -> ProviderErrorKind:
    for word in words:
        if word in KIND_OF_WORD:
            return KIND_OF_WORD[word]
    if status is None:
        kind: ProviderErrorKind = "bad_request" if "invalid_request_error" in words else "server"
    else:
        kind = KIND_OF_STATUS.get(status, "server" if status >= 500 else "bad_request")
    return "context_window" if kind == "bad_request" and _TOO_LONG.search(message) else kind


def _detail(body: object) -> object:
    """Unwrap ``{"error": …}``; some servers send a bare string there, or as the whole body (ruby_llm#840)."""
    if isinstance(body, str):
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError):
            return body
        return _detail(parsed) if isinstance(parsed, dict) else body
    if isinstance(body, list) and len(body) == 1:
        return _detail(body[0])
    if isinstance(body, Mapping) and body.get("error"):
        return body["error"]
    return body


def _words(detail: object) -> Iterator[str]:
    if isinstance(detail, Mapping):
        for key in ("code", "type", "status"):
            value = detail.get(key)
            if isinstance(value, str) and value and not value.isdigit():
                yield value.lower()


def _status_in(detail: object) -> int | None:
    """The HTTP status that some gateways put into an error of a running stream, as number or digits."""
    if isinstance(detail, Mapping):
        for key in ("status_code", "code", "status"):
            value = str(detail.get(key))
            if re.fullmatch(r"[45]\d\d", value):
                return int(value)
    return None


def _message(detail: object) -> str:
    if isinstance(detail, Mapping):
        parts = [detail.get(key) for key in ("message", "detail", "failed_generation")]
        text = "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part)
        raw = _raw_of_gateway(detail)
        return "\n".join(part for part in (text, raw) if part)[:_LONGEST_TEXT]
    if detail is None:
        return ""
    return str(detail).strip()[:_LONGEST_TEXT]


def _raw_of_gateway(detail: Mapping[str, Any]) -> str:
    metadata = detail.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return raw if isinstance(raw, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: ``retry-after-ms``, else ``retry-after`` as seconds or as a date."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000
        elif value is None:
            return None
        elif re.fullmatch(r"\s*[\d.]+\s*", value):
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
