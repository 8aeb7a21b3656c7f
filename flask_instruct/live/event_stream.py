"""An open page that is carried by an HTTP response that does not end, and by the server's thread that writes it.

For servers that do not lend their socket; where they do, the loop writes the same bytes.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress

from .frames import Frame
from .sockets import SLOW
from .speech import EVENTS

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",  # nginx would otherwise keep the events until it has some kilobytes
}


class EventStream:
    """A :class:`~flask_instruct.live.channel.Connection` whose frames a generator gives to the server.

    :param limit: frames that may wait; a page that lets more pile up is closed and comes back by replay.
    :param ping_interval: seconds.
    """

    def __init__(self, *, limit: int, ping_interval: float) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._limit = limit
        self._ping_interval = ping_interval
        self._leaving = False

    def send(self, *messages: Frame) -> None:
        if self._leaving:
            return
        if self._queue.qsize() + len(messages) > self._limit:
            self.close(SLOW, "too slow")
            return
        for frame in messages:
            self._queue.put(EVENTS.encode(frame))

    def close(self, code: int, reason: str) -> None:
        if not self._leaving:
            self._leaving = True
            self._queue.put(EVENTS.goodbye(code, reason))
            self._queue.put(None)

    def tick(self, now: float) -> None:
        pass  # What waits here is bounded, and nobody can end a write of the server's.

    def pieces(self, every: float, check: Callable[[], object]) -> Iterator[bytes]:
        """Give what is to be written, until the page is closed; the server gives up asking when it has left.

        :param check: called again and again after ``every`` seconds; may close the connection.
        """
        now = time.monotonic()
        next_ping, next_check = now + self._ping_interval, now + every
        while True:
            with suppress(queue.Empty):
                piece = self._queue.get(timeout=max(0.0, min(next_ping, next_check) - now))
                if piece is None:
                    return
                yield piece
            now = time.monotonic()
            if now >= next_check:
                next_check = now + every
                check()
            if now >= next_ping:
                next_ping = now + self._ping_interval
                yield EVENTS.ping
