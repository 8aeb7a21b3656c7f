"""What a provider's error means: from its words, its status and its headers to one :class:`ProviderError`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from ..errors import ProviderError
from ..errors import ProviderErrorKind
from .waits import retry_after

KIND_OF_WORD: dict[str, ProviderErrorKind] = {
    "invalid_api_key": "authentication",
    "authentication_error": "authentication",
    "invalid_authentication": "authentication",
    "unauthenticated": "authentication",
    "permission_error": "permission",
    "permission_denied": "permission",
    "insufficient_quota": "permission",
    "insufficient_balance": "permission",
    "billing_error": "permission",
    "billing_not_active": "permission",
    "billing_hard_limit_reached": "permission",
    "account_deactivated": "permission",
    "unsupported_country_region_territory": "permission",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "not_found": "not_found",
    "deploymentnotfound": "not_found",
    "context_length_exceeded": "context_window",
    "exceed_context_size_error": "context_window",
    "request_too_large": "context_window",
    "string_above_max_length": "context_window",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "ratelimitreached": "rate_limited",
    "too_many_requests": "rate_limited",
    "resource_exhausted": "rate_limited",
    "overloaded_error": "overloaded",
    "overloaded": "overloaded",
    "engine_overloaded": "overloaded",
    "engine_overloaded_error": "overloaded",
    "slow_down": "overloaded",
    # OpenAI, inside a stream: anomalyco/opencode#25884.
    "server_is_overloaded": "overloaded",
    "service_unavailable_error": "overloaded",
    "service_unavailable": "overloaded",
    "unavailable": "overloaded",
    "api_error": "server",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "timeout_error": "timeout",
    "timeout": "timeout",
    "deadline_exceeded": "timeout",
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
    498: "overloaded",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}

UNPAID_WORDS = frozenset(
    {"insufficient_quota", "insufficient_balance", "billing_error", "billing_not_active", "billing_hard_limit_reached"}
)
UNPAID = "This site's account at the AI service has no credit left."

NEVER_AGAIN = frozenset({"authentication", "permission", "not_found", "context_window"})
"""Kinds that no second try mends, whatever the provider's headers say."""

_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient (balance|credits?|funds)|out of credits", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"(prompt|input|request) is too (long|large)|maximum (context|prompt|model) length|context (length|window|size)"
    r"|too many (input )?tokens|token count.{0,80} exceeds the maximum",
    re.IGNORECASE,
)
_TOO_LARGE_AT_ONCE = re.compile(
    r"request too large|tokens must be reduced|reduce (the|your) (length|message|prompt)", re.I
)
"""A single request above the tokens of a whole minute, told as a rate limit: no wait helps (Groq, OpenAI)."""

_MARKUP = re.compile(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_PAGE = re.compile(r"\s*<(!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_LONGEST_TEXT = 4000
_LONGEST_PAGE = 20_000
_DEEPEST = 5
_SAID_IN = ("message", "detail", "msg", "title", "error_description", "failed_generation")
_WORD_IN = ("code", "type", "status", "error_code")


def failure(
    body: object, *, status: int | None = None, headers: Mapping[str, str] | None = None, fallback: str = ""
) -> ProviderError:
    """Return the error that a provider's error body means. Never raises, whatever was sent.

    :param body: what the provider sent, parsed or as text: a body, its ``error`` member, or a bare string.
    :param status: the HTTP status; ``None`` for an error inside a stream that had begun well.
    :param fallback: told when the body says nothing.
    """
    detail = _detail(body)
    lower = {str(name).lower(): str(value) for name, value in (headers or {}).items()}
    words = tuple(_words(detail))
    message = _message(detail) or fallback or "no message"
    number = status if status is not None else _status_in(detail)
    unpaid = number == 402 or bool(UNPAID_WORDS.intersection(words)) or bool(_NO_CREDIT.search(message))
    kind = "permission" if unpaid else _kind(words, message, number)
    said = " ".join(dict.fromkeys(words))
    return ProviderError(
        kind,
        f"{said}: {message}" if said and said not in message else message,
        safe=UNPAID if unpaid else None,
        status=status,
        retry_after=retry_after(lower, detail, message),
        body=detail,
        again=_again(kind, lower.get("x-should-retry", "").strip().lower()),
    )


def _again(kind: ProviderErrorKind, said: str) -> bool | None:
    if said == "false":
        return False
    return True if said == "true" and kind not in NEVER_AGAIN else None


def _kind(words: tuple[str, ...], message: str, status: int | None) -> ProviderErrorKind:
    kind = next((KIND_OF_WORD[word] for word in words if word in KIND_OF_WORD), None)
    if kind is None and status is None:
        kind = "bad_request" if "invalid_request_error" in words else "server"
    elif kind is None and status is not None:
        kind = KIND_OF_STATUS.get(status, "server" if status >= 500 else "bad_request")
    assert kind is not None
    too_long = kind == "bad_request" and _TOO_LONG.search(message)
    return "context_window" if too_long or (kind == "rate_limited" and _TOO_LARGE_AT_ONCE.search(message)) else kind


def _detail(body: object, depth: int = 0) -> object:
    """Unwrap ``{"error": …}``; some servers send a bare string there, or as the whole body (ruby_llm#840)."""
    if depth >= _DEEPEST:
        return body
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        parsed = _parsed(body)
        return _detail(parsed, depth + 1) if isinstance(parsed, dict | list) else body
    if isinstance(body, list | tuple) and len(body) == 1:
        return _detail(body[0], depth + 1)
    if isinstance(body, Mapping) and body.get("error"):
        inner = _detail(body["error"], depth + 1)
        # xAI: the sentence is in "error", the word beside it.
        return (
            inner if isinstance(inner, Mapping) else {"message": inner, "detail": body.get("message"), **_named(body)}
        )
    return body


def _named(body: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: body[key] for key in (*_WORD_IN, "status_code", "details", "metadata") if key in body}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _words(detail: object) -> Iterator[str]:
    if not isinstance(detail, Mapping):
        return
    for key in _WORD_IN:
        value = detail.get(key)
        if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w.-]*", value):
            yield value.lower()
    inner = detail.get("innererror")
    if isinstance(inner, Mapping):
        yield from _words(inner)


def _status_in(detail: object) -> int | None:
    """The HTTP status that some gateways put into an error of a running stream, as number or digits."""
    if isinstance(detail, Mapping):
        for key in ("status_code", "code", "status"):
            value = detail.get(key)
            if isinstance(value, int | str) and re.fullmatch(r"[45][0-9][0-9]", str(value)):
                return int(value)
    return None


def _message(detail: object) -> str:
    if not isinstance(detail, Mapping):
        return "" if detail is None else _readable(detail)[:_LONGEST_TEXT]
    said = [_readable(detail[key]) for key in _SAID_IN if detail.get(key)]
    return "\n".join(part for part in (*said, _raw_of_gateway(detail)) if part)[:_LONGEST_TEXT]


def _readable(value: Any) -> str:
    """Text as it is, a web page as its words, anything else as JSON."""
    if isinstance(value, str):
        return _words_of_page(value) if _PAGE.match(value) else value.strip()
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"an unreadable {type(value).__name__}"


def _words_of_page(page: str) -> str:
    return " ".join(_MARKUP.sub(" ", page[:_LONGEST_PAGE]).split())


def _raw_of_gateway(detail: Mapping[Any, Any]) -> str:
    """What the server behind OpenRouter said."""
    metadata = detail.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return raw.strip() if isinstance(raw, str) else ""
