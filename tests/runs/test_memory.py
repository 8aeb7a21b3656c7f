"""What a worker holds stays the same over a thousand jobs: memory, open files, threads."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from flask import Flask
from flask import current_app
from rq import Worker
from rq.worker import WorkerStatus

from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import run_queue
from tests.support import Process
from tests.support import wait_for

from . import results
from . import weather
from .conftest import ROOT
from .notebook import Notebook
from .notebook import db
from .notebook import held_by
from .notebook import instruct

Held = dict[str, int]
StartWorker = Callable[..., Process]

FEW, MANY = 100, 1000
BATCH = 25
GROWTH = 1.05
"""How much more memory, at most, counts as the same."""


@pytest.fixture
def weather_worker(start: Callable[..., Process], settings: dict[str, str], tmp_path: Path) -> StartWorker:
    """Start a worker with two runs at a time, whose work-horses measure themselves."""

    def weather_worker(*arguments: str) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "tests.runs.weather", "instruct", "worker"]
        env = {
            **settings,
            # As it is by default: a sweep as often as in other tests rings twice for runs that wait in a long queue.
            "INSTRUCT_SWEEP_INTERVAL": "15",
            "INSTRUCT_LEASE": "60",
            "INSTRUCT_TEST_MEASURES": str(tmp_path / "measures"),
            "INSTRUCT_TEST_LETTERS": str(tmp_path / "letters"),
        }
        return start([*command, "--concurrency", "2", *arguments], env=env, cwd=ROOT)

    return weather_worker


def carry_out(numbers: range) -> None:
    """Ask for a run of each number, a batch at a time, and wait for their end."""
    book = db.session.scalars(sa.select(Notebook)).one()
    for first in numbers[::BATCH]:
        for number in numbers[first - numbers[0] :][:BATCH]:
            kind: weather.Kind = "letter" if number % 5 == 0 else "two tools"
            instruct.generate_for(
                weather.Weather(book), user_prompt=weather.asked(kind, f"k{number}"), model="scripted:weather"
            )
        wait_for(lambda: not waiting(), 120, "a batch to end")


def waiting() -> int:
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(Run.id)).where(Run.ended_at.is_(None))) or 0


def lasting(worker: Process) -> list[psutil.Process]:
    """The processes that outlive a run: the supervisor, the RQ workers, the sweeper."""
    supervisor = psutil.Process(worker.pid)
    return [supervisor, *sorted(supervisor.children(), key=lambda each: each.pid)]


def resting(worker: Process) -> list[Held]:
    """What the lasting processes hold while they have nothing to do."""
    wait_for(lambda: at_rest(worker), 30, "the workers to rest")
    return [held_by(each) for each in lasting(worker)]


def at_rest(worker: Process) -> bool:
    """Whether each worker is idle and has the one process that waits for its next run, and the pipe to it."""
    states = [each.get_state() for each in Worker.all(queue=run_queue(current_app.extensions["instruct"]))]
    children = sorted(len(each.children()) for each in lasting(worker)[1:])
    return states == [WorkerStatus.IDLE] * 2 and children == [0, 1, 1]


def typical(measures: Path, jobs: slice) -> Held:
    """What a work-horse holds at the end of its run, at the median of some jobs."""
    lines = [json.loads(line) for line in measures.read_text().splitlines()[jobs]]
    return {key: int(statistics.median(line[key] for line in lines)) for key in lines[0]}


def assert_same(before: Held, after: Held, who: str) -> None:
    assert after["kilobytes"] <= before["kilobytes"] * GROWTH, f"{who}: {before} became {after}"
    assert after["descriptors"] <= before["descriptors"], f"{who}: {before} became {after}"
    assert after["threads"] <= before["threads"], f"{who}: {before} became {after}"


@pytest.mark.chaos
def test_memory_files_and_threads_are_flat_over_a_thousand_jobs(
    app: Flask, weather_worker: StartWorker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    measures = tmp_path / "measures"
    process = weather_worker()
    carry_out(range(FEW))
    first = resting(process)
    names = [each.pid for each in lasting(process)]
    carry_out(range(FEW, MANY))
    last = resting(process)
    assert [each.pid for each in lasting(process)] == names, "a process was replaced"
    for before, after in zip(first, last, strict=True):
        assert_same(before, after, "a lasting process")
    horses = typical(measures, slice(FEW - 50, FEW)), typical(measures, slice(-50, None))
    assert_same(*horses, "a work-horse")
    assert {run.attempt for run in db.session.scalars(sa.select(Run))} == {1}
    database = request.node.callspec.params["database_url"]
    results.remark(f"memory over {MANY} jobs, {database}", told(first, last, *horses))


def told(first: list[Held], last: list[Held], *horses: Held) -> str:
    def sum_of(held: list[Held], key: str) -> int:
        return sum(each[key] for each in held)

    lasting = ", ".join(f"{sum_of(first, key)} → {sum_of(last, key)} {key}" for key in first[0])
    horse = ", ".join(f"{horses[0][key]} → {horses[1][key]} {key}" for key in first[0])
    return f"after {FEW} → {MANY} jobs, the {len(first)} lasting processes together {lasting}; a work-horse {horse}"


@pytest.mark.chaos
def test_with_max_jobs_processes_are_replaced_and_nothing_grows(app: Flask, weather_worker: StartWorker) -> None:
    process = weather_worker("--max-jobs", "20")
    carry_out(range(FEW))
    supervisor, *children = lasting(process)
    before = held_by(supervisor)
    seen = {each.pid for each in children}
    for first in range(FEW, 3 * FEW, FEW // 2):
        carry_out(range(first, first + FEW // 2))
        seen |= {each.pid for each in lasting(process)[1:]}
    wait_for(lambda: len(lasting(process)) == 4, message="two workers and the sweeper")
    assert_same(before, held_by(supervisor), "the supervisor")
    # 300 jobs, 20 for each process: 15 of them at least, some of which came and went between two looks.
    assert len(seen) >= 8
    assert {run.attempt for run in db.session.scalars(sa.select(Run))} == {1}
    assert "is started again" not in process.output
