"""A real ``flask instruct worker``: runs are carried out, crashes are resumed, nothing foreign is ever run."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from flask import Flask
from rq.serializers import JSONSerializer

from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import run_queue
from tests.support import Process
from tests.support import alive
from tests.support import wait_for

from .conftest import ROOT
from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]
StartWorker = Callable[..., Process]


def family(process: Process) -> list[int]:
    return [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]


def children(process: Process) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children()}


def test_a_worker_carries_out_what_was_asked_before_and_after_its_start(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    before = ask("write_two")
    worker()
    assert wait_for_end(before).status == "succeeded"
    assert notes() == ["a", "b", "finished: stop"]
    after = ask("talk")
    assert wait_for_end(after).messages[0].text == "Hello, 👋 world. "


def test_g4_a_killed_work_horse_costs_one_resume_and_doubles_nothing(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    run = ask("die_between", context={"flag": str(tmp_path / "flag")})
    worker(INSTRUCT_TEST_FLAG=str(tmp_path / "flag"))
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt) == ("succeeded", 2)
    assert notes() == ["first", "second", "third", "finished: stop"]
    assert [call.result for call in ended.calls] == ["Wrote first.", "Wrote second, alive.", "Wrote third."]


def test_g4_a_worker_killed_between_two_tools_is_resumed_by_another(app: Flask, ask: Ask, worker: StartWorker) -> None:
    run = ask("pause_between")
    first = worker()
    wait_for(lambda: "first" in notes(), message="the first tool")
    processes = family(first)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in processes), message="the whole worker to be gone")
    assert notes() == ["first"]
    worker()
    ended = wait_for_end(run)
    assert ended.status == "succeeded"
    assert notes() == ["first", "second", "finished: stop"]
    assert ended.resumes == 1


def test_a_half_received_answer_is_discarded_whole(app: Flask, ask: Ask, worker: StartWorker) -> None:
    run = ask("slow")
    first = worker()
    wait_for(lambda: [m.text for m in reread(run).messages] == ["One "], message="the first word")
    os.kill(first.pid, signal.SIGKILL)
    worker()
    ended = wait_for_end(run)
    assert [message.text for message in ended.messages] == ["One two."]


def test_a_terminated_worker_finishes_the_run_in_hand(app: Flask, ask: Ask, worker: StartWorker) -> None:
    run = ask("slow")
    process = worker()
    wait_for(lambda: reread(run).status == "running", message="the run to start")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    ended = reread(run)
    assert (ended.status, ended.attempt) == ("succeeded", 1)


def test_an_idle_worker_leaves_at_once_and_leaves_nobody_behind(app: Flask, worker: StartWorker) -> None:
    process = worker()
    wait_for(lambda: len(family(process)) == 4, message="a worker with a work-horse that stands ready, and the sweeper")
    processes = family(process)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert not any(alive(pid) for pid in processes)


def test_a_job_that_names_anything_else_is_refused(app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path) -> None:
    queue = run_queue(app.extensions["instruct"])
    evil = queue.enqueue_call("os.system", args=[f"touch {tmp_path}/owned"], job_id="evil")
    worker()
    assert wait_for_end(ask("talk")).status == "succeeded"
    wait_for(lambda: evil.get_status(refresh=True) == "failed", message="the refusal")
    assert not (tmp_path / "owned").exists()
    assert evil.serializer is JSONSerializer


def test_two_workers_share_the_runs(app: Flask, ask: Ask, worker: StartWorker) -> None:
    runs = [ask("talk") for _ in range(4)]
    worker("--concurrency", "2")
    assert {wait_for_end(run).attempt for run in runs} == {1}


def test_a_worker_process_is_replaced_after_its_share_of_jobs(app: Flask, ask: Ask, worker: StartWorker) -> None:
    process = worker("--max-jobs", "2")
    wait_for(lambda: len(children(process)) == 2, message="a worker and the sweeper")
    before = children(process)
    assert wait_for_end(ask("talk")).status == "succeeded"
    assert children(process) == before
    assert wait_for_end(ask("talk")).status == "succeeded"
    wait_for(lambda: len(children(process)) == 2 and children(process) != before, message="a new worker")
    assert len(before & children(process)) == 1, "the sweeper stays"
    assert wait_for_end(ask("talk")).status == "succeeded"
    assert "is started again" not in process.output
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_seven_runs_with_a_share_of_two_are_all_carried_out_by_four_processes(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """The command itself and the sweeper stay, no run is lost or done twice in between, and the exit status is 0."""
    runs = [ask("talk") for _ in range(7)]
    process = worker("--max-jobs", "2")
    wait_for(lambda: len(children(process)) == 2, 60, "a worker and the sweeper")
    seen: set[int] = set()
    horses: set[int] = set()

    def all_ended() -> bool:
        here = children(process)
        seen.update(here)
        horses.update(set(family(process)) - here - {process.pid})
        db.session.remove()
        return db.session.scalar(sa.select(sa.func.count(Run.id)).where(Run.ended_at.is_(None))) == 0

    wait_for(all_ended, 60, "all runs to end")
    found = [reread(run) for run in runs]
    assert [(run.status, run.attempt, run.resumes) for run in found] == [("succeeded", 1, 0)] * 7
    assert len(seen) == 5, "four workers one after the other, and the one sweeper"
    assert len(horses) >= 7, "a process for each run"
    assert "is started again" not in process.output
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_each_of_several_workers_has_its_own_share(app: Flask, ask: Ask, worker: StartWorker) -> None:
    process = worker("--max-jobs", "1", "--concurrency", "2")
    wait_for(lambda: len(children(process)) == 3, message="two workers and the sweeper")
    before = children(process)
    # Both are busy at the same time, so that each has done one.
    runs = [ask("slow"), ask("slow")]
    assert {wait_for_end(run).status for run in runs} == {"succeeded"}
    wait_for(lambda: len(before & children(process)) == 1 and len(children(process)) == 3, message="two new workers")


@pytest.fixture
def plain_worker(start: Callable[..., Process], settings: dict[str, str]) -> Callable[[str], Process]:
    """Start RQ's own worker for the notebook app, with a line of the documentation."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    lines = [line for line in page.splitlines() if " rq worker " in line and line.startswith("FLASK_APP=")]
    assert all(line.endswith(" instruct") for line in lines)

    plain, careful = sorted(lines, key=lambda line: "--queue-class" in line)
    assert ("--queue-class" in plain, "--queue-class" in careful) == (False, True)

    def plain_worker(kind: str) -> Process:
        line = {"plain": plain, "careful": careful}[kind].removesuffix("instruct") + settings["INSTRUCT_QUEUE"]
        variable, rq, *arguments = shlex.split(line.replace("$INSTRUCT_REDIS_URL", settings["INSTRUCT_REDIS_URL"]))
        assert (variable, rq) == ("FLASK_APP=yourapp", "rq")
        env = {**settings, "FLASK_APP": "tests.runs.notebook"}
        return start([sys.executable, "-m", "rq.cli", *arguments], env=env, cwd=ROOT)

    return plain_worker


@pytest.mark.parametrize("kind", ["plain", "careful"])
def test_rqs_own_worker_carries_out_runs_as_documented(
    app: Flask, ask: Ask, plain_worker: Callable[[str], Process], kind: str
) -> None:
    """It has no app context of its own, and runs have one all the same (Flask-RQ2#50)."""
    run = ask("write_two")
    plain_worker(kind)
    ended = wait_for_end(run, timeout=40)
    assert (ended.status, ended.attempt) == ("succeeded", 1)
    assert notes() == ["a", "b", "finished: stop"]


def test_rqs_own_worker_with_our_queue_class_drops_what_is_no_job(
    app: Flask, ask: Ask, plain_worker: Callable[[str], Process]
) -> None:
    queue = run_queue(app.extensions["instruct"])
    queue.connection.rpush(queue.key, b"\xff\xfe", "no job")
    run = ask("write_two")
    worker = plain_worker("careful")
    assert wait_for_end(run, timeout=40).status == "succeeded"
    assert worker.running
    assert queue.get_job_ids() == []


def test_a_run_that_kills_every_worker_is_given_up(app: Flask, ask: Ask, worker: StartWorker) -> None:
    run = ask("deadly")
    worker(INSTRUCT_MAX_ATTEMPTS="1", INSTRUCT_LEASE="0.3")
    ended = wait_for_end(run, timeout=30)
    assert (ended.status, ended.error_class) == ("failed", "interrupted")
    assert [(call.status, call.error_kind) for call in ended.calls] == [("failed", "interrupted")]
    assert instruct.retry(ended).error_class is None
