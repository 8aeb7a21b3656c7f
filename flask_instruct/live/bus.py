"""The bus: where a broadcast is stored for replay and announced to every web process.

Publishing is one script in Redis: an entry in a stream, for pages that come later, and a message with the
same id on a channel, for the pages that are there. Checked with four writers: both have the same order.
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
from redis.commands.core import Script
from redis.exceptions import RedisError
from redis.exceptions import ResponseError

from ..config import Config
from ..errors import InstructError
from .addressed import opened
from .listener import Listener
from .position import Position
from .subscription import Entry
from .subscription import History
from .subscription import Replay

RedisFactory = Callable[[], "Redis"]

UNREACHABLE = 2.0
"""Seconds for which a Redis that did not tell its clock is not asked again, so that not every page waits for it."""

CLOCK_AGE = 10.0
"""Seconds for which Redis' clock is reckoned from this process's own before it is asked again."""

CLOCK_MARGIN = 5
"""Milliseconds that a reckoned cursor lies in the past, for the clocks' drift; replaying more is harmless."""

# The ids of the last broadcasts, so that one that is sent again is not applied again: the sweep repeats what it
# cannot know to have arrived.
_PUBLISH = """
local positions, named = {}, false
for at = 4, #ARGV, 2 do
  local name, html = ARGV[at], ARGV[at + 1]
  if redis.call('ZSCORE', KEYS[2], name) then
    positions[#positions + 1] = ''
  else
    local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'html', html)
    if name ~= '' then
      redis.call('ZADD', KEYS[2], string.match(id, '^%d+'), name)
      named = true
    end
    redis.call('PUBLISH', ARGV[1], id .. ' ' .. html)
    positions[#positions + 1] = id
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if named then
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -(tonumber(ARGV[2]) + 1))
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return positions
"""

# One millisecond less than the clock: an entry may still be added within this one, and a cursor excludes itself.
_CLOCK = """
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000) - 1)
redis.call('SET', KEYS[1], now, 'NX')
return now
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Redis' clock in milliseconds, read at a moment of ours (``time.monotonic``) or shortly before."""

    redis: int
    moment: float

    def at(self, moment: float) -> int:
        """Return what Redis' clock showed at a moment, or a little less."""
        reckoned = self.redis + int((moment - self.moment) * 1000) - CLOCK_MARGIN
        return max(reckoned, self.redis) if moment >= self.moment else reckoned


class Bus:
    """Broadcasts in Redis.

    :param redis_factory: gives this process's client; it must not retry by itself and must return bytes.
    """

    def __init__(self, redis_factory: RedisFactory, config: Config) -> None:
        self._redis_factory = redis_factory
        self._config = config
        self._prefix = f"{config.key_prefix}:live"
        self._lifetime = int(config.stream_ttl * 1000)
        self._reading: _Reading | None = None
        self._prepared = False
        self._unreachable_until = 0.0
        self._clock_lock = threading.Lock()
        self._scripts: dict[str, Script] = {}

    @property
    def redis(self) -> Redis:
        return self._redis_factory()

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
        arguments: list[Any] = [self._channel(stream), self._config.stream_maxlen, self._lifetime]
        for name, html in broadcasts:
            self.check_size(stream, html)
            arguments += (name or "", html.encode("utf-8", "replace"))
        keys = [self._key(stream), self._key(stream, "seen")]
        positions: list[bytes] = self._run(_PUBLISH, keys, arguments)
        return [position.decode() or None for position in positions]

    def check_size(self, stream: str, html: str) -> None:
        """Refuse a fragment that is too large before anything is written."""
        size = len(html.encode("utf-8", "replace"))
        if size > self._config.broadcast_bytes:
            raise InstructError(
                f"The broadcast to {stream} has {size} bytes, the limit INSTRUCT_BROADCAST_BYTES is "
                f"{self._config.broadcast_bytes}: send a smaller fragment, or a refresh."
            )

    # -- cursors ---------------------------------------------------------------------------------------------------

    def now(self) -> str:
        """Return a cursor for this moment: whatever is published from now on comes after it."""
        return str(Position(self._read_clock().redis))

    def cursor(self, moment: float) -> str:
        """Return a cursor for a moment of ``time.monotonic()`` that has passed, mostly without asking Redis."""
        if time.monotonic() < self._unreachable_until:
            raise RedisError("Redis could not be reached a moment ago.")
        reading = self._reading
        if reading is None or time.monotonic() - reading.moment > CLOCK_AGE:
            reading = self._read_clock()
        return str(Position(reading.at(moment)))

    def prepare(self) -> None:
        """Read the clock once, early, so that the very first cursor does not lie before the beginning of the data."""
        if not self._prepared:
            self._prepared = True
            with suppress(RedisError, InstructError):
                self._read_clock()

    def _read_clock(self) -> _Reading:
        with self._clock_lock:
            try:
                now: bytes = self._run(_CLOCK, [self._epoch_key], [])
            except RedisError:
                self._unreachable_until = time.monotonic() + UNREACHABLE
                raise
            self._unreachable_until = 0.0
            self._reading = _Reading(int(now), time.monotonic())
            return self._reading

    # -- following -------------------------------------------------------------------------------------------------

    def replay(self, stream: str, since: Position | None) -> Replay:
        """Return what was published after ``since``, and whether that is certainly all of it."""
        key = self._key(stream)
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.time()
            pipe.get(self._epoch_key)
            pipe.xinfo_stream(key)
            pipe.xrange(key, min=f"({since}" if since else "+")
            time_now, epoch, info, found = pipe.execute(raise_on_error=False)
        for answer in (time_now, epoch, found):
            if isinstance(answer, Exception):
                raise answer
        history = self._history(time_now, epoch, info)
        if since is None or not history.covers(since):
            self._read_clock()  # Marks the beginning of the data when Redis has lost the mark with all else.
            return Replay(False, (), history.last or Position(history.now - 1))
        entries = tuple(_entry(*item) for item in found)
        return Replay(True, entries, entries[-1].position if entries else max(since, history.last or since))

    def listen(self) -> Listener:
        """Open a connection on which broadcasts arrive as they are published."""
        return Listener(self.redis, f"{self._prefix}:")

    def _history(self, time_now: tuple[int, int], epoch: bytes | None, info: Any) -> History:
        if isinstance(info, Exception):
            if not isinstance(info, ResponseError) or "no such key" not in str(info):
                raise info
            info = {"length": 0, "entries-added": None}
        first, last = info.get("first-entry"), info.get("last-generated-id")
        return History(
            now=time_now[0] * 1000 + time_now[1] // 1000,
            epoch=None if epoch is None else int(epoch),
            first=Position.parse(first[0]) if first else None,
            last=Position.parse(last) if last else None,
            length=info["length"],
            added=info.get("entries-added"),
            lifetime=self._lifetime,
            maxlen=self._config.stream_maxlen,
        )

    # -- keys ------------------------------------------------------------------------------------------------------

    @property
    def _epoch_key(self) -> str:
        return f"{self._prefix}-epoch"

    def _key(self, stream: str, kind: str = "stream") -> str:
        # Braces keep both keys of a stream on one node of a cluster.
        return f"{self._prefix}-{kind}:{{{stream}}}"

    def _channel(self, stream: str) -> str:
        return f"{self._prefix}:{stream}"

    def _run(self, source: str, keys: list[str], arguments: list[Any]) -> Any:
        """Run a script by its hash; Redis gets the source again when it has forgotten it."""
        redis = self.redis
        script = self._scripts.get(source)
        if script is None:
            script = self._scripts[source] = redis.register_script(source)
        return script(keys=keys, args=arguments, client=redis)


def _entry(identifier: bytes, fields: dict[bytes, bytes]) -> Entry:
    audience, html = opened(fields[b"html"].decode("utf-8", "replace"))
    return Entry(Position.parse(identifier), html, audience)
