"""Is this Redis one that jobs and live pages can rely on?"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from redis.exceptions import RedisError
from redis.exceptions import ResponseError

from ..addresses import Place
from ..errors import ConfigurationError
from ..live.position import Position
from .finding import Finding
from .finding import error
from .finding import ok
from .finding import warning

if TYPE_CHECKING:
    from ..state import State

OLDEST = (6, 2)
"""BLMOVE, with which RQ takes a job without losing it, came with Redis 6.2."""

NOBODY = "doctor".ljust(32)
"""Stands for a process that has no pages."""


def configured(state: State) -> Iterator[Finding]:
    if state.config.redis_url:
        yield _readable(state)
    elif state.app.debug or state.app.testing:
        yield ok("INSTRUCT_REDIS_URL is not set: in development an embedded server is started.")
    elif state.config.embedded:
        yield warning(
            "INSTRUCT_EMBEDDED is set outside debug mode: this site runs on the embedded server, which is meant for "
            "development and ends with its last user.",
            "Install Redis or Valkey, set INSTRUCT_REDIS_URL, and take INSTRUCT_EMBEDDED away.",
        )
    else:
        yield error(
            "INSTRUCT_REDIS_URL is not set, and outside development no server is started.",
            "export INSTRUCT_REDIS_URL=redis://localhost:6379/0. In development: flask --debug instruct doctor.",
        )


def _readable(state: State) -> Finding:
    try:
        _ = state.redis
        return ok("INSTRUCT_REDIS_URL is set.")
    except ConfigurationError as lack:
        return error("INSTRUCT_REDIS_URL cannot be read.", str(lack))


def reachable(state: State) -> Iterator[Finding]:
    place = Place.read(state.redis_url())
    try:
        begin = time.monotonic()
        state.redis.ping()
    except RedisError as failure:
        yield error(
            f"Redis at {place} does not answer: {failure}.",
            "Start it, or correct INSTRUCT_REDIS_URL. Until then runs wait in the database, and pages are not live.",
        )
    else:
        yield ok(f"Redis at {place} answers in {(time.monotonic() - begin) * 1000:.1f} ms.")


def version(state: State) -> Iterator[Finding]:
    info = state.redis.info("server")
    told = str(info.get("redis_version", ""))
    known = tuple(int(part) for part in re.findall(r"\d+", told)[:2])
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {told}"
    if known < OLDEST:
        yield error(f"This is {name}; jobs need Redis 6.2 or Valkey.", "Install a newer one.")
    else:
        yield ok(f"This is {name}.")


def persistence(state: State) -> Iterator[Finding]:
    fix = "Set appendonly yes in its configuration. It is not needed for correctness: the database has every run."
    if state.redis.info("persistence").get("aof_enabled"):
        yield ok("It keeps its data (append only file).")
        return
    try:
        save = str(state.redis.config_get("save").get("save", ""))
    except ResponseError:
        yield warning("It has no append only file, and does not say whether it saves snapshots.", fix)
        return
    if save:
        yield ok(f"It keeps its data (snapshots, save {save}).")
    else:
        yield warning(
            "It keeps nothing over a restart: runs that wait are called again by the next sweep only.",
            fix,
        )


def eviction(state: State) -> Iterator[Finding]:
    info = state.redis.info("memory")
    policy, limit = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", 0)
    if policy == "noeviction":
        yield ok("It evicts no keys (maxmemory-policy noeviction).")
        return
    now_or_later = "once its memory is full" if limit else "as soon as a maxmemory is set"
    yield warning(
        f"Its maxmemory-policy is {policy}: jobs and broadcasts are thrown away {now_or_later}.",
        "Set maxmemory-policy noeviction, and alarm on its memory instead.",
    )


def encryption(state: State) -> Iterator[Finding]:
    urls = [state.redis_url()] if state.config.live_url is None else [state.redis_url(), state.config.live_url]
    yield from (_secrecy(Place.read(url)) for url in urls)


def _secrecy(place: Place) -> Finding:
    if not place.hosts:
        return ok("The way to it is private.")
    if place.encrypted:
        return ok(f"The way to {place} is encrypted.")
    if all(_is_near(host) for host, _ in place.hosts):
        return ok("It is on this machine or in a private network.")
    return warning(
        f"Prompts and fragments travel to {place} unencrypted.", "Use a rediss:// address, or a private network."
    )


def broadcasts(state: State) -> Iterator[Finding]:
    """Publish to a stream that nobody follows, read it back, and ask who is there: a user may lack a right to it."""
    place = Place.read(state.config.live_url or state.redis_url())
    bus, stream = state.live.bus, "instruct-doctor"
    listener = None
    try:
        since = bus.now(stream)
        listener = bus.listen()
        listener.subscribe(stream)
        bus.publish(stream, "<!-- the doctor was here -->")
        replay = bus.replay(stream, Position.parse(since))
        bus.roll.attend(stream, NOBODY)
        bus.roll.signed_out(0)
    except (RedisError, ConfigurationError) as failure:
        yield error(
            f"Broadcasts cannot be kept at {place}: {failure}.", "See what rights a user needs: docs on deployment."
        )
        return
    finally:
        if listener is not None:
            listener.close()
    if replay.entries:
        yield ok(f"Broadcasts go through {place}.")
    else:
        yield error(f"A broadcast to {place} was not kept.", "Look for what deletes keys there.")


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        # A name without a dot is resolved within a host, a container network or a cluster.
        return "." not in host or host.endswith((".local", ".internal", ".lan"))
