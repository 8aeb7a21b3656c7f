"""The loop: one thread that holds the sockets of all open pages, so that a page costs memory and not a thread.

Whoever has something to send writes it at once, without waiting; the loop's thread reads, and writes what did not
fit. What a page asks for is done by a few threads, because the app's rules and Redis may take their time.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
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

logger = logging.getLogger("flask_instruct")

TICK = 0.5
"""Seconds between two looks at what time does."""

HELPERS = 8
"""Threads that do what pages ask for."""

MOST_MESSAGES = 32
"""Messages of one page that wait to be done; no more is read from it meanwhile."""

SPARE_FILES = 500
"""File descriptors besides the pages' sockets that the process may need."""

NORMAL = 1000

_READ_BYTES = 65536
_PING = frames.websocket_frame(frames.PING, b"") + frames.ping().websocket

Bytes = bytes | memoryview


class Page(Protocol):
    """The other half of a conversation. Both methods may take their time."""

    def receive(self, message: str | bytes) -> None:
        """Take a message."""

    def check(self) -> None:
        """Ask again whether the page may listen."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every socket.

    :param queue: frames that may wait for one page.
    :param ping_interval: seconds; a page that has answered none of two pings is given up.
    :param check_interval: seconds between two calls of :meth:`Page.check`.
    :param left: called with each connection that has ended.
    """

    queue: int
    ping_interval: float
    check_interval: float
    left: Callable[[LoopSocket], object]


def is_possible() -> bool:
    """Tell whether this system lets one thread hold many sockets as the loop does it (Linux)."""
    return hasattr(select, "epoll")


class Loop:
    """The sockets of one process. The thread starts with the first of them, in the process that holds it.

    :param most: sockets that it is made for; the process's limit of open files is raised to that where it may be.
    """

    def __init__(self, terms: Terms, most: int) -> None:
        self.terms = terms
        self._most = most
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self.lock = threading.Lock()
        """Guards what waits to be written, of every socket: it is never held while anything waits."""
        self._thread: threading.Thread | None = None
        self._sockets: dict[int, LoopSocket] = {}
        self._looked_at = 0.0
        self._ended = False

    def __len__(self) -> int:
        return len(self._sockets)

    def hold(self, sock: socket.socket) -> LoopSocket:
        """Take a socket over, from the handshake on. Nothing is read from it before :meth:`LoopSocket.serve`."""
        if self._pid != os.getpid():
            self._forget()
        with self.lock:
            if self._thread is None:
                _allow_open_files(self._most + SPARE_FILES)
                self._epoll = select.epoll()
                self._bell = os.eventfd(0)
                self._epoll.register(self._bell, select.EPOLLIN)
                self._helpers = ThreadPoolExecutor(HELPERS, thread_name_prefix="flask-instruct-page")
                self._thread = threading.Thread(target=self._run, name="flask-instruct-loop", daemon=True)
                self._thread.start()
        return LoopSocket(self, sock)

    def close(self) -> None:
        """Drop the sockets that are left and end the thread."""
        if self._pid != os.getpid() or self._thread is None:
            return
        with self.lock:
            if self._ended:
                return
            self._ended = True
        os.eventfd_write(self._bell, 1)
        self._thread.join()
        os.close(self._bell)
        for held in list(self._sockets.values()):
            held.drop()
        self._helpers.shutdown(wait=False, cancel_futures=True)

    # -- for the sockets -------------------------------------------------------------------------------------------

    def register(self, descriptor: int, held: LoopSocket) -> bool:
        """Begin to read from a socket; False when the loop has ended."""
        with self.lock:
            if not self._ended:
                self._sockets[descriptor] = held
                self._epoll.register(descriptor, select.EPOLLIN)
            return not self._ended

    def watch(self, descriptor: int, *, reading: bool, writing: bool) -> None:
        """Choose what a socket waits for; its end is always noticed."""
        events = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        with suppress(OSError):  # It has just been given up.
            self._epoll.modify(descriptor, events)

    def unregister(self, descriptor: int) -> None:
        self._sockets.pop(descriptor, None)
        with suppress(OSError, ValueError):  # Never registered, or the loop has ended.
            self._epoll.unregister(descriptor)

    def help(self, work: Callable[[], object]) -> None:
        """Let one of the helpers do something."""
        with suppress(RuntimeError):  # The process is about to end.
            self._helpers.submit(work)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            for descriptor, events in self._epoll.poll(TICK):
                held = self._sockets.get(descriptor)
                if held is None:
                    continue
                try:
                    held.ready(events)
                except Exception:
                    logger.exception("A page's socket failed")
                    held.drop()
            now = time.monotonic()
            if now - self._looked_at >= TICK:
                self._looked_at = now
                for held in list(self._sockets.values()):
                    held.look(now)
        self._epoll.close()


class LoopSocket:
    """A :class:`~flask_instruct.live.hub.Connection` whose socket the loop holds."""

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
        "_unanswered",
        "_waiting",
    )

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        sock.setblocking(False)
        now = time.monotonic()
        self._loop = loop
        self._sock = sock
        self._descriptor = sock.fileno()
        self._page: Page | None = None
        self._incoming: Incoming | None = None
        self._waiting: deque[Bytes] | None = None
        self._mail: deque[str | bytes] | None = None
        self._leaving = self._broken = False
        self._deadline = self._moved_at = now
        self._answered = True
        self._unanswered = 0
        self._ping_at = now + loop.terms.ping_interval
        self._check_at = now + loop.terms.check_interval

    def serve(self, page: Page) -> None:
        """Begin to read; from now on the loop's thread has the socket."""
        self._page = page
        if not self._loop.register(self._descriptor, self):
            self.drop()

    # -- called from any thread --------------------------------------------------------------------------------------

    def send(self, *messages: Frame) -> None:
        with self._loop.lock:
            if not self._leaving:
                self._put([frame.websocket for frame in messages])

    def close(self, code: int, reason: str) -> None:
        with self._loop.lock:
            if self._leaving:
                return
            self._leaving = True
            self._deadline = time.monotonic() + CLOSING_TIMEOUT
            begun = self._waiting[0] if self._waiting else None
            self._waiting = None
            goodbye = frames.close_frame(code, reason)
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
            self._waiting = deque([*rest, frames.close_frame(SLOW, "too slow")])
            self._deadline = time.monotonic() + CLOSING_TIMEOUT

    def _write(self, pieces: Sequence[Bytes]) -> None:
        """Write as much as the socket takes, and keep the rest. Under the lock, with nothing waiting."""
        for index, piece in enumerate(pieces):
            try:
                written = self._sock.send(piece)
            except BlockingIOError:
                written = 0
            except OSError:
                self._leaving = True  # The loop's thread hears of it too.
                return
            if written < len(piece):
                rest = memoryview(piece)[written:] if written else piece
                self._waiting = deque([rest, *pieces[index + 1 :]])
                self._moved_at = time.monotonic()
                self._watch()
                return

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
        self._unanswered = 0 if self._answered else self._unanswered + 1
        if self._unanswered >= 2:
            self.close(SILENT, "no answer")
            return
        self._answered = False
        # The browser answers the one without the page's help; the other one the page can see.
        self._say(_PING)

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
        if self._broken:
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


def _allow_open_files(wanted: int) -> None:
    import resource  # Not on Windows, where there is no loop either.

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
