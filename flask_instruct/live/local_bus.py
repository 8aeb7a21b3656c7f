"""A bus without Redis, for tests: what is published stands in this process, and is there when ``publish`` returns."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from flask import Flask
from redis.exceptions import ConnectionError

from ..config import Config
from ..errors import ConfigurationError
from .addressed import opened
from .bus import Bus
from .listener import Arrived
from .listener import Listener
from .listener import SignedOut
from .listener import Subscribed
from .position import Position
from .roll import GRACE
from .roll import LIFETIME
from .roll import Roll
from .subscription import Entry
from .subscription import Replay


class LocalBus(Bus):
    """Does what :class:`Bus` does, for one process, and forgets nothing.

    :raises ConfigurationError: in an app that is not under test: two processes would not hear of each other.
    """

    def __init__(self, app: Flask, config: Config) -> None:
        if not app.testing:
            raise ConfigurationError(
                "The bus without Redis is for tests: web process and worker would not hear of each other. Set "
                "app.testing = True in the test, or use INSTRUCT_REDIS_URL."
            )
        super().__init__(_refuse_redis, config)
        self._lock = threading.RLock()
        self._published: dict[str, list[Entry]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._listeners: set[_LocalListener] = set()
        self._last = Position(0)
        self.roll = _LocalRoll(self._tell_all)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that something was published to."""
        return tuple(self._published)

    def publish(self, stream: str, html: str, broadcast_id: str | None = None) -> str | None:
        self.check_size(stream, html)
        with self._lock:
            if broadcast_id is not None and (stream, broadcast_id) in self._seen:
                return None
            if broadcast_id is not None:
                self._seen.add((stream, broadcast_id))
            position = self._next()
            audience, html = opened(html)
            self._published.setdefault(stream, []).append(Entry(position, html, audience))
            for listener in self._listeners:
                listener.put(Arrived(stream, position, html, audience))
        self.published(stream, Entry(position, html, audience))
        return str(position)

    def publish_all(self, stream: str, broadcasts: Sequence[tuple[str | None, str]]) -> list[str | None]:
        """Publish several fragments of one stream, each a name and its HTML."""
        return [self.publish(stream, html, broadcast_id=name) for name, html in broadcasts]

    def published(self, stream: str, entry: Entry) -> None:
        """Hear of each broadcast; for subclasses."""

    def now(self, stream: str = "") -> str:
        return str(Position(max(_clock() - 1, self._last.ms)))

    def cursor(self, stream: str, moment: float) -> str:
        return str(Position(_clock() - int((time.monotonic() - moment) * 1000) - 2))

    def prepare(self) -> None:
        pass

    def replay(self, stream: str, since: Position | None) -> Replay:
        with self._lock:
            entries = self._published.get(stream, [])
            last = entries[-1].position if entries else Position.parse(self.now())
            if since is None:
                return Replay(False, (), last)
            return Replay(True, tuple(entry for entry in entries if entry.position > since), max(since, last))

    def listen(self) -> Listener:
        listener = _LocalListener()
        with self._lock:
            self._listeners.add(listener)
        listener.left = lambda: self._listeners.discard(listener)
        return listener

    def _tell_all(self, notice: SignedOut) -> None:
        with self._lock:
            for listener in self._listeners:
                listener.put(notice)

    def _next(self) -> Position:
        now = _clock()
        self._last = Position(now) if now > self._last.ms else Position(self._last.ms, self._last.seq + 1)
        return self._last


class _LocalListener(Listener):
    """Takes what is published from a queue instead of a connection."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Subscribed | Arrived | SignedOut | None] = queue.SimpleQueue()
        self._followed: set[str] = set()
        self._closed = False
        self.left: Any = None

    def put(self, notice: Arrived | SignedOut) -> None:
        if isinstance(notice, SignedOut) or notice.stream in self._followed:
            self._waiting.put(notice)

    def subscribe(self, *streams: str) -> None:
        for stream in streams:
            self._followed.add(stream)
            self._waiting.put(Subscribed(stream))

    def unsubscribe(self, *streams: str) -> None:
        self._followed.difference_update(streams)

    def poll(self, timeout: float) -> Subscribed | Arrived | SignedOut | None:
        if self._closed:
            raise ConnectionError("The listener was closed.")
        try:
            return self._waiting.get(timeout=timeout)
        except queue.Empty:
            return None

    def wake(self) -> None:
        self._waiting.put(None)

    def close(self) -> None:
        self._closed = True
        self.left()


class _LocalRoll(Roll):
    """Knows who is where in this process."""

    def __init__(self, tell_all: Callable[[SignedOut], None]) -> None:
        self._tell_all = tell_all
        self._lock = threading.Lock()
        self._until: dict[str, dict[str, float]] = {}
        self._told: dict[str, list[str]] = {}

    def attend(
        self, stream: str, process: str, staying: Iterable[str] = (), leaving: Iterable[str] = ()
    ) -> tuple[list[str], list[str] | None]:
        now = time.monotonic()
        with self._lock:
            there = self._until.setdefault(stream, {})
            there.update((viewer, now + LIFETIME) for viewer in staying)
            there.update((viewer, now + GRACE) for viewer in leaving if viewer in there)
            viewers = sorted(viewer for viewer, until in there.items() if until > now)
            return viewers, self._told.get(stream, [])

    def may_tell(self, stream: str) -> bool:
        return True

    def told(self, stream: str, viewers: list[str], seconds: float) -> None:
        self._told[stream] = viewers

    def sign_out(self, viewer: str) -> None:
        self._tell_all(SignedOut(viewer))

    def signed_out(self, seconds: float) -> list[str]:
        return []


def _clock() -> int:
    return time.time_ns() // 1_000_000


def _refuse_redis() -> Any:
    raise ConfigurationError("Broadcasts are caught in this process, and there is no Redis here to be asked.")
