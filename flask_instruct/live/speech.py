"""How a page is spoken to: in frames of a WebSocket, or in the events of a stream where no WebSocket gets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from . import frames
from .frames import Frame


@dataclass(frozen=True, slots=True)
class Speech:
    """How a page is spoken to.

    :param encode: makes the bytes of a frame.
    :param goodbye: makes the last bytes, of a code and a reason.
    :param ping: bytes that show the page that the line is alive.
    :param hears: whether the page speaks on the same line, and so answers pings and goodbyes.
    """

    encode: Callable[[Frame], bytes]
    goodbye: Callable[[int, str], bytes]
    ping: bytes
    hears: bool


# The browser answers the one ping without the page's help; the other one the page can see.
WEBSOCKET = Speech(
    attrgetter("websocket"),
    frames.close_frame,
    frames.websocket_frame(frames.PING, b"") + frames.ping().websocket,
    hears=True,
)
EVENTS = Speech(
    attrgetter("event"), lambda code, reason: frames.bye(code, reason).event, frames.ping().event, hears=False
)
