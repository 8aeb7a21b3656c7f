"""The strict form that a provider can enforce, or the news that there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated
from typing import Any
from typing import Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import AnyUrl
from pydantic import BaseModel
from pydantic import Field

from flask_instruct.dialects import NotStrict
from flask_instruct.dialects import strict_form
from flask_instruct.schema import Parameters
from flask_instruct.schema import from_signature
from flask_instruct.signature import read_signature


@dataclass
class Criterion:
    title: str
    weight: int = 10
    parent: Criterion | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


def parameters(function: Callable[..., Any]) -> Parameters:
    return from_signature(read_signature(function, "x"), "x")


def nodes(node: object) -> list[dict[str, Any]]:
    """All objects of a schema that are schemas or lie in one."""
    inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    return ([node] if isinstance(node, dict) else []) + [found for part in inner for found in nodes(part)]


def update(
    self,
    criteria: list[Criterion],
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    when: date | None = None,
    price: Decimal = Decimal(1),
    title: Annotated[str, Field(max_length=9, description="A title.")] = "x",
    level: Literal["low", "high"] = "low",
    link: AnyUrl | None = None,
): ...


def test_every_object_is_closed_and_every_property_required() -> None:
    strict = strict_form(parameters(update).schema)
    Draft202012Validator.check_schema(strict)
    objects = [node for node in nodes(strict) if node.get("type") == "object"]
    assert len(objects) == 4
    for node in objects:
        assert node["required"] == list(node["properties"])
        assert node["additionalProperties"] is False


def test_what_was_optional_may_be_null_and_keeps_its_words() -> None:
    properties = strict_form(parameters(update).schema)["properties"]
    assert properties["title"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": 'A title. (default "x"; length at most 9)',
    }
    assert properties["level"] == {
        "anyOf": [{"type": "string", "enum": ["low", "high"]}, {"type": "null"}],
        "description": 'Default "low".',
    }
    assert properties["when"] == {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
    assert properties["criteria"] == {"type": "array", "items": {"$ref": "#/$defs/Criterion"}}


def test_nothing_is_left_that_strict_modes_refuse() -> None:
    for node in nodes(strict_form(parameters(update).schema)):
        assert not {"default", "oneOf", "allOf", "discriminator", "maxLength", "title"} & (
            node.keys() - (node if "title" in node and isinstance(node["title"], dict) else {}).keys()
        )
        assert node.get("format") != "uri"
        assert "$ref" not in node or set(node) == {"$ref"}


def test_a_reference_with_words_beside_it_is_wrapped() -> None:
    def tool(self, criterion: Annotated[Criterion, Field(description="The one.")]): ...

    assert strict_form(parameters(tool).schema)["properties"]["criterion"] == {
        "anyOf": [{"$ref": "#/$defs/Criterion"}],
        "description": "The one.",
    }


def test_the_given_schema_is_left_alone() -> None:
    schema = parameters(update).schema
    before = copy.deepcopy(schema)
    strict_form(schema)
    assert schema == before


def test_arguments_written_in_strict_form_pass_the_same_check() -> None:
    arguments = {
        "criteria": [{"title": "x", "weight": None, "parent": None}],
        "pet": {"kind": "cat", "lives": None},
        "when": None,
        "price": None,
        "title": None,
        "level": None,
        "link": None,
    }
    assert Draft202012Validator(strict_form(parameters(update).schema)).is_valid(arguments)
    keywords = parameters(update).check(arguments).keywords
    assert keywords == {"criteria": [Criterion("x")], "pet": Cat(kind="cat"), "when": None, "link": None}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "additionalProperties": {"type": "string"}}, "free keys"),
        ({"type": "object"}, "free keys"),
        ({}, "may be anything"),
        (True, "may be anything"),
        ({"type": "array"}, "may be anything"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "not of one type"),
        ({"type": "array", "items": {}}, "may be anything"),
        ({"minLength": 3}, "has no type"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "combines several"),
        ({"type": "object", "properties": {}, "if": {}, "then": {}}, "has conditions"),
        ({"type": "object", "properties": {}, "anyOf": [{"type": "object"}]}, "beside a choice"),
        ({"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]}, "both anyOf and oneOf"),
    ],
)
def test_what_has_no_strict_form_says_so_and_where(schema: object, why: str) -> None:
    whole = {"type": "object", "properties": {"notes": schema}, "required": ["notes"]}
    with pytest.raises(NotStrict, match="notes") as refusal:
        strict_form(whole)
    assert why in str(refusal.value)


def test_a_single_allof_is_merged() -> None:
    whole = {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}], "description": "A."}}}
    assert strict_form(whole)["properties"]["a"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "A.",
    }


def test_what_may_be_null_and_may_be_left_out_has_no_strict_form() -> None:
    def tool(self, level: int | None = 3): ...

    with pytest.raises(NotStrict, match="level may be null and may be left out"):
        strict_form(parameters(tool).schema)


class Note(BaseModel):
    tags: list[str] = []


class Anything(BaseModel):
    """A model that, as pydantic's do, lets other keys pass."""


def test_a_choice_of_objects_that_null_would_blur_has_no_strict_form() -> None:
    def tool(self, value: Note | Anything): ...

    checked = parameters(tool).check({"value": {}}).arguments
    assert checked == {"value": Note()}
    assert parameters(tool).check({"value": {"tags": None}}).arguments != checked
    with pytest.raises(NotStrict, match="value is a choice of objects"):
        strict_form(parameters(tool).schema)


def test_members_of_allof_become_one_schema() -> None:
    whole = {
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"y": {"type": "integer"}}}]}},
        "required": ["a"],
        "$defs": {"A": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}},
    }
    assert strict_form(whole)["properties"]["a"] == {
        "type": "object",
        "properties": {"x": {"type": "string"}, "y": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "required": ["y", "x"],
        "additionalProperties": False,
    }
