"""How it went over a stretch of time, added up by the database: runs by outcome, failures, dollars, and how long it
took; by hour or day, by model and by handler. A fixed number of statements, whatever there is to add up.
"""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
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
PERCENTS = (50, 95)
"""Of a hundred values ordered by size, those that are told."""
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
    _count_runs(session, span, moments)
    _time_runs(session, span, moments)
    models = _add_model_calls(session, span, moments)
    return Figures(list(moments.values()), models, _by_handler(session, span))


def _count_runs(session: AnySession, span: Span, moments: dict[str, Moment]) -> None:
    when = STEPS[span.step][0](Run.created_at)
    query = sa.select(when, Run.status, sa.func.count()).where(*_runs_within(span)).group_by(when, Run.status)
    outcome_of = {status: outcome for outcome, statuses in OUTCOMES.items() for status in statuses}
    for name, status, count in session.execute(query):
        moments[name].runs[outcome_of[status]] += count


def _time_runs(session: AnySession, span: Span, moments: dict[str, Moment]) -> None:
    when = STEPS[span.step][0](Run.created_at).label("of_moment")
    took = _hundredths(seconds_between(Run.started_at, Run.ended_at)).label("took")
    ended = (*_runs_within(span), Run.status == "succeeded", Run.started_at.is_not(None), Run.ended_at.is_not(None))
    query = sa.select(when, took, sa.func.count()).where(*ended).group_by("of_moment", "took")
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for name, hundredths, count in session.execute(query):
        counts[name][hundredths] += count
    for name, counted in counts.items():
        moments[name].run_seconds = _percentiles(counted)


def _add_model_calls(session: AnySession, span: Span, moments: dict[str, Moment]) -> list[OfModel]:
    when = STEPS[span.step][0](ModelCall.created_at)
    query = (
        sa.select(
            when,
            ModelCall.provider,
            ModelCall.model,
            sa.func.count(),
            sa.func.count(ModelCall.error_class),
            sa.func.sum(ModelCall.input_tokens),
            sa.func.sum(ModelCall.output_tokens),
            sa.func.sum(ModelCall.cost),
            sa.func.count(ModelCall.cost),
        )
        .where(*_within(ModelCall.created_at, span))
        .group_by(when, ModelCall.provider, ModelCall.model)
    )
    models: dict[tuple[str | None, str], OfModel] = {}
    for name, provider, model, calls, failed, read, written, cost, priced in session.execute(query):
        moment = moments[name]
        read, written = int(read or 0), int(written or 0)
        moment.model_calls += calls
        moment.failed_calls += failed
        moment.tokens += read + written
        moment.cost = _sum(moment.cost, cost)
        known = models.get((provider, model)) or OfModel(provider, model, 0, 0, 0, 0, None, 0, None)
        models[provider, model] = OfModel(
            provider,
            model,
            known.calls + calls,
            known.failed + failed,
            known.input_tokens + read,
            known.output_tokens + written,
            _sum(known.cost, cost),
            known.unpriced + calls - priced,
            None,
        )
    _time_model_calls(session, span, moments, models)
    return sorted(models.values(), key=lambda each: (-each.calls, each.model))[:_MOST_ROWS]


def _time_model_calls(
    session: AnySession, span: Span, moments: dict[str, Moment], models: dict[tuple[str | None, str], OfModel]
) -> None:
    """Tell how long the calls took that were answered."""
    when = STEPS[span.step][0](ModelCall.created_at).label("of_moment")
    took = _hundredths(ModelCall.seconds).label("took")
    query = (
        sa.select(when, ModelCall.provider, ModelCall.model, took, sa.func.count())
        .where(*_within(ModelCall.created_at, span), ModelCall.error_class.is_(None), ModelCall.seconds.is_not(None))
        .group_by("of_moment", ModelCall.provider, ModelCall.model, "took")
    )
    by_moment: dict[str, Counter[int]] = defaultdict(Counter)
    by_model: dict[tuple[str | None, str], Counter[int]] = defaultdict(Counter)
    for name, provider, model, hundredths, count in session.execute(query):
        by_moment[name][hundredths] += count
        by_model[provider, model][hundredths] += count
    for name, counted in by_moment.items():
        moments[name].call_seconds = _percentiles(counted)
    for key, counted in by_model.items():
        models[key] = replace(models[key], seconds=_percentiles(counted))


def _hundredths(seconds: Any) -> sa.ColumnElement[int]:
    """Round seconds as far as they are told, in hundredths: to 0.01 s below one, to 0.1 s below ten, else to 1 s.

    So few different values are left that counting them is cheap: a window over all of them took three times as long.
    """

    def rounded(value: Any) -> sa.ColumnElement[int]:
        return sa.cast(sa.func.round(value), sa.Integer)

    return sa.case(
        (seconds < 1, rounded(seconds * 100)),
        (seconds < 10, rounded(seconds * 10) * 10),
        else_=rounded(seconds) * 100,
    )


def _percentiles(counted: Counter[int]) -> tuple[float, float]:
    """Return what half of all values are at most, and what 95 of 100 are: the nearest rank."""
    many, seen = counted.total(), 0
    ranks: list[int] = []
    for value in sorted(counted):
        seen += counted[value]
        while len(ranks) < len(PERCENTS) and seen * 100 >= many * PERCENTS[len(ranks)]:
            ranks.append(value)
    half, most = ranks
    return half / 100, most / 100


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return other if one is None else one if other is None else one + other


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


def _within(column: Any, span: Span) -> tuple[sa.ColumnElement[bool], ...]:
    return (column >= span.begin, column < span.end)
