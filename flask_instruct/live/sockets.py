"""An open page that is carried by a WebSocket and a thread: one queue, one writer, and an end to every wait."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import frames
from .frames import Frame

WRITE_TIMEOUT = 10.0
"""Seconds that a single write may wait for a reader that does not read."""

CLOSING_TIMEOUT = 2.0
"""Seconds after which a socket that was told to close is cut off."""

LINGER = 0.25
"""Seconds that a page has to answer our goodbye, or its reader to say its own; the thread is not kept from its next
request for longer."""

SILENT = 1001
TOO_BIG = 1009
SLOW = 1013

MESSAGE_BYTES = 262144
"""Largest message of a page: some hundred tokens."""


class LockedSocket:
    """The server's socket, on which each ``send`` is written whole before another begins.

    simple-websocket writes from two threads without a lock, and takes a part for the whole
    (miguelgrinberg/simple-websocket#45). The server that lent us the socket closes it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._finished = False
        # Not settimeout: the other thread may wait for the page as long as it likes.
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(WRITE_TIMEOUT), 0))

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv(self, size: int) -> bytes:
        return self._sock.recv(size)

    def send(self, data: bytes) -> int:
        """Write all of it; nothing more is written after :meth:`finish`."""
        with self._lock:
            if not self._finished:
                self._sock.sendall(data)
        return len(data)

    def finish(self, data: bytes) -> None:
        """Write the last bytes."""
        with self._lock:
            if not self._finished:
                self._finished = True
                self._sock.sendall(data)

    def close(self) -> None:
        """End both directions, and with them every wait of another thread."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class ThreadSocket:
    """A :class:`~flask_instruct.live.channel.Connection` whose own thread, in :meth:`run`, is the only one that writes.

    :param ws: simple-websocket's server, whose thread reads.
    :param limit: frames that may wait; a page that lets more pile up is closed and comes back by replay.
    :param ping_interval: seconds; a page that has not answered a ping by the next one is given up.
    """

    def __init__(self, ws: Any, sock: LockedSocket, *, limit: int, ping_interval: float) -> None:
        ws.max_message_size = MESSAGE_BYTES
        self._ws = ws
        self._sock = sock
        self._limit = limit
        self._ping_interval = ping_interval
        self._queue: deque[Frame] = deque()
        self._goodbye: tuple[int, str] | None = None
        self._deadline = 0.0

    # -- called by the hub, from any thread --------------------------------------------------------------------------

    def send(self, *messages: Frame) -> None:
        if self._goodbye is not None or not messages:
            return
        if len(self._queue) + len(messages) > self._limit:
            self.close(SLOW, "too slow")
            return
        self._queue.extend(messages)
        self._ws.event.set()

    def close(self, code: int, reason: str) -> None:
        if self._goodbye is None:
            self._deadline = time.monotonic() + CLOSING_TIMEOUT
            self._goodbye = (code, reason)
            self._queue.clear()
            self._ws.event.set()

    def tick(self, now: float) -> None:
        if self._goodbye is not None and now > self._deadline:
            self._sock.close()

    # -- the page's own thread ---------------------------------------------------------------------------------------

    def run(self, receive: Callable[[str | bytes], None], every: float, check: Callable[[], None]) -> None:
        """Serve the page until it leaves or is closed.

        :param receive: takes each message of the page.
        :param check: called again and again after ``every`` seconds; may close the connection.
        """
        try:
            self._serve(receive, every, check)
        except OSError:
            pass  # The page has gone, or was cut off; there is no one left to tell.
        finally:
            self._end()

    def _serve(self, receive: Callable[[str | bytes], None], every: float, check: Callable[[], None]) -> None:
        now = time.monotonic()
        next_ping, next_check = now + self._ping_interval, now + every
        while self._open:
            self._ws.event.wait(max(0.0, min(next_ping, next_check) - now))
            self._ws.event.clear()
            while self._ws.input_buffer and self._goodbye is None:
                self._take(self._ws.input_buffer.pop(0), receive)
            now = time.monotonic()
            if now >= next_check:
                next_check = now + every
                check()
            if now >= next_ping:
                next_ping = now + self._ping_interval
                self._ping()
            self._write()

    def _take(self, message: str | bytes, receive: Callable[[str | bytes], None]) -> None:
        # simple-websocket's thread reads from its start, and has heard of the limit a moment later.
        if len(message) > MESSAGE_BYTES:
            self.close(TOO_BIG, "message too big")
        else:
            receive(message)

    @property
    def _open(self) -> bool:
        return self._ws.connected and self._ws.thread.is_alive() and self._goodbye is None

    def _ping(self) -> None:
        if not self._ws.pong_received:
            self.close(SILENT, "no answer")
            return
        self._ws.pong_received = False
        # The browser answers the one without the page's help; the other one the page can see.
        self._sock.send(frames.websocket_frame(frames.PING, b""))
        self.send(frames.ping())

    def _write(self) -> None:
        while self._queue and self._goodbye is None:
            with suppress(IndexError):
                self._sock.send(self._queue.popleft().websocket)

    def _end(self) -> None:
        goodbye, self._goodbye = self._goodbye, self._goodbye or (1000, "")
        if goodbye is not None and self._ws.connected:
            with suppress(OSError):
                self._sock.finish(frames.close_frame(*goodbye))
        # Its thread tells us of a broken rule before it has said the code of it to the page.
        self._ws.thread.join(LINGER)
        self._ws.connected = False
        self._sock.close()
        self._ws.thread.join(1.0)
