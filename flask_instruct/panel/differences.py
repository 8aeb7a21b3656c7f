"""What a change made of a value, for the eye: word by word in a text, item by item in a list, else before and after.

The work is bounded: a text or list that is too long is shown as a whole before and a whole after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any
from typing import Literal

Kind = Literal["same", "gone", "new"]
Form = Literal["words", "items", "values"]

MOST_WORDS = 4000
"""Words of a text, both sides added, up to which it is compared."""
MOST_ITEMS = 400
"""Items of a list, both sides added."""
SHOWN_CHARS = 4000
"""Characters of one value that are shown."""

_WORD = re.compile(r"\S+\s*|\s+")

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Piece:
    """Some words of a text, or one item of a list, and whether it stayed."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of a row or of some arguments.

    :param form: how it is shown: ``words`` and ``items`` by ``pieces``, ``values`` by ``before`` and ``after``.
    :param before: the value as text; None where there was nothing on that side. ``after`` likewise.
    """

    name: str
    form: Form
    before: str | None
    after: str | None
    pieces: tuple[Piece, ...] = ()


def differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, said: Callable[[Any], str]
) -> list[Difference]:
    """Return the fields that differ, in the order they have.

    :param said: puts a value in words.
    """
    left, right = before or {}, after or {}
    names = [*left, *(name for name in right if name not in left)]
    pairs = ((name, left.get(name, _ABSENT), right.get(name, _ABSENT)) for name in names)
    return [_difference(name, old, new, said) for name, old, new in pairs if old != new or type(old) is not type(new)]


def _difference(name: str, old: Any, new: Any, said: Callable[[Any], str]) -> Difference:
    before = None if old is _ABSENT else said(old)
    after = None if new is _ABSENT else said(new)
    if isinstance(old, str) and isinstance(new, str) and (pieces := words(old, new)):
        return Difference(name, "words", before, after, pieces)
    if isinstance(old, list) and isinstance(new, list) and (pieces := items(old, new, said)):
        return Difference(name, "items", before, after, pieces)
    return Difference(name, "values", _cut(before), _cut(after))


def words(before: str, after: str) -> tuple[Piece, ...]:
    """Return both texts in one, word by word; nothing when they are too long, or have next to nothing in common."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if len(old) + len(new) > MOST_WORDS or len(before) + len(after) > MOST_WORDS * 25:
        return ()
    pieces = _compared(old, new)
    return pieces if any(piece.kind == "same" and piece.text.strip() for piece in pieces) else ()


def items(before: Sequence[Any], after: Sequence[Any], said: Callable[[Any], str]) -> tuple[Piece, ...]:
    """Return the items of both lists in one; nothing when they are too many."""
    if len(before) + len(after) > MOST_ITEMS:
        return ()
    old, new = [_canonical(item) for item in before], [_canonical(item) for item in after]
    shown = {key: _cut(said(item)) or "" for key, item in zip((*old, *new), (*before, *after), strict=True)}
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    pieces: list[Piece] = []
    for kind, left, left_end, right, right_end in matcher.get_opcodes():
        if kind == "equal":
            pieces += [Piece("same", shown[key]) for key in old[left:left_end]]
            continue
        pieces += [Piece("gone", shown[key]) for key in old[left:left_end]]
        pieces += [Piece("new", shown[key]) for key in new[right:right_end]]
    return tuple(pieces)


def _compared(old: list[str], new: list[str]) -> tuple[Piece, ...]:
    # difflib's own care for texts in which one word is everywhere keeps the time in bounds.
    matcher = SequenceMatcher(None, old, new)
    pieces: list[Piece] = []
    for kind, left, left_end, right, right_end in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(Piece("same", "".join(old[left:left_end])))
            continue
        if left < left_end:
            pieces.append(Piece("gone", "".join(old[left:left_end])))
        if right < right_end:
            pieces.append(Piece("new", "".join(new[right:right_end])))
    return tuple(pieces)


def _canonical(item: Any) -> str:
    return json.dumps(item, sort_keys=True, ensure_ascii=False, default=str)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"
