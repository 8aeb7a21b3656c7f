"""The bus: where a broadcast is stored for replay and announced to every web process.

Publishing is one script in Redis: an entry in a stream, for pages that come later, and a message with the
same id on a channel, for the pages that are there. Checked with four writers: both have the same order.
The scripts are in ``bus_scripts``; ``servers`` knows which server keeps a stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from ..config import Config
from ..errors import ConfigurationError
from ..errors import InstructError
from .addressed import opened
from .bus_scripts import CLOCK
from .bus_scripts import REPLAY
from .bus_scripts import Publishing
from .bus_scripts import reached
from .listener import Listener
from .listener import in_braces
from .position import Position
from .roll import Roll
from .servers import Cluster
from .servers import OneServer
from .servers import Servers
from .subscription import Entry
from .subscription import History
from .subscription import Replay

RedisFactory = Callable[[], "Redis | Cluster"]

UNREACHABLE = 2.0
"""Seconds for which a Redis that did not tell its clock is not asked again, so that not every page waits for it."""

CLOCK_AGE = 5.0
"""Seconds for which Redis' clock is reckoned from this process's own before it is asked again."""

CLOCK_MARGIN = 5
"""Milliseconds that a reckoned cursor lies in the past, for the clocks' drift; replaying more is harmless."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A server's clock in milliseconds, read at a moment of ours (``time.monotonic``) or shortly before.

    :param since: when the server's data began, by its clock.
    :param lead: how far positions were ahead of that clock then.
    """

    now: int
    since: int
    lead: int
    moment: float

    @property
    def position(self) -> Position:
        """The cursor of the reading; a millisecond less, as more may be published within this one."""
        return Position(reached(self.now, self.since, self.lead) - 1)

    def at(self, moment: float) -> Position:
        """Return the cursor of a moment, or of one a little before."""
        now = self.now + int((moment - self.moment) * 1000) - CLOCK_MARGIN
        reckoned = Position(reached(now, self.since, self.lead) - 1)
        return max(reckoned, self.position) if moment >= self.moment else reckoned


class Bus:
    """Broadcasts in Redis.

    :param redis_factory: gives this process's client; it must not retry by itself and must return bytes.
    """

    def __init__(self, redis_factory: RedisFactory, config: Config) -> None:
        self._redis_factory = redis_factory
        self._config = config
        self._prefix = f"{config.key_prefix}:live"
        self._lifetime = int(config.stream_ttl * 1000)
        self._readings: dict[str, _Reading] = {}
        self._reached: dict[str, int] = {}
        """Of each clock the time of the last position seen. Redis may lose how far it was, and must not go back."""
        self._prepared = False
        self._unreachable: dict[str, float] = {}
        self._clock_lock = threading.Lock()
        self._publishing = Publishing()
        self.roll = Roll(lambda: self._servers, self._key, self._prefix)

    @property
    def redis(self) -> Redis | Cluster:
        return self._redis_factory()

    @property
    def _servers(self) -> Servers:
        redis = self._redis_factory()
        if not isinstance(redis, Cluster):
            return OneServer(redis)
        if "{" in self._prefix:
            raise ConfigurationError(
                f"INSTRUCT_KEY_PREFIX is {self._config.key_prefix!r}: in a cluster it must have no braces, "
                "or all streams would be kept on one node."
            )
        return redis

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self, stream: str, html: str, broadcast_id: str | None = None) -> str | None:
        """Store a fragment and announce it; return its position.

        :param broadcast_id: name of this broadcast; one that the stream has seen lately is left out and gives None.
        :raises InstructError: when it is larger than ``INSTRUCT_BROADCAST_BYTES``.
        :raises redis.RedisError: when Redis did not answer. It may have been published nevertheless: repeat it with
            the same ``broadcast_id`` only.
        """
        return self.publish_all(stream, [(broadcast_id, html)])[0]

    def publish_all(self, stream: str, broadcasts: Sequence[tuple[str | None, str]]) -> list[str | None]:
        """Store several fragments of one stream and announce them, in their order and with nothing in between.

        :param broadcasts: of each its name and its HTML, as for :meth:`publish`, which also tells of the errors.
        :returns: their positions, ``None`` for those that were left out.
        """
        servers = self._servers
        arguments: list[Any] = [self._channel(stream), self._config.stream_maxlen, self._lifetime]
        scope = servers.scope(stream)
        arguments += ("sharded" if servers.sharded else "", self._reached.get(scope, 0))
        for name, html in broadcasts:
            self.check_size(stream, html)
            arguments += (name or "", html.encode("utf-8", "replace"))
        keys = [self._mark(servers, stream), self._key(stream), self._key(stream, "seen")]
        positions: list[bytes] = servers.run(stream, self._publishing, keys, arguments)
        told = [position.decode() or None for position in positions]
        self._note(scope, max((Position.parse(position).ms for position in told if position), default=0))
        return told

    def check_size(self, stream: str, html: str) -> None:
        """Refuse a fragment that is too large before anything is written."""
        size = len(html.encode("utf-8", "replace"))
        if size > self._config.broadcast_bytes:
            raise InstructError(
                f"The broadcast to {stream} has {size} bytes, the limit INSTRUCT_BROADCAST_BYTES is "
                f"{self._config.broadcast_bytes}: send a smaller fragment, or a refresh."
            )

    # -- cursors ---------------------------------------------------------------------------------------------------

    def now(self, stream: str = "") -> str:
        """Return a cursor for this moment: whatever is published to the stream from now on comes after it.

        :param stream: needed in a cluster, where each node has a clock of its own.
        """
        return str(self._read_clock(stream).position)

    def cursor(self, stream: str, moment: float) -> str:
        """Return a cursor for a moment of ``time.monotonic()`` that has passed, mostly without asking Redis."""
        scope = self._servers.scope(stream)
        if time.monotonic() < self._unreachable.get(scope, 0.0):
            raise RedisError("Redis could not be reached a moment ago.")
        reading = self._readings.get(scope)
        if reading is None or time.monotonic() - reading.moment > CLOCK_AGE:
            reading = self._read_clock(stream)
        return str(reading.at(moment))

    def prepare(self) -> None:
        """Read the clock once, early, so that the very first cursor does not lie before the beginning of the data."""
        if not self._prepared:
            self._prepared = True
            with suppress(RedisError, InstructError):
                if not isinstance(self._servers, Cluster):
                    self._read_clock("")

    def _read_clock(self, stream: str) -> _Reading:
        servers = self._servers
        scope = servers.scope(stream)
        with self._clock_lock:
            try:
                now, since, lead = servers.run(
                    stream, CLOCK, [self._mark(servers, stream)], [self._reached.get(scope, 0)]
                )
            except RedisError:
                self._unreachable[scope] = time.monotonic() + UNREACHABLE
                raise
            self._unreachable.pop(scope, None)
            reading = self._readings[scope] = _Reading(now, since, lead, time.monotonic())
            self._note(scope, reading.position.ms)
            return reading

    def _note(self, scope: str, reached: int) -> None:
        self._reached[scope] = max(reached, self._reached.get(scope, 0))

    # -- following -------------------------------------------------------------------------------------------------

    def replay(self, stream: str, since: Position | None) -> Replay:
        """Return what was published after ``since``, and whether that is certainly all of it."""
        servers = self._servers
        keys = [self._mark(servers, stream), self._key(stream)]
        scope = servers.scope(stream)
        now, epoch, lead, first, last, length, added, found = servers.run(
            stream, REPLAY, keys, [str(since or ""), self._reached.get(scope, 0)]
        )
        self._note(scope, now)
        # A page that is told to fetch itself gets a cursor at once.
        self._unreachable.pop(scope, None)
        history = History(
            now=now,
            epoch=epoch,
            lead=lead,
            first=Position.parse(first) if first else None,
            last=Position.parse(last) if last else None,
            length=length,
            added=added if added >= 0 else None,
            lifetime=self._lifetime,
            maxlen=self._config.stream_maxlen,
        )
        if since is None or not history.covers(since):
            self._readings.pop(scope, None)
            return Replay(False, (), max(history.last or Position(0), Position(now - 1)), epoch)
        entries = tuple(_entry(*item) for item in found)
        return Replay(True, entries, entries[-1].position if entries else max(since, history.last or since), epoch)

    def listen(self) -> Listener:
        """Open a connection on which broadcasts arrive as they are published."""
        # Whoever has to connect may have lost the server whose clock this was.
        self._readings.clear()
        return self._servers.listen(f"{self._prefix}:")

    # -- keys ------------------------------------------------------------------------------------------------------

    def _mark(self, servers: Servers, stream: str) -> str:
        return f"{self._prefix}-epoch:{in_braces(servers.scope(stream))}"

    def _key(self, stream: str, kind: str = "stream") -> str:
        return f"{self._prefix}-{kind}:{in_braces(stream)}"

    def _channel(self, stream: str) -> str:
        return f"{self._prefix}:{in_braces(stream)}"


def _entry(identifier: bytes, fields: list[bytes]) -> Entry:
    audience, html = opened(fields[fields.index(b"html") + 1].decode("utf-8", "replace"))
    return Entry(Position.parse(identifier), html, audience)
