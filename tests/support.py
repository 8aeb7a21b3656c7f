"""What tests share beside fixtures: waiting for a condition, real processes, and an app served on a real port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import TypeVar

from werkzeug.serving import make_server

T = TypeVar("T")


def wait_for(condition: Callable[[], T], timeout: float = 10, message: str = "") -> T:
    """Return the first true value of ``condition``, asked again and again.

    :raises AssertionError: when it stays false for ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{message or getattr(condition, '__name__', 'the condition')}: not in {timeout} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def holds(condition: Callable[[], object], seconds: float) -> bool:
    """Tell whether a condition stays true for a while; for what must *not* happen, where nothing can be waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.02)
    return True


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie, which only waits to be collected, does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    if Path("/proc/self").exists():
        return False
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and not listed.stdout.strip().startswith("Z")


def processes() -> dict[int, tuple[int, str]]:
    """Return every running process's parent and command line, by process id."""
    if not Path("/proc/self").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = (line.split(None, 2) for line in listed.stdout.splitlines())
        return {int(pid): (int(parent), " ".join(command)) for pid, parent, *command in rows}
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = (int(parent), command)
    return found


class Process:
    """A child process in its own group, whose output (both streams) goes to a file.

    :param log: the file; read it whole through :attr:`output`.
    :param env: variables on top of this process's own.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.log = log
        with log.open("wb") as sink:
            self.popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def wait_for_output(self, text: str, timeout: float = 20) -> str:
        """Return all output once ``text`` is in it; fail with the output when the process ends before."""
        ended = False
        deadline = time.monotonic() + timeout
        while text not in self.output:
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not printed; all that was printed:\n{self.output}")
            ended = not self.running
            time.sleep(0.02)
        return self.output

    def signal(self, number: int) -> None:
        """Send a signal to the process itself."""
        self.popen.send_signal(number)

    def wait(self, timeout: float = 20) -> int:
        """Return the exit status."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s; printed:\n{self.output}") from None

    def stop(self, timeout: float = 10) -> int:
        """End the process kindly, then its whole group for certain; return the exit status."""
        if self.running:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        return self.popen.wait()


@contextmanager
def served(app: Any, port: int = 0) -> Iterator[str]:
    """Serve a WSGI app with a thread a request; give its address, such as ``http://127.0.0.1:43210``."""
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
