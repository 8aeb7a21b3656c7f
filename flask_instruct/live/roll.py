"""Who is where, and who has left: what the web processes tell each other of people, through Redis.

A viewer is at a stream for as long as the process that has the page says so again and again; what a dead process
said expires. Who was signed out is announced to the processes there are, and noted for those that had lost Redis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .bus_scripts import Script

if TYPE_CHECKING:
    from .servers import Servers

LIFETIME = 45.0
"""Seconds for which a process's word holds that a viewer is at a stream."""

GRACE = 5.0
"""Seconds for which a viewer who has left still is there: a reload is no leave."""

TELLING = 3.0
"""Seconds that a process has to tell the pages before another one does."""

NOTED = 3600.0
"""Seconds for which it is noted that a viewer was signed out, or that pages are being told something."""

SIGNED_OUT = b"signed-out "

_PROCESS = 32
"""Characters of a process's name, in front of each viewer that it speaks for."""

_ATTEND = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local staying = tonumber(ARGV[4])
for at = 5, #ARGV do
  if at < 5 + staying then
    redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1] .. ARGV[at])
  elseif redis.call('ZSCORE', KEYS[1], ARGV[1] .. ARGV[at]) then
    redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1] .. ARGV[at])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if #ARGV > 4 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {redis.call('ZRANGE', KEYS[1], 0, -1), redis.call('GET', KEYS[2])}
""")

_MAY_TELL = Script("""
local mine = redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[1])
if mine then redis.call('SET', KEYS[2], 'null', 'PX', ARGV[2]) end
return mine and 1 or 0
""")

_TOLD = Script("""
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[2])
""")

_SIGN_OUT = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[3] .. ARGV[2])
""")

_SIGNED_OUT_SINCE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[1], '+inf')
""")

EVERY_PROCESS = "every-process"
"""Stands for a stream where something is said to every web process, to choose the node of a cluster that says it."""

Key = Callable[[str, str], str]


class Roll:
    """People, as the processes tell each other of them.

    :param servers: tells where things are kept, each time anew.
    :param key: names the key of a stream for a kind of data; those of one stream are on one node of a cluster.
    :param prefix: what the name of everything begins with; the channel that every listener follows adds a colon.
    """

    def __init__(self, servers: Callable[[], Servers], key: Key, prefix: str) -> None:
        self._servers = servers
        self._key = key
        self._prefix = prefix

    def attend(
        self, stream: str, process: str, staying: Iterable[str] = (), leaving: Iterable[str] = ()
    ) -> tuple[list[str], list[str] | None]:
        """Say who stays at a stream and who has left; return who is there, and of whom its pages were told last.

        None is: of nobody knows whom.

        :param process: the name of the process that speaks, 32 characters.
        :raises redis.RedisError: when Redis did not answer.
        """
        stays = list(staying)
        arguments = [process, int(LIFETIME * 1000), int(GRACE * 1000), len(stays), *stays, *leaving]
        keys = [self._key(stream, "there"), self._key(stream, "told")]
        there, told = self._servers().run(stream, _ATTEND, keys, arguments)
        viewers = {member.decode()[_PROCESS:] for member in there}
        return sorted(viewers), json.loads(told or b"[]")

    def may_tell(self, stream: str) -> bool:
        """Take it upon this process to tell the pages of a stream; False while another one is at it.

        Until it says what it has told, nobody knows what the pages have: it may die half-way.
        """
        keys = [self._key(stream, "telling"), self._key(stream, "told")]
        return bool(self._servers().run(stream, _MAY_TELL, keys, [int(TELLING * 1000), int(NOTED * 1000)]))

    def told(self, stream: str, viewers: list[str], seconds: float) -> None:
        """Note what the pages of a stream have been told, for so many seconds."""
        keys = [self._key(stream, "told"), self._key(stream, "telling")]
        self._servers().run(stream, _TOLD, keys, [json.dumps(viewers), int(seconds * 1000)])

    def sign_out(self, viewer: str) -> None:
        """Let every process hear that a viewer's pages have to be verified anew."""
        arguments = [f"{self._prefix}:", viewer, SIGNED_OUT.decode(), int(NOTED * 1000)]
        self._servers().run(EVERY_PROCESS, _SIGN_OUT, [self._key(EVERY_PROCESS, "signed-out")], arguments)

    def signed_out(self, seconds: float) -> list[str]:
        """Return who was signed out in the last seconds, of the last hour at most."""
        keys = [self._key(EVERY_PROCESS, "signed-out")]
        found = self._servers().run(EVERY_PROCESS, _SIGNED_OUT_SINCE, keys, [int(seconds * 1000)])
        return [viewer.decode() for viewer in found]
