"""A mock model in this process that notes when each request arrives, and keeps those on one path waiting.

Its clock is the one by which the moment before the enqueueing is taken, so that the two can be compared.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from typing import Any

from .bodies import FORMATS
from .bodies import encoded
from .workload import Task

CHAT = "/chat/completions"
HELD = "/held"
"""Requests below this path get no answer before :meth:`Arrivals.release`."""
ANSWER = b"".join(encoded(FORMATS[CHAT], Task("text", 3), 0))


class Arrivals(ThreadingHTTPServer):
    """The server; ``times`` holds a moment for each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.times: queue.Queue[float] = queue.Queue()
        self._released = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def arrived(self, path: str) -> None:
        """Note a request, and hold its thread where the path says so."""
        self.times.put(time.perf_counter())
        if path.startswith(HELD):
            self._released.wait()

    def release(self) -> None:
        """Answer what is held."""
        self._released.set()

    def next(self, timeout: float) -> float:
        """Return when the next request arrived.

        :raises TimeoutError: when none comes.
        """
        try:
            return self.times.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"No request reached the mock model within {timeout} s.") from None


class Handler(BaseHTTPRequestHandler):
    server: Arrivals
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        self.server.arrived(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


@contextmanager
def arrivals() -> Iterator[Arrivals]:
    """Serve for the length of the block; what is still held is answered at its end."""
    with Arrivals() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.release()
            server.shutdown()
            thread.join()
