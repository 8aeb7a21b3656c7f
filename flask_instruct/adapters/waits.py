"""How long a provider asks to wait: seconds out of its headers, its error's details or its own sentence."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

_SECONDS_OF = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_AMOUNT = r"[0-9]+(?:\.[0-9]+)?(?:ms|[dhms])"
_DURATION = re.compile(rf"(?:{_AMOUNT})+")
_AMOUNTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_SENTENCE = re.compile(rf"(?:try again|retry|wait) (?:in|after|for) ((?:{_AMOUNT})+)")
_LONGEST_SENTENCE = 4000


def retry_after(headers: Mapping[str, str], detail: object, message: str) -> float | None:
    """Return the seconds to wait, ``None`` when nothing usable was said.

    :param headers: with names in lower case.
    :param detail: the parsed error; Gemini and OpenRouter say it there.
    """
    says = (
        _milliseconds(headers.get("retry-after-ms")),
        _moment(headers.get("retry-after")),
        _of_retry_info(detail),
        _of_gateway(detail),
        _of_spent_limits(headers),
        _of_sentence(message),
    )
    return next((seconds for seconds in says if seconds is not None), None)


def _usable(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return _usable(float(value)) if not isinstance(value, str) or _NUMBER.fullmatch(value.strip()) else None
    except (ValueError, OverflowError):
        return None


def _milliseconds(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 1000


def _duration(value: Any) -> float | None:
    """``7.66s``, ``2m59.56s``, ``1h``, ``120ms``, as Groq, OpenAI and Google write them."""
    text = value.strip().replace(" ", "") if isinstance(value, str) else ""
    if not _DURATION.fullmatch(text):
        return None
    return _usable(sum(float(amount) * _SECONDS_OF[unit] for amount, unit in _AMOUNTS.findall(text)))


def _moment(value: Any) -> float | None:
    """Seconds, a duration, or a date; one that has passed means now."""
    for read in (_number, _duration):
        seconds = read(value)
        if seconds is not None:
            return seconds
    try:
        return _usable(max(0.0, parsedate_to_datetime(str(value)).timestamp() - time.time()))
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _of_retry_info(detail: object) -> float | None:
    """Google's ``RetryInfo``; there is usually no header then."""
    details = detail.get("details") if isinstance(detail, Mapping) else None
    for entry in details if isinstance(details, list) else ():
        if isinstance(entry, Mapping) and (seconds := _delay(entry.get("retryDelay"))) is not None:
            return seconds
    return None


def _delay(value: Any) -> float | None:
    if isinstance(value, Mapping):
        return _number(value.get("seconds"))
    return _duration(value)


def _of_gateway(detail: object) -> float | None:
    """OpenRouter: seconds beside the error, or the reset of its limit as a moment in milliseconds."""
    metadata = detail.get("metadata") if isinstance(detail, Mapping) else None
    for place in (detail, metadata):
        if isinstance(place, Mapping):
            for key in ("retry_after", "retry_after_seconds"):
                if (seconds := _number(place.get(key))) is not None:
                    return seconds
    headers = metadata.get("headers") if isinstance(metadata, Mapping) else None
    if not isinstance(headers, Mapping):
        return None
    reset = _milliseconds(
        next((value for key, value in headers.items() if str(key).lower() == "x-ratelimit-reset"), None)
    )
    return None if reset is None else max(0.0, reset - time.time())


def _of_spent_limits(headers: Mapping[str, str]) -> float | None:
    """The latest reset of the limits of which nothing is left."""
    resets = (
        _duration(headers.get(f"x-ratelimit-reset-{limit}"))
        for limit in ("requests", "tokens")
        if _number(headers.get(f"x-ratelimit-remaining-{limit}")) == 0
    )
    return max((seconds for seconds in resets if seconds is not None), default=None)


def _of_sentence(message: str) -> float | None:
    found = _SENTENCE.search(message[:_LONGEST_SENTENCE])
    return _duration(found[1]) if found is not None else None
