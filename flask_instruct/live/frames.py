"""The messages between page and server, as JSON, and the bytes that carry the server's: WebSocket frames, or events
of a stream where no WebSocket gets through.

Server: ``{id, stream, html, after}`` or a list of them; ``{"type": "subscribed" | "ready" | "reset" | "told" | "ping" |
"pong"}``. A page that has not come to ``after`` lacks something, and asks for the stream again from where it is.
At its end an event stream says ``{"type": "bye", "code": 1012}`` for what a WebSocket's close frame says.
Page: ``{"type": "subscribe", "streams": [{token, since}]}``, ``{"type": "unsubscribe", "streams": [name]}``,
``{"type": "ping"}``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .position import Position

BATCH_BYTES = 65536
"""Backlog that travels in one message."""

TEXT = 0x1
CLOSE = 0x8
PING = 0x9
PONG = 0xA

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Malformed(ValueError):
    """Raise when a page sends what is no message of ours."""


class Frame:
    """A message to pages; the bytes on the wire are made once for all sockets."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    @cached_property
    def websocket(self) -> bytes:
        return websocket_frame(TEXT, self.payload)

    @cached_property
    def event(self) -> bytes:
        # JSON has no line breaks of its own.
        return b"data: " + self.payload + b"\n\n"


class Event(Frame):
    """A broadcast.

    :param after: the one before it in its stream, as far as that is known.
    """

    def __init__(self, position: Position, stream: str, html: str, after: Position | None = None) -> None:
        said = {"id": str(position), "stream": stream, "html": html}
        super().__init__(_encoded(said if after is None else {**said, "after": str(after)}))
        self.after = after
        self._said = position, stream, html

    def following(self, told: Position) -> Event:
        """Return it for a page that was not sent what came before it, because that was for others."""
        return Event(*self._said, told)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A page wants to follow the stream that ``token`` names, from after ``since``; None: it does not know."""

    token: str
    since: Position | None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A page has no more use for a stream."""

    stream: str


@dataclass(frozen=True, slots=True)
class Ping:
    """A page wants to know whether anyone is there."""


Request = Subscribe | Unsubscribe | Ping


def subscribed(stream: str, since: Position | None) -> Frame:
    """What follows on this stream begins after ``since``, also where the page was further already."""
    return _frame({"type": "subscribed", "stream": stream, "id": _text(since)})


def ready(stream: str, position: Position | None, after: Position | None = None) -> Frame:
    """The page is up to date with this stream as far as ``position``, or has been told to reset.

    :param after: the last that it was sent; a page that has not come to it lacks something.
    """
    return _frame({"type": "ready", "stream": stream, "id": _text(position), "after": _text(after)})


def told(stream: str, position: Position | None) -> Frame:
    """The page was sent all until here, some seconds ago."""
    return _frame({"type": "told", "stream": stream, "id": _text(position)})


def reset(stream: str, position: Position, within: int = 0) -> Frame:
    """Entries before ``position`` cannot be told any more: the page has to fetch itself again.

    :param within: milliseconds that it chooses its moment from, where many have to at once.
    """
    return _frame({"type": "reset", "stream": stream, "id": str(position), "within": within})


def ping() -> Frame:
    return _frame({"type": "ping"})


def pong() -> Frame:
    return _frame({"type": "pong"})


def bye(code: int, reason: str) -> Frame:
    return _frame({"type": "bye", "code": code, "reason": reason})


def batches(events: Iterable[Frame]) -> Iterator[Frame]:
    """Join events to messages of about :data:`BATCH_BYTES`."""
    waiting: list[bytes] = []
    size = 0
    for frame in events:
        waiting.append(frame.payload)
        size += len(frame.payload)
        if size >= BATCH_BYTES:
            yield Frame(b"[" + b",".join(waiting) + b"]")
            waiting, size = [], 0
    if waiting:
        yield Frame(b"[" + b",".join(waiting) + b"]")


def parse(message: str | bytes) -> list[Request]:
    """Read a message of a page.

    :raises Malformed: for everything that is not one.
    """
    if not isinstance(message, str):
        raise Malformed("binary message")
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        raise Malformed("no JSON") from None
    if not isinstance(data, dict):
        raise Malformed("no object")
    kind = data.get("type")
    if kind == "ping":
        return [Ping()]
    streams = data.get("streams")
    if kind not in ("subscribe", "unsubscribe") or not isinstance(streams, list):
        raise Malformed("unknown message")
    return [_subscribe(stream) if kind == "subscribe" else _unsubscribe(stream) for stream in streams]


def websocket_frame(opcode: int, payload: bytes) -> bytes:
    """Build one final, unmasked frame (RFC 6455, 5.2)."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
    return head + payload


def accepted(key: str) -> bytes:
    """Build the answer that opens a WebSocket (RFC 6455, 4.2.2), without extension or subprotocol.

    :param key: the request's ``Sec-WebSocket-Key``.
    """
    digest = hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}", "", ""]
    return "\r\n".join(lines).encode()


def close_frame(code: int, reason: str) -> bytes:
    """Build a close frame; its reason may take 123 bytes."""
    return websocket_frame(CLOSE, struct.pack("!H", code) + reason.encode()[:123])


def _subscribe(stream: Any) -> Subscribe:
    if not isinstance(stream, dict):
        raise Malformed("a stream to subscribe is no object")
    token, since = stream.get("token"), stream.get("since")
    if not isinstance(token, str) or not isinstance(since, str | None):
        raise Malformed("token and since are not text")
    try:
        return Subscribe(token, Position.parse(since) if since else None)
    except ValueError:
        return Subscribe(token, None)


def _unsubscribe(stream: Any) -> Unsubscribe:
    if not isinstance(stream, str):
        raise Malformed("a stream to unsubscribe is no text")
    return Unsubscribe(stream)


def _frame(data: dict[str, str | int | None]) -> Frame:
    return Frame(_encoded(data))


def _encoded(data: Mapping[str, str | int | None]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)
