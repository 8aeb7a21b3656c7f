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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from .held import LoopSocket
from .speech import WEBSOCKET
from .speech import Speech

logger = logging.getLogger("flask_instruct")

TICK = 0.5
"""Seconds between two looks at what time does."""

HELPERS = 8
"""Threads that do what pages ask for."""

SPARE_FILES = 500
"""File descriptors besides the pages' sockets that the process may need."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every socket.

    :param queue: frames that may wait for one page.
    :param ping_interval: seconds; a page that has not answered a ping by the next one is given up.
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

    def hold(self, sock: socket.socket, speech: Speech = WEBSOCKET) -> LoopSocket:
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
        return LoopSocket(self, sock, speech)

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


def _allow_open_files(wanted: int) -> None:
    import resource  # Not on Windows, where there is no loop either.

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
