"""More public reports, each as a test that it does not happen here: what is lost, what is repeated, what is run.

Real Redis, real worker processes and both databases; the report stands in each test's docstring.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest
import sqlalchemy as sa
from flask import Flask
from rq import Queue

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.errors import HandlerError
from flask_instruct.handlers import locate
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import RunJob
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.sweep import sweep
from tests.live.redis_process import RedisProcess
from tests.support import Process
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]
StartWorker = Callable[..., Process]
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture
def own_redis() -> Iterator[RedisProcess]:
    """A server that a test may end; it forgets everything then."""
    process = RedisProcess(keeps=False)
    process.start()
    yield process
    process.remove()


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, redis_url: str) -> str:
    """The address of the test's own server where it has one."""
    if "own_redis" not in request.fixturenames:
        return redis_url
    server: RedisProcess = request.getfixturevalue("own_redis")
    return server.url


# -- what is lost ------------------------------------------------------------------------------------------------------


@on_sqlite
def test_g3_a_job_that_was_popped_from_two_queues_by_a_worker_that_died_is_rung_for_again(app: Flask, ask: Ask) -> None:
    """With two queues RQ pops a job without a trace: whoever dies then takes it along (rq/rq#1716, rq/rq#381)."""
    state = app.extensions["instruct"]
    run = ask("write_two")
    queue = run_queue(state)
    other = Queue(f"{queue.name}-other", connection=queue.connection, serializer=queue.serializer)
    popped = Queue.dequeue_any(
        [other, queue], timeout=None, connection=queue.connection, job_class=RunJob, serializer=queue.serializer
    )
    assert popped is not None
    assert (popped[0].args, queue.job_ids) == ([run.id], [])
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).values(queued_at=now() - timedelta(minutes=1)))
    assert sweep(state).runs == 1
    assert queue.job_ids == [f"{run.id}-0"]
    generate(run.id)
    assert (reread(run).status, notes()) == ("succeeded", ["a", "b", "finished: stop"])


@on_sqlite
def test_g3_a_redis_that_forgot_everything_delays_a_waiting_run_by_a_sweep(
    app: Flask, ask: Ask, worker: StartWorker, own_redis: RedisProcess
) -> None:
    """Redis is restarted with a delayed message in flight: it runs within a short bound (dramatiq#527)."""
    run = ask("write_two")
    own_redis.kill()
    own_redis.start()
    assert run_queue(app.extensions["instruct"]).job_ids == []
    worker(INSTRUCT_SWEEP_INTERVAL="0.3")
    assert (wait_for_end(run, 30).status, notes()) == ("succeeded", ["a", "b", "finished: stop"])


@pytest.mark.chaos
@on_postgresql
def test_g4_a_worker_that_is_killed_between_two_steps_blocks_neither_its_run_nor_the_next(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """Cold kill, others alive, one run of a person at a time, the dead worker's registration pruned.

    (rq/rq#2015, huey#733, huey#844, dbos-transact-py#805, procrastinate#1518)
    """
    share = {"INSTRUCT_RUNS_PER_ACTOR": "1"}
    first_run = ask("pause_between", actor="ada", conversation="c")
    next_run = ask(turns=[[Say("Next.")]], actor="ada", conversation="c")
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).where(Run.id == next_run.id).values(model="scripted:talk"))
    first = worker(**share)
    wait_for(lambda: "first" in notes(), 30, "the first tool")
    worker(**share)
    family = {child.pid for child in psutil.Process(first.pid).children()}
    os.killpg(first.pid, signal.SIGKILL)
    client = app.extensions["instruct"].redis
    for key in client.scan_iter("rq:worker:*", _type="hash"):
        if int(client.hget(key, "pid") or 0) in family:
            client.delete(key)
    ended = wait_for_end(first_run, 40)
    assert (ended.status, ended.resumes) == ("succeeded", 1)
    assert wait_for_end(next_run, 40).status == "succeeded"
    assert notes() == ["first", "second", "finished: stop"]


# -- what is repeated --------------------------------------------------------------------------------------------------


def test_a_tool_that_wants_another_call_is_told_to_the_model_and_repeated_by_nobody_else(app: Flask, ask: Ask) -> None:
    """To "ask the model again" is no failure of a step, which a durable engine would retry (pydantic-ai#3298)."""
    run = ask(turns=[[Use("flush_then_refuse", text="a")], [Use("write", text="b")], []])
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.attempt) == ("succeeded", 1)
    assert [call.result for call in ended.calls] == ["No such chapter; choose 1 or 2.", "Wrote b."]
    assert notes() == ["error in flush_then_refuse: ToolError", "b", "finished: stop"]
    assert sweep(app.extensions["instruct"]).runs == 0


def test_a_tool_that_wants_another_call_for_ever_meets_a_limit(app: Flask, ask: Ask) -> None:
    run = ask(turns=[[Use("flush_then_refuse", text="a")] for _ in range(30)])
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.limit_reached, ended.attempt) == ("limited", "tool_failures", 1)
    assert sweep(app.extensions["instruct"]).runs == 0


@pytest.mark.parametrize("hook", ["ai_tools", "quota"])
def test_a_rule_of_the_app_that_times_out_ends_the_run_and_is_not_retried_for_ever(
    app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """A time-out error out of a hook is not one of the engine's own (pydantic-ai#6975, pydantic-ai#7163)."""

    def fail(*_: object) -> None:
        raise TimeoutError("the vault did not answer")

    state = app.extensions["instruct"]
    monkeypatch.setattr(NoteKeeper if hook == "ai_tools" else state.hooks, hook, fail)
    run = ask("talk", actor="ada")
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.attempt) == ("failed", 1)
    assert "TimeoutError" in (ended.error_technical or "")
    assert sweep(state).runs == 0


def test_a_run_that_took_too_long_says_so_with_its_limit(app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the time limit, and the run is not begun again (rq/rq#1966, pydantic-ai#6975)."""
    state = app.extensions["instruct"]
    monkeypatch.setattr(state, "config", replace(state.config, run_timeout=0.5))
    run = ask("slow")
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.error_class, ended.attempt) == ("failed", "timeout", 1)
    assert "INSTRUCT_RUN_TIMEOUT, 0.5 s" in (ended.error_technical or "")
    assert sweep(state).runs == 0


# -- what is run, and what is shown ------------------------------------------------------------------------------------


@on_sqlite
def test_a_job_in_redis_holds_nothing_that_anybody_wrote(app: Flask) -> None:
    """A dashboard shows what a job says of itself: no markup of a prompt is in it (rq-dashboard#526)."""
    state = app.extensions["instruct"]
    hostile = "<img src=x onerror=alert(1)>"
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(
        NoteKeeper(record), user_prompt=hostile, system_prompt=hostile, context={"x": hostile}, actor="ada"
    )
    job = run.job
    assert job is not None
    assert (job.description, job.args, job.kwargs) == (f"instruct run {run.id}", [run.id], {})
    client = state.redis
    kept = [client.dump(key) or b"" for key in client.scan_iter("rq:job:*") if run.id.encode() in key]
    fields = client.hgetall(f"rq:job:{job.id}")
    assert kept
    assert not [value for value in (*fields.values(), *kept) if b"onerror" in value]


@on_sqlite
@pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", "builtins.exec", "tests.runs.notebook.NoteKeeper"])
def test_who_knows_the_secret_or_writes_the_row_can_name_handlers_and_run_nothing_else(
    app: Flask, ask: Ask, name: str
) -> None:
    """Forged ids never execute code: a name is looked up among the handlers, and nothing is imported (globalid#148)."""
    with pytest.raises(HandlerError, match="No handler named"):
        locate(f"instruct://{name}/1")
    run = ask("talk")
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).where(Run.id == run.id).values(handler=f"instruct://{name}/1"))
    generate(run.id)
    assert (reread(run).status, reread(run).error_class) == ("failed", "handler")
    assert db.session.scalar(sa.select(sa.func.count(ModelCall.id))) == 0


def test_g4_a_tool_that_lets_no_other_thread_run_is_not_begun_again_while_its_worker_lives(
    app: Flask, ask: Ask, worker: StartWorker
) -> None:
    """What only reckons blocks the thread that renews the lease, and is not stuck for that (dramatiq#692)."""
    run = ask("reckon")
    worker("--concurrency", "2", INSTRUCT_LEASE="0.4", INSTRUCT_SWEEP_INTERVAL="0.1")
    ended = wait_for_end(run, 60)
    assert [call.status for call in ended.calls] == ["done"]
    assert (ended.status, ended.attempt, ended.resumes) == ("succeeded", 1, 0)
    assert notes() == ["reckoned", "finished: stop"]
