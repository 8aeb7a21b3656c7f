"""One connection to Redis on which the broadcasts of many streams arrive."""

from __future__ import annotations

import time
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import ConnectionError

from .addressed import EVERYBODY
from .addressed import Audience
from .addressed import opened
from .position import Position

SILENCE = 10.0
"""Seconds without a word from Redis after which it is asked for one; after twice as many it counts as lost."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Redis follows a stream for us from here on. It comes again when the connection was lost in between."""

    stream: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """A broadcast was published."""

    stream: str
    position: Position
    html: str
    audience: Audience = EVERYBODY


class Listener:
    """Subscribe and unsubscribe from any thread; poll from one.

    :param prefix: what the name of every channel begins with.
    :raises redis.RedisError: when there is no connection; each method may raise it, and the listener is of no more use.
    """

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._prefix = prefix
        self._pubsub = redis.pubsub()  # type: ignore[no-untyped-call]
        self._heard = time.monotonic()
        # Stream names never are empty: this channel only keeps the connection in its subscribed state.
        self._pubsub.subscribe(prefix)

    def subscribe(self, *streams: str) -> None:
        """Ask for streams; :class:`Subscribed` says when each is followed."""
        if streams:
            self._pubsub.subscribe(*(self._prefix + stream for stream in streams))

    def unsubscribe(self, *streams: str) -> None:
        """Give streams up."""
        if streams:
            self._pubsub.unsubscribe(*(self._prefix + stream for stream in streams))

    def poll(self, timeout: float) -> Subscribed | Arrived | None:
        """Return the next thing that happened, or None after ``timeout`` seconds."""
        message = self._pubsub.get_message(timeout=timeout)
        if message is None:
            self._check()
            return None
        self._heard = time.monotonic()
        stream = (message["channel"] or b"").decode()[len(self._prefix) :]
        if message["type"] == "subscribe" and stream:
            return Subscribed(stream)
        if message["type"] == "message" and stream:
            position, _, text = message["data"].partition(b" ")
            audience, html = opened(text.decode("utf-8", "replace"))
            return Arrived(stream, Position.parse(position), html, audience)
        return None

    def wake(self) -> None:
        """Let a poll that waits in another thread return."""
        self._pubsub.ping()

    def close(self) -> None:
        """Give the connection up."""
        self._pubsub.close()

    def _check(self) -> None:
        silence = time.monotonic() - self._heard
        if silence > 2 * SILENCE:
            raise ConnectionError(f"Redis has been silent for {silence:.0f} s")
        if silence > SILENCE:
            self._pubsub.ping()
