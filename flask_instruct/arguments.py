"""Read the argument text of a tool call into a plain JSON object that is safe to store, send and pass on.

The one sanitiser at the boundary (THREATS, row 5): size, depth, numbers, keys and characters are checked here,
types by the tool's own schema afterwards. What is wrong is told to the model, never passed to a tool.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ToolError
from .messages import JsonObject

MAX_DEPTH = 32
"""Levels of lists and objects in an argument text."""
INTEGERS = range(-(2**63), 2**63)
"""What a database's widest integer column holds."""
MISSING = "is required"
UNKNOWN = "is not a known argument"
TOLD_PROBLEMS = 20
"""Problems of one call that are told one by one."""
TOLD_CHARS = 300
"""Characters of one path or message."""

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a call's arguments; ``path`` is dotted (``criteria.0.weight``), empty for the whole."""

    path: str
    message: str

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return clean_text(told[:TOLD_CHARS])


class InvalidArguments(ToolError):
    """Raise with every fault of a call's arguments; the text tells the model all of them at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        told = [str(problem) for problem in self.problems[:TOLD_PROBLEMS]]
        if more := len(self.problems) - len(told):
            told.append(f"… and {more} more.")
        super().__init__("\n- ".join(["Invalid arguments, the tool was not called:", *told]))


def parse_arguments(raw: object, *, limit: int = 65536) -> JsonObject:
    """Return the arguments as a JSON object of clean values.

    Blank text, ``null`` and nothing mean no arguments (simonw/llm#1521). A mapping is taken for arguments that
    an adapter has parsed, and goes through the same checks.

    :param raw: the text as the provider sent it.
    :param limit: the longest text that is read, in bytes of UTF-8.
    :raises InvalidArguments: for anything else than a JSON object within the limits.
    """
    text = _text(raw)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise _refusal(f"the arguments are {size} bytes long; at most {limit} are read.")
    if not text.strip():
        return {}
    value = _load(text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refusal(f"the arguments must be a JSON object, not {_kind(value)}.")
    cleaned: JsonObject = _clean(value, 1)
    return cleaned


def clean_text(text: str) -> str:
    """Return the text without NUL and other control characters (tab and newlines stay) and lone surrogates.

    PostgreSQL refuses NUL, no encoder takes a lone surrogate, and an escape character can rewrite a log.
    """
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", text)


def _text(raw: object) -> str:
    if raw is None:
        return ""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, bytes | bytearray):
        return raw.decode("utf-8", "replace")
    if isinstance(raw, Mapping):
        try:
            return json.dumps(dict(raw))
        except (TypeError, ValueError, RecursionError):
            raise _refusal("the arguments are not plain JSON.") from None
    raise _refusal(f"the arguments must be a JSON object, not {type(raw).__name__}.")


def _load(text: str) -> Any:
    try:
        return json.loads(
            text,
            strict=False,  # models put real newlines into strings; what is harmful in them is taken out later
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except InvalidArguments:
        raise
    except RecursionError:
        raise _refusal(f"the arguments are nested deeper than {MAX_DEPTH} levels.") from None
    except ValueError as error:
        raise _refusal(f"the arguments are not valid JSON: {error}.") from None


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= 20 else None
    if value is None or value not in INTEGERS:
        raise _refusal(f"the number {digits[:24]}… does not fit 64 bits.")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refusal(f"the number {digits[:24]} is too large.")
    return value


def _constant(name: str) -> Any:
    raise _refusal(f"{name} is not a JSON number.")


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    result: JsonObject = {}
    for name, value in pairs:
        key = clean_text(name)
        if key in result:
            raise _refusal(f"the key {json.dumps(key, ensure_ascii=False)} appears twice in one object.")
        result[key] = value
    return result


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, dict | list):
        return value
    if depth > MAX_DEPTH:
        raise _refusal(f"the arguments are nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    return {key: _clean(item, depth + 1) for key, item in value.items()}


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), type(value).__name__)


def _refusal(message: str) -> InvalidArguments:
    return InvalidArguments([Problem("", message)])


def dotted(path: Path) -> str:
    """Return a path as it is told to a model: ``criteria.0.weight``."""
    return ".".join(str(step) for step in path)


def mend_all(arguments: JsonObject, wrong: Iterable[tuple[Path, str]]) -> bool:
    """Put right, in place, values that are of the wrong JSON type but can be read in one way only.

    ``"3"`` where an integer is expected becomes 3, ``"true"`` a boolean, and a null that is not allowed counts as
    not given: models in strict mode leave an optional argument out that way.

    :param wrong: where such values are, and the JSON Schema type that each should have had.
    :returns: whether something was changed.
    """
    mended: set[Path] = set()
    for path, expected in wrong:
        if path and path not in mended and _mend(arguments, path, expected):
            mended.add(path)
    return bool(mended)


def _mend(arguments: JsonObject, path: Path, expected: str) -> bool:
    *above, last = path
    parent: Any = arguments
    for step in above:
        parent = parent[step]
    value = parent[last]
    if value is None and isinstance(parent, dict):
        del parent[last]
        return True
    read = _READERS.get(expected)
    mended = read(value) if read else None
    if mended is None:
        return False
    parent[last] = mended
    return True


def _read_integer(value: object) -> int | None:
    is_text = isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value, re.ASCII)
    is_whole = isinstance(value, float) and value.is_integer()
    if not is_text and not is_whole:
        return None
    number = int(value)  # type: ignore[call-overload]
    return number if number in INTEGERS else None


def _read_number(value: object) -> float | None:
    number = r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*"
    if not isinstance(value, str) or not re.fullmatch(number, value, re.ASCII) or not math.isfinite(float(value)):
        return None
    return float(value)


def _read_boolean(value: object) -> bool | None:
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


_READERS: Mapping[str, Callable[[object], object]] = {
    "integer": _read_integer,
    "number": _read_number,
    "boolean": _read_boolean,
}
