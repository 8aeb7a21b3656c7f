"""Redis in all its casts, of real processes: with TLS, with users, under Sentinel, and as a cluster."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests import servers
from tests import support
from tests.support import wait_for

from .tls import Certificates
from .tls import Door

BINARY = "TEST_REDIS_SERVER"
"""Names another server program than the one at hand, to try an older Redis."""


class Node:
    """One server at a port of this machine.

    :param options: of its command line.
    :param certificates: it is also reached with TLS.
    :param users: lines of its file of users.
    """

    def __init__(
        self,
        *options: str,
        sentinel: str | None = None,
        certificates: Certificates | None = None,
        users: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="instruct-redis-"))
        self.inner_port = self.port = _free_port()
        self._door: Door | None = None
        if certificates is not None:
            self._door = Door(self.inner_port, certificates)
            self.port = self._door.port
        command = [program()]
        if sentinel is not None:
            # Sentinel writes down in it what it has found.
            file = self.folder / "sentinel.conf"
            file.write_text(sentinel)
            command += [str(file), "--sentinel"]
        else:
            command += ["--save", "", "--appendonly", "no"]
            command += ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(self.port)]
            command += ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", str(self.port)]
        if users:
            file = self.folder / "users.acl"
            file.write_text("\n".join(["user default on nopass ~* &* +@all", *users, ""]))
            command += ["--aclfile", str(file)]
        self._command = [*command, "--port", str(self.inner_port), "--dir", str(self.folder), *options]
        self.process: support.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=5, protocol=2)

    @property
    def version(self) -> tuple[int, ...]:
        """Of the Redis that it is, or is compatible with."""
        told = str(self.client().info("server")["redis_version"])
        return tuple(int(part) for part in told.split(".")[:2])

    def start(self) -> None:
        self.process = support.Process(self._command, log=self.folder / "log")
        wait_for(self._answers, message=f"the server at {self.port} does not start")

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGCONT)

    def remove(self) -> None:
        if self.process is not None:
            if self.process.running:
                self.resume()
            self.process.stop()
        if self._door is not None:
            self._door.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
            line.sendall(b"PING\r\n")
            return line.recv(16)[:1] in (b"+", b"-")
        return False


@contextmanager
def running(*nodes: Node) -> Iterator[tuple[Node, ...]]:
    """Run servers for the length of the block."""
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.remove)
            node.start()
        yield nodes


@contextmanager
def sentinels(certificates: Certificates | None = None) -> Iterator[tuple[Node, Node, str]]:
    """Give a master, its replica, and the address by which three sentinels name the master."""
    with ExitStack() as stack:
        (master,) = stack.enter_context(running(Node(certificates=certificates)))
        follow = ("--replicaof", "127.0.0.1", str(master.port))
        (replica,) = stack.enter_context(running(Node(*follow, certificates=certificates)))
        wait_for(lambda: replica.client().info("replication")["master_link_status"] == "up")
        said = f"sentinel monitor mymaster 127.0.0.1 {master.port} 2\n"
        # A door in this process is slow at times, and no reason to relieve the master.
        patience = 800 if certificates is None else 60_000
        said += f"sentinel down-after-milliseconds mymaster {patience}\nsentinel failover-timeout mymaster 3000\n"
        watchers = stack.enter_context(running(*(Node(sentinel=said, certificates=certificates) for _ in range(3))))
        for watcher in watchers:
            wait_for(
                lambda watcher=watcher: _knows(watcher), timeout=60, message="the sentinels do not find each other"
            )
        yield master, replica, _address("sentinel", watchers, "/mymaster/0", certificates)


def _knows(watcher: Node) -> bool:
    known = watcher.client().sentinel_master("mymaster")
    return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == 1)


@contextmanager
def cluster(
    replicas: int = 0, certificates: Certificates | None = None, unknown: Sequence[str] = ()
) -> Iterator[tuple[tuple[Node, ...], str]]:
    """Give the nodes of a cluster, three that keep slots and then their replicas, and its address.

    :param unknown: commands of Redis 7 that they do not know.
    """
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    old = "v=6." in said
    options = [part for command in unknown if not old for part in ("--rename-command", command, "")]
    options += ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-config-file", "nodes.conf"]
    nodes = tuple(Node(*options, certificates=certificates) for _ in range(3 + replicas))
    with running(*nodes):
        primaries, bounds = nodes[:3], (0, 5461, 10923, 16384)
        for number, node in enumerate(primaries):
            node.client().execute_command("CLUSTER", "ADDSLOTS", *range(*bounds[number : number + 2]))
            node.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            node.client().execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].inner_port + 10_000)
        wait_for(lambda: all(_agrees(node, len(nodes)) for node in nodes), timeout=30, message="no cluster")
        for node, primary in zip(nodes[3:], primaries, strict=False):
            node.client().execute_command("CLUSTER", "REPLICATE", node_id(primary))
            wait_for(lambda node=node: node.client().info("replication").get("master_link_status") == "up", timeout=30)
        yield nodes, _address("cluster", primaries, "", certificates)


def _address(kind: str, nodes: tuple[Node, ...], path: str, certificates: Certificates | None) -> str:
    hosts = ",".join(node.address for node in nodes)
    if certificates is None:
        return f"redis+{kind}://{hosts}{path}"
    return f"rediss+{kind}://{hosts}{path}?ssl_ca_certs={certificates.authority}"


def node_id(node: Node) -> str:
    return str(node.client().execute_command("CLUSTER", "MYID").decode())


def _agrees(node: Node, count: int) -> bool:
    with suppress(RedisError):
        said = node.client().execute_command("CLUSTER INFO")
        return said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == count
    return False


def begin_move(slot: int, source: Node, target: Node) -> None:
    """Begin to move a slot from one node to another, as an administrator does."""
    target.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
    source.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))


def end_move(slot: int, source: Node, target: Node, others: tuple[Node, ...]) -> None:
    """Move all keys of the slot, and tell every node of it."""
    while keys := source.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.client().execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for node in (target, source, *others):
        node.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))


def program() -> str:
    """Return the server program."""
    return os.environ.get(BINARY) or str(servers._redis_binary())


def _free_port() -> int:
    # A node of a cluster also takes the port that is 10,000 higher.
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        if port < 55_000:
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 10_000)):
                return port
