"""Public reports of what goes wrong in job queues and ledgers, each as a test that it does not go wrong here.

Real Redis, real worker processes and both databases; the report stands in each test's docstring.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
import sqlalchemy as sa
from flask import Flask
from rq.registry import FailedJobRegistry

from flask_instruct.adapters.scripted import Use
from flask_instruct.connections import TIMEOUT
from flask_instruct.connections import connect
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import ENTRY
from flask_instruct.runs.queue import ring
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.sweep import sweep
from tests.live.redis_process import RedisProcess
from tests.support import Process
from tests.support import alive
from tests.support import holds
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import db

Ask = Callable[..., Run]
StartWorker = Callable[..., Process]
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
ROLES = 2
"""Children of an idle worker: one that waits for jobs and the sweeper."""


def family(process: Process) -> list[psutil.Process]:
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def horse(process: Process) -> int | None:
    """The process that carries out a run under a worker, or the one that stands ready for the next."""
    below = [child.children() for child in psutil.Process(process.pid).children()]
    return next((children[0].pid for children in below if children), None)


def model_calls(run: Run) -> int:
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(ModelCall.id)).where(ModelCall.run_id == run.id)) or 0


def rows() -> list[Any]:
    """Everything that stands in the ledger and in the app's own table."""
    with db.engine.connect() as connection:
        tables = [table for table in Ledger.metadata.sorted_tables if table.name != "instruct_outbox"]
        kept = [list(connection.execute(sa.select(table).order_by(*table.primary_key))) for table in tables]
        return [*kept, list(connection.scalars(sa.select(Outbox.id).order_by(Outbox.seq))), notes()]


# -- signals and deaths ------------------------------------------------------------------------------------------------


def test_a_worker_that_is_told_to_end_as_it_takes_a_run_loses_none(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """SIGTERM between taking a job off the queue and being busy (rq/rq#2236)."""
    queue = run_queue(app.extensions["instruct"])
    first = worker()
    wait_for(lambda: len(family(first)) > ROLES, message="the worker to wait")
    run = ask("write_two")
    wait_for(lambda: not queue.job_ids, message="the job to be taken")
    first.signal(signal.SIGTERM)
    first.wait()
    worker()
    assert wait_for_end(run).status == "succeeded"
    assert notes() == ["a", "b", "finished: stop"]


def test_a_run_whose_whole_process_group_is_told_to_end_is_not_stuck(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """SIGTERM to the worker, its work-horse and all; it goes on where it stopped (rq/rq#507, langgraph#7361)."""
    run = ask("pause_between")
    first = worker()
    wait_for(lambda: "first" in notes(), message="the first tool")
    os.killpg(first.pid, signal.SIGTERM)
    first.wait()
    worker()
    ended = wait_for_end(run)
    assert ended.status == "succeeded"
    assert notes() == ["first", "second", "finished: stop"]


def test_a_burst_of_signals_ends_a_worker_that_has_nothing_to_do(app: Flask, worker: StartWorker) -> None:
    """Group, supervisor and platform may all tell it; one that strikes while another is being taken hangs nobody."""
    process = worker()
    wait_for(lambda: len(family(process)) > ROLES, message="the worker to wait")
    for _ in range(50):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def test_g4_with_all_workers_dead_a_run_can_be_told_from_one_at_work(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """A run whose workers are all dead is not running for ever: its lease is over, and a stop ends it (rq/rq#756)."""
    run = ask("slow")
    process = worker()
    wait_for(lambda: reread(run).messages, message="the run to begin")
    assert (reread(run).status, reread(run).interrupted) == ("running", False)
    os.killpg(process.pid, signal.SIGKILL)
    wait_for(lambda: reread(run).interrupted, message="the lease to end")
    assert sweep(app.extensions["instruct"]).runs == 1
    assert reread(run).cancel()
    assert not reread(run).interrupted
    assert reread(run).status == "cancelled"


def test_g4_a_worker_that_wakes_up_after_its_lease_commits_nothing(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """A second executor has taken the step: the first stops, and does not go on with the next (dbos#812, dbos#818)."""
    run = ask("pause_between")
    first = worker()
    wait_for(lambda: "first" in notes() and model_calls(run) == 2, message="the wait for the second turn")
    asleep = horse(first)
    assert asleep is not None
    frozen = family(first)
    for process in frozen:
        process.suspend()
    worker()
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt) == ("succeeded", 2)
    before = rows()
    for process in frozen:
        process.resume()
    wait_for(lambda: not alive(asleep), message="the first worker to give up")
    assert rows() == before
    assert notes() == ["first", "second", "finished: stop"]


def test_g4_a_worker_that_sleeps_in_a_tool_past_its_lease_and_wakes_up_doubles_nothing(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    """Whoever wins, the tool's edits are there once; asleep it holds a transaction (dbos#812)."""
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    hold = json.dumps({"begun": str(begun), "go_on": str(go_on), "text": "held"})
    run = ask("hold_and_write")
    first = worker(INSTRUCT_TEST_HOLD=hold)
    wait_for(begun.exists, message="the tool to begin")
    frozen = family(first)
    for process in frozen:
        process.suspend()
    go_on.touch()
    worker(INSTRUCT_TEST_HOLD=hold)
    wait_for(lambda: (reread(run).lease_until or now()) < now(), message="the lease to end")
    wait_for(lambda: not run_queue(app.extensions["instruct"]).job_ids, message="the other to try")
    for process in frozen:
        process.resume()
    ended = wait_for_end(run, timeout=40)
    assert ended.status == "succeeded"
    assert [call.status for call in ended.calls] == ["done", "done"]
    assert notes() == ["held", "second", "finished: stop"]


# -- never twice -------------------------------------------------------------------------------------------------------


def test_g4_a_tool_that_is_longer_than_the_lease_is_not_begun_again_while_its_worker_lives(
    app: Flask, ask: Ask, worker: StartWorker, tmp_path: Path
) -> None:
    """Longer than the visibility timeout, or no heartbeats (celery#5935, celery#5306, kombu#337, dramatiq#692)."""
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    env = {
        "INSTRUCT_TEST_HOLD": json.dumps({"begun": str(begun), "go_on": str(go_on), "text": "held"}),
        "INSTRUCT_LEASE": "0.4",
        "INSTRUCT_SWEEP_INTERVAL": "0.1",
    }
    run = ask("hold_and_write")
    worker("--concurrency", "2", **env)
    wait_for(begun.exists, message="the tool to begin")
    assert holds(lambda: reread(run).attempt == 1, 1.5)
    go_on.touch()
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 1, 0)
    assert notes() == ["held", "second", "finished: stop"]


def test_g4_a_model_that_thinks_longer_than_the_lease_is_asked_once(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """A healthy job while maintenance runs is never taken for stuck (rq/rq#2061, celery#5935)."""
    run = ask("slow")
    worker("--concurrency", "2", INSTRUCT_LEASE="0.4", INSTRUCT_SWEEP_INTERVAL="0.1")
    ended = wait_for_end(run)
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 1, 0)
    assert model_calls(run) == 1


def test_g4_many_rings_for_one_run_at_once_carry_it_out_once(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """Two executors begin the same at once, or a message was copied and not acknowledged (dbos#812, dramatiq#431)."""
    run = ask("write_two")
    queue = run_queue(app.extensions["instruct"])
    for number in range(6):
        queue.enqueue_call(ENTRY, args=[run.id], job_id=f"{run.id}-again-{number}")
    worker("--concurrency", "3")
    ended = wait_for_end(run)
    wait_for(lambda: not queue.job_ids, message="all rings to be heard")
    assert (ended.status, ended.attempt) == ("succeeded", 1)
    assert model_calls(run) == 2
    assert notes() == ["a", "b", "finished: stop"]


@pytest.fixture
def stalling() -> Iterator[RedisProcess]:
    process = RedisProcess(keeps=False)
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_redis_that_stalls_longer_than_the_timeout_applies_a_write_once(
    app: Flask, ask: Ask, stalling: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py repeats a write whose answer was late, and it is applied twice (redis/redis-py#3554)."""
    client = connect(stalling.url)
    client.ping()
    other = connect(stalling.url)
    other.ping()
    stalling.pause()
    for write in (lambda: client.incr("counter"), lambda: other.xadd("stream", {"a": "b"})):
        with pytest.raises(redis.TimeoutError):
            write()
    stalling.resume()
    wait_for(lambda: connect(stalling.url).exists("counter", "stream") == 2, TIMEOUT * 2, "the late writes")
    assert (client.get("counter"), client.xlen("stream")) == (b"1", 1)
    monkeypatch.setattr(app.extensions["instruct"], "_redis", (os.getpid(), client))
    run = ask("talk")
    assert run_queue(app.extensions["instruct"]).job_ids == [f"{run.id}-0"]


# -- stops -------------------------------------------------------------------------------------------------------------


def test_g8_of_many_that_wait_those_that_were_stopped_never_run(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """Five queued jobs are cancelled while a worker is at the queue (rq/rq#2160)."""
    held = ask("slow")
    waiting = [ask("talk") for _ in range(5)]
    worker()
    wait_for(lambda: reread(held).status == "running", message="the worker to be busy")
    assert all(reread(run).cancel() for run in waiting)
    assert wait_for_end(ask("talk")).status == "succeeded"
    for run in waiting:
        assert (reread(run).status, reread(run).attempt, model_calls(run)) == ("cancelled", 0, 0)


def test_g8_stopped_in_the_moment_they_are_taken_they_are_stopped_or_done(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """A cancel that races with the dequeue leaves nothing in between (rq/rq#2160)."""
    runs = [ask("talk") for _ in range(8)]
    worker("--concurrency", "2")
    wait_for(lambda: any(reread(run).attempt for run in runs), message="the first to be taken")
    for run in reversed(runs):
        reread(run).cancel()
    ended = [wait_for_end(run) for run in runs]
    assert {run.status for run in ended} <= {"succeeded", "cancelled"}
    assert [model_calls(run) for run in ended if run.attempt == 0] == [0] * sum(run.attempt == 0 for run in ended)


def test_g8_a_run_that_a_person_stopped_has_not_failed_unexpectedly(app: Flask, ask: Ask, worker: StartWorker) -> None:
    """A stop by the user is "stopped", for the queue too, and no traceback is written (rq/rq#1389)."""
    queue = run_queue(app.extensions["instruct"])
    run = ask("endless_text")
    process = worker()
    wait_for(lambda: any(message.text for message in reread(run).messages), message="some text")
    busy = horse(process)
    reread(run).cancel()
    ended = wait_for_end(run)
    assert (ended.status, ended.error_class, ended.error_safe) == ("cancelled", None, None)
    wait_for(lambda: horse(process) != busy, message="the job to end")
    assert FailedJobRegistry(queue=queue).get_job_count() == 0
    assert "Traceback" not in process.output


# -- the database ------------------------------------------------------------------------------------------------------


def test_a_job_that_comes_before_its_row_is_visible_runs_once_as_it_is(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """A job begins before the request has committed what it is about (netbox#18880, rq/rq#327)."""
    state = app.extensions["instruct"]
    process = worker()
    wait_for(lambda: len(family(process)) > ROLES, message="the worker to wait")
    run = ask("write_two", commit=False)
    run_id = run.id
    ring(state, run_id, 0)
    wait_for(lambda: not run_queue(state).job_ids, message="the early job to be taken")
    db.session.commit()
    found = db.session.get_one(Run, run_id)
    db.session.expunge(found)
    ended = wait_for_end(found)
    assert (ended.status, ended.attempt) == ("succeeded", 1)
    assert notes() == ["a", "b", "finished: stop"]


def hang_up() -> None:
    """Close every other connection to this database, as a restart does, or a proxy after hours of idling."""
    db.session.remove()
    db.engine.dispose()
    others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    with db.engine.connect() as connection:
        connection.execute(sa.text(f"{others} and pid != pg_backend_pid()"))


@on_postgresql
def test_a_worker_whose_connections_were_closed_while_it_waited_works_on(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """A stale pooled connection is replaced after hours of idling, or a restart (rq/rq#2040, Flask-RQ2#90)."""
    worker()
    assert wait_for_end(ask("write_two")).status == "succeeded"
    hang_up()
    second = wait_for_end(ask("talk"))
    assert (second.status, second.attempt) == ("succeeded", 1)
    hang_up()
    assert wait_for_end(ask("talk")).status == "succeeded"


@on_postgresql
def test_g4_connections_that_are_closed_while_the_model_is_awaited_cost_a_resume_at_most(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """The database is restarted in the middle of a run (Flask-RQ2#90, rails#57742)."""
    run = ask("pause_between")
    worker()
    wait_for(lambda: "first" in notes() and model_calls(run) == 2, message="the wait for the second turn")
    hang_up()
    assert wait_for_end(run).status == "succeeded"
    assert notes() == ["first", "second", "finished: stop"]


@pytest.fixture
def hiccup(app: Flask) -> Iterator[list[str]]:
    """Fail the first statement that reads a notebook, as a lost connection does; gives what was failed."""
    failed: list[str] = []

    def fail(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if "FROM notebook" in statement and not failed:
            failed.append(statement)
            raise sa.exc.OperationalError(statement, {}, Exception("server closed the connection unexpectedly"))

    sa.event.listen(db.engine, "before_cursor_execute", fail)
    yield failed
    sa.event.remove(db.engine, "before_cursor_execute", fail)


def let_lease_end(run: Run) -> None:
    db.session.execute(sa.update(Run).where(Run.id == run.id).values(lease_until=run.created_at))
    db.session.commit()


def test_a_database_that_fails_while_the_record_is_read_leaves_the_run_for_a_resume(
    app: Flask, ask: Ask, hiccup: list[str]
) -> None:
    """A hiccup while the record is loaded is retried (rails#57742, rails#40318)."""
    hiccup.append("not yet")
    run = ask(turns=[[Use("write", text="a")], []])
    hiccup.clear()
    generate(run.id)
    assert len(hiccup) == 1
    assert (reread(run).status, model_calls(run)) == ("running", 0)
    let_lease_end(reread(run))
    generate(run.id)
    assert (reread(run).status, notes()) == ("succeeded", ["a", "finished: stop"])


def test_a_record_that_was_deleted_ends_the_run_and_is_not_tried_again(app: Flask, ask: Ask) -> None:
    """A record that is gone is no reason to retry (rails#57742)."""
    run = ask("talk")
    db.session.execute(sa.delete(Notebook))
    db.session.commit()
    generate(run.id)
    assert (reread(run).status, reread(run).error_class, model_calls(run)) == ("failed", "record_gone", 0)
    assert sweep(app.extensions["instruct"]).runs == 0


@on_postgresql
def test_forks_of_a_process_that_has_used_its_engine_share_no_connection(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """Parallel forks with an engine that the parent has used (flask-rq#30, rq/rq#900, celery#1564, django-rq#123)."""
    runs = [ask("talk") for _ in range(6)]
    process = worker("--concurrency", "3")
    assert {wait_for_end(run).status for run in runs} == {"succeeded"}
    assert {reread(run).attempt for run in runs} == {1}
    for word in ("ResourceClosedError", "bad record mac", "OperationalError"):
        assert word not in process.output
