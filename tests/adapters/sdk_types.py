"""What we send, checked against the request types of the SDKs themselves."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from functools import reduce
from operator import or_
from typing import Any
from typing import NotRequired
from typing import Union
from typing import get_args
from typing import get_origin

from pydantic import BaseModel
from pydantic import TypeAdapter
from typing_extensions import TypedDict
from typing_extensions import get_type_hints
from typing_extensions import is_typeddict


@cache
def _reader(declared: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_listed(declared))


def _listed(declared: Any, within: tuple[Any, ...] = ()) -> Any:
    """The type with lists for iterables, which pydantic reads late and only once, and without answers' classes."""
    if is_typeddict(declared):
        return declared if declared in within else _listed_fields(declared, (*within, declared))
    origin, inner = get_origin(declared), get_args(declared)
    if origin is Iterable:
        return list[_listed(inner[0], within)]  # type: ignore[misc]
    if origin is Union:
        classes = tuple(one for one in inner if not (isinstance(one, type) and issubclass(one, BaseModel)))
        return reduce(or_, (_listed(one, within) for one in classes or inner))
    if origin in (list, dict):
        return origin[tuple(_listed(one, within) for one in inner)]
    return declared


def _listed_fields(declared: Any, within: tuple[Any, ...]) -> Any:
    hints = {key: _listed(hint, within) for key, hint in get_type_hints(declared).items()}
    needed = declared.__required_keys__
    fields = {key: hint if key in needed else NotRequired[hint] for key, hint in hints.items()}
    made: Any = TypedDict(declared.__name__, fields)  # type: ignore[operator]
    if hasattr(declared, "__pydantic_config__"):
        made.__pydantic_config__ = declared.__pydantic_config__
    return made


def assert_is(declared: Any, body: dict[str, Any]) -> None:
    """Require a request body to be of a request type (a ``TypedDict``), without a key that the type lacks."""
    reader = _reader(declared)
    # Reading leaves out what the type does not know, so whatever is lost was not allowed there.
    read = reader.dump_python(reader.validate_python(body), mode="json", warnings=False)
    assert read == body
