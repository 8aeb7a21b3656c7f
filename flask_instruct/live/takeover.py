"""Taking a socket away from the web server that accepted it, so that the server is done with it and it stays open.

See docs/decisions/0012.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from typing import TypeGuard

from . import loop


def is_possible(sock: object) -> TypeGuard[socket.socket]:
    """Tell whether a socket can be taken away from its server: one of the system's own, without TLS of Python's.

    One of gevent's belongs to its hub, and only that may wait for it.
    """
    return type(sock) is socket.socket and type(sock).__module__ == "socket" and loop.is_possible()


class Borrowed:
    """The server's socket for the length of a handshake: it takes the answer, and nobody reads from it.

    simple-websocket starts a thread to read; here that comes to its end at once.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._taken = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, data: bytes) -> int:
        if not self._taken:
            self._sock.sendall(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        return b""

    def close(self) -> None:
        """Left to whoever has it."""

    def take(self) -> socket.socket:
        """Return the connection; the server keeps a socket that leads nowhere, which it may close as it likes."""
        self._taken = True
        lent = self._sock
        taken = socket.socket(lent.family, lent.type, lent.proto, fileno=os.dup(lent.fileno()))
        # Not detach(): the server goes on to shut its socket down, and stumbles over one that is gone.
        os.dup2(_ended(os.getpid()), lent.fileno(), inheritable=False)
        return taken


@lru_cache(maxsize=1)
def _ended(process: int) -> int:
    """Return the descriptor of a connection whose other end has gone: whoever reads from it learns that, and ends."""
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours.detach()
