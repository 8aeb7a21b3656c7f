"""Server-sent events from raw bytes, however the network cut them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ProviderError

LONGEST_LINE = 32_000_000
"""Bytes; a longer line is no answer but an attack or a fault."""


class ServerSentEvent(NamedTuple):
    """One event: its name, empty when the server gave none, and its data lines joined."""

    event: str
    data: str


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Read events from pieces of a body, of any size; comments and fields other than event and data are skipped.

    Lines end with CR, LF or both, and with nothing else: U+2028 is a legal character inside JSON. An event at the
    very end that lacks its blank line counts when its data is whole, since some servers leave the blank line out.

    :raises ProviderError: ``malformed`` for a line without end.
    """
    name = ""
    data: list[str] = []
    for lines in _lines(chunks):
        for line in lines:
            if line.startswith("data: "):
                data.append(line[6:])
            elif not line:
                if data:
                    yield ServerSentEvent(name, "\n".join(data))
                name, data = "", []
            else:
                field, _, value = line.partition(":")
                if field == "data":
                    data.append(value.removeprefix(" "))
                elif field == "event":
                    name = value.removeprefix(" ")
    if data and _is_whole("\n".join(data)):
        yield ServerSentEvent(name, "\n".join(data))


def _lines(chunks: Iterable[bytes]) -> Iterator[list[str]]:
    """Give the lines that each piece of the body completes; one by one they would cost three times as much."""
    pending: list[bytes] = []
    size = 0
    after_return = False
    first = True
    for chunk in chunks:
        if after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if not chunk:
            continue
        after_return = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            pending.append(rest)
            size += len(rest)
            if size > LONGEST_LINE:
                raise ProviderError("malformed", f"A line of the stream is longer than {LONGEST_LINE} bytes.")
            continue
        text = b"".join((*pending, whole)).decode("utf-8", "replace")
        yield (text.removeprefix("\ufeff") if first else text).split("\n")
        first = False
        pending, size = [rest] if rest else [], len(rest)
    if pending:
        yield [b"".join(pending).decode("utf-8", "replace")]


def _is_whole(data: str) -> bool:
    if data.strip() == "[DONE]":
        return True
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
