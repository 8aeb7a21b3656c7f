"""The socket of one open page, as the loop holds it: what waits to be written, what was read, and when it ends."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from typing import Protocol

from . import frames
from .frames import Frame
from .incoming import Broken
from .incoming import Event
from .incoming import Incoming
from .incoming import Left
from .incoming import Pinged
from .incoming import Said
from .sockets import CLOSING_TIMEOUT
from .sockets import MESSAGE_BYTES
from .sockets import SILENT
from .sockets import SLOW
from .sockets import WRITE_TIMEOUT
from .speech import Speech

if TYPE_CHECKING:
    from .loop import Loop

MOST_MESSAGES = 32
"""Messages of one page that wait to be done; no more is read from it meanwhile."""

NORMAL = 1000

_READ_BYTES = 65536

Bytes = bytes | memoryview


class Page(Protocol):
    """The other half of a conversation. Both methods may take their time."""

    def receive(self, message: str | bytes) -> None:
        """Take a message."""

    def check(self) -> None:
        """Ask again whether the page may listen."""


class LoopSocket:
    """A :class:`~flask_instruct.live.channel.Connection` whose socket the loop holds."""

    __slots__ = (
        "_answered",
        "_broken",
        "_check_at",
        "_deadline",
        "_descriptor",
        "_incoming",
        "_leaving",
        "_loop",
        "_mail",
        "_moved_at",
        "_page",
        "_ping_at",
        "_sock",
        "_speech",
        "_waiting",
    )

    def __init__(self, loop: Loop, sock: socket.socket, speech: Speech) -> None:
        sock.setblocking(False)
        _give_up_unanswered(sock, loop.terms.ping_interval)
        now = time.monotonic()
        self._loop = loop
        self._sock = sock
        self._speech = speech
        self._descriptor = sock.fileno()
        self._page: Page | None = None
        self._incoming: Incoming | None = None
        self._waiting: deque[Bytes] | None = None
        self._mail: deque[str | bytes] | None = None
        self._leaving = self._broken = False
        self._deadline = self._moved_at = now
        self._answered = True
        self._ping_at = now + loop.terms.ping_interval
        self._check_at = now + loop.terms.check_interval

    def serve(self, page: Page, *messages: str) -> None:
        """Begin to read; from now on the loop's thread has the socket.

        :param messages: what the page has said already.
        """
        self._page = page
        if not self._loop.register(self._descriptor, self):
            self.drop()
        for message in messages:
            self._post(message)

    # -- called from any thread --------------------------------------------------------------------------------------

    def send(self, *messages: Frame) -> None:
        encode = self._speech.encode
        with self._loop.lock:
            if self._leaving:
                return
            if len(messages) == 1 and self._waiting is None:
                # A broadcast comes by here once for each page: nothing is made ready for what seldom happens.
                piece = encode(messages[0])
                if (written := self._send(piece)) < len(piece):
                    self._keep([piece], written)
            else:
                self._put([encode(frame) for frame in messages])

    def close(self, code: int, reason: str) -> None:
        with self._loop.lock:
            if self._leaving:
                return
            self._leaving = True
            self._deadline = time.monotonic() + CLOSING_TIMEOUT
            begun = self._waiting[0] if self._waiting else None
            self._waiting = None
            goodbye = self._speech.goodbye(code, reason)
            # A frame that is partly written has to be finished: the page could not read the goodbye otherwise.
            self._write([begun, goodbye] if isinstance(begun, memoryview) else [goodbye])

    def tick(self, now: float) -> None:
        pass  # The loop looks at its sockets itself.

    def _say(self, piece: Bytes) -> None:
        with self._loop.lock:
            if not self._leaving:
                self._put([piece])

    def _put(self, pieces: Sequence[Bytes]) -> None:
        """Write, or let wait behind what waits already. Under the lock."""
        if self._waiting is None:
            self._write(pieces)
        elif len(self._waiting) + len(pieces) <= self._loop.terms.queue:
            self._waiting.extend(pieces)
        else:
            self._leaving = True
            begun = self._waiting[0]
            rest = [begun] if isinstance(begun, memoryview) else []
            self._waiting = deque([*rest, self._speech.goodbye(SLOW, "too slow")])
            self._deadline = time.monotonic() + CLOSING_TIMEOUT

    def _write(self, pieces: Sequence[Bytes]) -> None:
        """Write as much as the socket takes, and keep the rest. Under the lock, with nothing waiting."""
        for index, piece in enumerate(pieces):
            written = self._send(piece)
            if written < len(piece):
                self._keep(pieces[index:], written)
                return
        if self._leaving and not self._speech.hears:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def _send(self, piece: Bytes) -> int:
        """Return how many bytes the socket has taken; one that is broken takes all. Under the lock."""
        try:
            return self._sock.send(piece)
        except BlockingIOError:
            return 0
        except OSError:
            self._leaving = True  # The loop's thread hears of it too.
            return len(piece)

    def _keep(self, pieces: Sequence[Bytes], written: int) -> None:
        """Let pieces wait, of the first of which some bytes are written. Under the lock, with nothing waiting."""
        rest = memoryview(pieces[0])[written:] if written else pieces[0]
        self._waiting = deque([rest, *pieces[1:]])
        self._moved_at = time.monotonic()
        self._watch()

    def _watch(self) -> None:
        """Wait for what there is to do. Under the lock."""
        if self._sock.fileno() < 0:
            return  # Another socket may have the number by now.
        full = self._mail is not None and len(self._mail) >= MOST_MESSAGES
        self._loop.watch(self._descriptor, reading=not full, writing=self._waiting is not None)

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """Read what came, write what waited."""
        if events & ~select.EPOLLOUT:
            self._read()
        if events & select.EPOLLOUT:
            with self._loop.lock:
                waiting, self._waiting = self._waiting, None
                if waiting:
                    self._moved_at = time.monotonic()
                    self._write(list(waiting))
                self._watch()

    def look(self, now: float) -> None:
        """Do what time demands."""
        terms = self._loop.terms
        if self._leaving:
            if now > self._deadline:
                self.drop()
        elif self._waiting and now - self._moved_at > WRITE_TIMEOUT:
            self.drop()
        else:
            if now >= self._check_at and self._page is not None:
                self._check_at = now + terms.check_interval
                self._loop.help(self._page.check)
            if now >= self._ping_at:
                self._ping_at = now + terms.ping_interval
                self._ping()

    def drop(self) -> None:
        """Give the socket up."""
        with self._loop.lock:
            self._leaving = True
            self._waiting = None
            if self._sock.fileno() < 0:
                return
            self._loop.unregister(self._descriptor)
            self._sock.close()
        self._loop.terms.left(self)

    def _ping(self) -> None:
        # A process that was stopped for a while has not read yet what came meanwhile.
        if self._speech.hears and not self._answered and not _has_something(self._sock):
            self.close(SILENT, "no answer")
            return
        self._answered = False
        self._say(self._speech.ping)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop()
            return
        self._answered = True
        if self._broken or not self._speech.hears:
            return
        incoming = self._incoming or Incoming(MESSAGE_BYTES)
        try:
            for event in incoming.feed(data):
                self._take(event)
            self._incoming = None if incoming.at_rest else incoming
        except Broken as broken:
            self._broken = True
            self.close(broken.code, str(broken))

    def _take(self, event: Event) -> None:
        if isinstance(event, Said):
            self._post(event.message)
        elif isinstance(event, Pinged):
            self._say(frames.websocket_frame(frames.PONG, event.payload))
        elif isinstance(event, Left):
            self.close(NORMAL, "")
            self.drop()

    def _post(self, message: str | bytes) -> None:
        """Let a helper do what a message asks, after those before it."""
        with self._loop.lock:
            if self._leaving:
                return
            idle = self._mail is None
            mail = self._mail = self._mail or deque()
            mail.append(message)
            if len(mail) == MOST_MESSAGES:
                self._watch()
        if idle:
            self._loop.help(self._work)

    def _work(self) -> None:
        assert self._mail is not None
        assert self._page is not None
        message = self._mail.popleft()
        self._page.receive(message)
        with self._loop.lock:
            again = bool(self._mail) and not self._leaving
            if not again:
                self._mail = None
            self._watch()
        if again:
            # Behind the other pages: one that never stops asking keeps nobody else waiting.
            self._loop.help(self._work)


def _has_something(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _give_up_unanswered(sock: socket.socket, seconds: float) -> None:
    """Let the system end a connection whose peer has acknowledged nothing for a while: a line that went dead."""
    with suppress(OSError, AttributeError):  # A unix socket's peer is there or is not.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
