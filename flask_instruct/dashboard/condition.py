"""How queue and workers stand at this moment: what waits and for how long, who is there to take it, and when somebody
last looked for what was lost. Redis may be away; the ledger's part is told all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from ..runs.columns import now
from ..runs.crew import Member
from ..runs.crew import crew
from ..runs.models import HELD
from ..runs.models import Outbox
from ..runs.models import Run
from ..runs.queue import run_queue
from ..runs.sweep import last_sweep

if TYPE_CHECKING:
    from ..state import State

SILENT = 90.0
"""Seconds without a heartbeat after which a worker counts as hung; it sends one every 5 to 20 s."""
LATE = 30.0
"""Seconds after which a committed broadcast should have gone out."""
MISSED_SWEEPS = 4
"""Intervals without a sweep that mean that nobody sweeps."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What the ledger and Redis say.

    :param waiting: runs that wait for a worker, the oldest since ``waiting_since``; ``at_work`` runs are held by one.
    :param asking: runs that wait for a person; ``interrupted`` ones were left by their worker.
    :param unsent: broadcasts that were committed and have not gone out.
    :param reachable: whether Redis answered; without it the rest is not known.
    :param jobs: jobs that stand in the queue of Redis.
    """

    waiting: int
    waiting_since: datetime | None
    at_work: int
    asking: int
    interrupted: int
    unsent: int
    reachable: bool
    jobs: int = 0
    workers: tuple[Member, ...] = ()
    swept_at: datetime | None = None
    sweep_interval: float = 15.0

    @property
    def silent(self) -> tuple[Member, ...]:
        """Workers that have sent no heartbeat for long."""
        return tuple(worker for worker in self.workers if worker.silent > SILENT)

    @property
    def swept(self) -> bool:
        """Whether somebody looks for what was lost as often as they should."""
        longest = timedelta(seconds=MISSED_SWEEPS * self.sweep_interval + 30)
        return self.swept_at is not None and now() - self.swept_at < longest

    @property
    def well(self) -> bool:
        """Whether nothing needs a person."""
        lost = self.interrupted or self.unsent
        return self.reachable and bool(self.workers) and not self.silent and self.swept and not lost


def condition(state: State) -> Condition:
    """Ask the ledger and Redis."""
    moment = now()
    session = state.db.session
    waiting, since = session.execute(
        sa.select(sa.func.count(), sa.func.min(Run.queued_at)).where(Run.status == "queued")
    ).one()
    lapsed = sa.func.sum(sa.case((Run.lease_until < moment, 1), else_=0))
    held, interrupted = session.execute(
        sa.select(sa.func.count(), sa.func.coalesce(lapsed, 0)).where(Run.status.in_(HELD))
    ).one()
    asking = session.scalar(sa.select(sa.func.count()).where(Run.status == "waiting_approval")) or 0
    late = (Outbox.position.is_(None), Outbox.created_at < moment - timedelta(seconds=LATE))
    unsent = session.scalar(sa.select(sa.func.count()).select_from(Outbox).where(*late)) or 0
    told = Condition(
        waiting=waiting,
        waiting_since=since,
        at_work=held - int(interrupted),
        asking=asking,
        interrupted=int(interrupted),
        unsent=unsent,
        reachable=False,
        sweep_interval=state.config.sweep_interval,
    )
    queue = state.config.queue
    try:
        return replace(
            told,
            reachable=True,
            jobs=run_queue(state).count,
            workers=tuple(member for member in crew(state) if queue in member.queues),
            swept_at=last_sweep(state),
        )
    except (RedisError, ConfigurationError):
        return told
