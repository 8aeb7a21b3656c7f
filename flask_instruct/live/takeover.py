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


def take(lent: socket.socket) -> socket.socket:
    """Return the connection; the server keeps a socket that leads nowhere, which it may close as it likes."""
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
