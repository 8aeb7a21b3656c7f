"""Is anybody there to carry runs out, and is anything left lying?"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import UTC
from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

import sqlalchemy as sa

from ..runs.ages import write_age
from ..runs.columns import now
from ..runs.crew import crew
from ..runs.models import HELD
from ..runs.models import Outbox
from ..runs.models import Run
from ..runs.queue import run_queue
from .finding import Finding
from .finding import error
from .finding import ok
from .finding import warning

if TYPE_CHECKING:
    from ..state import State

SILENT = 90.0
"""Seconds without a heartbeat after which a worker counts as hung; it sends one every 5 to 20 s."""
WAITS_LONG = 300.0
"""Seconds in the queue that are worth a word."""
LEFT_BEHIND = 60.0
"""Seconds after which the sweep should have dealt with a run or a broadcast."""
SKEW = 2.0
"""Seconds between two clocks that are worth a word."""
REMEMBERED = timedelta(days=7)
"""How long another app that was examined on the same Redis is remembered."""
JOBS_LOOKED_AT = 500


def workers(state: State) -> Iterator[Finding]:
    everybody = crew(state)
    queue = state.config.queue
    ours = [member for member in everybody if queue in member.queues]
    others = sorted({name for member in everybody for name in member.queues} - {queue})
    elsewhere = f" Workers are there for {', '.join(others)}." if others else ""
    if not ours:
        yield error(
            f"No worker is there for the queue {queue}: runs wait.{elsewhere}",
            "Start one: flask instruct worker. Check that INSTRUCT_QUEUE and INSTRUCT_REDIS_URL are the same for it.",
        )
        return
    where = ", ".join(sorted({member.host or "an unknown host" for member in ours}))
    yield ok(f"Workers for the queue {queue}: {len(ours)}, on {where}.{elsewhere}")
    for member in ours:
        if member.silent > SILENT:
            yield warning(
                f"The worker with pid {member.pid} on {member.host} has been silent for {write_age(member.silent)}.",
                "Look whether it hangs, and end it: what it held is taken up by another.",
            )


def runs(state: State) -> Iterator[Finding]:
    moment = now()
    lapsed = (Run.status.in_(HELD), Run.lease_until < moment - timedelta(seconds=LEFT_BEHIND))
    waiting = (Run.status == "queued", Run.queued_at < moment - timedelta(seconds=WAITS_LONG))
    unsent = (Outbox.position.is_(None), Outbox.created_at < moment - timedelta(seconds=LEFT_BEHIND))
    silent, _ = _counted(state, Run.lease_until, *lapsed)
    queued, oldest = _counted(state, Run.queued_at, *waiting)
    lost, _ = _counted(state, Outbox.created_at, *unsent)
    if silent:
        yield warning(
            f"Runs held by workers that went silent: {silent}; nobody has taken them up.",
            "Start a worker, whose sweep does, or look once: flask instruct sweep.",
        )
    if queued and oldest:
        yield warning(
            f"Runs that wait for longer than {write_age(WAITS_LONG)}: {queued}, the oldest for "
            f"{write_age((moment - oldest).total_seconds())}.",
            "Start more workers (--concurrency), or look at what is in hand: flask instruct runs --status running.",
        )
    if lost:
        yield warning(
            f"Broadcasts that were committed and did not go out: {lost}.", "Start a worker, or: flask instruct sweep."
        )
    if not silent and not queued and not lost:
        yield ok("No run waits for long, and none was left behind.")


def _counted(state: State, moment: Any, *conditions: sa.ColumnElement[bool]) -> tuple[int, datetime | None]:
    query = sa.select(sa.func.count(), sa.func.min(moment)).where(*conditions)
    count, oldest = state.db.session.execute(query).one()
    return count, oldest


def clocks(state: State) -> Iterator[Finding]:
    """A lease is written with one machine's clock and read with another's."""
    begin = time.time()
    seconds, micros = state.redis.time()
    skews = {"Redis": seconds + micros / 1e6 - (begin + time.time()) / 2}
    if state.db.engine.dialect.name == "postgresql":
        with state.db.engine.connect() as connection:
            begin = time.time()
            told = connection.scalar(sa.select(sa.func.clock_timestamp()))
        assert told is not None
        skews["the database"] = told.astimezone(UTC).timestamp() - (begin + time.time()) / 2
    for name, skew in skews.items():
        amount = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        if abs(skew) < SKEW:
            yield ok(f"The clock of {name} agrees with this machine's.")
        elif abs(skew) < state.config.lease / 3:
            yield warning(f"The clock of {name} is {amount}.", "Synchronise the clocks of all machines (NTP).")
        else:
            yield error(
                f"The clock of {name} is {amount}: where workers differ so much, they take runs from each other.",
                "Synchronise the clocks of all machines (NTP).",
            )


def neighbours(state: State) -> Iterator[Finding]:
    """Two apps with one queue take each other's jobs, with one prefix they write to each other's pages."""
    fix = "Give each app an INSTRUCT_QUEUE and an INSTRUCT_KEY_PREFIX of its own."
    strangers = _strange_jobs(state)
    if strangers:
        yield error(f"Jobs on the queue {state.config.queue} for runs that are not in this database: {strangers}.", fix)
    names = _other_apps(state)
    if names:
        yield warning(
            f"Another app was examined with the same INSTRUCT_KEY_PREFIX {state.config.key_prefix} and another "
            f"database: {', '.join(names)}.",
            f"{fix} If it was this one, before its database moved, this ends by itself after {REMEMBERED.days} days.",
        )
    if not strangers and not names:
        yield ok(f"No other app is known on the queue {state.config.queue} and the prefix {state.config.key_prefix}.")


def _strange_jobs(state: State) -> int:
    queue = run_queue(state)
    waiting = {job.rpartition("-")[0] for job in queue.get_job_ids(0, JOBS_LOOKED_AT)}
    if not waiting:
        return 0
    known = set(state.db.session.scalars(sa.select(Run.id).where(Run.id.in_(waiting))))
    return len(waiting - known)


def _other_apps(state: State) -> list[str]:
    """Sign in at this prefix, and name those who did so with another database of late."""
    key = f"{state.config.key_prefix}:apps"
    url = state.db.engine.url
    place = f"{url.get_backend_name()}:{url.host or ''}:{url.port or ''}:{url.database}:{dict(url.query)}"
    own = hashlib.sha256(place.encode()).hexdigest()[:16]
    state.redis.hset(key, own, json.dumps({"name": state.app.name, "seen": time.time()}))
    state.redis.expire(key, REMEMBERED)
    signed = cast("dict[bytes, bytes]", state.redis.hgetall(key))
    others = [json.loads(value) for field, value in signed.items() if field.decode() != own]
    oldest = time.time() - REMEMBERED.total_seconds()
    return sorted(
        f"{other['name']} ({write_age(time.time() - other['seen'])} ago)" for other in others if other["seen"] > oldest
    )
