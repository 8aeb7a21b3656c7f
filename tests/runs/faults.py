"""Where a run is ambushed and what strikes it there.

A place is reached by the process that carries out the run, or by the model's server; it then stands still until the
test has struck: killed a process, Redis, the connections to the database or to the model.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Literal

import psutil
import psycopg
from sqlalchemy.engine import make_url

from flask_instruct.adapters.scripted import Script
from flask_instruct.runs.points import listen
from flask_instruct.runs.unit import BUSY_TIMEOUT
from tests.live.redis_process import RedisProcess
from tests.support import Process
from tests.support import alive
from tests.support import holds
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import Seen
from tests.wire import WireServer
from tests.wire import told_reply

Fault = Literal["work-horse", "worker", "redis", "database", "model", "lock"]
WORKER_NAME = "instruct-test-worker"
"""How a worker's connections to PostgreSQL call themselves."""
WITHOUT_REDIS = 1.5
"""Seconds that a killed Redis stays away: the run goes on meanwhile, or ends."""


@dataclass(frozen=True)
class Place:
    """One moment of a run's life.

    :param path: the points that are reached, in this order, when it has come.
    :param request: the number of the model's request at which it is the model's server that stands still.
    :param decided: a person approves while everything stands still; else once the run has been put down, and at a
        place where it has just been, after the strike.
    """

    name: str
    path: tuple[str, ...] = ()
    request: int = 0
    midway: bool = False
    decided: bool = False

    @property
    def in_the_effect(self) -> bool:
        """Whether nobody may know afterwards if the letter was sent."""
        return self.name.startswith("effect")

    @property
    def before_the_decision(self) -> bool:
        """Whether the strike comes before the approval."""
        return not self.decided and self.path[-1:] == ("put down",)


PLACES = (
    Place("before claim", ("before claim",)),
    Place("claimed", ("claimed",)),
    Place("call leaves", ("call leaves",)),
    Place("request sent", request=1),
    Place("mid-stream", request=1, midway=True),
    Place("text stored", ("text stored",)),
    Place("turn written", ("turn written",)),
    Place("tool begun", ("tool begun",)),
    Place("inside the tool", ("inside the tool",)),
    Place("before commit", ("tool returned",)),
    Place("after commit", ("tool committed",)),
    Place("before publish", ("tool returned", "before publish")),
    Place("after publish", ("tool returned", "after publish")),
    Place("second tool begun", ("tool begun", "tool begun")),
    Place("second tool before commit", ("tool returned", "tool returned")),
    Place("second tool after commit", ("tool committed", "tool committed")),
    Place("effect begun", ("effect begun",)),
    Place("effect returned", ("effect returned",)),
    Place("second call leaves", ("call leaves", "call leaves")),
    Place("second request sent", request=2),
    Place("turn to approve written", ("turn written", "turn written")),
    Place("before the wait", ("before the wait",)),
    Place("decided before the wait", ("before the wait",), decided=True),
    Place("put down", ("put down",)),
    Place("decided as it is put down", ("put down",), decided=True),
    Place("approved run claimed", ("put down", "claimed")),
    Place("approved call begun", ("put down", "tool begun")),
    Place("approved call before commit", ("put down", "tool returned")),
    Place("approved call after commit", ("put down", "tool committed")),
    Place("third call leaves", ("put down", "call leaves")),
    Place("last turn written", ("put down", "turn written")),
    Place("before finish", ("before the end",)),
    Place("before publish of the end", ("before the end", "before publish")),
    Place("finished", ("ended",)),
)
FAULTS: tuple[Fault, ...] = ("work-horse", "worker", "redis", "database", "model")
"""Those of the table; a ``lock`` is tried at a few points only, as it takes half a minute."""
UNCONNECTED = (
    "before claim",
    "claimed",
    "call leaves",
    "approved run claimed",
    "approved call begun",
    "approved call before commit",
    "approved call after commit",
    "third call leaves",
)
"""In a process that has not asked the model yet."""


def impossible(place: Place, fault: Fault) -> str | None:
    """Say why a fault cannot strike at a place, where it cannot."""
    if fault == "model" and place.name in UNCONNECTED:
        return "no connection to the model is open yet"
    if fault == "database" and place.name == "before claim":
        return "no connection to the database is open yet"
    return None


# -- in the worker -----------------------------------------------------------------------------------------------------


class Ambush:
    """Lets the process that carries out a run stand still at a place, once for all processes.

    :param folder: where test and worker meet: ``horse``, ``reached`` and ``strike`` are files in it.
    """

    def __init__(self, folder: Path | None = None, path: tuple[str, ...] = (), disk: str | None = None) -> None:
        self._folder = folder
        self._path = path
        self._disk = disk

    @classmethod
    def from_environment(cls) -> Ambush:
        """Make the one that ``INSTRUCT_TEST_AMBUSH`` says, if any, and wait for runs to come by."""
        order = json.loads(os.environ.get("INSTRUCT_TEST_AMBUSH", "null"))
        if order is None:
            return cls()
        made = cls(Path(order["folder"]), tuple(order["path"]), order["disk"])
        listen(made.visit)
        return made

    def visit(self, point: str) -> None:
        """Note that a point was reached, and stand still there if this is the place."""
        if self._folder is None or (self._folder / "struck").exists():
            return
        if point == "before claim":
            _write(self._folder / "horse", str(os.getpid()))
            if self._disk:
                threading.Thread(target=self._lose_disk, args=[self._folder, self._disk], daemon=True).start()
        # In files, as the process that goes on with a run that was put down is another one.
        passed = [self._folder / f"passed {number}" for number in range(len(self._path))]
        step = sum(file.exists() for file in passed)
        if step == len(passed) or point != self._path[step]:
            return
        if step == len(passed) - 1:
            _write(self._folder / "reached", point)
        _write(passed[step], point)
        if step == len(passed) - 1:
            wait_for((self._folder / "struck").exists, 60)

    def _lose_disk(self, folder: Path, database: str) -> None:
        while not (folder / "strike").exists():
            time.sleep(0.002)
        take_descriptors(database)
        (folder / "struck").touch()


def take_descriptors(database: str) -> int:
    """Let every descriptor of an SQLite database, open in this process, lead nowhere; tell how many there were.

    What stands for a database connection that ends where no server ends it: the disk is gone. Every read and write
    fails with "disk I/O error" from then on. The numbers stay taken, so that no other file comes to stand there. The
    file of locks is left: SQLite takes a lock that fails for one that somebody else has, and waits for 30 seconds.
    """
    files = {(found.st_dev, found.st_ino) for end in ("", "-wal") for found in _stat(database + end)}
    nowhere = os.open("/", os.O_RDONLY)
    taken = 0
    for descriptor in range(3, 512):
        with suppress(OSError):
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) in files:
                os.dup2(nowhere, descriptor)
                taken += 1
    return taken


def _stat(path: str) -> list[os.stat_result]:
    with suppress(FileNotFoundError):
        return [os.stat(path)]
    return []


def _write(path: Path, text: str) -> None:
    """Write a file that is there only when it is whole."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text)
    unfinished.rename(path)


# -- at the model ------------------------------------------------------------------------------------------------------


class Model:
    """A model's server that tells a story, and can stand still and hang up."""

    def __init__(self, story: Script, place: Place, first_words: str) -> None:
        self._story = story
        self._place = place
        self._first_words = first_words
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.server = WireServer(self._answer)

    def _answer(self, seen: Seen) -> Reply:
        reply = told_reply(self._story, seen)
        if len(self.server.seen) != self._place.request:
            return reply
        if self._place.midway:
            assert isinstance(reply.body, list | tuple)
            said = "".join(part for part in reply.body if isinstance(part, str))
            # Ten bytes into the event after the first words.
            return replace(reply, stall_after=said.index("\n\n", said.index(self._first_words)) + 12)
        self.reached.set()
        self.go_on.wait(60)
        return reply

    def release(self) -> None:
        self.go_on.set()
        self.server.release()

    def reset_connections(self) -> int:
        """End every open connection as a machine does that has forgotten it; tell how many there were."""
        connections = list(self.server._server._connections)
        for connection in connections:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # Wakes the thread that reads it without a word to the client; the close then sends the reset.
                connection.shutdown(socket.SHUT_RD)
                os.close(connection.detach())
        return len(connections)


# -- in the test -------------------------------------------------------------------------------------------------------


@dataclass
class Scene:
    """What a fault may strike."""

    folder: Path
    database_url: str
    worker: Process
    start_worker: Callable[[], Process]
    redis: RedisProcess
    model: Model
    ended: Callable[[], bool]

    @property
    def horse(self) -> int:
        return int((self.folder / "horse").read_text())

    def let_go(self) -> None:
        (self.folder / "struck").touch()
        self.model.release()


def kill_horse(scene: Scene) -> None:
    os.kill(scene.horse, signal.SIGKILL)
    scene.let_go()


def kill_worker(scene: Scene) -> None:
    """Kill the worker's first process; the kernel takes the others along."""
    family = [each.pid for each in psutil.Process(scene.worker.pid).children(recursive=True)]
    assert scene.horse in family
    scene.worker.signal(signal.SIGKILL)
    wait_for(lambda: not any(map(alive, family)), message="the whole worker to be gone")
    scene.let_go()
    scene.start_worker()


def kill_redis(scene: Scene) -> None:
    """Kill Redis, let the run go on without it for a while, and start it again, empty."""
    scene.redis.kill()
    scene.let_go()
    holds(lambda: not scene.ended(), WITHOUT_REDIS)
    scene.redis.start()


def end_connections(scene: Scene) -> None:
    """End every connection that the worker has to the database."""
    if scene.database_url.startswith("sqlite"):
        (scene.folder / "strike").touch()
        wait_for((scene.folder / "struck").exists, message="the work-horse to lose the disk")
    else:
        assert terminate_backends(scene.database_url) >= 1
    scene.let_go()


def terminate_backends(database_url: str) -> int:
    """End the connections that workers have to a PostgreSQL database; tell how many there were."""
    address = make_url(database_url).set(drivername="postgresql").difference_update_query(["application_name"])
    with psycopg.connect(address.render_as_string(hide_password=False), autocommit=True) as connection:
        query = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s and datname = %s"
        return len(connection.execute(query, [WORKER_NAME, address.database]).fetchall())


def hold_lock(scene: Scene) -> None:
    """Keep the write lock of an SQLite file for longer than anyone waits for it."""
    with sqlite3.connect(str(make_url(scene.database_url).database), isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        scene.let_go()
        holds(lambda: True, BUSY_TIMEOUT / 1000 + 2)
        connection.execute("ROLLBACK")
    connection.close()


def drop_model(scene: Scene) -> None:
    assert scene.model.reset_connections() >= 1
    scene.let_go()


STRIKES: dict[Fault, Callable[[Scene], None]] = {
    "work-horse": kill_horse,
    "worker": kill_worker,
    "redis": kill_redis,
    "database": end_connections,
    "model": drop_model,
    "lock": hold_lock,
}
