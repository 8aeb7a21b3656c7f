"""Rows of the ledger written one at a time with plain statements, each the same every time. A unit of work of the ORM
takes longer over three rows than everything else in a step of a run.

The objects stand in the unit's session all the same, as if it had written them, for whoever shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import make_transient_to_detached
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.schema import CallableColumnDefault
from sqlalchemy.sql.schema import ScalarElementColumnDefault

from .ledger import Ledger
from .prepared import Prepared
from .prepared import into
from .unit import Unit


def insert(unit: Unit, row: Ledger) -> None:
    """Write a new row with what it was made with, and the defaults of its other columns."""
    given = vars(row)
    defaults = _defaults(type(row))
    rest = {name: default(None) for name, default in defaults if name not in given}
    values = {name: given[name] for name, _ in defaults if name in given}
    # Not what is None: in a column of JSON it would be a null of JSON.
    values |= {name: value for name, value in rest.items() if value is not None}
    _inserting(type(row), *values).execute(unit.connection, values)
    know(row, **rest)
    make_transient_to_detached(row)
    unit.ledger.add(row)


def update(unit: Unit, row: Ledger, **values: Any) -> None:
    """Write some columns of a row that is there, and nothing else that may be new in the object."""
    identity = {"row_id": row.id}  # type: ignore[attr-defined]
    _updating(type(row), *values).execute(unit.connection, identity | values)
    know(row, **values)


def know(row: Ledger, **values: Any) -> None:
    """Let an object have what its row has: nothing of it is left to be written."""
    for name, value in values.items():
        set_committed_value(row, name, value)


@lru_cache(maxsize=64)
def _defaults(kind: type[Ledger]) -> tuple[tuple[str, Callable[..., Any]], ...]:
    return tuple((column.key, _default(column)) for column in cast(sa.Table, kind.__table__).columns)


def _default(column: sa.Column[Any]) -> Callable[..., Any]:
    default = column.default
    if isinstance(default, CallableColumnDefault):
        return default.arg
    value = default.arg if isinstance(default, ScalarElementColumnDefault) else None
    return lambda _: value


@lru_cache(maxsize=64)
def _inserting(kind: type[Ledger], *names: str) -> Prepared:
    return into(kind.__table__, *names)


@lru_cache(maxsize=64)
def _updating(kind: type[Ledger], *names: str) -> Prepared:
    table = cast(sa.Table, kind.__table__)
    wanted: dict[str, Any] = {name: sa.bindparam(name) for name in names}
    return Prepared(sa.update(table).where(table.c.id == sa.bindparam("row_id")).values(wanted))
