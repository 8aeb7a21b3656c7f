"""A connection kept for the next call: what follows the last event is read, if it comes at once.

Without this each call of a run opens its own connection, since a response closed before its end closes that too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..errors import ProviderError

LONGEST_WAIT = 0.1
"""Seconds; the end of a body mostly lies in the same packet as its last event."""
_MOST_BYTES = 65536


def read_to_its_end(response: Any, pieces: Iterator[bytes]) -> None:
    """Read the rest of a body that has said all, unless it is long or its server keeps it open.

    :param response: of ``httpx2``; ``pieces`` is the iterator over its body.
    """
    connection = getattr(response, "extensions", {}).get("network_stream")
    # Over HTTP/2 a stream ends without its connection.
    if connection is None or getattr(response, "http_version", "") != "HTTP/1.1" or response.is_closed:
        return
    deadline = time.monotonic() + LONGEST_WAIT
    size = 0
    with _waiting_until(connection, deadline), contextlib.suppress(ProviderError):
        for piece in pieces:
            size += len(piece)
            if size > _MOST_BYTES or time.monotonic() >= deadline:
                return


_patching = threading.Lock()


@contextlib.contextmanager
def _waiting_until(connection: Any, deadline: float) -> Iterator[None]:
    """Let this thread's reads of a connection wait no longer than a moment; its timeout was set with the request."""
    # Of the class: another thread, which has the connection now, may have put its own in front.
    read, reader = type(connection).read, threading.get_ident()

    def read_soon(max_bytes: int, timeout: float | None = None) -> bytes:
        # At the end of the body the connection may already serve another thread.
        if threading.get_ident() == reader:
            timeout = max(0.001, deadline - time.monotonic())
        data: bytes = read(connection, max_bytes, timeout)
        return data

    with _patching:
        connection.read = read_soon
    try:
        yield
    finally:
        with _patching:
            if vars(connection).get("read") is read_soon:
                del connection.read
