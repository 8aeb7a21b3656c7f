"""How an answer looks while it is written: what is finished of it as Markdown, block by block, its end as plain text.

A block is finished when another has begun: lines that come later cannot change it. So each is rendered and sent once,
and a page that is loaded in between has the same parts. What refers to another block, such as a link's address at the
end, looks right only once the whole answer is there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from markdown_it.token import Token
from markupsafe import Markup

from .markdown import LONGEST
from .markdown import block_tokens
from .markdown import markdown


class Block(NamedTuple):
    """A finished part: where it begins in the text, in characters, and its HTML."""

    start: int
    html: Markup


class Growth(NamedTuple):
    """A text that grows: its finished parts, and where the rest of it begins."""

    blocks: list[Block]
    start: int
    tail: str


def growth(text: str, since: int = 0) -> Growth:
    """Return the parts of a growing text.

    :param since: where a part begins that was not finished before; only what follows is looked at.
    """
    starts = [since + place for place in _starts(text[since : max(since, LONGEST)])] or [since]
    starts[0] = since
    blocks = [Block(start, markdown(text[start:end])) for start, end in pairwise(starts)]
    return Growth(blocks, starts[-1], text[starts[-1] :])


def _starts(text: str) -> list[int]:
    """Return where blocks begin, and the items of lists; of lines that stay what they are, whatever comes."""
    *lines, last = text.split("\n")
    if last[:1].isalpha() and (not lines or not lines[-1].strip()):
        # After an empty line a letter begins a paragraph, or goes on with what a fence has opened.
        lines.append(last)
    places = [0]
    for line in lines:
        places.append(places[-1] + len(line) + 1)
    tokens = block_tokens("".join(f"{line}\n" for line in lines))
    return [places[number] for number in sorted(set(_lines_of(tokens)))]


def _lines_of(tokens: list[Token]) -> list[int]:
    return [
        token.map[0]
        for token in tokens
        if token.map is not None
        and (
            (token.level == 0 and token.nesting >= 0 and token.type not in ("bullet_list_open", "ordered_list_open"))
            or (token.level == 1 and token.type == "list_item_open" and token.nesting == 1)
        )
    ]
