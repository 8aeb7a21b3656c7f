"""A work-horse that stands ready does one job, and nobody misses it when it is gone."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from flask import Flask

from flask_instruct.runs.models import Run
from flask_instruct.runs.standby import Standby
from tests.support import Process
from tests.support import wait_for

from .conftest import wait_for_end

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def standby(folder: Path) -> Standby:
    """Fork one that writes down what happens to it."""

    def note(name: str, what: object) -> None:
        # Renamed into place, so that it is never seen half written.
        (folder / f"{name}.new").write_text(json.dumps(what))
        (folder / f"{name}.new").rename(folder / name)

    def perform(job: str, execution: str, queue: str) -> None:
        chance = [random.random(), str(uuid.uuid4()), secrets.token_hex()]
        note(job, {"given": [job, execution, queue], "chance": chance})

    return Standby.fork(lambda: note("ready", 1), lambda: note("rehearsed", 1), perform)


def written(folder: Path, name: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = json.loads(wait_for((folder / name).exists) and (folder / name).read_text())
    return found


def test_it_rehearses_while_it_waits_and_then_does_its_one_job(tmp_path: Path) -> None:
    horse = standby(tmp_path)
    wait_for((tmp_path / "rehearsed").exists, message="the rehearsal")
    assert horse.give("job", "execution", "queue")
    assert written(tmp_path, "job")["given"] == ["job", "execution", "queue"]
    assert os.waitpid(horse.pid, 0)[0] == horse.pid


def test_a_job_that_is_there_at_once_does_not_wait_for_a_rehearsal(tmp_path: Path) -> None:
    horse = standby(tmp_path)
    assert horse.give("job", "execution", "queue")
    assert written(tmp_path, "job")["given"] == ["job", "execution", "queue"]
    os.waitpid(horse.pid, 0)
    assert not (tmp_path / "rehearsed").exists()


def test_a_dead_one_takes_no_job(tmp_path: Path) -> None:
    horse = standby(tmp_path)
    os.kill(horse.pid, signal.SIGKILL)
    wait_for(lambda: psutil.Process(horse.pid).status() == psutil.STATUS_ZOMBIE, message="its death")
    assert not horse.give("job", "execution", "queue")
    assert not psutil.pid_exists(horse.pid)


def test_one_that_is_dismissed_is_gone(tmp_path: Path) -> None:
    horse = standby(tmp_path)
    horse.dismiss()
    assert not psutil.pid_exists(horse.pid)


def test_no_two_of_them_and_their_parent_draw_the_same_random_numbers(tmp_path: Path) -> None:
    random.seed(4)
    horses = {name: standby(tmp_path) for name in ("first", "second")}
    drawn = [random.random(), str(uuid.uuid4()), secrets.token_hex()]
    for name, horse in horses.items():
        horse.give(name, "execution", "queue")
        drawn += written(tmp_path, name)["chance"]
        os.waitpid(horse.pid, 0)
    assert len(set(drawn)) == len(drawn) == 9


@on_sqlite
def test_a_worker_whose_ready_work_horse_was_killed_forks_another(
    app: Flask, ask: Callable[..., Run], worker: Callable[..., Process]
) -> None:
    process = worker()

    def ready() -> int | None:
        below = [child.children() for child in psutil.Process(process.pid).children()]
        return next((children[0].pid for children in below if children), None)

    os.kill(wait_for(ready, message="the work-horse that stands ready"), signal.SIGKILL)
    assert wait_for_end(ask("write_two")).status == "succeeded"
