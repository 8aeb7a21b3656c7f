"""A place in a stream: the id that Redis gives an entry, milliseconds of its clock and a number within them."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


class Position(NamedTuple):
    """Compare positions of one stream with ``<``; a cursor ``ms-0`` is a position in every stream."""

    ms: int
    seq: int = 0

    @classmethod
    def parse(cls, text: str | bytes) -> Position:
        """Read ``"1700000000000-3"``.

        :raises ValueError: for anything else.
        """
        match = _FORM.match(text.decode("ascii", "replace") if isinstance(text, bytes) else text)
        if match is None:
            raise ValueError(f"{text!r} is no position in a stream.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"
