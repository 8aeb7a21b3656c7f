"""A schema as each provider is told it: what a dialect refuses is gone or in words; what is not strict says why."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Annotated
from typing import Any
from typing import Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import AnyUrl
from pydantic import Field

from flask_instruct.dialects import DIALECTS
from flask_instruct.dialects import Dialect
from flask_instruct.dialects import Told
from flask_instruct.dialects import told
from flask_instruct.schema import from_signature
from flask_instruct.signature import read_signature

ANY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


@dataclass
class Step:
    """One step."""

    title: Annotated[str, Field(min_length=1, max_length=80)]
    weight: Annotated[int, Field(gt=0, le=100)] = 10


@dataclass
class Folder:
    name: str
    inside: list[Folder]


def parameters(function: Any) -> dict[str, Any]:
    return from_signature(read_signature(function, "x"), "x").schema


def plan(
    self,
    steps: Annotated[list[Step], Field(min_length=2)],
    mode: Literal["add"],
    link: AnyUrl | None = None,
    ratio: Annotated[float, Field(gt=0, multiple_of=0.5)] = 1,
): ...


def free(self, tags: dict[str, str]): ...


def tree(self, root: Folder): ...


def of(dialect: Dialect, schema: dict[str, Any], *, strict: bool = False) -> Told:
    made = told(schema, dialect, strict=strict)
    Draft202012Validator.check_schema(made.schema)
    return made


def property_of(dialect: Dialect, schema: object, *, strict: bool = False, **beside: object) -> Any:
    """Return how a dialect tells the schema of a required property ``a``."""
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"], **beside}
    return of(dialect, whole, strict=strict).schema["properties"].get("a")


@ANY_DIALECT
def test_the_given_schema_is_left_alone_and_the_told_one_is_nobody_elses(dialect: Dialect) -> None:
    schema = parameters(plan)
    before = copy.deepcopy(schema)
    for strict in (True, False):
        first = of(dialect, schema, strict=strict)
        first.schema["properties"].clear()
        assert of(dialect, schema, strict=strict).schema["properties"]
    assert schema == before


@ANY_DIALECT
def test_the_same_schema_is_told_in_the_same_bytes(dialect: Dialect) -> None:
    said = {json.dumps(of(dialect, copy.deepcopy(parameters(plan)), strict=True).schema) for _ in range(3)}
    assert len(said) == 1


def test_openai_strict_has_all_required_and_the_rest_in_words() -> None:
    made = of("openai", parameters(plan), strict=True)
    assert (made.strict, made.reason) == (True, "")
    assert made.schema["required"] == ["steps", "mode", "link", "ratio"]
    assert made.schema["$defs"]["Step"] == {
        "description": "One step.",
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "Length at most 80; length at least 1."},
            "weight": {
                "anyOf": [{"exclusiveMinimum": 0, "maximum": 100, "type": "integer"}, {"type": "null"}],
                "description": "Default 10.",
            },
        },
        "required": ["title", "weight"],
        "additionalProperties": False,
    }
    assert "steps.*.title: minLength moved to the description" in made.changes
    assert "steps.*.weight: optional: may be null instead" in made.changes


def test_anthropic_strict_keeps_what_is_optional_and_moves_every_bound() -> None:
    made = of("anthropic", parameters(plan), strict=True)
    assert made.strict
    assert made.schema["required"] == ["steps", "mode"]
    assert made.schema["properties"] == {
        "steps": {
            "items": {"$ref": "#/$defs/Step"},
            "type": "array",
            "minItems": 1,
            "description": "Number of items at least 2.",
        },
        "mode": {"const": "add", "type": "string"},
        "link": {"anyOf": [{"format": "uri", "type": "string", "description": WORDS_OF_A_URL}, {"type": "null"}]},
        "ratio": {"type": "number", "description": "Default 1; more than 0; a multiple of 0.5."},
    }
    assert made.schema["$defs"]["Step"]["required"] == ["title"]


WORDS_OF_A_URL = "Length at least 1."


def test_google_is_told_in_the_keywords_that_it_lists() -> None:
    """A bound that Gemini does not know fails every call: JoeDo's report pizza-bot-app/pizza-bot#62."""
    made = of("google", parameters(plan), strict=True)
    assert made.strict
    step = made.schema["$defs"]["Step"]["properties"]
    assert step["weight"] == {"maximum": 100, "type": "integer", "minimum": 1, "description": "Default 10."}
    assert made.schema["properties"]["mode"] == {"enum": ["add"], "type": "string"}
    assert made.schema["properties"]["ratio"]["description"] == "Default 1; more than 0; a multiple of 0.5."
    assert made.schema["properties"]["link"]["anyOf"][0]["description"] == "Format uri; length at least 1."


def test_free_keys_have_no_strict_form_but_where_they_need_none() -> None:
    for dialect in ("openai", "anthropic"):
        made = of(dialect, parameters(free), strict=True)
        assert (made.strict, made.reason) == (
            False,
            "tags is an object with free keys, which the strict form does not know",
        )
        assert made.schema == parameters(free)
    assert of("google", parameters(free), strict=True).schema["properties"]["tags"] == {
        "additionalProperties": {"type": "string"},
        "type": "object",
    }


def test_recursion_goes_as_far_as_each_dialect_lets_it() -> None:
    """Anthropic refuses circles, the others take them: egonSchiele/agency-lang#487."""
    assert of("openai", parameters(tree), strict=True).strict
    anthropic = of("anthropic", parameters(tree), strict=True)
    assert anthropic.reason == "root may hold another Folder, which this strict form does not know"
    assert anthropic.schema == parameters(tree)
    google = of("google", parameters(tree))
    assert google.schema["$defs"]["Folder"]["required"] == ["name"]
    assert "Folder.inside: told as optional, as recursion must be" in google.changes


def test_a_circle_through_no_property_is_cut_for_google() -> None:
    definitions = {"List": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/List"}}]}}
    whole = {"type": "object", "properties": {"a": {"$ref": "#/$defs/List"}}, "$defs": definitions}
    assert of("google", whole).schema["$defs"]["List"]["anyOf"][1]["items"] == {"description": "Again as List."}
    assert of("openai", whole).schema["$defs"] == definitions


@ANY_DIALECT
def test_an_empty_enum_takes_its_member_of_a_union_away_or_goes(dialect: Dialect) -> None:
    assert property_of(dialect, {"anyOf": [{"type": "string"}, {"enum": []}]}) == {"anyOf": [{"type": "string"}]}
    assert property_of(dialect, {"type": "string", "enum": []}) == {"type": "string"}
    beside: dict[str, object] = {"$defs": {"None": {"enum": []}}}
    assert property_of(dialect, {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/None"}]}, **beside) == {
        "anyOf": [{"type": "string"}]
    }


@ANY_DIALECT
def test_null_in_an_enum_stands_beside_it(dialect: Dialect) -> None:
    schema = {"type": ["string", "null"], "enum": ["a", None], "description": "One."}
    assert property_of(dialect, schema) == {
        "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}],
        "description": "One.",
    }
    assert property_of(dialect, {"type": "string", "enum": ["a", None]}) == {"type": "string", "enum": ["a"]}
    assert property_of(dialect, {"enum": [None]}) == {"type": "null"}


@ANY_DIALECT
def test_words_beside_a_reference_stay_and_the_reference_stands_alone(dialect: Dialect) -> None:
    made = property_of(
        dialect, {"$ref": "#/definitions/A%20b", "description": "It."}, definitions={"A b": {"type": "string"}}
    )
    assert made == {"anyOf": [{"$ref": "#/$defs/A_b"}], "description": "It."}


@ANY_DIALECT
def test_only_definitions_in_use_are_told_wherever_they_stood(dialect: Dialect) -> None:
    whole = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Alias"}, "b": {"$ref": "#/properties/c"}, "c": {"type": "string"}},
        "$defs": {"Alias": {"$ref": "#/$defs/A"}, "A": {"type": "integer"}, "Unused": {"type": "null"}},
    }
    assert of(dialect, whole).schema["$defs"] == {"A": {"type": "integer"}, "c": {"type": "string"}}


@ANY_DIALECT
def test_a_reference_that_leads_nowhere_is_told_as_anything(dialect: Dialect) -> None:
    for pointer in ("https://example.com/a.json", "#/$defs/nowhere", "#anchor", "#/properties/a"):
        assert property_of(dialect, {"$ref": pointer}) == {}


@ANY_DIALECT
@pytest.mark.parametrize(
    "root",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        {"properties": {"a": {"type": "string"}}},
        {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
        {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]},
        {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}]},
    ],
)
def test_the_root_is_an_object_and_nothing_else(dialect: Dialect, root: dict[str, Any]) -> None:
    made = of(dialect, root)
    assert made.schema == {"type": "object", "properties": {"a": {"type": "string"}}} | (
        {"required": []} if "required" in made.schema else {}
    )


def test_a_choice_at_the_root_becomes_one_object_that_is_not_strict() -> None:
    whole = {
        "type": "object",
        "oneOf": [
            {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
            {"properties": {"name": {"type": "string"}, "id": {"type": "string"}}, "required": ["name"]},
        ],
    }
    made = of("openai", whole, strict=True)
    assert made.reason.startswith("the whole is a choice of objects")
    assert made.schema == {
        "type": "object",
        "properties": {"id": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "name": {"type": "string"}},
        "required": [],
        "description": "Give one of: id; name.",
    }


@ANY_DIALECT
def test_true_and_false_are_written_as_schemas(dialect: Dialect) -> None:
    whole = {"type": "object", "properties": {"a": True, "b": False}, "required": ["a", "b"]}
    made = of(dialect, whole).schema
    assert made["properties"] == {"a": {}}
    assert made["required"] == ["a"]


def test_a_list_without_items_says_that_they_may_be_anything() -> None:
    assert property_of("openai", {"type": "array"}) == {"type": "array", "items": {}}


@ANY_DIALECT
def test_keywords_of_earlier_drafts_are_written_anew(dialect: Dialect) -> None:
    old = {"type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    new = {"type": "integer", "maximum": 9} | ({"minimum": 4} if dialect == "google" else {"exclusiveMinimum": 3})
    assert property_of(dialect, old) == new
    pair = {"type": "array", "items": [{"type": "string"}], "additionalItems": False}
    assert property_of(dialect, pair) == {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1}


def test_values_that_gemini_has_no_enum_for_are_told_in_words() -> None:
    assert property_of("google", {"const": True}) == {"type": "boolean", "description": "Exactly true."}
    assert property_of("google", {"const": False}) == {"type": "boolean", "description": "Exactly false."}
    assert property_of("google", {"enum": [1, "a", False]}) == {
        "type": ["integer", "string", "boolean"],
        "description": 'One of 1, "a", false.',
    }


def test_a_value_that_two_schemas_name_is_told_once() -> None:
    made = property_of("google", {"allOf": [{"const": False}, {"enum": [False, True]}]})
    assert made == {"type": "boolean", "description": "Exactly false."}


def test_keys_by_pattern_are_not_forbidden_where_they_cannot_be_told() -> None:
    schema = {"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
    assert "additionalProperties" not in property_of("google", schema)


def test_a_very_long_value_does_not_drown_the_description() -> None:
    made = of("google", {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 1000}}})
    assert made.schema["properties"]["a"] == {"type": "string"}
    assert made.changes == ("a: default left out",)


def test_what_is_no_schema_but_looks_like_one_is_left_alone() -> None:
    value = {"$ref": "#/nowhere", "enum": [], "type": "text"}
    assert property_of("openai", {"default": value, "enum": [value]}) == {"default": value, "enum": [value]}


def test_properties_may_be_named_like_keywords() -> None:
    names = ["$ref", "enum", "items", "anyOf", "properties", "required", "const", "$defs", "default", "id", "not"]
    whole = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    for dialect in DIALECTS:
        made = of(dialect, whole, strict=True)
        assert made.strict
        assert made.schema["properties"] == whole["properties"]


def deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        node = {"type": "array", "items": node}
    return {"type": "object", "properties": {"a": node}, "required": ["a"]}


@ANY_DIALECT
def test_a_schema_too_deep_or_too_large_is_sent_as_it_is(dialect: Dialect) -> None:
    assert told(deep(90), dialect, strict=True).strict
    for schema in (deep(200), deep(100_000)):
        made = told(schema, dialect, strict=True)
        assert not made.strict
        assert made.reason == "the schema is nested deeper than 100 levels, so it is sent as it is"
        assert made.schema["properties"]["a"]["items"]["type"] == "array"
    large = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(60_000)}}
    assert "larger than 100000 values" in told(large, dialect, strict=True).reason


def test_a_schema_whose_references_would_double_without_end_is_told_in_time() -> None:
    doubling: dict[str, Any] = {
        f"A{n}": {
            "type": "object",
            "properties": {
                k: {"description": k, "title": k, "allOf": [{"$ref": f"#/$defs/A{n + 1}"}, {}]} for k in "xy"
            },
            "allOf": [{"$ref": f"#/$defs/A{n + 1}"}, {"$ref": f"#/$defs/A{n + 1}"}],
        }
        for n in range(60)
    }
    doubling["A60"] = {"type": "object", "properties": {}}
    whole = {"type": "object", "properties": {}, "allOf": [{"$ref": "#/$defs/A0"}], "$defs": doubling}
    for dialect in DIALECTS:
        assert of(dialect, whole, strict=True).schema["type"] == "object"


def test_more_than_a_provider_takes_in_a_strict_schema_is_told_plainly() -> None:
    def many(count: int, schema: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": {f"p{number}": schema for number in range(count)}}

    optional = of("anthropic", many(25, {"type": "string"}), strict=True)
    assert optional.reason == "the whole has 25 optional properties; the strict form takes 24 at most"
    assert of("anthropic", many(24, {"type": "string"}), strict=True).strict
    wide = of("openai", many(1, {"enum": list(range(1001))}), strict=True)
    assert wide.reason == "the whole has 1001 values of enums; the strict form takes 1000 at most"


def test_strict_is_said_to_be_off_when_it_was_not_asked_for() -> None:
    made = of("openai", parameters(plan))
    assert (made.strict, made.reason) == (False, "strict was not asked for")
    assert made.schema == parameters(plan)
