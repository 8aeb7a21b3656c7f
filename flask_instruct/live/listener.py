"""One connection to Redis on which the broadcasts of many streams arrive."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field

from redis import Redis
from redis.exceptions import ConnectionError

from .addressed import EVERYBODY
from .addressed import Audience
from .addressed import opened
from .position import Position
from .roll import SIGNED_OUT

SILENCE = 10.0
"""Seconds without a word from Redis after which it is asked for one; after twice as many it counts as lost."""

PLACE_CHECK = 5.0
"""Seconds between two looks whether the server that is listened to still is the one that is published to."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Redis follows a stream for us from here on. It comes again when the connection was lost in between."""

    stream: str


@dataclass(frozen=True, slots=True)
class SignedOut:
    """The pages of a viewer have to be verified anew."""

    viewer: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """A broadcast was published.

    :param epoch: when the data it belongs to began; after an older position something may be missing before this.
    """

    stream: str
    position: Position
    html: str
    audience: Audience = EVERYBODY
    epoch: int = field(default=0, compare=False)


def in_braces(stream: str) -> str:
    """Return the part of keys and channels by which a cluster chooses the node, the same for all of a stream."""
    return f"{{{stream}}}"


class Listener:
    """Subscribe and unsubscribe from any thread; poll from one.

    :param prefix: what the name of every channel begins with.
    :param sharded: the channels are those of one node of a cluster, which ends them when it gives a stream away.
    :param check: called now and then; raises when another server is published to by now.
    :raises redis.RedisError: when there is no connection; each method may raise it, and the listener is of no more use.
    """

    connected = 0
    """How often Redis has begun to tell us what is for every process; more than once where it was lost in between."""

    def __init__(
        self,
        redis: Redis,
        prefix: str,
        *,
        sharded: bool = False,
        check: Callable[[Listener], None] | None = None,
    ) -> None:
        self.redis = redis
        self._prefix = prefix
        self._sharded = sharded
        self._check_place = check
        self._checked = time.monotonic()
        self._leaving: Counter[str] = Counter()
        self.idle = True
        """Whether the last poll found nothing at all."""
        self._pubsub = redis.pubsub()  # type: ignore[no-untyped-call]
        self._heard = time.monotonic()
        # Stream names never are empty: this channel carries what is for every process.
        self._pubsub.subscribe(prefix)

    @property
    def address(self) -> tuple[str, int] | None:
        """Whom this listens to; None for a unix socket."""
        connection = self._pubsub.connection
        return (connection.host, connection.port) if hasattr(connection, "host") else None

    def fileno(self) -> int:
        """Return the connection's socket, to wait for with others; :meth:`poll` may have read what came before."""
        socket = getattr(self._pubsub.connection, "_sock", None)
        if socket is None:
            raise ConnectionError("The connection to Redis was lost")
        return int(socket.fileno())

    def subscribe(self, *streams: str) -> None:
        """Ask for streams; :class:`Subscribed` says when each is followed."""
        channels = [self._prefix + in_braces(stream) for stream in streams]
        if self._sharded:
            for channel in channels:
                self._pubsub.ssubscribe(channel)
        elif channels:
            self._pubsub.subscribe(*channels)

    def unsubscribe(self, *streams: str) -> None:
        """Give streams up."""
        channels = [self._prefix + in_braces(stream) for stream in streams]
        if self._sharded:
            self._leaving.update(channels)
            for channel in channels:
                self._pubsub.sunsubscribe(channel)
        elif channels:
            self._pubsub.unsubscribe(*channels)

    def poll(self, timeout: float) -> Subscribed | Arrived | SignedOut | None:
        """Return the next thing that happened, or None after ``timeout`` seconds."""
        message = self._pubsub.get_message(timeout=timeout)
        self.idle = message is None
        if message is not None:
            self._heard = time.monotonic()
        self._check()
        if message is None:
            return None
        channel = (message["channel"] or b"").decode()
        return self._read(message["type"], channel, message["data"])

    def _read(self, kind: str, channel: str, data: bytes) -> Subscribed | Arrived | SignedOut | None:
        if channel == self._prefix:
            return self._for_all(kind, data)
        stream = channel[len(self._prefix) + 1 : -1]
        if kind in ("subscribe", "ssubscribe"):
            return Subscribed(stream)
        if kind in ("message", "smessage"):
            position, epoch, text = data.split(b" ", 2)
            audience, html = opened(text.decode("utf-8", "replace"))
            return Arrived(stream, Position.parse(position), html, audience, int(epoch))
        if kind == "sunsubscribe":
            if not self._leaving[channel]:
                raise ConnectionError(f"The cluster has moved {stream} to another node")
            self._leaving[channel] -= 1
        return None

    def wake(self) -> None:
        """Let a poll that waits in another thread return."""
        self._pubsub.ping()

    def close(self) -> None:
        """Give the connection up."""
        self._pubsub.close()

    def _for_all(self, kind: str, data: bytes) -> SignedOut | None:
        if kind == "subscribe":
            self.connected += 1
        elif kind == "message" and data.startswith(SIGNED_OUT):
            return SignedOut(data.removeprefix(SIGNED_OUT).decode("utf-8", "replace"))
        return None

    def _check(self) -> None:
        now = time.monotonic()
        if self._check_place is not None and now - self._checked > PLACE_CHECK:
            self._checked = now
            self._check_place(self)
        silence = now - self._heard
        if silence > 2 * SILENCE:
            raise ConnectionError(f"Redis has been silent for {silence:.0f} s")
        if silence > SILENCE:
            self._pubsub.ping()
