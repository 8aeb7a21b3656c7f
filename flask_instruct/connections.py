"""Connections to Redis, made per process and per purpose.

Clients that write never retry: redis-py repeats a write whose answer was late, and the write is then
applied twice (redis/redis-py#3554).
"""

from __future__ import annotations

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT = 2.0
"""Seconds a write may take; a web request must not hang on a stalled server."""


def connect(url: str) -> Redis:
    """Return a client for writes and short reads: no retry, 2 s timeouts."""
    return Redis.from_url(
        url,
        socket_timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


def connect_worker(url: str) -> Redis:
    """Return a client for an RQ worker, which waits for jobs and sets its own socket timeout."""
    return Redis.from_url(url, socket_connect_timeout=TIMEOUT, protocol=2)
