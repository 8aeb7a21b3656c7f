"""RQ as the door bell: a job says "look at run X" and carries nothing else.

The run's row is the truth. A job that is lost, doubled or late changes nothing but the moment of the ring.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

from flask import current_app
from redis.exceptions import RedisError
from rq import Worker
from rq.job import Job
from rq.serializers import JSONSerializer

from ..errors import InstructError
from .admission import RunQueue

if TYPE_CHECKING:
    from ..state import State
    from .models import Run

logger = logging.getLogger("flask_instruct")

ENTRY = "flask_instruct.runs.job.generate"
FAILURE_TTL = 86_400
"""Seconds that RQ keeps a failed door bell; the run's own row says why it failed."""


class RunJob(Job):
    """A job that can only ring for a run.

    RQ imports whatever dotted path a job names, also from JSON: who can write to Redis could run ``os.system``.
    """

    @property
    def func(self) -> Callable[..., Any]:
        if self.func_name != ENTRY or self.instance:
            raise InstructError(f"This queue only takes {ENTRY}; the job {self.id} was refused.")
        from .job import generate

        return generate

    @property
    def success_callback(self) -> None:
        return None

    @property
    def failure_callback(self) -> None:
        return None

    @property
    def stopped_callback(self) -> None:
        return None


def run_queue(state: State, connection: Any = None) -> RunQueue:
    """Return the queue that runs are put on."""
    return RunQueue(
        state.config.queue,
        connection=connection or state.redis,
        serializer=JSONSerializer,
        job_class=RunJob,
    )


def job_id(run_id: str, attempt: int) -> str:
    """Return the id of the job that rings for the attempt after ``attempt``."""
    return f"{run_id}-{attempt}"


def ring(state: State, run_id: str, attempt: int) -> bool:
    """Put the run's job on the queue. False when Redis could not be reached: the sweep rings later."""
    try:
        queue = run_queue(state)
        queue.enqueue_call(
            ENTRY,
            args=[run_id],
            job_id=job_id(run_id, attempt),
            description=f"instruct run {run_id}",
            timeout=-1,
            result_ttl=60,
            failure_ttl=FAILURE_TTL,
        )
        if Worker.count(queue=queue) == 0:
            told = "Run %s waits: no worker is there. Start one: flask instruct worker"
            logger.warning(told, run_id, extra={"run_id": run_id})
    except RedisError as error:
        logger.warning("Run %s stays queued, Redis could not be reached: %s", run_id, error, extra={"run_id": run_id})
        return False
    return True


def is_waiting(state: State, run: Run) -> bool:
    """Tell whether the run's job still stands in the queue."""
    return run_queue(state).get_job_position(job_id(run.id, run.attempt)) is not None


def fetch_job(run: Run) -> Job | None:
    """Return the RQ job of the run's current or next attempt, or None where Redis has none."""
    state: State = current_app.extensions["instruct"]
    for attempt in (run.attempt, run.attempt - 1):
        identifier = job_id(run.id, attempt)
        if attempt >= 0 and RunJob.exists(identifier, connection=state.redis):
            return RunJob.fetch(identifier, connection=state.redis, serializer=JSONSerializer)
    return None
