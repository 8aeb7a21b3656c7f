"""Reading parsed JSON whose shape nobody guarantees: each function gives the wanted type, or its empty value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from ..errors import ProviderError
from .failures import failure
from .sse import ServerSentEvent

_MOST = 2**31 - 1


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Return the objects of a list; ``null`` and strangers are skipped."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def as_text(value: Any) -> str:
    """Return the text, or an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """Return the whole number from 0 on that every database's integers hold, or ``None``."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def payload_of(event: ServerSentEvent) -> Mapping[str, Any]:
    """Return the object in an event of a model's stream.

    An error is looked for before any content: it may stand beside choices and usage, in a stream that began with 200.

    :raises ProviderError: for an error, and for anything that is no JSON object.
    """
    payload = _parsed(event.data)
    if not isinstance(payload, dict):
        if event.event == "error":
            raise failure(payload)
        raise ProviderError("malformed", f"Expected a JSON object in the stream, got: {event.data[:500]}")
    # Mistral and vLLM mark an error by its object, without wrapping it.
    if event.event == "error" or payload.get("error") or payload.get("object") == "error":
        raise failure(payload)
    return payload


def _parsed(data: str) -> Any:
    """Parse with pydantic's parser, at half the cost; what it refuses (lone surrogates) the other one may read."""
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data
