"""What we send, checked against the request types of the SDKs themselves."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def _reader(declared: Any) -> TypeAdapter[Any]:
    return TypeAdapter(declared)


def assert_is(declared: Any, body: dict[str, Any]) -> None:
    """Require a request body to be of a request type (a ``TypedDict``), without a key that the type lacks."""
    reader = _reader(declared)
    # Reading leaves out what the type does not know, so whatever is lost was not allowed there.
    read = reader.dump_python(reader.validate_python(body), mode="json", warnings=False)
    assert read == body
