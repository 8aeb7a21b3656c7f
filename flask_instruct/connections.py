"""Connections to Redis, made per process and per purpose.

Clients that write never retry: redis-py repeats a write whose answer was late, and the write is then
applied twice (redis/redis-py#3554).
"""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .errors import ConfigurationError

TIMEOUT = 2.0
"""Seconds a write may take; a web request must not hang on a stalled server."""


def connect(url: str) -> Redis:
    """Return a client for writes and short reads: no retry, 2 s timeouts."""
    return _client(
        url,
        socket_timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


def connect_worker(url: str) -> Redis:
    """Return a client for an RQ worker, which waits for jobs and sets its own socket timeout."""
    return _client(url, socket_connect_timeout=TIMEOUT, protocol=2)


def _client(url: str, **options: Any) -> Redis:
    try:
        return Redis.from_url(url, **options)
    except ValueError:
        # Without its text, which may quote a part of the password.
        raise ConfigurationError(
            "INSTRUCT_REDIS_URL is no address of a Redis: write redis://user:password@host:6379/0, rediss://… or "
            "unix://…, with %2F for a / and %40 for an @ in the password."
        ) from None
