"""What a change made of a value: word by word, item by item, and in bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.panel.differences import Piece
from flask_instruct.panel.differences import differences
from flask_instruct.panel.differences import items
from flask_instruct.panel.differences import words
from flask_instruct.panel.values import in_words
from flask_instruct.panel.values import key_in_words
from flask_instruct.panel.values import plain


def sides(pieces: tuple[Piece, ...]) -> tuple[str, str]:
    before = "".join(piece.text for piece in pieces if piece.kind != "new")
    after = "".join(piece.text for piece in pieces if piece.kind != "gone")
    return before, after


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_the_pieces_of_two_texts_make_both_texts(before: str, after: str) -> None:
    pieces = words(before, after)
    assert not pieces or sides(pieces) == (before, after)


def test_words_that_stay_stay() -> None:
    assert words("Set the weight to 40 now", "Set the weight to 60 now") == (
        Piece("same", "Set the weight to "),
        Piece("gone", "40 "),
        Piece("new", "60 "),
        Piece("same", "now"),
    )


def test_texts_with_nothing_in_common_are_before_and_after() -> None:
    (field,) = differences({"text": "one"}, {"text": "two"}, str)
    assert (field.form, field.before, field.after) == ("values", "one", "two")


def test_a_list_is_compared_by_its_items() -> None:
    assert [(piece.kind, piece.text) for piece in items(["a", {"n": 1}, "c"], [{"n": 1}, "c", "d"], in_words)] == [
        ("gone", "a"),
        ("same", '{\n  "n": 1\n}'),
        ("same", "c"),
        ("new", "d"),
    ]


def test_only_fields_that_differ_are_there_and_a_number_is_no_truth() -> None:
    fields = differences({"a": 1, "b": 1, "c": None}, {"a": 1, "b": True, "d": 2}, in_words)
    assert [(field.name, field.before, field.after) for field in fields] == [
        ("b", "1", "yes"),
        ("c", "nothing", None),
        ("d", None, "2"),
    ]


def test_a_new_and_a_deleted_row_have_one_side() -> None:
    assert [(field.before, field.after) for field in differences(None, {"a": "x"}, str)] == [(None, "x")]
    assert [(field.before, field.after) for field in differences({"a": "x"}, None, str)] == [("x", None)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a " * 1900, "a " * 2000 + "b"),
        (" ".join(map(str, range(1900))), " ".join(map(str, reversed(range(1900))))),
        ("a b " * 900, "b a " * 1000),
        ("x" * 200_000, "y" * 200_000),
        ("w " * 500_000, "w " * 499_999),
    ],
)
def test_hostile_texts_are_compared_in_bounded_time(before: str, after: str) -> None:
    begin = time.process_time()
    pieces = words(before, after)
    assert time.process_time() - begin < 2
    assert not pieces or sides(pieces) == (before, after)


def test_long_lists_and_values_are_cut() -> None:
    assert items(list(range(300)), list(range(300)), in_words) == ()
    (field,) = differences({"a": "x" * 9000}, {"a": None}, in_words)
    assert len(field.before or "") == 4001


@pytest.fixture
def context() -> Iterator[None]:
    with Flask(__name__).app_context():
        yield


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "nothing"),
        (True, "yes"),
        (False, "no"),
        (1.5, "1.5"),
        ("text", "text"),
        ({"decimal": "1.50"}, "1.50"),
        ({"datetime": "2030-05-01T10:00:00+00:00"}, "2030-05-01T10:00:00+00:00"),
        ({"enum": "OPEN"}, "OPEN"),
        ({"interval": 90_000_000}, "0:01:30"),
        ({"bytes": {"sha256": "0123456789abcdef", "size": 2048}}, "2,048 bytes, SHA-256 0123456789ab…"),
        ({"redacted": True}, "not kept"),
        ({"stored": {"decimal": "2"}}, "2"),
        ({"array": [{"decimal": "1"}, [None]]}, '[\n  "1",\n  [\n    null\n  ]\n]'),
        ({"json": [1, {"decimal": 2}]}, '[\n  1,\n  {\n    "decimal": 2\n  }\n]'),
        ({"json": None}, "nothing"),
        ({"unknown": "<Odd>"}, "<Odd>"),
        ({"a": 1, "b": 2}, '{\n  "a": 1,\n  "b": 2\n}'),
    ],
)
def test_values_are_said_in_words(written: Any, said: str) -> None:
    assert in_words(plain(written)) == said


def test_a_redacted_value_that_changed_is_seen_to_have_changed() -> None:
    (field,) = differences({"secret": plain({"redacted": True})}, {"secret": plain({"redacted": True})}, in_words)
    assert (field.before, field.after) == ("not kept", "not kept")


def test_a_key_is_said_in_words() -> None:
    written = ("[7]", '["a", 2]', '[{"uuid": "0190"}]', "odd", '{"a": 1}')
    assert [key_in_words(key) for key in written] == ["7", "a, 2", "0190", "odd", '{"a": 1}']
