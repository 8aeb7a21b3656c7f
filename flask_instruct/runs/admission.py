"""Which of what stands in the queue is a job that a worker can take up at all; everything else is dropped with a word.

RQ's worker ends at an id that is no text or a job that it cannot read, and ends again at its next start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as TimedOut
from rq.exceptions import DequeueTimeout
from rq.exceptions import NoSuchJobError
from rq.exceptions import StopRequested
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.queue import Queue
from rq.utils import get_version

logger = logging.getLogger("flask_instruct")

LARGEST = 262_144
"""Bytes of a job in Redis; one of ours has some hundred."""
LARGEST_CALL = 4096
"""Bytes of what it calls, packed; unpacked that may be a thousand times as much."""
MOST_FIELDS = 100
LONGEST_TIME = 10**9
"""Seconds of a limit or a time to live; Redis and the clock refuse much longer ones."""
AT_ONCE = 100
"""How much is dropped before the worker shows again that it is alive."""
KEPT = 86_400
"""Seconds that a job which was dropped is kept for whoever wants to look at it."""

PASSING_ON = (Disconnected, TimedOut, StopRequested)
"""What says nothing about a job."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")

_MEASURE = f"""
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'hash' then return {{kind, 0, 0}} end
if redis.call('HLEN', KEYS[1]) > {MOST_FIELDS} then return {{kind, {LARGEST} + 1, 0}} end
local size = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do size = size + redis.call('HSTRLEN', KEYS[1], field) end
return {{kind, size, redis.call('HSTRLEN', KEYS[1], 'data')}}
"""


class Refused(Exception):
    """Raise when an entry of the queue is no job that can be taken up; says why."""


class Gone(Refused):
    """Raise for a job that was deleted, or has been carried out while its id stood in the queue twice."""


class RunQueue(Queue):
    """A queue from which only such jobs are taken that a worker can carry out, or refuse in good order."""

    @classmethod
    def dequeue_any(
        cls,
        queues: Iterable[Queue],
        timeout: int | None,
        connection: Redis,
        job_class: Any = None,
        serializer: Any = None,
        death_penalty_class: Any = None,
    ) -> tuple[Job, Queue] | None:
        """Take the next job, as RQ does, and drop what is none on the way."""
        by_key = {queue.key: queue for queue in queues}
        alone = len(by_key) == 1 and get_version(connection) >= (6, 2, 0)
        for _ in range(AT_ONCE):
            if alone:
                taken = cls.lmove(connection, next(iter(by_key)), timeout)
            else:
                taken = cls.lpop(list(by_key), timeout, connection=connection)
            if taken is None:
                return None
            key, entry = taken
            queue = by_key[key.decode() if isinstance(key, bytes) else key]
            try:
                return admit(entry, queue, job_class or Job, serializer), queue
            except Refused as refusal:
                drop(queue, entry, str(refusal), logging.DEBUG if isinstance(refusal, Gone) else logging.WARNING)
        # RQ's worker then sends its heartbeat and comes back.
        raise DequeueTimeout(timeout, next(iter(by_key)))

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Return the ids in the queue, also where one of them is no text."""
        if length == 0:
            return []
        end = offset + length - 1 if length > 0 else length
        connection: Any = self.connection
        return [entry.decode(errors="replace") for entry in connection.lrange(self.key, offset, end)]


def admit(entry: bytes, queue: Queue, job_class: type[Job], serializer: Any) -> Job:
    """Return the job of an entry, read as far as a worker reads it.

    :raises Refused: when it cannot be.
    """
    job_id = entry.decode(errors="replace")
    if not _ID.fullmatch(job_id):
        raise Refused("its id is none that a job can have")
    _refuse_by_size(queue.connection, job_class.key_for(job_id))
    try:
        job = job_class.fetch(job_id, connection=queue.connection, serializer=serializer)
        args, kwargs, times = job.args, job.kwargs, (job.timeout, job.result_ttl, job.failure_ttl, job.ttl)
    except PASSING_ON:
        raise
    except NoSuchJobError:
        raise Refused("it does not say what is to be called") from None
    except Exception as error:
        why = error.__cause__ or error
        raise Refused(f"it cannot be read, {type(why).__name__}: {str(why)[:200]!r}") from error
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise Refused("its arguments are none")
    if any(time is not None and not -1 <= int(time) <= LONGEST_TIME for time in times):
        raise Refused("its limits of time are none")
    if job.origin != queue.name:
        raise Refused(f"it belongs to the queue {job.origin[:80]!r}")
    return job


def drop(queue: Queue, entry: bytes, why: str, level: int = logging.WARNING) -> None:
    """Take an entry out of what a worker has in hand, and say so."""
    logger.log(level, "A job of the queue %s was dropped, %s: %s", queue.name, repr(entry)[:200], why)
    connection: Any = queue.connection
    connection.lrem(IntermediateQueue.get_intermediate_queue_key(queue.key), 0, entry)
    if _ID.fullmatch(job_id := entry.decode(errors="replace")):
        connection.expire(Job.key_for(job_id), KEPT)


def tidy(queue: Queue) -> None:
    """Drop what is no job from what workers that died had in hand: RQ's own cleaning stops at it."""
    connection: Any = queue.connection
    for entry in connection.lrange(IntermediateQueue.get_intermediate_queue_key(queue.key), 0, -1):
        if not _ID.fullmatch(entry.decode(errors="replace")):
            drop(queue, entry, "its id is none that a job can have")


def _refuse_by_size(connection: Redis, key: str) -> None:
    kind, size, call = connection.eval(_MEASURE, 1, key)
    if kind == b"none":
        raise Gone("it is gone")
    if kind != b"hash":
        raise Refused(f"a {kind.decode()} stands in its place")
    if size > LARGEST or call > LARGEST_CALL:
        raise Refused(f"it has {size} bytes, and a job that rings for a run some hundred")
