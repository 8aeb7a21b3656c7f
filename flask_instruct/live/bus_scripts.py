"""What the bus does inside Redis, as scripts: each is one step that nothing comes between.

All begin by asking which data this is: a server that was promoted, restarted or given a slot may lack the newest
entries, so it marks a new beginning, and a cursor from before it is answered with a reset. What tells pages where they
are asks each time; publishing, which only adds, takes an answer for good for a second.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from redis import Redis
from redis.exceptions import NoScriptError
from redis.exceptions import RedisError

TRUST = 1.0
"""Seconds for which publishing takes a server for the one that it was; no longer than until the first error."""

LEAD = 60_000
"""Milliseconds by which positions are ahead of the clock at a new beginning: as far as servers' clocks may differ."""

BELIEVED = 3_600_000
"""Milliseconds ahead of the clock that a process is believed to have seen positions of."""


class Script:
    """A script that is called by its hash; a server that does not know it is given the source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, redis: Redis, keys: list[str], arguments: list[Any], *, asking: bool = False) -> Any:
        """Run it.

        :param asking: the server is only about to get these keys from another one of its cluster.
        """
        call: Callable[..., Any] = partial(_after_asking, redis) if asking else redis.execute_command
        try:
            return call("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return call("EVAL", self.source, len(keys), *keys, *arguments)


def reached(now: int, since: int, lead: int) -> int:
    """Return the time of positions: ahead of the clock by ``lead`` at ``since``, at half its speed until both agree."""
    return max(now, since + lead + (now - since) // 2)


# The replication id is a new one whenever a server starts, is promoted, or loses its past otherwise. A mark that bears
# another's came with the data: from a master that may have had more of them, or from the node that had the slot.
# Positions then continue ahead of whatever the other server's clock may have shown, and of what this process has SEEN:
# where the mark is lost too, nothing else tells how far they were. Words are looked for as they stand: a pattern takes
# eight times as long.
_BEGINNING = (
    f"local LEAD, BELIEVED = {LEAD}, {BELIEVED}\n"
    + """
local mark = redis.call('GET', KEYS[1]) or ''
local owner, server = string.sub(mark, 1, 40), ''
local since, lead = string.match(mark, '^ (%d+) (%d+)$', 41)
since, lead = tonumber(since), tonumber(lead)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function reached()
  return math.max(now, since + lead + math.floor((now - since) / 2))
end
if not since or owner ~= TRUSTED then
  local told = redis.call('INFO', 'replication')
  if string.find(told, 'role:slave', 1, true) then
    return redis.error_reply('READONLY This server is a replica now.')
  end
  local _, before = string.find(told, 'master_replid:', 1, true)
  server = before and string.sub(told, before + 1, before + 40) or string.rep('0', 40)
  if not since or owner ~= server then
    local ahead = (tonumber(SEEN) or 0) - now
    lead = math.max(since and reached() - now or 0, ahead < BELIEVED and ahead or 0) + LEAD
    since = now
    redis.call('SET', KEYS[1], string.format('%s %d %d', server, since, lead))
  end
end
"""
)

CLOCK = Script(
    "local TRUSTED, SEEN = '', ARGV[1]\n"
    + _BEGINNING
    + """
return {now, since, lead}
"""
)
"""KEYS: mark. ARGV: the time of the last position seen. Returns the server's clock, when its data began, and the lead
of positions then; all in milliseconds."""

# The ids of the last broadcasts, so that one that is sent again is not applied again: the sweep repeats what it
# cannot know to have arrived.
_PUBLISH = (
    "local TRUSTED, SEEN = ARGV[1], ARGV[6]\n"
    + _BEGINNING
    + """
local moment = reached()
local function add(html)
  local function as(id)
    return redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], id, 'html', html)
  end
  if moment <= now then return as('*') end
  local id = as(string.format('%d-*', moment))
  if type(id) == 'string' then return id end
  -- Redis before 7 counts for nobody but itself, and no server goes back behind the last position.
  local ms, number = 0, 0
  local about = redis.pcall('XINFO', 'STREAM', KEYS[2])
  for at = 1, #about, 2 do
    if about[at] == 'last-generated-id' then ms, number = string.match(about[at + 1], '^(%d+)-(%d+)$') end
  end
  if tonumber(ms) >= moment then return as(string.format('%s-%d', ms, number + 1)) end
  return as(string.format('%d-0', moment))
end
local function announce(message)
  if ARGV[5] == '' then return redis.call('PUBLISH', ARGV[2], message) end
  local told = redis.pcall('SPUBLISH', ARGV[2], message)
  if type(told) == 'table' then
    -- A cluster of Redis 6.2: who listens does so at this node.
    if not string.find(told.err, 'nknown') then return told end
    return redis.call('PUBLISH', ARGV[2], message)
  end
end
local positions, named = {server}, false
for at = 7, #ARGV, 2 do
  local name, html = ARGV[at], ARGV[at + 1]
  if name ~= '' and redis.call('ZSCORE', KEYS[3], name) then
    positions[#positions + 1] = ''
  else
    local id = add(html)
    if type(id) ~= 'string' then return id end
    if name ~= '' then
      redis.call('ZADD', KEYS[3], string.match(id, '^%d+'), name)
      named = true
    end
    local failure = announce(string.format('%s %d %s', id, since + lead - 1, html))
    if type(failure) == 'table' then return failure end
    positions[#positions + 1] = id
  end
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if named then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -(tonumber(ARGV[3]) + 1))
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return positions
"""
)
REPLAY = Script(
    "local TRUSTED, SEEN = '', ARGV[2]\n"
    + _BEGINNING
    + """
local told = {['length'] = 0, ['last-generated-id'] = '', ['entries-added'] = -1}
local about = redis.pcall('XINFO', 'STREAM', KEYS[2])
if about.err and not string.find(about.err, 'no such key') then return about end
for at = 1, #about, 2 do told[about[at]] = about[at + 1] end
local first = told['first-entry'] and told['first-entry'][1] or ''
local entries = {}
if ARGV[1] ~= '' then entries = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+') end
return {
  reached(), since + lead - 1, lead, first, told['last-generated-id'], told['length'], told['entries-added'], entries
}
"""
)
"""KEYS: mark, stream. ARGV: a position or nothing, and the time of the last one seen. Returns the time of positions,
that of the beginning and their lead then, the first and the last id, how many entries there are and ever were (-1: not
counted), and the entries after the position."""


class Publishing(Script):
    """Publish; ask a server only once in :data:`TRUST` who it is.

    KEYS: mark, stream, seen. Arguments: channel, entries kept, milliseconds kept, ``sharded`` or nothing, the time of
    the last position seen, then a name and the HTML of each broadcast. Returns the positions, empty for what was
    published before.
    """

    def __init__(self) -> None:
        super().__init__(_PUBLISH)
        self._trusted: WeakKeyDictionary[Redis, tuple[bytes, float]] = WeakKeyDictionary()

    def call(self, redis: Redis, keys: list[str], arguments: list[Any], *, asking: bool = False) -> Any:
        began = time.monotonic()
        trusted, until = self._trusted.get(redis, (b"", 0.0))
        try:
            named, *positions = super().call(
                redis, keys, [trusted if began < until else b"", *arguments], asking=asking
            )
        except RedisError:
            self._trusted.pop(redis, None)
            raise
        if named:
            self._trusted[redis] = (named, began + TRUST)
        return positions


def _after_asking(redis: Redis, *command: Any) -> Any:
    with redis.pipeline(transaction=False) as pipe:
        pipe.execute_command("ASKING")  # type: ignore[no-untyped-call]
        pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        answers = pipe.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers[-1]
