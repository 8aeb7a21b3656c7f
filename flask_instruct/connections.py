"""Connections to Redis, made per process and per purpose: to one server, to Sentinel's master, or to a cluster.

Clients that write never retry: redis-py repeats a write whose answer was late, and the write is then
applied twice (redis/redis-py#3554).
"""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from .addresses import CLUSTER
from .addresses import SENTINEL
from .addresses import Place
from .errors import ConfigurationError
from .live.servers import Cluster

TIMEOUT = 2.0
"""Seconds a write may take; a web request must not hang on a stalled server."""

FORMS = (
    "write redis://user:password@host:6379/0, rediss://… for TLS, unix://…, or redis+sentinel://user:password@"
    "host:26379,host:26379/mymaster/0, with %2F for a / and %40 for an @ in the password."
)


def connect(url: str) -> Redis:
    """Return a client for writes and short reads: no retry, 2 s timeouts.

    :raises ConfigurationError: for what is no address, or that of a cluster, where jobs cannot be kept.
    """
    return _client(url, **_writing())


def connect_worker(url: str) -> Redis:
    """Return a client for an RQ worker, which waits for jobs and sets its own socket timeout."""
    return _client(url, socket_connect_timeout=TIMEOUT, protocol=2)


def connect_bus(url: str) -> Redis | Cluster:
    """Return a client for broadcasts, which may be kept in a cluster too: ``redis+cluster://host:6379,host:6379``.

    :raises ConfigurationError: for what is no address.
    """
    place = _read(url, "INSTRUCT_LIVE_URL")
    if place.kind != CLUSTER:
        return _client(url, "INSTRUCT_LIVE_URL", **_writing())
    options = {**_options(place, "INSTRUCT_LIVE_URL"), **_writing()}
    if options.pop("db", 0):
        raise ConfigurationError("INSTRUCT_LIVE_URL names a database, and a cluster has only the one that is 0.")
    return Cluster(place.hosts, options)


def _writing() -> dict[str, Any]:
    return {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _client(url: str, setting: str = "INSTRUCT_REDIS_URL", **options: Any) -> Redis:
    place = _read(url, setting)
    if place.kind == CLUSTER:
        raise ConfigurationError(
            "INSTRUCT_REDIS_URL is a cluster, and jobs need one server, as RQ does: set it to a single Redis or to "
            "Sentinel's, and INSTRUCT_LIVE_URL to the cluster, which then carries the broadcasts."
        )
    if place.kind == SENTINEL:
        return _master(place, setting, options)
    try:
        return Redis.from_url(url, **options)
    except ValueError:
        # Without its text, which may quote a part of the password.
        raise ConfigurationError(f"{setting} is no address of a Redis: {FORMS}") from None


def _master(place: Place, setting: str, options: dict[str, Any]) -> Redis:
    """Return a client of the master that the sentinels name each time it connects."""
    given = {**_options(place, setting), **options}
    # Sentinels have users of their own, mostly none; they are reached in the same way as the servers.
    login = {name: given.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    reach = {name: value for name, value in given.items() if name.startswith("ssl")}
    sentinel = Sentinel(place.hosts, sentinel_kwargs={**_writing(), **reach, **login}, **given)  # type: ignore[no-untyped-call]
    return sentinel.master_for(place.service)  # type: ignore[no-untyped-call,no-any-return]


def _read(url: str, setting: str) -> Place:
    try:
        return Place.read(url)
    except ValueError:
        raise ConfigurationError(f"{setting} is no address of a Redis: {FORMS}") from None


def _options(place: Place, setting: str) -> dict[str, Any]:
    """Let redis-py read the rest of an address, as it does for a single server."""
    try:
        options: dict[str, Any] = parse_url(place.plain)  # type: ignore[no-untyped-call]
    except ValueError:
        raise ConfigurationError(f"{setting} is no address of a Redis: {FORMS}") from None
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    for name in ("host", "port"):
        options.pop(name, None)
    return options
