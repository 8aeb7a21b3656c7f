"""A JSON Schema written by hand: refused where it is wrong, and all that an argument must pass where it is right."""

from __future__ import annotations

from typing import Any

import pytest

from flask_instruct.arguments import InvalidArguments
from flask_instruct.errors import DeclarationError
from flask_instruct.schema import Parameters
from flask_instruct.signature import read_signature
from flask_instruct.written import from_schema


def comment(self, text, stars=None, tags=(), when=None): ...


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "What to say."},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]},
    },
    "required": ["text"],
    "$defs": {
        "tag": {
            "type": "object",
            "properties": {"name": {"enum": ["red", "blue"]}, "on": {"type": "boolean"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def written(schema: object = SCHEMA, function: Any = comment) -> Parameters:
    return from_schema(schema, read_signature(function, "Handler.comment", typed=False), "Handler.comment")


def refused(arguments: dict[str, Any], schema: object = SCHEMA) -> list[str]:
    with pytest.raises(InvalidArguments) as refusal:
        written(schema).check(arguments)
    return [str(problem) for problem in refusal.value.problems]


def test_the_schema_is_told_word_for_word_and_is_a_copy() -> None:
    given = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "x-note": 1}
    made = written(given)
    assert made.schema == given
    given["properties"]["text"] = {}  # type: ignore[index]
    assert made.schema["properties"] == {"text": {"type": "string"}}


def test_values_arrive_as_plain_json() -> None:
    arguments = {"text": "x", "stars": 5, "tags": [{"name": "red"}], "when": "2026-03-01T12:00:00Z"}
    assert written().check(arguments).keywords == arguments


def test_all_faults_are_told_at_once_with_dotted_paths() -> None:
    arguments = {"text": "", "stars": 9, "tags": [{"name": "green"}, {"on": 1, "by": 2}, 3], "owner_id": 1}
    assert sorted(refused(arguments)) == [
        "owner_id: is not a known argument",
        "stars: 9 is greater than the maximum of 5",
        "tags.0.name: 'green' is not one of ['red', 'blue']",
        "tags.1.by: is not a known argument",
        "tags.1.name: is required",
        "tags.1.on: 1 is not of type 'boolean'",
        "tags.2: 3 is not of type 'object'",
        "text: '' should be non-empty",
    ]
    assert refused({}) == ["text: is required"]


def test_only_named_properties_pass_though_the_schema_does_not_say_so() -> None:
    assert refused({"text": "x", "self": 1, "is_admin": True}) == [
        "self: is not a known argument",
        "is_admin: is not a known argument",
    ]


@pytest.mark.parametrize("stars", [True, "abc", 3.5, "3.5", [3], 2**70])
def test_an_integer_is_an_integer(stars: object) -> None:
    assert refused({"text": "x", "stars": stars})[0].startswith("stars: ")


@pytest.mark.parametrize("when", ["tomorrow", "2026-03-01", True, []])
def test_a_format_holds(when: object) -> None:
    assert refused({"text": "x", "when": when})[0].startswith("when: ")


def test_what_can_be_read_in_one_way_only_is_read() -> None:
    arguments = {"text": "x", "stars": "3", "tags": [{"name": "red", "on": "true"}]}
    assert written().check(arguments).keywords == {"text": "x", "stars": 3, "tags": [{"name": "red", "on": True}]}
    assert arguments["stars"] == "3"
    assert type(written().check({"text": "x", "stars": 3.0}).keywords["stars"]) is int


def test_a_null_that_is_not_allowed_counts_as_not_given() -> None:
    assert written().check({"text": "x", "stars": None, "when": None}).keywords == {"text": "x"}
    assert refused({"text": None}) == ["text: is required"]


def test_a_schema_of_an_earlier_draft_is_checked_by_its_own_rules() -> None:
    def tool(self, text): ...

    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"text": {"type": "number", "minimum": 3, "exclusiveMinimum": True}},
        "required": ["text"],
    }
    assert written(schema, tool).check({"text": 4}).keywords == {"text": 4}
    with pytest.raises(InvalidArguments):
        written(schema, tool).check({"text": 3})


def with_property(**schema: object) -> dict[str, object]:
    return {"type": "object", "properties": {"text": schema}, "required": ["text"]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "type 'object'"),
        ([], "type 'object'"),
        ({}, "type 'object'"),
        ({"type": "string"}, "type 'object'"),
        ({"type": ["object", "null"]}, "type 'object'"),
        ({"type": "object", "properties": []}, "no valid JSON Schema"),
        (with_property(type="text"), "no valid JSON Schema"),
        (with_property(type="string", minLength=-1), "no valid JSON Schema"),
        (with_property(enum=[]), "enum without values"),
        (with_property(items={"anyOf": [{"enum": []}]}), "enum without values"),
        (with_property(default=object()), "not plain JSON"),
        (with_property(default=float("nan")), "not plain JSON"),
        (with_property(**{"$ref": "https://example.com/schema.json"}), "into the tool's own schema"),
        (with_property(**{"$ref": "#/$defs/nowhere"}), "into the tool's own schema"),
        ({**with_property(), "additionalProperties": True}, "name every property"),
        ({**with_property(), "additionalProperties": {"type": "string"}}, "name every property"),
        ({**with_property(), "patternProperties": {"^x": {}}}, "name every property"),
        ({"type": "object", "properties": {"other": {}}}, "no parameter other"),
        ({"type": "object", "properties": {"text": {}}}, "needs text, which its schema does not require"),
        ({"type": "object"}, "needs text"),
        ({**with_property(), "required": ["text", "other"]}, "requires other, but has no such property"),
    ],
)
def test_a_bad_schema_fails_where_it_is_declared(schema: object, why: str) -> None:
    with pytest.raises(DeclarationError, match=r"^Handler\.comment") as refusal:
        written(schema)
    assert why in str(refusal.value)
