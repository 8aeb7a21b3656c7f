"""JSON objects from raw bytes, cut anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.adapters.json_stream import read_objects
from flask_instruct.errors import ProviderError

from .hearing import cut_in

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4)


@given(objects=OBJECTS, indent=st.sampled_from([None, 2]), size=st.integers(1, 9), ascii_only=st.booleans())
def test_the_objects_of_an_array_come_back_whole(
    objects: list[object], indent: int | None, size: int, ascii_only: bool
) -> None:
    body = json.dumps(objects, indent=indent, ensure_ascii=ascii_only)
    assert [json.loads(text) for text in read_objects(cut_in(body, size))] == objects


@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_brackets_and_quotes_inside_texts_count_as_text(size: int) -> None:
    value = {"a": '}]{[ "\\" \\\\', "b": ["\\", {"c": "\n\u2028ü"}]}
    assert [json.loads(text) for text in read_objects(cut_in(json.dumps(value, ensure_ascii=False), size))] == [value]


def test_an_object_is_read_before_the_array_ends() -> None:
    chunks = iter([b'[{"a": 1}', b', {"b": 2}]'])
    objects = read_objects(chunks)
    assert next(objects) == '{"a": 1}'
    assert next(chunks) == b', {"b": 2}]', "nothing more was asked for"


@pytest.mark.parametrize("body", ['[{"a": 1}', '[{"a": 1},', '[{"a": "x', '{"a": {"b": 1}', "["])
def test_a_cut_body_is_told(body: str) -> None:
    with pytest.raises(ProviderError) as caught:
        list(read_objects(cut_in(body, 4)))
    assert caught.value.kind == "cut"


def test_nothing_is_no_object() -> None:
    assert list(read_objects([])) == []
    assert list(read_objects([b"[]"])) == []
