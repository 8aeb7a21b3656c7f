"""Rows that have exchanged a value of which there may be only one: each is in the way of the other, until one of them
has something else for a moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from datetime import date
from datetime import datetime
from datetime import timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from .fields import Field
from .layouts import Layout
from .plans import Step


def park(session: Session, steps: Iterable[Step]) -> None:
    """Give the rows that steps are about to change other values in the columns that must differ from row to row."""
    number = 0
    for step in steps:
        for one in _in_the_way(step):
            number += 1
            table = one.column.table
            value = _PARKED[_kind(one)](session, one.column, number) if not one.column.nullable else None
            kept = {column: column for column in table.columns if column.onupdate is not None}
            session.execute(sa.update(table).where(*step.ties(table)).values({**kept, one.column: value}))


def _in_the_way(step: Step) -> Iterator[Field]:
    """Give a field for each rule of uniqueness that the step's values may break."""
    fields = {step.layout.fields[name].column: step.layout.fields[name] for name in step.values}
    given: set[str] = set()
    for columns in _unique(step.layout):
        # What refers to another row could be parked nowhere.
        found = [fields[column] for column in columns if column in fields and not column.foreign_keys]
        able = [one for one in found if one.column.nullable or _kind(one) in _PARKED]
        if able and given.isdisjoint(one.name for one in able):
            given.add(able[0].name)
            yield able[0]


def _unique(layout: Layout) -> Iterator[list[Any]]:
    for table in layout.tables:
        rules: list[Any] = [one for one in table.constraints if isinstance(one, sa.UniqueConstraint)]
        rules += [one for one in table.indexes if one.unique]
        yield from (list(rule.columns) for rule in rules)


def _kind(one: Field) -> type | None:
    try:
        return one.column.type.python_type
    except NotImplementedError:
        return None


def _text(session: Session, column: Any, number: int) -> str:
    return uuid.uuid4().hex[: column.type.length]


def _above(step: Callable[[int], Any]) -> Callable[[Session, Any, int], Any]:
    # Above all others: rules of their own more often forbid what is below nought.
    return lambda session, column, number: session.scalar(sa.select(sa.func.max(column))) + step(number)


_PARKED: dict[Any, Callable[[Session, Any, int], Any]] = {
    str: _text,
    int: _above(lambda number: number),
    float: _above(lambda number: number),
    Decimal: _above(lambda number: number),
    date: _above(lambda number: timedelta(days=number)),
    datetime: _above(lambda number: timedelta(seconds=number)),
    uuid.UUID: lambda session, column, number: uuid.uuid4(),
}
"""What a value is exchanged for, by its class; for others there is nothing that is sure to be free."""
