"""``flask instruct dev``: web server, worker and embedded Redis as one command that starts, watches and ends them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from flask import Flask
from flask.cli import ScriptInfo

from .embedded import embedded_url
from .embedded import leave
from .errors import ConfigurationError
from .loading import load

HOST = "127.0.0.1"
POLL = 0.1
"""Seconds between two looks at the children."""

KIND = 4.0
"""Seconds that children have to end by themselves after Ctrl-C; then they are killed."""

LONGEST_PAUSE = 10.0
"""Most seconds before a child that keeps dying is started again."""


class Development:
    """Everything that an app needs on a developer's machine, until Ctrl-C."""

    def __init__(self, script: ScriptInfo, *, port: int, concurrency: int) -> None:
        self._app: Flask = load(script)
        self._port = port
        flask = _flask_command(script)
        run = [*flask, "run", "--host", HOST, "--port", str(port), "--no-reload"]
        work = [*flask, "instruct", "worker", "--concurrency", str(concurrency)]
        self._web = Child("web", run, finishes=False)
        self._worker = Child("worker", work, finishes=True)
        self._stops = 0

    def run(self) -> int:
        """Return the exit status, once everything has ended."""
        _refuse_port_in_use(self._port)
        with self._signals():
            try:
                embedded_url(self._app)
                return self._watch()
            finally:
                self._end()
                leave(self._app)

    def _watch(self) -> int:
        self._web.start()
        self._worker.start()
        answered = threading.Event()
        threading.Thread(target=_announce, args=(f"http://{HOST}:{self._port}", answered), daemon=True).start()
        sources = Sources(self._app) if self._app.debug else None
        while not self._stops:
            if not answered.is_set() and not self._web.running:
                say("The web server did not start; its lines above say why.")
                return 1
            if sources is not None and (changed := sources.changed()):
                say(f"{changed} changed: starting again")
                self._web.replace()
                self._worker.replace()
            self._web.revive()
            self._worker.revive()
            time.sleep(POLL)
        return 0

    def _end(self) -> None:
        children = (self._web, self._worker)
        for child in children:
            child.ask_to_end()
        deadline = time.monotonic() + KIND
        while any(child.running for child in children) and time.monotonic() < deadline and self._stops < 2:
            time.sleep(POLL)
        for child in children:
            child.kill()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stops += 1

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Child:
    """A process in a group of its own, whose lines are printed behind its name."""

    def __init__(self, name: str, command: Sequence[str], *, finishes: bool) -> None:
        self._name = name
        self._command = command
        self._finishes = finishes
        self._processes: list[subprocess.Popen[str]] = []
        self._started_at = 0.0
        self._restart_at: float | None = None
        self._deaths = 0

    def start(self) -> None:
        self._restart_at = None
        self._started_at = time.monotonic()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        threading.Thread(target=_relay, args=(self._name, process.stdout), daemon=True).start()
        self._processes = [*(older for older in self._processes if older.poll() is None), process]

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def revive(self) -> None:
        """Start the process again if it has died; later and later while it keeps dying."""
        status = self._processes[-1].poll()
        if status is None:
            return
        now = time.monotonic()
        if self._restart_at is None:
            self._deaths = 1 if now - self._started_at > LONGEST_PAUSE else self._deaths + 1
            pause = min(2.0 ** (self._deaths - 1), LONGEST_PAUSE)
            self._restart_at = now + pause
            say(f"The {self._name} ended (status {status}); it is started again in {pause:g} s.")
        elif now >= self._restart_at:
            self.start()

    def replace(self) -> None:
        """Start a new process; an old one that finishes what it has in hand may end after that."""
        self.ask_to_end()
        if not self._finishes:
            self.kill()
        self.start()

    def ask_to_end(self) -> None:
        for process in self._processes:
            process.terminate()

    def kill(self) -> None:
        """End what still runs, with its whole group."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Sources:
    """The app's Python files, looked at about once a second."""

    def __init__(self, app: Flask) -> None:
        self._root = Path(app.root_path)
        self._looked_at = time.monotonic()
        self._seen = self._times()

    def changed(self) -> str | None:
        """Return the path of a file that was changed, made or removed since the last look."""
        if time.monotonic() - self._looked_at < 1:
            return None
        before, self._seen = self._seen, self._times()
        self._looked_at = time.monotonic()
        different = before.items() ^ self._seen.items()
        return min(path for path, _ in different) if different else None

    def _times(self) -> dict[str, int]:
        hidden = {".venv", "venv", "node_modules", "__pycache__"}
        files = {str(path) for path in self._root.rglob("*.py") if not hidden.intersection(path.parts)}
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        files |= {path for path in loaded if path and not _installed(path)}
        times = {}
        for path in files:
            with suppress(OSError):
                times[path] = os.stat(path).st_mtime_ns
        return times


def say(line: str) -> None:
    """Print a line at once: others print meanwhile."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _relay(name: str, lines: IO[str]) -> None:
    with lines:
        for line in lines:
            say(f"{name:<6} | {line.rstrip()}")


def _announce(url: str, answered: threading.Event) -> None:
    """Print the address once the page answers. A page that fails is not asked again: each time is a traceback."""
    # A proxy of the environment must not be asked for this machine's own page.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while not answered.is_set():
        line = f"Ready: {url}"
        try:
            direct.open(url, timeout=30).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code >= 500:
                line = f"{url} answers with status {error.code}; the web server's lines say why."
        except OSError:
            time.sleep(POLL)
            continue
        answered.set()
        say(line)


def _flask_command(script: ScriptInfo) -> list[str]:
    if script.create_app is not None:
        return [sys.executable, sys.argv[0]]
    app = ["--app", script.app_import_path] if script.app_import_path else []
    return [sys.executable, "-m", "flask_instruct", str(os.getpid()), *app]


def _refuse_port_in_use(port: int) -> None:
    with socket.socket() as probe:
        # As the web server does: a port whose last connections are only just closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigurationError(
                f"Port {port} of {HOST} cannot be used ({error.strerror}): choose another one with --port."
            ) from error


def _installed(path: str) -> bool:
    return path.startswith((sys.base_prefix, sys.prefix)) or "site-packages" in path
