"""An answer while it is written: each block is sent once, and a page that is loaded in between has the same parts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.panel.growing import Block
from flask_instruct.panel.growing import growth
from flask_instruct.panel.markdown import LONGEST

PARTS = [
    "# Head\n",
    "words\n",
    "words",
    "\n",
    "\n\n",
    " ",
    "- a\n",
    "- b\n  more\n",
    "  - nested\n",
    "1. one\n",
    "2. two\n",
]
PARTS += ["10) ten\n", "* star\n", "```\ncode\n\n- x\n```\n", "~~~\n", "> quote\n", "| a | b |\n|--|--|\n| 1 | 2 |\n"]
PARTS += [
    "===\n",
    "---\n",
    "    indented\n",
    "\t- tab\n",
    "\n   para in item\n",
    "**bo",
    "ld**",
    "[x]: /a\n",
    "<div>\n",
    "\x0b",
    "B",
]


@pytest.mark.parametrize(
    ("text", "blocks", "tail"),
    [
        ("One.", [], "One."),
        ("One.\n\n", [], "One.\n\n"),
        ("One.\n\n2", [], "One.\n\n2"),
        ("One.\n\nT", ["One."], "T"),
        ("One.\nTwo", [], "One.\nTwo"),
        ("One.\n\n2\n", ["One."], "2\n"),
        ("- **a**\n- b\n\nEnd\nmore", ["a", "b"], "End\nmore"),
        ("1. a\n\n2. b\n", ["a"], "2. b\n"),
        ("```\na\n\nb\n", [], "```\na\n\nb\n"),
    ],
)
def test_a_block_is_finished_when_another_has_begun(text: str, blocks: list[str], tail: str) -> None:
    found = growth(text)
    assert [re.sub(r"<[^>]*>", "", block.html).strip() for block in found.blocks] == blocks
    assert found.tail == tail
    assert found.start == len(text) - len(tail)


@given(st.lists(st.sampled_from(PARTS), max_size=25), st.lists(st.integers(1, 12), min_size=1))
def test_what_grew_piece_by_piece_has_the_parts_of_the_whole(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts)
    blocks: list[Block] = []
    start = place = 0
    while place < len(text):
        place += sizes[place % len(sizes)]
        grown = growth(text[:place], start)
        blocks, start = blocks + grown.blocks, grown.start
    assert (blocks, start) == growth(text)[:2]


def test_what_is_too_long_to_be_parsed_grows_as_it_is() -> None:
    text = "One.\n\nTwo.\n\n" + ("x" * 998 + "\n\n") * 100
    found = growth(text)
    assert found.start < LONGEST
    assert growth(text, found.start) == found._replace(blocks=[])
