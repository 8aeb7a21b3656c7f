"""The list of runs, a page at a time: newest first, each page from a fixed place on, so that new runs move nothing.

A page costs a handful of statements, however many runs it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from datetime import UTC
from datetime import datetime
from decimal import Decimal
from typing import Any
from typing import cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session

from ..runs.change import Change
from ..runs.columns import UTCDateTime
from ..runs.columns import now
from ..runs.models import HELD
from ..runs.models import ModelCall
from ..runs.models import Run
from ..runs.models import ToolCall
from .filters import Filters

AnySession = Session | scoped_session[Any]

PAGE = 50
COUNTED = 10_000
"""Runs that are counted at most."""
SEARCHED = 20_000
"""Runs whose texts one page searches at most; the next page searches on from there."""
PROMPT_CHARS = 240


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two runs of the list: right after the run that was asked for at this moment and has this id."""

    moment: datetime
    id: str

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Read what :meth:`__str__` wrote; None for anything else."""
        moment, _, identifier = text.rpartition("_")
        try:
            found = datetime.fromisoformat(moment)
            return cls(found.astimezone(UTC), str(UUID(identifier))) if found.tzinfo else None
        except (ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        return f"{self.moment.isoformat()}_{self.id}"

    def is_before(self) -> sa.ColumnElement[bool]:
        """Return the condition of being older."""
        return cast("sa.ColumnElement[bool]", _order() < self._here())

    def is_after(self) -> sa.ColumnElement[bool]:
        return cast("sa.ColumnElement[bool]", _order() > self._here())

    def _here(self) -> Any:
        return sa.tuple_(sa.literal(self.moment, UTCDateTime()), sa.literal(self.id))


def _order() -> Any:
    return sa.tuple_(Run.created_at, Run.id)


@dataclass(frozen=True, slots=True)
class Line:
    """One run of the list.

    :param prompt: the beginning of what was asked.
    :param calls: tool calls that have been made, ``failed_calls`` of which failed; ``changes`` are rows that they
        changed.
    :param cost: dollars, None where no price is known; ``unpriced`` model calls are not in it.
    """

    id: str
    kind: str
    status: str
    interrupted: bool
    handler: str
    handler_name: str
    actor: str | None
    tenant: str | None
    conversation: str | None
    model: str | None
    prompt: str
    error: str | None
    technical: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    calls: int = 0
    failed_calls: int = 0
    changes: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    unpriced: int = 0

    @property
    def place(self) -> Place:
        return Place(self.created_at, self.id)

    @property
    def seconds(self) -> float | None:
        """How long it took from its start."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, (self.ended_at - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs of the list, newest first.

    :param older: where the page of older runs begins, if there may be any; ``newer``: that of newer ones.
    :param searched_all: False when texts further back were not searched for this page.
    """

    lines: list[Line]
    older: Place | None
    newer: Place | None
    searched_all: bool = True


def page(
    session: AnySession,
    filters: Filters,
    *,
    before: Place | None = None,
    after: Place | None = None,
    size: int = PAGE,
    whole_prompts: bool = False,
) -> Page:
    """Return a page of the runs that fit.

    :param before: only runs older than this place; ``after``: the ones right above this place.
    """
    upwards = after is not None and before is None
    conditions = filters.conditions()
    if before is not None:
        conditions.append(before.is_before())
    elif after is not None:
        conditions.append(after.is_after())
    order = (Run.created_at.asc(), Run.id.asc()) if upwards else (Run.created_at.desc(), Run.id.desc())
    horizon = None
    if filters.searches:
        horizon = _horizon(session, conditions, order)
        if horizon is not None:
            conditions.append(sa.not_(horizon.is_after() if upwards else horizon.is_before()))
        conditions.append(filters.found())
    rows = session.execute(_columns(whole_prompts).where(*conditions).order_by(*order).limit(size + 1)).all()
    more = len(rows) > size
    further = horizon is None or more
    lines = _with_sums(session, [_line(row) for row in rows[:size]])
    if upwards:
        if further and not more:
            # The top is reached: as many runs as any first page has.
            return page(session, filters, size=size, whole_prompts=whole_prompts)
        lines.reverse()
        last = lines[-1].place if lines else after
        return Page(lines, older=last, newer=lines[0].place if more else horizon, searched_all=further)
    first = lines[0].place if lines else before
    return Page(
        lines,
        older=lines[-1].place if more else horizon,
        newer=first if before is not None else None,
        searched_all=further,
    )


def count(session: AnySession, filters: Filters) -> int | None:
    """Count the runs that fit, up to :data:`COUNTED`; None where texts would have to be searched for it."""
    if filters.searches:
        return None
    some = sa.select(Run.id).where(*filters.conditions()).limit(COUNTED + 1).subquery()
    return session.scalar(sa.select(sa.func.count()).select_from(some)) or 0


def _horizon(session: AnySession, conditions: Sequence[sa.ColumnElement[bool]], order: Sequence[Any]) -> Place | None:
    """Return the place up to which texts are searched, where that is not the end of the list."""
    found = session.execute(
        sa.select(Run.created_at, Run.id).where(*conditions).order_by(*order).offset(SEARCHED - 1).limit(1)
    ).first()
    return Place(found[0], found[1]) if found else None


def _columns(whole_prompts: bool) -> sa.Select[*tuple[Any, ...]]:
    prompt = Run.user_prompt if whole_prompts else sa.func.substr(Run.user_prompt, 1, PROMPT_CHARS)
    return sa.select(
        Run.id,
        Run.kind,
        Run.status,
        Run.lease_until,
        Run.handler,
        Run.handler_name,
        Run.actor,
        Run.tenant,
        Run.conversation,
        Run.model,
        prompt.label("prompt"),
        Run.error_safe,
        Run.error_technical,
        Run.created_at,
        Run.started_at,
        Run.ended_at,
    )


def _line(row: Any) -> Line:
    lapsed = row.status in HELD and row.lease_until is not None and row.lease_until < now()
    return Line(
        id=row.id,
        kind=row.kind,
        status=row.status,
        interrupted=lapsed,
        handler=row.handler,
        handler_name=row.handler_name,
        actor=row.actor,
        tenant=row.tenant,
        conversation=row.conversation,
        model=row.model,
        prompt=row.prompt,
        error=row.error_safe,
        technical=row.error_technical,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _with_sums(session: AnySession, lines: list[Line]) -> list[Line]:
    ids = [line.id for line in lines]
    if not ids:
        return []
    sums: dict[str, dict[str, Any]] = {identifier: {} for identifier in ids}
    for query in (_model_calls(ids), _tool_calls(ids), _changes(ids)):
        for row in session.execute(query).mappings():
            sums[row["run_id"]] |= {name: value for name, value in row.items() if name != "run_id"}
    return [replace(line, **{name: _whole(name, value) for name, value in sums[line.id].items()}) for line in lines]


def _whole(name: str, value: Any) -> Any:
    return value if name == "cost" else int(value or 0)


def _model_calls(ids: list[str]) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(
            ModelCall.run_id,
            sa.func.count().label("model_calls"),
            sa.func.sum(ModelCall.input_tokens).label("input_tokens"),
            sa.func.sum(ModelCall.output_tokens).label("output_tokens"),
            sa.func.sum(ModelCall.cost).label("cost"),
            (sa.func.count() - sa.func.count(ModelCall.cost)).label("unpriced"),
        )
        .where(ModelCall.run_id.in_(ids))
        .group_by(ModelCall.run_id)
    )


def _tool_calls(ids: list[str]) -> sa.Select[*tuple[Any, ...]]:
    failed = sa.func.sum(sa.case((ToolCall.status == "failed", 1), else_=0))
    return (
        sa.select(ToolCall.run_id, sa.func.count().label("calls"), failed.label("failed_calls"))
        .where(ToolCall.run_id.in_(ids))
        .group_by(ToolCall.run_id)
    )


def _changes(ids: list[str]) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(ToolCall.run_id, sa.func.count().label("changes"))
        .select_from(Change)
        .join(ToolCall, ToolCall.id == Change.call_id)
        .where(ToolCall.run_id.in_(ids))
        .group_by(ToolCall.run_id)
    )
