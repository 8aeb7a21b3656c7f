"""Random chaos: runs of several kinds while everything is killed at random moments; none is lost, doubled or stuck.

``INSTRUCT_TEST_SEED`` repeats a storm's blows and pauses; what they strike is decided by the machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Run
from tests.live.redis_process import RedisProcess
from tests.support import Process
from tests.support import holds
from tests.support import wait_for

from . import results
from . import weather
from .conftest import ROOT
from .conftest import notes
from .faults import terminate_backends
from .notebook import Notebook
from .notebook import db
from .notebook import instruct
from .stage import PATH
from .stage import open_site
from .stage import own_redis
from .stage import unpublished
from .stage import watched_equals_loaded
from .stage import worker_environment
from .watched import WatchedPage

WORKERS = 2
CONCURRENCY = 2
CALM = 60.0
"""Seconds without a blow and without the end of any run after which the runs that are left count as stuck."""


@dataclass
class Storm:
    """Workers that are kept alive as an init system would, and what strikes them."""

    seed: int
    database_url: str
    redis: RedisProcess
    environment: dict[str, str]
    start: Callable[..., Process]
    workers: list[Process] = field(default_factory=list)
    blows: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def keep_alive(self) -> None:
        """Start the workers that are missing."""
        self.workers = [worker for worker in self.workers if worker.running]
        while len(self.workers) < WORKERS:
            command = [sys.executable, "-m", "flask", "--app", "tests.runs.weather", "instruct", "worker"]
            command += ["--concurrency", str(CONCURRENCY)]
            self.workers.append(self.start(command, env=self.environment, cwd=ROOT))

    def is_at_work(self) -> bool:
        """Whether each worker has all its processes: one for each run at a time, and the sweeper."""
        return all(len(psutil.Process(worker.pid).children()) == CONCURRENCY + 1 for worker in self.workers)

    def strike(self) -> None:
        """Kill something."""
        blows = {
            self._horse: 6,
            self._rq_worker: 3,
            self._supervisor: 1,
            self._redis: 1,
            self._connections: 3,
        }
        blow = self.random.choices(list(blows), list(blows.values()))[0]
        with suppress(psutil.NoSuchProcess):
            if blow():
                self.blows[blow.__name__.strip("_")] += 1
        self.keep_alive()

    def end(self) -> None:
        for worker in self.workers:
            if worker.running:
                worker.signal(signal.SIGKILL)
                worker.wait()

    def _horse(self) -> bool:
        return self._signal(self._horses(), signal.SIGKILL)

    def _rq_worker(self) -> bool:
        parents = [horse.parent() for horse in self._horses()]
        return self._signal([parent for parent in parents if parent is not None], signal.SIGKILL)

    def _supervisor(self) -> bool:
        return self._signal([psutil.Process(worker.pid) for worker in self.workers], signal.SIGKILL)

    def _redis(self) -> bool:
        self.redis.kill()
        holds(lambda: True, self.random.uniform(0, 1.5))
        self.redis.start()
        return True

    def _connections(self) -> bool:
        if self.database_url.startswith("sqlite"):
            return self._signal(self._horses(), signal.SIGUSR2)
        return terminate_backends(self.database_url) > 0

    def _signal(self, processes: list[psutil.Process], number: int) -> bool:
        if processes:
            self.random.choice(processes).send_signal(number)
        return bool(processes)

    def _horses(self) -> list[psutil.Process]:
        parents = [each for worker in self.workers for each in psutil.Process(worker.pid).children()]
        return [horse for parent in parents for horse in parent.children()]


@contextmanager
def storm(
    database_url: str, folder: Path, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Storm, str]]:
    """Set up what a storm needs; give it, and the address of the site."""
    seed = int(os.environ.get("INSTRUCT_TEST_SEED") or random.randrange(10**6))
    print(f"INSTRUCT_TEST_SEED={seed}")
    with own_redis() as redis:
        own = {
            "DATABASE_URL": database_url,
            "INSTRUCT_REDIS_URL": redis.url,
            "INSTRUCT_MAX_ATTEMPTS": "100",
            "INSTRUCT_TEST_LETTERS": str(folder / "letters"),
        }
        with open_site(weather.create_app, own, monkeypatch) as address:
            made = Storm(seed, database_url, redis, worker_environment(own), start)
            try:
                yield made, address
            finally:
                made.end()


def ask(number: int, kind: weather.Kind) -> None:
    book = db.session.scalars(sa.select(Notebook)).one()
    conversation = f"talk {number % weather.CONVERSATIONS}" if kind == "conversation" else None
    instruct.generate_for(
        weather.Weather(book),
        user_prompt=weather.asked(kind, f"k{number}"),
        model="scripted:weather",
        conversation=conversation,
    )
    db.session.remove()


def rage(storm: Storm, address: str, count: int, pause: float) -> str:
    """Ask for runs and strike until all have been asked for and a while longer; then see what is left of them."""
    kinds = [weather.KINDS[number % len(weather.KINDS)] for number in range(count)]
    began = time.monotonic()
    with WatchedPage(address, PATH) as page:
        storm.keep_alive()
        wait_for(storm.is_at_work, 30, "the workers")
        wait_for(lambda: page.live, message="the page to be live")
        for number, kind in enumerate(kinds):
            ask(number, kind)
            if number % 2:
                holds(waiting, storm.random.uniform(0, pause))
                storm.strike()
        while waiting() > 3 and time.monotonic() - began < count * pause:
            holds(waiting, storm.random.uniform(0, pause))
            storm.strike()
        raged = time.monotonic() - began
        wait_for_all(storm)
        wait_for(lambda: not unpublished(), 30, "every broadcast to go out")
        watched_equals_loaded(page, address)
    assert_nothing_lost_or_doubled(kinds, Path(storm.environment["INSTRUCT_TEST_LETTERS"]))
    blows = ", ".join(f"{count} × {name.replace('_', ' ')}" for name, count in storm.blows.most_common())
    return (
        f"{count} requests and those they delegated, {raged:.0f} s of blows ({blows}), seed {storm.seed}: 0 lost, "
        f"0 doubled, 0 stuck; {resumed()} runs were taken up again; the watched page equals the loaded one"
    )


def wait_for_all(storm: Storm) -> None:
    """Wait until every run has ended, however slow the machine is, as long as one ends now and then."""
    left = waiting()
    while left:
        try:
            wait_for(lambda left=left: waiting() < left, CALM)  # type: ignore[misc]
        except AssertionError:
            stuck = db.session.scalars(sa.select(Run).where(Run.ended_at.is_(None))).all()
            rows = [(run.id, run.status, run.attempt, run.conversation, str(run.lease_until)) for run in stuck]
            raise AssertionError(f"{left} runs are stuck: {rows}; {storm.workers[0].output[-3000:]}") from None
        left = waiting()


def waiting() -> int:
    """How many runs have not ended."""
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(Run.id)).where(Run.ended_at.is_(None))) or 0


def resumed() -> int:
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(Run.id)).where(Run.attempt > 1)) or 0


def assert_nothing_lost_or_doubled(kinds: list[weather.Kind], letters: Path) -> None:
    runs = list(db.session.scalars(sa.select(Run)))
    assert [(run.id, run.status, run.error_technical) for run in runs if run.status != "succeeded"] == []
    assert [(call.name, call.result) for run in runs for call in run.calls if call.status != "done"] == []
    expected: Counter[str] = Counter()
    prompts: Counter[str] = Counter()
    for number, kind in enumerate(kinds):
        key = f"k{number}"
        prompts[weather.asked(kind, key)] += 1
        if kind == "two tools":
            expected.update([f"{key} a", f"{key} b"])
        elif kind == "conversation":
            expected[key] += 1
        elif kind == "delegate":
            prompts[weather.asked("two tools", f"{key} child")] += 1
            expected.update([f"{key} child a", f"{key} child b"])
    assert Counter(run.user_prompt for run in runs) == prompts
    assert Counter(notes()) == expected
    assert_honest_letters(runs, Counter(letters.read_text().split() if letters.exists() else []))


def assert_honest_letters(runs: list[Run], sent: Counter[str]) -> None:
    """Each letter went out at most once, and certainly where the ledger says so (G2)."""
    wanted = {run.id: json.loads(run.user_prompt) for run in runs}
    keys = {run_id: request["key"] for run_id, request in wanted.items() if request["kind"] == "letter"}
    effects = list(db.session.scalars(sa.select(Effect)))
    assert Counter(effect.run_id for effect in effects) == Counter(list(keys))
    assert {effect.status for effect in effects} <= {"done", "unknown"}
    assert all(sent[keys[effect.run_id]] == 1 for effect in effects if effect.status == "done")
    assert set(sent.values()) <= {1}


@pytest.fixture
def storm_database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_database")
    return url


@pytest.mark.parametrize(
    ("storm_database", "count", "pause"),
    [
        pytest.param("sqlite", 10, 0.8, id="a squall on sqlite"),
        pytest.param("sqlite", 200, 2.5, id="sqlite", marks=pytest.mark.chaos),
        pytest.param("postgresql", 200, 2.5, id="postgresql", marks=pytest.mark.chaos),
    ],
    indirect=["storm_database"],
)
def test_g1_g2_g4_g7_a_storm_loses_doubles_and_strands_nothing(
    storm_database: str,
    count: int,
    pause: float,
    tmp_path: Path,
    start: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    with storm(storm_database, tmp_path, start, monkeypatch) as (weather_of_today, address):
        told = rage(weather_of_today, address, count, pause)
    print(told)
    if request.node.get_closest_marker("chaos"):
        results.remark(f"storm, {request.node.callspec.id}", told)
