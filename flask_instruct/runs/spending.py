"""What models have cost: the tokens and dollars of a run, a conversation or a day, each in one statement.

Every physical call counts, also those that failed or were cut.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session

from .models import ModelCall
from .models import Run

AnySession = Session | scoped_session[Session]


@dataclass(frozen=True, slots=True)
class Spending:
    """Sums over model calls.

    :param calls: model calls that left, retries too.
    :param input_tokens: cached ones included; ``output_tokens`` includes reasoning.
    :param cost: dollars, of the calls whose price is known; ``None`` when there is no such call.
    :param unpriced: calls whose price is not known, so that the true cost is ``cost`` or more.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Decimal | None = None
    unpriced: int = 0


def spent_by_run(session: AnySession, run_id: str) -> Spending:
    """Return what a run has cost so far."""
    return _spent(session, ModelCall.run_id == run_id)


def spent_by_runs(session: AnySession, run_ids: Collection[str]) -> dict[str, Spending]:
    """Return what each of some runs has cost so far; those without a model call are not among them."""
    query = sa.select(ModelCall.run_id, *_sums()).where(ModelCall.run_id.in_(run_ids)).group_by(ModelCall.run_id)
    return {run_id: _spending(sums) for run_id, *sums in session.execute(query)} if run_ids else {}


def spent_by_conversation(
    session: AnySession, name: str, *, actor: str | None = None, tenant: str | None = None
) -> Spending:
    """Return what all runs of a conversation have cost, or those of one actor or tenant."""
    return _spent(session, Run.conversation == name, *_runs_of(actor, tenant))


def spent_on_day(session: AnySession, day: date, *, actor: str | None = None, tenant: str | None = None) -> Spending:
    """Return what the model calls cost that ended on a day in UTC, or those of one actor or tenant."""
    begin = datetime.combine(day, time.min, UTC)
    of_day = (ModelCall.created_at >= begin, ModelCall.created_at < begin + timedelta(days=1))
    return _spent(session, *of_day, *_runs_of(actor, tenant))


def _runs_of(actor: str | None, tenant: str | None) -> list[sa.ColumnElement[bool]]:
    wanted = ((Run.actor, actor), (Run.tenant, tenant))
    return [column == value for column, value in wanted if value is not None]


def _spent(session: AnySession, *conditions: sa.ColumnElement[bool]) -> Spending:
    query = sa.select(*_sums()).select_from(ModelCall).join(Run, Run.id == ModelCall.run_id).where(*conditions)
    return _spending(session.execute(query).one())


_TOKENS = {
    "input_tokens": ModelCall.input_tokens,
    "output_tokens": ModelCall.output_tokens,
    "cache_read_tokens": ModelCall.cache_read_tokens,
    "cache_write_tokens": ModelCall.cache_write_tokens,
    "reasoning_tokens": ModelCall.reasoning_tokens,
}


def _sums() -> list[Any]:
    totals = [sa.func.sum(column) for column in _TOKENS.values()]
    return [sa.func.count(), sa.func.count(ModelCall.cost), sa.func.sum(ModelCall.cost), *totals]


def _spending(sums: Sequence[Any]) -> Spending:
    calls, priced, cost, *totals = sums
    counted = {name: int(total or 0) for name, total in zip(_TOKENS, totals, strict=True)}
    return Spending(calls=calls, cost=cost, unpriced=calls - priced, **counted)
