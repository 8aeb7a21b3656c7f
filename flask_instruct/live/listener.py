"""One connection to Redis on which the broadcasts of many streams arrive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError

from .addressed import EVERYBODY
from .addressed import Audience
from .addressed import opened
from .position import Position
from .roll import SIGNED_OUT

SILENCE = 10.0
"""Seconds without a word from Redis after which it is asked for one; after twice as many it counts as lost."""


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

    connected = 0
    """How often Redis has begun to tell us what is for every process; more than once where it was lost in between."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._prefix = prefix
        self._pubsub = redis.pubsub()  # type: ignore[no-untyped-call]
        self._heard = time.monotonic()
        # Stream names never are empty: this channel carries what is for every process.
        self._pubsub.subscribe(prefix)

    def subscribe(self, *streams: str) -> None:
        """Ask for streams; :class:`Subscribed` says when each is followed."""
        if streams:
            self._pubsub.subscribe(*(self._prefix + stream for stream in streams))

    def unsubscribe(self, *streams: str) -> None:
        """Give streams up."""
        if streams:
            self._pubsub.unsubscribe(*(self._prefix + stream for stream in streams))

    def poll(self, timeout: float) -> Subscribed | Arrived | SignedOut | None:
        """Return the next thing that happened, or None after ``timeout`` seconds."""
        message = self._pubsub.get_message(timeout=timeout)
        if message is None:
            self._check()
            return None
        self._heard = time.monotonic()
        stream = (message["channel"] or b"").decode()[len(self._prefix) :]
        if not stream:
            return self._for_all(message)
        if message["type"] == "subscribe":
            return Subscribed(stream)
        if message["type"] == "message":
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

    def _for_all(self, message: dict[str, Any]) -> SignedOut | None:
        if message["type"] == "subscribe":
            self.connected += 1
        elif message["type"] == "message" and message["data"].startswith(SIGNED_OUT):
            return SignedOut(message["data"].removeprefix(SIGNED_OUT).decode("utf-8", "replace"))
        return None

    def _check(self) -> None:
        silence = time.monotonic() - self._heard
        if silence > 2 * SILENCE:
            raise ConnectionError(f"Redis has been silent for {silence:.0f} s")
        if silence > SILENCE:
            self._pubsub.ping()
