"""The warm worker: the app and the SDKs are loaded once, then a work-horse is forked for each run.

A supervisor keeps N RQ workers and one sweeper alive. Everything below it dies with it (JOBS: a worker that is
killed otherwise leaves its work-horse running as an orphan).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC
from datetime import datetime
from typing import TYPE_CHECKING
from typing import Any

from flask import Flask
from flask import current_app
from redis.exceptions import RedisError
from rq import Worker
from rq.exceptions import StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.worker import WorkerStatus
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ..config import Config
from ..connections import connect_worker
from .admission import PASSING_ON
from .admission import RunQueue
from .admission import drop
from .admission import tidy
from .deaths import mourn
from .grace import FOR_THE_MODEL
from .grace import Hold
from .queue import RunJob
from .queue import run_queue
from .standby import Standby
from .strays import look_out
from .sweep import sweep
from .unit import ledger_engine
from .warm import rehearse
from .warm import warm

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

RESTART_PAUSE = 1.0
"""Seconds before a child that died is started again."""
SAME_SIGNAL = 0.2
"""Seconds within which a signal to a whole group has struck all of it."""
LOOK = 0.2
"""Seconds between two looks of the sweeper whether it is told to end."""
WORKER_TTL = 20
"""Seconds; RQ waits for a job 15 s less at a time, and looks around in between."""
REPLACE = 10
"""Exit status of a child that has done its share of jobs."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1

Role = Callable[[], int]
"""What a child does; returns its exit status."""


class RunWorker(Worker):
    """An RQ worker whose work-horses share nothing with it but memory, and do not outlive it.

    Told to end, it gives the run in hand ``grace`` seconds, then takes it away and gives it back.
    """

    def __init__(self, *args: Any, grace: float = Config().grace, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hold = Hold()
        self._grace = grace
        self._grace_is_over = False
        self._taken_away: int | None = None
        self._standby: Standby | None = None
        self._set_up_in: int | None = None

    def dequeue_job_and_maintain_ttl(self, *args: Any, **kwargs: Any) -> tuple[Job, Queue] | None:
        if self._standby is None:
            self._standby = Standby.fork(self.setup_work_horse_signals, self._rehearse, self._perform)
        return super().dequeue_job_and_maintain_ttl(*args, **kwargs)

    def execute_job(self, job: Job, queue: Queue) -> None:
        self.hold.forget()
        self._taken_away = None
        try:
            super().execute_job(job, queue)
        except PASSING_ON:
            raise
        except Exception as error:
            # What the admission did not foresee must not end the worker either.
            if self.horse_pid:
                self.kill_horse()
                super().wait_for_horse()
                self._horse_pid = 0
            drop(queue, job.id.encode(), f"{type(error).__name__}: {error}")
            self.set_state(WorkerStatus.IDLE)

    def run_maintenance_tasks(self) -> None:
        for queue in self.queues:
            tidy(queue)
        try:
            super().run_maintenance_tasks()  # type: ignore[no-untyped-call]
        except PASSING_ON:
            raise
        except Exception as error:
            logger.warning("RQ's registries could not be tidied, %s: %.200s", type(error).__name__, error)
            self.last_cleaned_at = datetime.now(UTC)  # type: ignore[assignment]

    def wait_for_horse(self) -> Any:
        """Wait as RQ does, and tell it of a work-horse that was taken away as of one that did its work.

        RQ would say that the job failed; the run is given back, which is said in our words.
        """
        pid, status, usage = super().wait_for_horse()
        if pid and status is not None and os.WIFSIGNALED(status) and self._is_told_to_end(os.WTERMSIG(status)):
            self._taken_away = status
            return pid, os.EX_OK, usage
        return pid, status, usage

    def _is_told_to_end(self, number: int) -> bool:
        if number in STOP_SIGNALS and not self._stop_requested:
            # It struck the whole group, and this process comes second.
            time.sleep(SAME_SIGNAL)
        return self._grace_is_over or (number in STOP_SIGNALS and self._stop_requested)

    def monitor_work_horse(self, job: Job, queue: Queue, execution: Execution) -> None:
        super().monitor_work_horse(job, queue, execution)
        if self._taken_away is None:
            return
        self._mourn(job, self._taken_away, given_back=True)
        # Whoever takes the run up has a job of its own; RQ would look for what became of this one.
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(job, pipeline=pipeline, execution=execution)
            job.delete(pipeline=pipeline, remove_from_queue=False)
            pipeline.execute()

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        standby, self._standby = self._standby, None
        assert self.execution is not None
        if standby is not None and standby.give(job.id, self.execution.id, queue.name):
            self._horse_pid = standby.pid
            return
        super().fork_work_horse(job, queue)

    def dismiss(self) -> None:
        """End the work-horse that stands ready."""
        if self._standby is not None:
            self._standby.dismiss()
            self._standby = None

    def _rehearse(self) -> None:
        """Touch what a run will need. Nothing stays open."""
        try:
            state: State = current_app.extensions["instruct"]
            rehearse(state)
            for client in (self.connection, state.redis):
                client.ping()
                client.connection_pool.disconnect()
        except Exception as error:
            logger.debug("A work-horse could not rehearse: %s: %s", type(error).__name__, error)

    def _perform(self, job_id: str, execution_id: str, queue: str) -> None:
        os.environ.update(RQ_WORKER_ID=self.name, RQ_JOB_ID=job_id)
        job = self.job_class.fetch(job_id, connection=self.connection, serializer=self.serializer)
        job.redis_server_version = self.get_redis_server_version()  # type: ignore[no-untyped-call]
        self.execution = Execution.fetch(execution_id, job_id, connection=self.connection)
        self.execution._job = job
        self.main_work_horse(job, next(each for each in self.queues if each.name == queue))

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()  # type: ignore[no-untyped-call]
        self.hold.end_in(self._grace * FOR_THE_MODEL)
        timer = threading.Timer(self._grace, self._end_horse)
        timer.daemon = True
        timer.start()

    def _end_horse(self) -> None:
        # Not kill_horse(): with no work-horse left it would end this process and its whole group.
        self._grace_is_over = True
        if pid := self.horse_pid:
            _send(pid, signal.SIGKILL)

    def handle_work_horse_killed(self, job: Job, pid: int | None, status: int | None, *usage: Any) -> None:
        super().handle_work_horse_killed(job, pid, status, *usage)  # type: ignore[no-untyped-call]
        self._mourn(job, status, given_back=False)

    def _mourn(self, job: Job, status: int | None, *, given_back: bool) -> None:
        state: State = current_app.extensions["instruct"]
        mourn(state, str(job.args[0]) if job.args else "", self.hold, status, given_back=given_back)

    def _shutdown(self) -> None:
        # RQ raises in its signal handler. What strikes inside a weak reference's callback is swallowed, so remember it.
        self._stop_requested = True
        super()._shutdown()  # type: ignore[no-untyped-call]

    def heartbeat(self, *args: Any, **kwargs: Any) -> None:
        super().heartbeat(*args, **kwargs)
        if self._stop_requested and self.get_state() == WorkerStatus.IDLE:
            raise StopRequested

    def setup_work_horse_signals(self) -> None:
        super().setup_work_horse_signals()  # type: ignore[no-untyped-call]
        if self._set_up_in != os.getpid():  # One that stood by is told so twice.
            self._set_up_in = os.getpid()
            die_with_parent()
            forget_connections()


def work(app: Flask, *, concurrency: int = 1, max_jobs: int | None = None) -> None:
    """Work on runs until stopped. SIGTERM or Ctrl-C gives runs in hand their grace; a second one ends at once.

    :param concurrency: how many runs are carried out at the same time.
    :param max_jobs: how many jobs a process takes before a new one replaces it.
    """
    with app.app_context():
        state: State = app.extensions["instruct"]
        url = state.redis_url()
        _prepare(state)
        warm(state)
        look_out()
    jobs: list[Role] = [lambda: _work(app, url, max_jobs)] * concurrency
    Supervisor([*jobs, lambda: _sweep(app)]).run()


def _prepare(state: State) -> None:
    """Let readers and the one writer of an SQLite file work side by side; refuse what cannot work."""
    engine = ledger_engine(state.db)
    if engine.dialect.name == "sqlite":
        with state.db.engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
            if mode != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                logger.info("The SQLite database was in journal mode %s and is now in WAL mode", mode)
    # Closed before the fork, not merely forgotten: SQLite's locks do not survive a copy of its file descriptors.
    for pool in _engines(state):
        pool.dispose()


def _work(app: Flask, url: str, max_jobs: int | None) -> int:
    with app.app_context():
        state: State = app.extensions["instruct"]
        connection = connect_worker(url)
        worker = RunWorker(
            [run_queue(state, connection)],
            connection=connection,
            job_class=RunJob,
            queue_class=RunQueue,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL,
            maintenance_interval=30,
            job_monitoring_interval=10,
            grace=state.config.grace,
        )
        state.hold = worker.hold
        worker.log_job_description = False
        try:
            worked = worker.work(logging_level="WARNING", max_jobs=max_jobs)
        finally:
            worker.dismiss()
    return REPLACE if worked and max_jobs else 0


def _sweep(app: Flask) -> int:
    # No Event: a second signal that strikes inside its set() would wait for the lock that the first one holds.
    stopping: list[int] = []
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _: stopping.append(number))
    with app.app_context():
        state: State = app.extensions["instruct"]
        while not stopping:
            try:
                found = sweep(state)
                if found.runs or found.broadcasts:
                    logger.info("Swept: %d runs rung for, %d broadcasts published", found.runs, found.broadcasts)
            except SQLAlchemyError as error:
                logger.warning("The sweep could not read the ledger: %s", error)
            end = time.monotonic() + state.config.sweep_interval
            while not stopping and (left := end - time.monotonic()) > 0:
                time.sleep(min(left, LOOK))
    return 0


class Supervisor:
    """Keeps a fixed set of forked children alive until it is told to stop."""

    def __init__(self, roles: list[Role]) -> None:
        self._roles = roles
        self._children: dict[int, int] = {}
        self._stopping = 0

    def run(self) -> None:
        """Start a child for each role, restart those that die, return when all have left after a signal."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        for role in range(len(self._roles)):
            if not self._stopping:
                self._start(role)
        while self._children:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                break
            if pid not in self._children:
                continue
            role = self._children.pop(pid)
            if self._stopping:
                continue
            self._explain(pid, status)
            if not self._stopping:
                self._start(role)

    def _explain(self, pid: int, status: int) -> None:
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == REPLACE:
            logger.info("Worker process %d has done its share of jobs and is replaced", pid)
            return
        code = os.waitstatus_to_exitcode(status)
        how = f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        logger.warning("Worker process %d ended with %s and is started again", pid, how)
        time.sleep(RESTART_PAUSE)

    def _start(self, role: int) -> None:
        # A signal now would be lost: on a child that is not written down yet, or that still has our handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid:
            self._children[pid] = role
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            return
        code = 1
        try:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            die_with_parent()
            code = self._roles[role]()
        except SystemExit:
            code = 0
        except RedisError as error:
            logger.error("A worker process cannot reach Redis: %s", error)
        except BaseException:
            logger.exception("A worker process failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _stop(self, signum: int, frame: object) -> None:
        self._stopping += 1
        for pid in list(self._children):
            # RQ takes a second signal within a second for the same one; ours means it.
            _send(pid, signal.SIGTERM if self._stopping == 1 else signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def die_with_parent() -> None:
    """Make this process end when its parent does: by the kernel on Linux, by a watching thread elsewhere."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="instruct-parent-watch", daemon=True).start()


def forget_connections() -> None:
    """Drop what a fork must not share: database connections stay the parent's, ours are made anew."""
    for engine in _engines(current_app.extensions["instruct"]):
        engine.dispose(close=False)


def _engines(state: State) -> list[Engine]:
    return [*state.db.engines.values(), ledger_engine(state.db)]
