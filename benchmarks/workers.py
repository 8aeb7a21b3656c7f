"""Workers beside each other: ours and RQ's own, each a process of its own on a queue of its own in one Redis.

Each can be given a job, and tells when it is idle again; all of them ask the same mock model.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC
from abc import abstractmethod
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flask import Flask
from redis import Redis
from rq import Queue
from rq import Worker
from rq.worker import WorkerStatus

from flask_instruct.embedded import embedded_url
from flask_instruct.embedded import leave

from . import archive
from . import bare
from .arrivals import CHAT
from .contenders import KEY
from .contenders import WINDOW

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0
"""Seconds that a worker may take to start or to finish a job."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where everybody works: a folder, Redis, our app, and the address before ``/chat/completions``."""

    folder: Path
    redis_url: str
    app: Flask
    settings: Mapping[str, Any]
    chat: str

    @classmethod
    @contextmanager
    def opened(cls, address: str) -> Iterator[Site]:
        """Make a folder with a database and a Redis, which end with the block; the app's context is pushed."""
        with tempfile.TemporaryDirectory(prefix="instruct-bench-") as name, ExitStack() as ends:
            folder = Path(name)
            keeper = Flask("benchmarks", instance_path=name)
            keeper.testing = True
            redis_url = embedded_url(keeper)
            ends.callback(leave, keeper)
            provider = {"protocol": "openai_chat", "base_url": address, "api_key": KEY, "context_window": WINDOW}
            settings = {
                "SECRET_KEY": KEY,
                "SQLALCHEMY_DATABASE_URI": f"sqlite:///{folder / 'archive.db'}",
                "INSTRUCT_REDIS_URL": redis_url,
                "INSTRUCT_PROVIDERS": {"bench": provider},
                "INSTRUCT_DEFAULT_MODEL": "bench:text-3",
                "INSTRUCT_MAX_ROUNDS": 10_000,
            }
            app = archive.create_app(settings)
            with app.app_context():
                archive.db.create_all()
                with archive.db.engine.connect() as connection:
                    # As a worker leaves the file; the ledger is measured without one.
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                archive.db.session.add(archive.Archive())
                archive.db.session.commit()
                yield cls(folder, redis_url, app, settings, address)
                archive.db.session.remove()
                app.extensions["instruct"].live.close()


def start_run(model: str) -> str:
    """Ask for a run of ours, commit, and return its id."""
    record = archive.db.session.get(archive.Archive, 1)
    run = archive.instruct.generate_for(archive.Reader(record), user_prompt="Go.", model=f"bench:{model}")
    return str(run.id)


class Contender(ABC):
    """A worker in a process of its own."""

    name = ""
    queue = ""
    requires = "rq"
    concurrency = 1

    def __init__(self, site: Site) -> None:
        self._site = site
        self._redis = Redis.from_url(site.redis_url)
        self._queue = Queue(self.queue, connection=self._redis)
        self._log = site.folder / f"{self.queue}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the worker's command line, behind the interpreter."""

    def environment(self) -> Mapping[str, str]:
        return {}

    def enqueue(self) -> None:
        """Ask for one job."""
        self._queue.enqueue(bare.post, self._site.chat + CHAT)

    def wait_until_idle(self) -> None:
        """Wait until all workers of the queue have started and have nothing in hand.

        :raises RuntimeError: when the process has ended, or this takes a minute; with what it has printed.
        """
        deadline = time.monotonic() + PATIENCE
        while not self._is_idle():
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                printed = self._log.read_text(errors="replace")
                raise RuntimeError(f"{self.name} does not become idle; it printed:\n{printed}")
            time.sleep(0.01)

    def _is_idle(self) -> bool:
        workers = Worker.all(queue=self._queue)
        return len(workers) == self.concurrency and all(one.get_state() == WorkerStatus.IDLE for one in workers)

    @contextmanager
    def working(self) -> Iterator[int]:
        """Run the worker for the length of the block; gives its process id."""
        environment = {**os.environ, **self.environment()}
        with self._log.open("wb") as sink:
            self._process = process = subprocess.Popen(
                [sys.executable, *self.command()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            yield process.pid
        finally:
            self._end(process)
            self._redis.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Ours(Contender):
    """``flask instruct worker``: what is timed includes the run's row and its commit."""

    name = "flask instruct worker"
    queue = "instruct"

    def command(self) -> list[str]:
        flask = ["-m", "flask", "--app", archive.__name__, "instruct", "worker"]
        return [*flask, "--concurrency", str(self.concurrency)]

    def environment(self) -> Mapping[str, str]:
        return {archive.SETTINGS: json.dumps(self._site.settings)}

    def enqueue(self) -> None:
        start_run("text-3")


class BareFork(Contender):
    """RQ's usual worker: a work-horse a job, which imports what the job needs."""

    name = "rq Worker (fork)"
    queue = "fork"

    def command(self) -> list[str]:
        return ["-m", bare.__name__, self.queue, self._site.redis_url, self.queue]


class Simple(BareFork):
    """Without a fork: a job that crashes takes its worker along."""

    name = "rq SimpleWorker"
    queue = "simple"


class FlaskRq(Contender):
    """Flask-RQ's worker, which starts an interpreter and loads the app for each job."""

    name = "flask rq worker"
    queue = "flask-rq"
    requires = "flask_rq"

    def command(self) -> list[str]:
        return ["-m", "flask", "--app", bare.__name__, "rq", "worker", self.queue]

    def environment(self) -> Mapping[str, str]:
        return {"BENCHMARK_REDIS": self._site.redis_url, "BENCHMARK_QUEUE": self.queue}


OTHERS: tuple[type[Contender], ...] = (BareFork, Simple, FlaskRq)


def is_installed(kind: type[Contender]) -> bool:
    return find_spec(kind.requires) is not None
