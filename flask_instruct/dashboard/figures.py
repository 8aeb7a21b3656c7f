"""How it went over a stretch of time, added up by the database: runs by outcome, failures, dollars, and how long it
took; by hour or day, by model and by handler. A fixed number of statements, whatever there is to add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session

from ..runs.models import ACTIVE
from ..runs.models import ModelCall
from ..runs.models import Run
from .span import Span
from .sql import STEPS
from .sql import seconds_between

AnySession = Session | scoped_session[Any]

OUTCOMES: dict[str, tuple[str, ...]] = {
    "done": ("succeeded",),
    "failed": ("failed",),
    "stopped": ("cancelled", "limited"),
    "active": ACTIVE,
}
"""What a chart of runs tells apart, and the statuses of each."""

_OF_PERSONS = ("undo",)
"""Kinds of runs that no model has a part in."""
_MOST_ROWS = 50
"""Models and handlers of a table; what comes after them has next to no part in the sums."""


@dataclass(slots=True)
class Moment:
    """One hour or day.

    :param runs: by outcome; ``model_calls`` counts every physical call, ``failed_calls`` those without an answer.
    :param cost: dollars, as far as prices are known; None where no price is.
    :param run_seconds: from its start to its end half of the runs that succeeded took at most, and 95 of 100.
    :param call_seconds: the same of model calls that were answered.
    """

    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    model_calls: int = 0
    failed_calls: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    run_seconds: tuple[float, float] | None = None
    call_seconds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class OfModel:
    """What one model did and cost; ``unpriced`` calls are not in the dollars."""

    provider: str | None
    model: str
    calls: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    unpriced: int
    seconds: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class OfHandler:
    """What the runs of one handler came to and cost."""

    name: str
    runs: int
    failed: int
    tokens: int
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it; ``moments`` is as long as the span has hours or days."""

    moments: list[Moment]
    models: list[OfModel]
    handlers: list[OfHandler]

    @property
    def cost(self) -> Decimal | None:
        known = [moment.cost for moment in self.moments if moment.cost is not None]
        return sum(known, Decimal()) if known else None

    @property
    def tokens(self) -> int:
        return sum(moment.tokens for moment in self.moments)

    @property
    def unpriced(self) -> int:
        return sum(each.unpriced for each in self.models)

    def runs(self, outcome: str | None = None) -> int:
        """Count the runs, or those of one outcome."""
        return sum(moment.runs[name] for moment in self.moments for name in OUTCOMES if outcome in (None, name))


def figures(session: AnySession, span: Span) -> Figures:
    """Add up what happened in a span."""
    moments = {name: Moment() for name in span.names()}
    function, _ = STEPS[span.step]
    _count_runs(session, span, moments, function(Run.created_at))
    _add_model_calls(session, span, moments, function(ModelCall.created_at))
    took = seconds_between(Run.started_at, Run.ended_at)
    for name, pair in _percentiles(session, function(Run.created_at), took, *_well_ended(span)).items():
        moments[name].run_seconds = pair
    answered = (*_within(ModelCall.created_at, span), ModelCall.error_class.is_(None), ModelCall.seconds.is_not(None))
    for name, pair in _percentiles(session, function(ModelCall.created_at), ModelCall.seconds, *answered).items():
        moments[name].call_seconds = pair
    return Figures(list(moments.values()), _by_model(session, span, answered), _by_handler(session, span))


def _count_runs(session: AnySession, span: Span, moments: dict[str, Moment], when: sa.ColumnElement[str]) -> None:
    query = sa.select(when, Run.status, sa.func.count()).where(*_runs_within(span)).group_by(when, Run.status)
    outcome_of = {status: outcome for outcome, statuses in OUTCOMES.items() for status in statuses}
    for name, status, count in session.execute(query):
        moments[name].runs[outcome_of[status]] += count


def _add_model_calls(session: AnySession, span: Span, moments: dict[str, Moment], when: sa.ColumnElement[str]) -> None:
    query = (
        sa.select(
            when,
            sa.func.count(),
            sa.func.count(ModelCall.error_class),
            sa.func.sum(_tokens()),
            sa.func.sum(ModelCall.cost),
        )
        .where(*_within(ModelCall.created_at, span))
        .group_by(when)
    )
    for name, calls, failed, tokens, cost in session.execute(query):
        moment = moments[name]
        moment.model_calls, moment.failed_calls, moment.tokens, moment.cost = calls, failed, int(tokens or 0), cost


def _percentiles(
    session: AnySession, group: sa.ColumnElement[str], value: Any, *conditions: sa.ColumnElement[bool]
) -> dict[str, tuple[float, float]]:
    """Return for each group the value that half of all are at most, and that 95 of 100 are: the nearest rank."""
    ranked = (
        sa.select(
            group.label("name"),
            value.label("value"),
            sa.func.row_number().over(partition_by=group, order_by=value).label("place"),
            sa.func.count().over(partition_by=group).label("many"),
        )
        .where(*conditions)
        .subquery()
    )

    def at(percent: int) -> sa.ColumnElement[float]:
        return sa.func.min(sa.case((ranked.c.place * 100 >= ranked.c.many * percent, ranked.c.value)))

    found = session.execute(sa.select(ranked.c.name, at(50), at(95)).group_by(ranked.c.name))
    return {name: (float(half), float(most)) for name, half, most in found}


def _by_model(session: AnySession, span: Span, answered: Sequence[sa.ColumnElement[bool]]) -> list[OfModel]:
    calls = sa.func.count().label("calls")
    query = (
        sa.select(
            ModelCall.provider,
            ModelCall.model,
            calls,
            sa.func.count(ModelCall.error_class),
            sa.func.sum(ModelCall.input_tokens),
            sa.func.sum(ModelCall.output_tokens),
            sa.func.sum(ModelCall.cost),
            sa.func.count(ModelCall.cost),
        )
        .where(*_within(ModelCall.created_at, span))
        .group_by(ModelCall.provider, ModelCall.model)
        .order_by(calls.desc(), ModelCall.model)
        .limit(_MOST_ROWS)
    )
    name = sa.func.coalesce(ModelCall.provider, "") + ":" + ModelCall.model
    took = _percentiles(session, name, ModelCall.seconds, *answered)
    return [
        OfModel(
            provider, model, many, failed, int(read or 0), int(written or 0), cost, many - priced,
            took.get(f"{provider or ''}:{model}"),
        )
        for provider, model, many, failed, read, written, cost, priced in session.execute(query)
    ]  # fmt: skip


def _by_handler(session: AnySession, span: Span) -> list[OfHandler]:
    many = sa.func.count().label("many")
    failed = sa.func.sum(sa.case((Run.status == "failed", 1), else_=0))
    counted = (
        sa.select(Run.handler_name, many, failed)
        .where(*_runs_within(span))
        .group_by(Run.handler_name)
        .order_by(many.desc(), Run.handler_name)
        .limit(_MOST_ROWS)
    )
    spent = (
        sa.select(Run.handler_name, sa.func.sum(_tokens()), sa.func.sum(ModelCall.cost))
        .select_from(ModelCall)
        .join(Run, Run.id == ModelCall.run_id)
        .where(*_runs_within(span))
        .group_by(Run.handler_name)
    )
    costs = {name: (int(tokens or 0), cost) for name, tokens, cost in session.execute(spent)}
    return [
        OfHandler(name, count, int(failures), *costs.get(name, (0, None)))
        for name, count, failures in session.execute(counted)
    ]


def _tokens() -> sa.ColumnElement[int]:
    return sa.func.coalesce(ModelCall.input_tokens, 0) + sa.func.coalesce(ModelCall.output_tokens, 0)


def _runs_within(span: Span) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_within(Run.created_at, span), Run.kind.not_in(_OF_PERSONS))


def _well_ended(span: Span) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_runs_within(span), Run.status == "succeeded", Run.started_at.is_not(None), Run.ended_at.is_not(None))


def _within(column: Any, span: Span) -> tuple[sa.ColumnElement[bool], ...]:
    return (column >= span.begin, column < span.end)
