"""Two things that SQLite and PostgreSQL know under different names: the hour or day of a moment, and the seconds
between two.
"""

from __future__ import annotations

from typing import Any
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

Step = Literal["hour", "day"]


class hour_of(FunctionElement[str]):  # read as a function of SQL
    """The hour of a moment in UTC, as ``2030-05-01 14``."""

    type = sa.String()
    inherit_cache = True


class day_of(FunctionElement[str]):
    """The day of a moment in UTC, as ``2030-05-01``."""

    type = sa.String()
    inherit_cache = True


class seconds_between(FunctionElement[float]):
    """How many seconds the second moment comes after the first."""

    type = sa.Float()
    inherit_cache = True


STEPS: dict[Step, tuple[type[FunctionElement[str]], str]] = {
    "hour": (hour_of, "%Y-%m-%d %H"),
    "day": (day_of, "%Y-%m-%d"),
}
"""For each step the function of SQL, and what Python's ``strftime`` takes to write the same."""


@compiles(hour_of, "sqlite")
def _hour_on_sqlite(element: hour_of, compiler: Any, **options: Any) -> str:
    return f"strftime('%Y-%m-%d %H', {_arguments(element, compiler, options)[0]})"


@compiles(hour_of, "postgresql")
def _hour_on_postgresql(element: hour_of, compiler: Any, **options: Any) -> str:
    return f"to_char({_arguments(element, compiler, options)[0]} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24')"


@compiles(day_of, "sqlite")
def _day_on_sqlite(element: day_of, compiler: Any, **options: Any) -> str:
    return f"strftime('%Y-%m-%d', {_arguments(element, compiler, options)[0]})"


@compiles(day_of, "postgresql")
def _day_on_postgresql(element: day_of, compiler: Any, **options: Any) -> str:
    return f"to_char({_arguments(element, compiler, options)[0]} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


@compiles(seconds_between, "sqlite")
def _seconds_on_sqlite(element: seconds_between, compiler: Any, **options: Any) -> str:
    begin, end = _arguments(element, compiler, options)
    return f"((julianday({end}) - julianday({begin})) * 86400.0)"


@compiles(seconds_between, "postgresql")
def _seconds_on_postgresql(element: seconds_between, compiler: Any, **options: Any) -> str:
    begin, end = _arguments(element, compiler, options)
    return f"CAST(EXTRACT(EPOCH FROM ({end} - {begin})) AS DOUBLE PRECISION)"


def _arguments(element: FunctionElement[Any], compiler: Any, options: dict[str, Any]) -> list[str]:
    clauses: list[ColumnElement[Any]] = list(element.clauses)
    return [compiler.process(clause, **options) for clause in clauses]
