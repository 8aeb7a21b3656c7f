"""The sanitiser at the boundary: whatever text a model sends, a plain JSON object of safe values or a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from flask_instruct.arguments import MAX_DEPTH
from flask_instruct.arguments import InvalidArguments
from flask_instruct.arguments import Problem
from flask_instruct.arguments import clean_text
from flask_instruct.arguments import parse_arguments


@pytest.mark.parametrize("raw", ["", "   \n", "null", " null ", "{}", None, b"", {}])
def test_blank_null_and_missing_arguments_mean_none(raw: object) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("[1,2]", "must be a JSON object, not a list"),
        ('"text"', "must be a JSON object, not a text"),
        ('"{\\"a\\": 1}"', "must be a JSON object, not a text"),
        ("3", "must be a JSON object, not a number"),
        ("true", "must be a JSON object, not a boolean"),
        (7, "must be a JSON object, not int"),
        ('{"a": ', "not valid JSON"),
        ("make it so", "not valid JSON"),
        ('{"a": 1} {"a": 2}', "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ({"a": object()}, "not plain JSON"),
    ],
)
def test_what_is_no_object_is_refused_in_words_for_the_model(raw: object, said: str) -> None:
    with pytest.raises(InvalidArguments, match="the tool was not called") as refusal:
        parse_arguments(raw)
    assert said in str(refusal.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(InvalidArguments):
        parse_arguments(f'{{"weight": {number}}}')


@pytest.mark.parametrize("digits", ["9" * 5000, str(2**63), str(-(2**63) - 1)])
def test_integers_beyond_64_bits_are_refused(digits: str) -> None:
    with pytest.raises(InvalidArguments, match="does not fit 64 bits"):
        parse_arguments(f'{{"weight": {digits}}}')


def test_integers_of_64_bits_are_read_exactly() -> None:
    assert parse_arguments(f'{{"a": {2**63 - 1}, "b": {-(2**63)}}}') == {"a": 2**63 - 1, "b": -(2**63)}


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 8_000, '{"a":' + "[" * 5000 + "]" * 5000 + "}"])
def test_a_bomb_of_brackets_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        parse_arguments(text)


def test_depth_is_counted_with_the_outermost_object() -> None:
    deepest: Any = "end"
    for _ in range(MAX_DEPTH - 1):
        deepest = [deepest]
    assert parse_arguments(json.dumps({"a": deepest})) == {"a": deepest}
    with pytest.raises(InvalidArguments, match="deeper than 32 levels"):
        parse_arguments(json.dumps({"a": [deepest]}))


def test_the_limit_counts_bytes() -> None:
    text = json.dumps({"a": "ü" * 40}, ensure_ascii=False)
    assert parse_arguments(text, limit=len(text.encode())) == {"a": "ü" * 40}
    with pytest.raises(InvalidArguments, match="at most 60 are read"):
        parse_arguments(text, limit=60)


def test_a_key_given_twice_is_refused_also_when_cleaning_makes_it_so() -> None:
    with pytest.raises(InvalidArguments, match='"a" appears twice'):
        parse_arguments('{"a": 1, "a": 2}')
    with pytest.raises(InvalidArguments, match='"a" appears twice'):
        parse_arguments('{"a": 1, "a\\u0000": 2}')
    with pytest.raises(InvalidArguments, match='"b" appears twice'):
        parse_arguments('{"a": [{"b": 1, "b": 2}]}')


def test_control_characters_and_surrogates_leave_keys_and_values() -> None:
    raw = r'{"a\u0000b": ["x\u0000y\u001b[0m", "\ud800 lone", "\ud83d\ude00 whole", "tab\tand\nline"]}'
    assert parse_arguments(raw) == {"ab": ["xy[0m", "� lone", "😀 whole", "tab\tand\nline"]}


def test_real_newlines_inside_a_text_are_forgiven() -> None:
    assert parse_arguments('{"a": "one\ntwo"}') == {"a": "one\ntwo"}


def test_halves_of_a_character_that_came_apart_are_joined() -> None:
    assert clean_text("\ud83d\ude00") == "😀"


def test_a_mapping_from_an_adapter_passes_the_same_checks() -> None:
    assert parse_arguments({"a": "x\x00"}) == {"a": "x"}
    with pytest.raises(InvalidArguments):
        parse_arguments({"a": float("nan")})


def test_every_problem_is_told_but_not_without_end() -> None:
    refusal = InvalidArguments(Problem(f"items.{number}", "is required") for number in range(50))
    assert len(refusal.problems) == 50
    assert "items.19: is required" in str(refusal)
    assert "… and 30 more." in str(refusal)
    assert len(str(InvalidArguments([Problem("x" * 10_000, "y" * 10_000)]))) < 500


@settings(deadline=None, max_examples=60)
@given(
    st.one_of(st.text(), st.binary(), st.recursive(st.none() | st.floats() | st.integers(), st.lists).map(json.dumps))
)
def test_any_text_gives_an_object_or_a_refusal(raw: object) -> None:
    try:
        arguments = parse_arguments(raw, limit=4096)
    except InvalidArguments:
        return
    assert isinstance(arguments, dict)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=10,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_what_passes_can_be_stored_and_sent_anywhere(sent: dict[str, Any]) -> None:
    try:
        arguments = parse_arguments(json.dumps(sent))
    except InvalidArguments:
        return
    stored = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    stored.encode("utf-8")
    assert "\\u0000" not in stored
    assert json.loads(stored) == arguments
