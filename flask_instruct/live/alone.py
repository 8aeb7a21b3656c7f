"""Publishing without an app: from a shell, a cron job or another service that knows the address and the stream."""

from __future__ import annotations

from ..config import Config
from ..connections import connect_bus
from .bus import Bus


def publish(
    url: str,
    stream: str,
    html: str,
    *,
    broadcast_id: str | None = None,
    key_prefix: str | None = None,
    stream_maxlen: int | None = None,
    stream_ttl: float | None = None,
    broadcast_bytes: int | None = None,
) -> str | None:
    """Publish a fragment to the open pages of a stream, and return its position.

    Opens a connection and closes it; in an app use ``instruct.bus.publish``, which keeps one. What the app has set must
    be the same here: the last four, in seconds and bytes, are its ``INSTRUCT_KEY_PREFIX``, ``INSTRUCT_STREAM_MAXLEN``,
    ``INSTRUCT_STREAM_TTL`` and ``INSTRUCT_BROADCAST_BYTES``; those left out are as in the environment, or its defaults.

    :param url: the app's ``INSTRUCT_LIVE_URL``, or its ``INSTRUCT_REDIS_URL``.
    :param stream: its name, as it stands on the page: text, or ``Assessment/42`` of a record.
    :param html: ``<turbo-stream>`` elements, as ``turbo_stream("append", target="log", html=…)`` makes them.
    :param broadcast_id: a name of this broadcast; one that the stream has seen lately is left out and gives None.
    :raises InstructError: when it is larger than the limit; the text names the stream and the size.
    :raises ConfigurationError: for what is no address, or no value of a setting.
    :raises redis.RedisError: when Redis did not answer. It may have been published nevertheless: repeat it with
        the same ``broadcast_id`` only.
    """
    config = Config.from_app(
        {
            "INSTRUCT_KEY_PREFIX": key_prefix,
            "INSTRUCT_STREAM_MAXLEN": stream_maxlen,
            "INSTRUCT_STREAM_TTL": stream_ttl,
            "INSTRUCT_BROADCAST_BYTES": broadcast_bytes,
        }
    )
    redis = connect_bus(url)
    try:
        return Bus(lambda: redis, config).publish(stream, html, broadcast_id)
    finally:
        redis.close()
