"""The words of JSON Schema: where they hold other schemas, which of them each provider knows, and how to say the rest.

Only data and what reads it; a schema is brought into a dialect by ``canonical``, ``reduced`` and ``strict``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Literal

from ..arguments import dotted
from ..messages import JsonObject

Dialect = Literal["openai", "anthropic", "google"]
Place = tuple[str, ...]
"""Names that lead to a schema, ``*`` for any item or free key."""

ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that say something and check nothing."""

LONGEST_WORDS = 400
"""Characters of one keyword told in words; a longer one would drown the description."""

_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs"), "by name"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "list"),
    **dict.fromkeys(("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"), "one"),
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "contentSchema"), "one"),
}
"""The keywords that hold schemas; what any other holds is a plain value, whatever it looks like."""

_BELOW = frozenset({"items", "prefixItems", "contains", "unevaluatedItems"})
_FREE = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a dialect knows.

    :param formats: the values of ``format``.
    :param least_items: the values of ``minItems``; ``None``: any.
    :param literals: what may stand in ``enum`` and ``const``.
    :param look_around: whether a ``pattern`` may have ``(?=`` and the like.
    :param all_required: every property must be there; an optional one may be null instead.
    :param recursion: whether a definition may refer to itself.
    :param limits: the most that one schema may have of something.
    """

    keywords: frozenset[str]
    formats: frozenset[str]
    least_items: frozenset[int] | None = None
    literals: tuple[type, ...] = (str, bool, int, float, type(None))
    look_around: bool = True
    all_required: bool = False
    recursion: bool = True
    limits: Mapping[str, int] | None = None


_STRUCTURE = frozenset({"$defs", "$ref", "type", "description", "enum", "anyOf", "properties", "required"})
_STRUCTURE |= {"additionalProperties", "items", "format", "minItems"}
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})

OPENAI_STRICT = Vocabulary(
    keywords=_STRUCTURE | _NUMBERS | {"const", "pattern", "maxItems"},
    formats=_FORMATS,
    look_around=False,
    all_required=True,
    # The guide on structured outputs, "Supported schemas".
    limits={"properties": 5000, "values of enums": 1000, "characters of names and values": 120_000},
)
ANTHROPIC_STRICT = Vocabulary(
    keywords=_STRUCTURE | {"const"},
    formats=_FORMATS | {"uri"},
    least_items=frozenset({0, 1}),
    # "Circular reference detected in schema definitions": egonSchiele/agency-lang#487.
    recursion=False,
    # The guide on structured outputs, "Schema complexity limits"; optional ones stay optional because of the second.
    limits={"optional properties": 24, "properties of several types": 16},
)
GOOGLE = Vocabulary(
    # The list in the SDK's own description of response_json_schema; what is not in it is ignored, or refused with 400.
    keywords=_STRUCTURE | {"prefixItems", "maxItems", "minimum", "maximum"},
    # Others have been refused: "only 'enum' and 'date-time' are supported" (hideya/langchain-mcp-tools-ts#36).
    formats=frozenset({"date-time", "date", "time"}),
    literals=(str, int, float),
)
STRICT: Mapping[Dialect, Vocabulary] = {"openai": OPENAI_STRICT, "anthropic": ANTHROPIC_STRICT}

_WORDS: Mapping[str, str] = {
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
    "pattern": "matches the regular expression {}",
    "format": "format {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "number of items at least {}",
    "maxItems": "number of items at most {}",
    "minProperties": "number of keys at least {}",
    "maxProperties": "number of keys at most {}",
    "const": "exactly {}",
    "enum": "one of {}",
    "default": "default {}",
    "examples": "for example {}",
    "not": "not {}",
}
_UNSAID = frozenset({"title", "discriminator", "deprecated", "readOnly", "writeOnly", "nullable", "$comment"})
_BARE = frozenset({"pattern", "format"})


def in_words(keyword: str, value: Any) -> str:
    """Return what a description says in the place of a keyword; empty where it would help no model."""
    if says_nothing(keyword, value):
        return ""
    if keyword == "uniqueItems":
        return "no item twice"
    text = value if keyword in _BARE and isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if keyword in ("enum", "examples") and isinstance(value, list):
        text = text[1:-1]
    said = _WORDS.get(keyword, f"{keyword}: {{}}").replace("{}", text, 1)
    return said if len(said) <= LONGEST_WORDS else ""


def says_nothing(keyword: str, value: Any) -> bool:
    """Return whether a model would miss nothing without a keyword."""
    idle = {"default": None, "uniqueItems": False}
    return (keyword in idle and value is idle[keyword]) or keyword in _UNSAID or keyword.startswith("x-")


def described(node: JsonObject, words: list[str]) -> JsonObject:
    """Return the schema with words added to its description."""
    if not words:
        return node
    said, before = "; ".join(words), str(node.get("description", "")).rstrip()
    return {**node, "description": f"{before} ({said})" if before else f"{said[0].upper()}{said[1:]}."}


def with_parts(node: JsonObject, change: Callable[[Any, Place], Any], place: Place) -> JsonObject:
    """Return the schema with ``change(schema, place)`` in the place of each schema that it holds."""
    made: JsonObject = {}
    for key, value in node.items():
        kind = _PARTS.get(key)
        if kind == "by name" and isinstance(value, dict):
            made[key] = {name: change(part, _inside(key, place, name)) for name, part in value.items()}
        elif kind == "list" and isinstance(value, list):
            made[key] = [change(part, _inside(key, place)) for part in value]
        elif kind == "one":
            made[key] = change(value, _inside(key, place))
        else:
            made[key] = value
    return made


def parts(node: JsonObject, place: Place = ()) -> Iterator[tuple[str, Any, Place]]:
    """Yield what a schema holds, its definitions apart: keyword, schema and place."""
    for key, value in node.items():
        kind = _PARTS.get(key) if key != "$defs" else None
        if kind == "by name":
            yield from ((key, part, _inside(key, place, name)) for name, part in value.items())
        elif kind == "list":
            yield from ((key, part, _inside(key, place)) for part in value)
        elif kind == "one":
            yield key, value, _inside(key, place)


def types_of(node: JsonObject) -> list[str]:
    """Return the JSON types that a schema names; none where it names none."""
    named = node.get("type", [])
    return [named] if isinstance(named, str) else list(named)


def told_place(place: Place) -> str:
    """Return the dotted place, as ``criteria.*.weight``."""
    return dotted(place) or "the whole"


def _inside(keyword: str, place: Place, name: str = "*") -> Place:
    if keyword == "properties":
        return (*place, name)
    return (*place, "*") if keyword in _BELOW or keyword in _FREE else place
