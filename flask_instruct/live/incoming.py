"""What a page's bytes say, by the rules of RFC 6455. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsproto.frame_protocol import CloseReason
from wsproto.frame_protocol import FrameProtocol
from wsproto.frame_protocol import Opcode
from wsproto.frame_protocol import ParseFailed


class Broken(Exception):
    """Raise when a page breaks the rules; ``code`` closes its socket."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Said:
    """A whole message."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class Pinged:
    """The page wants the same bytes back."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Ponged:
    """The page answers a ping, or shows by itself that it is there."""


@dataclass(frozen=True, slots=True)
class Left:
    """The page says goodbye; nothing comes after it."""


Event = Said | Pinged | Ponged | Left


class Incoming:
    """Joins the bytes of one page to messages.

    :param most: bytes of the largest message, counted in characters for text.
    """

    __slots__ = ("_most", "_parts", "_protocol", "_size", "at_rest")

    def __init__(self, most: int) -> None:
        self._most = most
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._parts: list[str | bytes] | None = None
        self._size = 0
        self.at_rest = True
        """Whether nothing has begun that is not finished, so that a new one would do as well: pages rarely speak."""

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take bytes as they come; give what they complete.

        :raises Broken: for what no page may send; nothing can be read after it.
        """
        self.at_rest = self.at_rest and _is_whole(data)
        self._protocol.receive_bytes(data)
        try:
            for frame in self._protocol.received_frames():
                if frame.opcode is Opcode.PING:
                    yield Pinged(bytes(frame.payload))  # type: ignore[arg-type]  # text and tuples are other opcodes'
                elif frame.opcode is Opcode.PONG:
                    yield Ponged()
                elif frame.opcode is Opcode.CLOSE:
                    yield Left()
                    return
                else:
                    yield from self._gather(frame.payload, frame.message_finished)  # type: ignore[arg-type]
        except ParseFailed as failure:
            raise Broken(int(failure.code), str(failure)) from None

    def _gather(self, payload: str | bytes, finished: bool) -> Iterator[Said]:
        self._size += len(payload)
        if self._size > self._most:
            raise Broken(int(CloseReason.MESSAGE_TOO_BIG), "message too big")
        parts = self._parts = self._parts or []
        parts.append(payload)
        if finished:
            self._parts, self._size = None, 0
            yield Said(b"".join(parts) if isinstance(payload, bytes) else "".join(parts))  # type: ignore[arg-type]


def _is_whole(data: bytes) -> bool:
    """Tell whether bytes are whole messages, each of one frame; in doubt, no."""
    at = 0
    while at + 2 <= len(data):
        final, length = data[at] & 0x80, data[at + 1] & 0x7F
        if not final or length > 126 or at + 4 > len(data):
            return False
        size = length if length < 126 else int.from_bytes(data[at + 2 : at + 4], "big")
        at += 2 + (2 if length == 126 else 0) + 4 + size
    return at == len(data)
