"""Broadcasts from all nodes of a cluster: a connection to each node that keeps a stream which is followed.

Whatever moves in the cluster ends the listener; the next one asks anew who keeps what, and what was missed is read.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from redis.exceptions import ConnectionError

from . import listener
from .listener import Arrived
from .listener import Listener
from .listener import SignedOut
from .listener import Subscribed
from .roll import EVERY_PROCESS

if TYPE_CHECKING:
    from .servers import Address
    from .servers import Cluster

SHARDED = 7
"""Version of Redis from which a node has channels of its own; before, its clients hear what its own scripts say."""


class ClusterListener(Listener):
    """Listens to the node of each stream, so that nothing comes by way of the cluster's own connections.

    Those lose what is said while one of them is down, and nobody is told.

    :raises redis.RedisError: as :class:`Listener` does, also when a stream has moved to another node.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster = cluster
        self._prefix = prefix
        self._lock = threading.RLock()
        self._nodes: dict[Address, Listener] = {}
        self._followed: dict[str, Address] = {}
        self._checked = time.monotonic()
        self._turn = 0
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        try:
            # Where what is for every process is said. The cluster repeats it at all other nodes.
            self._speaking = cluster.owner(EVERY_PROCESS)
            self._speaker = self._node(self._speaking)
        except Exception:
            self.close()
            raise

    def subscribe(self, *streams: str) -> None:
        with self._lock:
            for stream in streams:
                address = self._cluster.owner(stream)
                self._followed[stream] = address
                self._node(address).subscribe(stream)
        self.wake()

    def unsubscribe(self, *streams: str) -> None:
        with self._lock:
            for stream in streams:
                if (address := self._followed.pop(stream, None)) is not None:
                    self._nodes[address].unsubscribe(stream)

    def poll(self, timeout: float) -> Subscribed | Arrived | SignedOut | None:
        with self._lock:
            nodes = list(self._nodes.values())
        self._turn += 1  # A node that talks without end does not keep the others from being heard.
        first = self._turn % max(1, len(nodes))
        for node in nodes[first:] + nodes[:first]:
            notice = _next(node)
            while isinstance(notice, SignedOut) and node is not self._speaker:
                notice = _next(node)
            self.connected = self._speaker.connected
            if notice is not None:
                return notice
        self._check()
        self._wait(nodes, timeout)
        return None

    def wake(self) -> None:
        with suppress(BlockingIOError):
            self._waker.send(b".")

    def close(self) -> None:
        with self._lock:
            for node in self._nodes.values():
                node.close()
            self._nodes.clear()
        self._waker.close()
        self._woken.close()

    def _node(self, address: Address) -> Listener:
        if address not in self._nodes:
            redis = self._cluster.client(address)
            version = str(redis.info("server").get("redis_version", "0"))
            self._nodes[address] = Listener(redis, self._prefix, sharded=int(version.partition(".")[0]) >= SHARDED)
        return self._nodes[address]

    def _wait(self, nodes: list[Listener], timeout: float) -> None:
        """Wait until a node has something to say; not with select(), which a process of many pages is too big for."""
        waiting = select.poll()
        for number in (self._woken.fileno(), *(node.fileno() for node in nodes)):
            waiting.register(number, select.POLLIN)
        waiting.poll(timeout * 1000)
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _check(self) -> None:
        """Notice that a stream is published elsewhere by now: a node that gave it away need not have said so."""
        if time.monotonic() - self._checked < listener.PLACE_CHECK:
            return
        self._checked = time.monotonic()
        self._cluster.refresh()
        with self._lock:
            for stream, address in [(EVERY_PROCESS, self._speaking), *self._followed.items()]:
                if self._cluster.owner(stream) != address:
                    raise ConnectionError(f"The cluster has moved {stream} to another node")


def _next(node: Listener) -> Subscribed | Arrived | SignedOut | None:
    """Return what one node has said; what was read already does not show at its socket any more."""
    while (notice := node.poll(0)) is None:
        if node.idle:
            return None
    return notice
