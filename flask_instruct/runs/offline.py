"""No network for a while: whoever tries to connect in this process is refused, and written down."""

from __future__ import annotations

import socket
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import RedisError

from ..live.bus import Bus


class NoNetwork(OSError):
    """Raised where something connects although there is no network."""


GUARDED = ("connect", "connect_ex", "sendto")
"""Methods of a socket that reach another machine by an address."""


@contextmanager
def offline(*allowed: str | None) -> Iterator[list[str]]:
    """Refuse connections and look-ups of names in this process; gives the list of those that were tried.

    Sockets of this machine's files are left alone. What a library does in C is not seen: PostgreSQL's, for one.

    :param allowed: hosts that may be spoken to: that of the database.
    """
    tried: list[str] = []
    hosts = {host for host in allowed if host}

    def refuse(place: str) -> None:
        if place not in tried:
            tried.append(place)
        raise NoNetwork(f"There is no network in a replay, but something wants to reach {place}.")

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def reach_out(self: socket.socket, *arguments: Any) -> Any:
            # sendto has the address last, the others have nothing else.
            address = arguments[-1] if arguments else None
            if isinstance(address, tuple) and str(address[0]) not in hosts:
                refuse(f"{address[0]}:{address[1]}")
            return original(self, *arguments)

        return reach_out

    look_up = socket.getaddrinfo

    def guarded_look_up(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if name is not None and name not in hosts:
            refuse(f"{name}:{port}" if port is not None else str(name))
        found = look_up(host, port, *arguments, **options)
        hosts.update(str(entry[4][0]) for entry in found if name in hosts)
        return found

    before = {name: vars(socket.socket).get(name) for name in GUARDED}
    for name in GUARDED:
        setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    socket.getaddrinfo = guarded_look_up
    try:
        yield tried
    finally:
        socket.getaddrinfo = look_up
        for name, original in before.items():
            if original is None:
                delattr(socket.socket, name)
            else:
                setattr(socket.socket, name, original)


class NoPages(Bus):
    """Takes broadcasts and forgets them: nobody looks at a replay or a rehearsal."""

    def publish_all(self, stream: str, broadcasts: Sequence[tuple[str | None, str]]) -> list[str | None]:
        for _, html in broadcasts:
            self.check_size(stream, html)
        return [None for _ in broadcasts]


class NoRedis:
    """Stands where the client of Redis does: nobody has asked for a stop, and it is down for all else."""

    def exists(self, *names: str) -> int:
        return 0

    def set(self, *arguments: Any, **options: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        raise RedisError("There is no Redis in a replay.")

    def close(self) -> None:
        """There is nothing to close."""
