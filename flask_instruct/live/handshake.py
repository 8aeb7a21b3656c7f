"""What is kept of the request that opened a socket, so that the app's rules can be asked again while it is open.

A page costs memory for as long as it is open: only the request's texts are kept, and those that many pages
share are kept once.
"""

from __future__ import annotations

import io
import sys
from functools import lru_cache
from typing import Any

_OWN = frozenset({"HTTP_SEC_WEBSOCKET_KEY"})
"""Of no use to anybody after the handshake."""
_SHARED_LENGTH = 300
"""Characters; longer values, such as cookies, are hardly ever the same on two pages."""


class Handshake:
    """The environ of a request, without its streams, sockets and objects.

    :param environ: of the request; what middleware has changed in it (a proxy's address, ``REMOTE_USER``) is kept.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, environ: dict[str, Any]) -> None:
        kept = {name: value for name, value in environ.items() if isinstance(value, str) and name not in _OWN}
        self._names = _same_names(tuple(kept))
        self._values = tuple(_same(value) if len(value) < _SHARED_LENGTH else value for value in kept.values())

    def environ(self) -> dict[str, Any]:
        """Return the environ of a request like it, without a body."""
        return {
            **dict(zip(self._names, self._values, strict=True)),
            "wsgi.version": (1, 0),
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
        }


@lru_cache(maxsize=256)
def _same_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


@lru_cache(maxsize=4096)
def _same(value: str) -> str:
    return value
