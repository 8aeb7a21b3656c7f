"""A Redis that a test may stop, kill and start again at the same address."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

from tests import servers
from tests import support


class RedisProcess:
    """A server of its own folder.

    :param keeps: whether it has its data again after a restart.
    """

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self.folder = Path(tempfile.mkdtemp(prefix="instruct-redis-"))
        self.url = f"unix://{self.folder / 'redis.sock'}?db=0"
        self._process: support.Process | None = None

    def start(self) -> None:
        address = self.folder / "redis.sock"
        command = [servers._redis_binary(), "--port", "0", "--unixsocket", str(address), "--unixsocketperm", "700"]
        command += ["--dir", str(self.folder), "--save", "", "--appendonly", "yes" if self._keeps else "no"]
        self._process = support.Process([*command, "--appendfsync", "always"], log=self.folder / "log")
        support.wait_for(lambda: servers._answers(address), message="Redis does not start")

    def kill(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        self._process.signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop it, and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGCONT) if self._process.running else None
            self._process.stop()
