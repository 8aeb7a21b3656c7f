"""Redis in all its casts, of real processes: with TLS, with users, under Sentinel, and as a cluster."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests import servers
from tests import support
from tests.support import wait_for

BINARY = "TEST_REDIS_SERVER"
"""Names another server program than the one at hand, to try an older Redis."""


class Node:
    """One server at a port of this machine.

    :param options: of its command line.
    """

    def __init__(self, *options: str, sentinel: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="instruct-redis-"))
        self.port = _free_port()
        command = [os.environ.get(BINARY) or servers._redis_binary()]
        if sentinel is not None:
            # Sentinel writes down in it what it has found.
            file = self.folder / "sentinel.conf"
            file.write_text(sentinel)
            command += [str(file), "--sentinel"]
        else:
            command += ["--save", "", "--appendonly", "no"]
        self._command = [*command, "--port", str(self.port), "--dir", str(self.folder), *options]
        self.process: support.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=5, protocol=2)

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
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
            line.sendall(b"PING\r\n")
            return line.recv(16)[:1] in b"+-"
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
def sentinels() -> Iterator[tuple[Node, Node, str]]:
    """Give a master, its replica, and the address by which three sentinels name the master."""
    with ExitStack() as stack:
        (master,) = stack.enter_context(running(Node()))
        (replica,) = stack.enter_context(running(Node("--replicaof", "127.0.0.1", str(master.port))))
        wait_for(lambda: replica.client().info("replication")["master_link_status"] == "up")
        said = f"sentinel monitor mymaster 127.0.0.1 {master.port} 2\n"
        said += "sentinel down-after-milliseconds mymaster 800\nsentinel failover-timeout mymaster 3000\n"
        watchers = stack.enter_context(running(*(Node(sentinel=said) for _ in range(3))))
        for watcher in watchers:
            wait_for(
                lambda watcher=watcher: _knows(watcher), timeout=20, message="the sentinels do not find each other"
            )
        hosts = ",".join(watcher.address for watcher in watchers)
        yield master, replica, f"redis+sentinel://{hosts}/mymaster/0"


def _knows(watcher: Node) -> bool:
    known = watcher.client().sentinel_master("mymaster")
    return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == 1)


@contextmanager
def cluster(replicas: int = 0) -> Iterator[tuple[tuple[Node, ...], str]]:
    """Give the nodes of a cluster, three that keep slots and then their replicas, and its address."""
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-config-file", "nodes.conf"]
    nodes = tuple(Node(*options) for _ in range(3 + replicas))
    with running(*nodes):
        primaries, bounds = nodes[:3], (0, 5461, 10923, 16384)
        for number, node in enumerate(primaries):
            node.client().execute_command("CLUSTER", "ADDSLOTS", *range(*bounds[number : number + 2]))
            node.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            node.client().execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        wait_for(lambda: all(_agrees(node, len(nodes)) for node in nodes), timeout=30, message="no cluster")
        for node, primary in zip(nodes[3:], primaries, strict=False):
            node.client().execute_command("CLUSTER", "REPLICATE", node_id(primary))
            wait_for(lambda node=node: node.client().info("replication").get("master_link_status") == "up", timeout=30)
        yield nodes, "redis+cluster://" + ",".join(node.address for node in primaries)


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


@contextmanager
def encrypted(port: int, certificate: str, key: str, authority: str | None = None) -> Iterator[int]:
    """Give the port of a door that speaks TLS and passes on what it hears to a server that does not.

    :param authority: file of the certificate that a client must show one of.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=_let_in, args=(door, context, port), daemon=True).start()
        yield int(door.getsockname()[1])


def _let_in(door: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError):
        while True:
            line, _ = door.accept()
            threading.Thread(target=_pass_on, args=(line, context, port), daemon=True).start()


def _pass_on(line: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError), context.wrap_socket(line, server_side=True) as outer:
        inner = socket.create_connection(("127.0.0.1", port))
        with inner:
            back = threading.Thread(target=_pump, args=(inner, outer), daemon=True)
            back.start()
            _pump(outer, inner)
            back.join(5)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def _free_port() -> int:
    # A node of a cluster also takes the port that is 10,000 higher.
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        if port < 55_000:
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 10_000)):
                return port
