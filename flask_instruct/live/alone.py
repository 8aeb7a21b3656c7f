"""Publishing without an app: from a shell, a cron job or another service that knows the address and the stream."""

from __future__ import annotations

from ..config import Config
from ..connections import connect_bus
from .bus import Bus


def publish(
    url: str, stream: str, html: str, *, key_prefix: str = "instruct", broadcast_id: str | None = None
) -> str | None:
    """Publish a fragment to the open pages of a stream, and return its position.

    Opens a connection and closes it; in an app use ``instruct.bus.publish``, which keeps one.

    :param url: the app's ``INSTRUCT_LIVE_URL``, or its ``INSTRUCT_REDIS_URL``.
    :param stream: its name, as it stands on the page: text, or ``Assessment/42`` of a record.
    :param html: ``<turbo-stream>`` elements, as ``turbo_stream("append", target="log", html=…)`` makes them.
    :param key_prefix: the app's ``INSTRUCT_KEY_PREFIX``.
    :param broadcast_id: a name of this broadcast; one that the stream has seen lately is left out and gives None.
    :raises InstructError: when it is larger than ``INSTRUCT_BROADCAST_BYTES`` by default.
    :raises redis.RedisError: when Redis did not answer. It may have been published nevertheless: repeat it with
        the same ``broadcast_id`` only.
    """
    redis = connect_bus(url)
    try:
        return Bus(lambda: redis, Config(key_prefix=key_prefix)).publish(stream, html, broadcast_id)
    finally:
        redis.close()
