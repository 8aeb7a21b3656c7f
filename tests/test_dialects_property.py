"""Whatever a tool's types are: what our own validation takes can be said in every dialect, and means the same."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated
from typing import Any
from typing import Literal
from typing import NotRequired
from typing import Union
from uuid import UUID

from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field
from pydantic import create_model
from typing_extensions import TypedDict

from flask_instruct.dialects import DIALECTS
from flask_instruct.dialects import told
from flask_instruct.schema import Parameters
from flask_instruct.schema import from_signature
from flask_instruct.signature import read_signature

from .dialect_rules import broken_rules

steady = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Typed:
    """A type, and a strategy of its values as a model writes them."""

    annotation: Any
    values: st.SearchStrategy[Any]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(Enum):
    ONE = 1
    WORD = "word"


defaults = st.sampled_from([None, None, 4, "d"])
words = st.text("abc äß", max_size=4)
whole = st.integers(-5, 5)
SCALARS = [
    Typed(str, words),
    Typed(int, whole),
    Typed(float, st.floats(-5, 5).map(lambda number: round(number, 2)) | whole),
    Typed(bool, st.booleans()),
    Typed(None, st.none()),
    Typed(Literal["x", "y"], st.sampled_from(["x", "y"])),
    Typed(Literal["x", 1], st.sampled_from(["x", 1])),
    Typed(Literal["x", None], st.sampled_from(["x", None])),
    Typed(Literal[True], st.just(True)),
    Typed(Colour, st.sampled_from(["red", "blue"])),
    Typed(Mixed, st.sampled_from([1, "word"])),
    Typed(
        datetime,
        st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)).map(datetime.isoformat),
    ),
    Typed(date, st.dates().map(date.isoformat)),
    Typed(Decimal, whole | st.just("1.10")),
    Typed(UUID, st.uuids().map(str)),
    Typed(Annotated[int, Field(gt=-3, le=4)], st.integers(-2, 4)),
    Typed(Annotated[float, Field(gt=0, lt=2, multiple_of=0.5)], st.sampled_from([0.5, 1, 1.5])),
    Typed(
        Annotated[str, Field(min_length=1, max_length=3, description="Short.")], st.text("ab", min_size=1, max_size=3)
    ),
    Typed(Annotated[str, Field(pattern=r"^a+$")], st.sampled_from(["a", "aa"])),
    Typed(Annotated[list[int], Field(min_length=2, max_length=3)], st.lists(whole, min_size=2, max_size=3)),
    Typed(tuple[int, str], st.tuples(whole, words).map(list)),
]


@st.composite
def types(draw: st.DrawFn, number: Iterator[int], depth: int = 2) -> Typed:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(SCALARS))
    kind = draw(st.sampled_from(["list", "dict", "optional", "union", "dataclass", "typed dict", "model"]))
    if kind in ("dataclass", "typed dict", "model"):
        return draw(structures(number, depth, kind))
    inner = draw(types(number, depth - 1))
    if kind == "list":
        return Typed(list[inner.annotation], st.lists(inner.values, max_size=2))  # type: ignore[name-defined]
    if kind == "dict":
        return Typed(dict[str, inner.annotation], st.dictionaries(words, inner.values, max_size=2))  # type: ignore[name-defined]
    other = Typed(None, st.none()) if kind == "optional" else draw(types(number, depth - 1))
    return Typed(Union[inner.annotation, other.annotation], inner.values | other.values)  # noqa: UP007


@st.composite
def structures(draw: st.DrawFn, number: Iterator[int], depth: int, kind: str) -> Typed:
    name = f"Made{next(number)}"
    fields: dict[str, tuple[Typed, bool, Any]] = {}
    for place in range(draw(st.integers(0, 3))):
        typed = draw(types(number, depth - 1))
        fields[f"f{place}_{name}"] = (typed, draw(st.booleans()), draw(defaults))
    return Typed(
        structure(name, kind, fields),
        objects({field: (typed, optional) for field, (typed, optional, _) in fields.items()}),
    )


def structure(name: str, kind: str, fields: dict[str, tuple[Typed, bool, Any]]) -> Any:
    if kind == "typed dict":
        hints = {
            key: NotRequired[typed.annotation] if free else typed.annotation for key, (typed, free, _) in fields.items()
        }
        return TypedDict(name, hints)  # type: ignore[operator]
    ordered = sorted(fields.items(), key=lambda item: item[1][1])
    if kind == "dataclass":
        made = [
            (key, typed.annotation, dataclasses.field(default=default) if free else dataclasses.field())
            for key, (typed, free, default) in ordered
        ]
        return dataclasses.make_dataclass(name, made)
    return create_model(
        name, **{key: (typed.annotation, default if free else ...) for key, (typed, free, default) in ordered}
    )


def objects(fields: dict[str, tuple[Typed, bool]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {key: typed.values for key, (typed, free) in fields.items() if not free},
        optional={key: typed.values for key, (typed, free) in fields.items() if free},
    )


@st.composite
def tools(draw: st.DrawFn) -> tuple[Parameters, dict[str, Any]]:
    """Draw the parameters of a tool, and arguments for it."""
    number = itertools.count()
    fields = {
        f"p{place}": (draw(types(number, 3)), draw(st.booleans()), draw(defaults))
        for place in range(draw(st.integers(0, 3)))
    }

    def tool(self: Any) -> None: ...

    ordered = sorted(fields.items(), key=lambda item: item[1][1])
    source = ", ".join(f"{key}={default!r}" if free else key for key, (_, free, default) in ordered)
    space: dict[str, Any] = {}
    exec(f"def tool(self{', ' + source if source else ''}): ...", space)
    space["tool"].__annotations__ = {key: typed.annotation for key, (typed, _, _) in fields.items()}
    parameters = from_signature(read_signature(space["tool"], "x"), "x")
    return parameters, draw(objects({key: (typed, free) for key, (typed, free, _) in fields.items()}))


def filled(schema: Any, value: Any, definitions: dict[str, Any]) -> Any:
    """Return the value as a model in strict mode writes it: with null for what it leaves out."""
    if not isinstance(schema, dict):
        return value
    if "$ref" in schema:
        return filled(definitions[schema["$ref"].rpartition("/")[2]], value, definitions)
    for option in schema.get("anyOf", ()):
        attempt = filled(option, value, definitions)
        if valid({**option, "$defs": definitions}, attempt):
            return attempt
    if isinstance(value, dict):
        named = schema.get("properties", {})
        there = {key: filled(named.get(key), item, definitions) for key, item in value.items()}
        return there | {key: None for key in schema.get("required", ()) if key not in value}
    if isinstance(value, list):
        return [filled(schema.get("items"), item, definitions) for item in value]
    return value


def valid(schema: dict[str, Any], value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


@steady
@given(tools())
def test_what_our_validation_takes_every_dialect_can_say(tool: tuple[Parameters, dict[str, Any]]) -> None:
    parameters, arguments = tool
    meant = repr(parameters.check(arguments).arguments)
    for dialect, strict in itertools.product(DIALECTS, [False, True]):
        made = told(parameters.schema, dialect, strict=strict)
        said = (
            filled(made.schema, arguments, made.schema.get("$defs", {}))
            if made.strict and dialect == "openai"
            else arguments
        )
        assert list(Draft202012Validator(made.schema).iter_errors(said)) == [], (dialect, strict, made)
        assert repr(parameters.check(said).arguments) == meant


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.none() | st.booleans() | whole | words | st.just({"$ref": "#/nowhere"}) | st.just([1])
FORMATS = st.sampled_from(["date", "uri", "email", "binary", "date-time"])
POINTERS = st.sampled_from(
    [
        "#",
        "#/$defs/A",
        "#/$defs/B",
        "#/definitions/C%20D",
        "#/properties/a",
        "#/$defs/A/properties/b",
        "#far",
        "https://x.org/y",
    ]
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    some, named, size = (
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(NAMES, inner, max_size=3),
        st.integers(0, 4),
    )
    return {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "properties": named,
        "required": st.lists(NAMES, unique=True, max_size=3),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.just("^x"), inner, max_size=1),
        "propertyNames": inner,
        "dependentSchemas": named,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=1),
        "items": inner,
        "prefixItems": some,
        "contains": inner,
        "uniqueItems": st.booleans(),
        "minItems": size,
        "maxItems": size,
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "minimum": whole,
        "exclusiveMinimum": whole,
        "maximum": whole,
        "multipleOf": st.integers(1, 3),
        "minLength": size,
        "pattern": st.sampled_from(["^a", "(?=b)", r"\d+"]),
        "format": FORMATS,
        "anyOf": some,
        "oneOf": some,
        "allOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": POINTERS,
        "title": words,
        "description": words,
        "default": VALUES,
        "examples": st.lists(VALUES, max_size=2),
        "$anchor": st.just("far"),
        "$comment": words,
        "nullable": st.booleans(),
        "discriminator": st.just({"propertyName": "a"}),
    }


@st.composite
def nodes(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    known = keywords(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
    return {key: draw(known[key]) for key in chosen}


simple = st.booleans() | st.fixed_dictionaries({"type": TYPES}) | st.fixed_dictionaries({"$ref": POINTERS})
schemas = st.recursive(simple, nodes, max_leaves=8)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a JSON Schema that says in one way or another that it is of an object."""
    root = draw(nodes(schemas)) | {"type": draw(st.sampled_from(["object", "object", ["object", "null"]]))}
    root["properties"] = draw(st.dictionaries(NAMES, schemas, max_size=3))
    root["$defs"] = {"A": draw(schemas), "B": draw(schemas)}
    root["definitions"] = {"C D": draw(schemas)}
    return root


@steady
@given(documents())
def test_any_schema_is_told_in_every_dialect_by_its_rules(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    for dialect, strict in itertools.product(DIALECTS, [False, True]):
        made = told(schema, dialect, strict=strict)
        assert schema == before
        Draft202012Validator.check_schema(made.schema)
        assert bool(made.reason) != made.strict
        assert list(broken_rules(made.schema, dialect, strict=made.strict)) == []
        json.dumps(told(made.schema, dialect, strict=strict).schema)
