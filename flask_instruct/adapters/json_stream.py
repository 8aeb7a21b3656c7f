"""JSON objects from raw bytes, however the network cut them: one object, or the objects of one array, each when whole.

Beside ``sse.py``: Gemini's API streams so when it was not asked for server-sent events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator

from ..errors import ProviderError

_MARKS = re.compile(rb'\\.?|["{}\[\]]', re.DOTALL)
"""What gives JSON its shape; a backslash takes the character behind it along."""


def read_objects(chunks: Iterable[bytes]) -> Iterator[str]:
    """Read the text of each object as soon as its last brace has come.

    :raises ProviderError: ``cut`` when the bytes end inside an object or before the end of the array.
    """
    reader = _Reader()
    for chunk in chunks:
        yield from reader.feed(chunk)
    if reader.open:
        raise ProviderError("cut", "The stream ended inside its JSON.")


class _Reader:
    """The place in the JSON: how deep, whether inside a text, and the bytes of the object that is not whole yet."""

    def __init__(self) -> None:
        self._object = bytearray()
        self._depth = 0
        self._in_array = False
        self._in_text = False
        self._escapes = False

    @property
    def open(self) -> bool:
        return self._depth > 0 or self._in_array

    def feed(self, chunk: bytes) -> Iterator[str]:
        begin = 0
        after_escape = int(self._escapes and bool(chunk))
        self._escapes = self._escapes and not chunk
        for match in _MARKS.finditer(chunk, after_escape):
            mark = match[0]
            if mark == b"\\":
                self._escapes = True
            elif mark == b'"':
                self._in_text = not self._in_text
            elif self._in_text or mark[:1] == b"\\":
                continue
            elif not self._depth and mark != b"{":
                self._in_array = mark == b"["
            elif mark in b"{[":
                begin = begin if self._depth else match.start()
                self._depth += 1
            else:
                self._depth -= 1
                if not self._depth:
                    self._object += chunk[begin : match.end()]
                    yield self._object.decode("utf-8", "replace")
                    self._object.clear()
        if self._depth:
            self._object += chunk[begin:]
