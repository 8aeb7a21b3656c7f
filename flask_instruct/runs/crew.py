"""Which workers are there: those whose heartbeat Redis still holds, and the queues they take runs from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from datetime import datetime
from typing import TYPE_CHECKING

from rq import Worker

from .columns import now
from .queue import run_queue

if TYPE_CHECKING:
    from ..state import State


@dataclass(frozen=True, slots=True)
class Member:
    """One worker process as Redis knows it; ``silent`` counts the seconds since its last heartbeat."""

    host: str | None
    pid: int | None
    queues: tuple[str, ...]
    silent: float


def crew(state: State) -> list[Member]:
    """Return the workers of every queue of this Redis; a killed one is among them for some 80 seconds.

    :raises redis.RedisError: when Redis does not answer.
    """
    found = Worker.all(connection=state.redis, queue=None)
    return [Member(each.hostname, each.pid, tuple(each.queue_names()), _silent(each.last_heartbeat)) for each in found]


def count_of_queue(state: State) -> int:
    """Return how many workers take runs of this app.

    :raises redis.RedisError: when Redis does not answer.
    """
    # Not Worker.count: it counts killed workers for as long as nobody tidies up.
    return len(Worker.all(queue=run_queue(state)))


def _silent(heartbeat: datetime | None) -> float:
    if heartbeat is None:
        return 0.0
    moment = heartbeat if heartbeat.tzinfo else heartbeat.replace(tzinfo=UTC)
    return max(0.0, (now() - moment).total_seconds())
