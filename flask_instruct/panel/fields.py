"""A tool's arguments as the fields of a form, made of its JSON Schema, and what a person has put into them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Literal

Kind = Literal["line", "text", "number", "choice", "switch", "json"]

PREFIX = "argument-"
LONG = 80
"""Characters from which on a text has more than one line to be written in."""

_NUMBERS = {"integer": "1", "number": "any"}


@dataclass(frozen=True, slots=True)
class Field:
    """One argument in a form.

    :param options: of a choice, each value as JSON and as people read it.
    :param fault: what was wrong with it.
    """

    name: str
    kind: Kind
    value: str
    required: bool
    description: str = ""
    options: tuple[tuple[str, str], ...] = ()
    step: str = ""
    fault: str = ""

    @property
    def input_name(self) -> str:
        return PREFIX + self.name


def fields_of(schema: Mapping[str, Any], values: Mapping[str, Any], faults: Mapping[str, str]) -> list[Field]:
    """Return the fields of a tool's parameters.

    :param values: the arguments that they begin with.
    :param faults: what is wrong, by the name of the argument.
    """
    return [
        _field(name, part, values, name in schema.get("required", ()), faults.get(name, ""))
        for name, part in _parts(schema)
    ]


def read_fields(schema: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return what a person has put into the fields, as JSON values; the tool itself says whether they fit.

    An empty field of what may be left out is left out. What is no JSON, where JSON is to be written, stays text.
    """
    found: dict[str, Any] = {}
    for name, part in _parts(schema):
        text = given.get(PREFIX + name)
        kind, required = _kind(part), name in schema.get("required", ())
        if kind == "switch":
            found[name] = text is not None
        elif text is not None and (text.strip() or (required and kind in ("line", "text"))):
            found[name] = text.replace("\r\n", "\n") if kind in ("line", "text") else _parsed(text)
    return found


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, part in schema.get("properties", {}).items():
        yield name, _resolved(schema, part)


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, and look into what may also be null."""
    choices = [one for one in part.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        part = {**part, **choices[0]}
    reference = part.get("$ref", "")
    if reference.startswith("#/$defs/"):
        part = {**schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {}), **part}
    return part


def _kind(part: Mapping[str, Any]) -> Kind:
    if "enum" in part:
        return "choice"
    kinds: dict[Any, Kind] = {"string": "line", "integer": "number", "number": "number", "boolean": "switch"}
    kind = part.get("type")
    return kinds.get(kind, "json") if isinstance(kind, str) else "json"


def _field(name: str, part: Mapping[str, Any], values: Mapping[str, Any], required: bool, fault: str) -> Field:
    kind = _kind(part)
    value = values.get(name, part.get("default"))
    if kind == "line" and not isinstance(value, str | None):
        kind = "json"
    if kind == "line":
        shown = value or ""
        kind = "text" if len(shown) >= LONG or "\n" in shown else "line"
    else:
        shown = "" if value is None and name not in values else json.dumps(value, ensure_ascii=False)
    options = tuple((json.dumps(one, ensure_ascii=False), _read(one)) for one in part.get("enum", ()))
    step = _NUMBERS.get(part.get("type", ""), "")
    return Field(name, kind, shown, required, part.get("description", ""), options, step, fault)


def _read(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
