"""Which server keeps a stream: the only one there is, or the node of a cluster that has its slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import cache
from typing import Any
from typing import Protocol

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import AskError
from redis.exceptions import ConnectionError
from redis.exceptions import MovedError
from redis.exceptions import RedisError
from redis.exceptions import TryAgainError
from redis.sentinel import MasterNotFoundError
from redis.sentinel import SentinelConnectionPool

from .bus_scripts import Script
from .listener import Listener
from .listener import in_braces

Address = tuple[str, int]

PATIENCE = 2.0
"""Seconds after which a command fails that is still sent from node to node, or waits for a stream that is moved."""

MOVING = 0.05
"""Seconds between two tries while a part of what a stream has is on one node and a part on another."""


class Servers(Protocol):
    """Where the bus keeps its streams."""

    sharded: bool

    def scope(self, stream: str) -> str:
        """Name what shares one mark and one clock with a stream, so that the mark is kept beside it."""

    def run(self, stream: str, script: Script, keys: list[str], arguments: list[Any]) -> Any:
        """Run a script where a stream is kept."""

    def listen(self, prefix: str) -> Listener:
        """Open a connection on which the broadcasts of streams arrive."""


class OneServer:
    """A single server, or the master that Sentinel names."""

    sharded = False

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def scope(self, stream: str) -> str:
        return ""

    def run(self, stream: str, script: Script, keys: list[str], arguments: list[Any]) -> Any:
        return script.call(self._redis, keys, arguments)

    def listen(self, prefix: str) -> Listener:
        pool = self._redis.connection_pool
        check = _check_master if isinstance(pool, SentinelConnectionPool) else None
        return Listener(self._redis, prefix, check=check)


class Cluster:
    """The nodes of a cluster, found through any of them. Nothing connects before it is used.

    :param seeds: addresses of some nodes.
    :param options: for the client of each node; it must not retry by itself.
    """

    sharded = True

    def __init__(self, seeds: Iterable[Address], options: dict[str, Any]) -> None:
        self._seeds = tuple(seeds)
        self._options = options
        self._lock = threading.RLock()
        self._clients: dict[Address, Redis] = {}
        self._owners: dict[int, Address] = {}

    def scope(self, stream: str) -> str:
        """Return a word that falls into the stream's slot: what is kept under it moves with the stream."""
        return _words()[slot_of(stream)]

    def run(self, stream: str, script: Script, keys: list[str], arguments: list[Any]) -> Any:
        slot, asking = slot_of(stream), False
        address = self.owner(stream)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return script.call(self.client(address), keys, arguments, asking=asking)
            except MovedError as moved:
                address, asking = self._named(moved, address), False
                with self._lock:
                    self._owners[slot] = address
            except AskError as ask:
                address, asking = self._named(ask, address), True
            except TryAgainError:
                time.sleep(MOVING)
                address, asking = self.owner(stream), False
            except RedisError:
                self.forget()
                raise
        raise ConnectionError(f"The cluster is moving {stream}, and has not come to an end in {PATIENCE:.0f} s.")

    def listen(self, prefix: str) -> Listener:
        from .cluster_listener import ClusterListener

        self.refresh()
        return ClusterListener(self, prefix)

    def owner(self, stream: str) -> Address:
        """Return the address of the node that keeps a stream.

        :raises redis.ConnectionError: when no node answers, or none has the slot.
        """
        slot = slot_of(stream)
        if slot not in self._owners:
            self.refresh()
        try:
            return self._owners[slot]
        except KeyError:
            raise ConnectionError(f"No node of the cluster has the slot {slot}, where {stream} is kept.") from None

    def client(self, address: Address) -> Redis:
        """Return this process's client of one node."""
        with self._lock:
            if address not in self._clients:
                self._clients[address] = Redis(host=address[0], port=address[1], **self._options)
            return self._clients[address]

    def refresh(self) -> None:
        """Ask the nodes who keeps what."""
        failure: Exception | None = None
        for address in dict.fromkeys([*self._owners.values(), *self._seeds]):
            try:
                ranges = self.client(address).execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
            except RedisError as error:
                failure = error
                continue
            owners = {
                slot: (primary[0].decode() or address[0], int(primary[1]))
                for first, last, primary, *_ in ranges
                for slot in range(first, last + 1)
            }
            with self._lock:
                self._owners = owners
            return
        raise ConnectionError(f"No node of the cluster answers: {failure}") from failure

    def forget(self) -> None:
        """Ask again before the next use who keeps what."""
        with self._lock:
            self._seeds = tuple(dict.fromkeys([*self._seeds, *self._owners.values()]))
            self._owners = {}

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()

    def _named(self, error: AskError, here: Address) -> Address:
        return (error.host or here[0], error.port)


def slot_of(stream: str) -> int:
    """Return the slot that a cluster keeps a stream in."""
    return int(key_slot(in_braces(stream).encode()))


@cache
def _words() -> dict[int, str]:
    """Find a word for each slot there is; takes a fraction of a second, once."""
    words: dict[int, str] = {}
    number = 0
    while len(words) < 16384:
        words.setdefault(key_slot(str(number).encode()), str(number))
        number += 1
    return words


def _check_master(listener: Listener) -> None:
    """Notice that Sentinel names another master than the one that is listened to, which may not know it itself."""
    pool: Any = listener.redis.connection_pool
    try:
        named = pool.get_master_address()
    except MasterNotFoundError:
        return
    if listener.address not in (None, named):
        raise ConnectionError(f"Redis' master is {named[0]}:{named[1]} now")
