"""Keeper of the embedded server: a process of its own that starts it, and ends it when its last user has gone.

Run as a script, never imported by the package's own processes but for its constants, and made of the standard library
alone, so that it is small and quick. Users are counted by the shared locks they hold on one file: the kernel drops a
lock however its process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LOST = 3
"""Exit status when another supervisor serves this folder."""

POLL = 0.2
"""Seconds between two looks at the users and the server."""

GRACE = 2.0
"""Seconds without a user before the server is stopped: a process that reloads is back within them."""

PATIENCE = 2.0
"""Seconds in which users that are just being ended may let go, for one who waits to be the last."""

START_TIMEOUT = 15.0
MAX_MEMORY = "256mb"


class StartFailed(Exception):
    """Raise when the server does not come up; the message holds the end of its log."""


@dataclass(frozen=True)
class Place:
    """Where one embedded server lives: its folder, and the files in it that processes meet at."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.folder / "lock"

    @property
    def users(self) -> Path:
        """Held, shared, by every process that uses the server."""
        return self.folder / "users"

    @property
    def address(self) -> Path:
        """Holds the path of the unix socket served on."""
        return self.folder / "address"

    @property
    def pid(self) -> Path:
        """Holds the process id of the supervisor."""
        return self.folder / "pid"

    @property
    def log(self) -> Path:
        return self.folder / "log"


def main(folder: Path, socket_path: Path, binary: str) -> int:
    """Start the server and leave a supervisor with it; print why when it does not come up.

    :param folder: holds its data and locks.
    :param socket_path: the unix socket to serve on; its folder is removed with the server.
    :param binary: a ``valkey-server`` or ``redis-server``.
    """
    place = Place(folder)
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not _try_lock(lock):
        return LOST
    heard, said = os.pipe()
    if os.fork():
        os.close(said)
        with os.fdopen(heard) as report:
            error = report.read()
        print(error, end="")
        return 1 if error else 0
    os.close(heard)
    os.setsid()
    _detach(place.log)
    return _supervise(place, Server(place, socket_path, binary), said, lock)


def _detach(log: Path) -> None:
    """Point the standard streams away from the starter's: whoever waits for those to close must not wait for us."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, stream in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(source, stream)
    os.close(nothing)
    os.close(sink)


def _supervise(place: Place, server: Server, said: int, lock: int) -> int:
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_stop.append(number))
    place.pid.write_text(str(os.getpid()))
    users = Users(place)
    try:
        with os.fdopen(said, "w") as report:
            try:
                server.start()
            except StartFailed as failure:
                report.write(str(failure))
                return 1
        while not asked_to_stop and not users.gone():
            server.restart_if_dead()
            time.sleep(POLL)
        return 0
    finally:
        server.stop()
        place.pid.unlink(missing_ok=True)
        # Before the lock on the users is dropped by our end: whoever waited for that one must find this one free.
        os.close(lock)


class Users:
    """Tells when nobody has used the server for a while, and then keeps newcomers waiting until this process ends."""

    def __init__(self, place: Place) -> None:
        self._file = os.open(place.users, os.O_RDWR | os.O_CREAT, 0o600)
        self._last_seen = time.monotonic()

    def gone(self) -> bool:
        if not _try_lock(self._file):
            self._last_seen = time.monotonic()
            return False
        if time.monotonic() - self._last_seen > GRACE:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False


class Server:
    """The Valkey or Redis process."""

    def __init__(self, place: Place, socket_path: Path, binary: str) -> None:
        self._place = place
        self._socket = socket_path
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers.

        :raises StartFailed: when it ends instead, or stays silent.
        """
        self._end_orphan()
        self._socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        process = self._process = subprocess.Popen(
            self._command(), stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
        )
        deadline = time.monotonic() + START_TIMEOUT
        while not answers(self._socket):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                log = self._place.log
                raise StartFailed(
                    f"{self._binary} did not start; {log} ends:\n{log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.01)
        self._place.address.write_text(str(self._socket))

    def restart_if_dead(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._socket.parent, ignore_errors=True)

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._place.folder),
            "appendonly": "yes",
            "save": "",
            "maxmemory": MAX_MEMORY,
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        return [self._binary, *(part for key, value in options.items() for part in (f"--{key}", value))]

    def _end_orphan(self) -> None:
        """Ask a server that outlived its supervisor to end, and wait until it has: two on one folder spoil its data."""
        deadline = time.monotonic() + START_TIMEOUT
        answers(self._socket, "SHUTDOWN")
        while answers(self._socket) and time.monotonic() < deadline:
            time.sleep(0.05)


def _die_with_parent() -> None:
    """Let Linux end the server when its supervisor is killed; elsewhere the next supervisor ends the orphan."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def running(place: Place) -> Path | None:
    """Return the socket of the server of a place, if it answers."""
    with contextlib.suppress(FileNotFoundError):
        socket_path = Path(place.address.read_text())
        if answers(socket_path):
            return socket_path
    return None


def end_if_unused(place: Place, timeout: float) -> None:
    """End the server of a place now, unless somebody uses it; return when it has ended, or after the timeout."""
    users = os.open(place.users, os.O_RDWR | os.O_CREAT, 0o600)
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    began = time.monotonic()
    unused = False
    try:
        while not _try_lock(lock) and time.monotonic() - began < timeout:
            unused = unused or _try_lock(users)
            if unused:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    os.kill(int(place.pid.read_text()), signal.SIGTERM)
            elif time.monotonic() - began > PATIENCE:
                return
            time.sleep(0.05)
    finally:
        os.close(lock)
        os.close(users)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def answers(socket_path: Path, command: str = "PING") -> bool:
    """Tell whether a server on a unix socket takes a command."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(str(socket_path))
        client.sendall(command.encode() + b"\r\n")
        return client.recv(16).startswith(b"+")
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
