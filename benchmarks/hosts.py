"""Servers of many sockets beside each other: ours and others, each in processes of its own behind one Redis.

Each is told what to broadcast from outside, and its processor time, memory and threads are those of the process that
holds the sockets.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC
from abc import abstractmethod
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flask import Flask
from redis import Redis

from flask_instruct.embedded import embedded_url
from flask_instruct.embedded import leave
from flask_instruct.live import Live
from flask_instruct.live.audience import sign_stream
from flask_instruct.live.turbo_stream import stream_name

from . import archive
from . import board
from . import relays
from .crowd import Crowd
from .memory import PROC
from .memory import Memory
from .memory import children

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0
"""Seconds that a server may take to start."""
SPARE = 500
"""Sockets, threads and connections that a server can have beyond those that are measured."""
WARM = 16
"""Sockets that are opened before anything is measured, so that what the first one brings is not counted."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all servers stand on: a folder, a Redis, and our app as the one that publishes."""

    folder: Path
    redis_url: str
    app: Flask
    settings: Mapping[str, Any]

    @property
    def live(self) -> Live:
        live: Live = self.app.extensions["instruct_live"]
        return live

    @classmethod
    @contextmanager
    def laid(cls, sockets: int) -> Iterator[Ground]:
        """Make a folder and a Redis, which end with the block; our app's context is pushed.

        :param sockets: most that a server of ours will have.
        """
        with tempfile.TemporaryDirectory(prefix="instruct-bench-") as name, ExitStack() as ends:
            keeper = Flask("benchmarks", instance_path=name)
            keeper.testing = True
            redis_url = embedded_url(keeper)
            ends.callback(leave, keeper)
            settings = {
                "SECRET_KEY": "of the benchmarks, and of nothing else",
                "SQLALCHEMY_DATABASE_URI": f"sqlite:///{Path(name) / 'archive.db'}",
                "INSTRUCT_REDIS_URL": redis_url,
                "INSTRUCT_MAX_SOCKETS": sockets + SPARE,
            }
            app = board.create_app(settings)
            with app.test_request_context():
                yield cls(Path(name), redis_url, app, settings)
                archive.db.session.remove()
                app.extensions["instruct_live"].close()


class Host(ABC):
    """A server, and the crowd of its clients.

    :param most: sockets that it has to hold.
    """

    name = ""
    requires: tuple[str, ...] = ()
    """The packages without which it is left out; ``pip`` names what brings them."""
    pip = ""
    dialect = "plain"

    def __init__(self, ground: Ground, most: int) -> None:
        self.most = most
        self.opened = 0
        self._ground = ground
        self.port = _free_port()
        self._channel = f"bench-{type(self).__name__.lower()}-{self.port}"
        self._redis = Redis.from_url(ground.redis_url)
        self._log = ground.folder / f"{self._channel}.log"

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line, behind the interpreter."""

    def environment(self) -> Mapping[str, str]:
        return {relays.REDIS: self._ground.redis_url, relays.CHANNEL: self._channel}

    def publish(self, text: str) -> None:
        """Let the server send a text to all of its sockets."""
        self._redis.publish(self._channel, text)

    def hello(self, number: int) -> str:
        """Return what a client says after the handshake."""
        return ""

    def listens(self) -> bool:
        """Tell whether the server hears what is published."""
        return bool(self._redis.pubsub_numsub(self._channel)[0][1])

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start the process, which ends with the block; :meth:`wait` waits for it."""
        with self._log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, *self.command()],
                cwd=ROOT,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        self._process = process
        try:
            # The clients leave before their server does.
            with Crowd.gathered(self.name) as self.crowd:
                yield
        finally:
            # It has nothing that it could lose.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._redis.close()

    def wait(self) -> None:
        """Wait until the server answers and the first sockets are open.

        :raises RuntimeError: when it does not come up; with what it has printed.
        """
        self._until(lambda: _accepts(self.port) and bool(self._holders()))
        self.open(WARM)
        self._until(self.listens)

    def open(self, sockets: int) -> float:
        """Open sockets, so many in all; return the seconds it took."""
        more = range(self.opened, sockets)
        self.opened = max(self.opened, sockets)
        try:
            return self.crowd.open(self.port, self.dialect, [self.hello(number) for number in more])
        except RuntimeError as error:
            raise RuntimeError(f"{error}; the server printed:\n{self._printed()}") from None

    @property
    def pid(self) -> int:
        """The process that holds the sockets."""
        return self._holders()[0]

    def processor_time(self) -> float:
        """Return the processor seconds of the process that holds the sockets, all its threads included."""
        # The clock of another process, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime((~self.pid << 3) | 2)

    def memory(self) -> Memory:
        return Memory.of(self.pid)

    def threads(self) -> int:
        return len(os.listdir(PROC / str(self.pid) / "task"))

    def _holders(self) -> list[int]:
        return children(self._process.pid)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} does not start; it printed:\n{self._printed()}")
            time.sleep(0.01)

    def _printed(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]


class Ours(Host):
    """One gunicorn process with eight threads; all pages follow one stream."""

    name = "flask_instruct, gthread"
    dialect = "instruct"

    def command(self) -> list[str]:
        return gunicorn(self.port, f"{board.__name__}:create_app()", "gthread", "--threads", "8")

    def environment(self) -> Mapping[str, str]:
        return {archive.SETTINGS: json.dumps(self._ground.settings)}

    def publish(self, text: str) -> None:
        self._ground.live.bus.publish(self.stream(0), text)

    def hello(self, number: int) -> str:
        live = self._ground.live
        token = sign_stream(live.signer, self.stream(number), "")
        return json.dumps({"type": "subscribe", "streams": [{"token": token, "since": live.bus.now()}]})

    def listens(self) -> bool:
        return True  # The greeting of each socket says so.

    def stream(self, number: int) -> str:
        """Return what a socket follows."""
        return stream_name(board.STREAM)


class OursApart(Ours):
    """Each page follows a stream of its own."""

    def stream(self, number: int) -> str:
        return stream_name(board.STREAM, number)


class Bare(Host):
    """The floor."""

    name = "websockets, broadcast()"
    requires = ("websockets",)
    pip = "websockets"

    def command(self) -> list[str]:
        return ["-m", relays.__name__, str(self.port)]

    def _holders(self) -> list[int]:
        return [self._process.pid]


class SockThreads(Host):
    """flask-sock as it comes: two threads a socket."""

    name = "flask-sock, gthread"
    requires = ("flask_sock",)
    pip = "flask-sock"

    def command(self) -> list[str]:
        enough = str(self.most + SPARE)
        return gunicorn(
            self.port, f"{relays.__name__}:sock()", "gthread", "--threads", enough, "--worker-connections", enough
        )


class SockGreenlets(SockThreads):
    name = "flask-sock, gevent"
    requires = ("gevent",)
    pip = "gevent"

    def command(self) -> list[str]:
        return gunicorn(
            self.port, f"{relays.__name__}:sock()", "gevent", "--worker-connections", str(self.most + SPARE)
        )


class SocketIo(Host):
    """As its documentation serves it with gunicorn; it is told from outside through its message queue."""

    name = "Flask-SocketIO, gevent"
    requires = ("flask_socketio", "gevent")
    pip = "flask-socketio gevent"
    dialect = "socketio"

    def command(self) -> list[str]:
        return gunicorn(
            self.port, f"{relays.__name__}:socketio()", "gevent", "--worker-connections", str(self.most + SPARE)
        )

    def hello(self, number: int) -> str:
        return "40"  # Connect to the main namespace.

    def publish(self, text: str) -> None:
        self._queue.emit(relays.EVENT, text)

    @cached_property
    def _queue(self) -> Any:
        from socketio import RedisManager  # Is only there with Flask-SocketIO.

        return RedisManager(self._ground.redis_url, channel=self._channel, write_only=True)


OTHERS: tuple[type[Host], ...] = (Bare, SockThreads, SockGreenlets, SocketIo)


def is_installed(kind: type[Host]) -> bool:
    """Tell whether everything that a server needs is there, beside gunicorn, which ours needs too."""
    return all(find_spec(package) is not None for package in kind.requires)


@contextmanager
def standing(hosts: Sequence[Host]) -> Iterator[None]:
    """Start servers at once, and wait for all of them; they end with the block."""
    with ExitStack() as ends:
        for host in hosts:
            ends.enter_context(host.started())
        for host in hosts:
            host.wait()
        yield


def gunicorn(port: int, app: str, kind: str, *options: str) -> list[str]:
    """Return the command line of one worker process."""
    address = ["--bind", f"127.0.0.1:{port}", "--no-control-socket"]
    return ["-m", "gunicorn", *address, "--workers", "1", "--worker-class", kind, *options, app]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
