"""The rows that a run may have edited, as far as anyone can tell from outside: those of its record, those that refer
to it, and tables that a person names.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy

from ..errors import HandlerError
from ..errors import InstructError
from ..handlers import _mapped
from ..handlers import registered
from ..identity import read_gid
from ..identity import read_key
from .ledger import Ledger

MOST = 1000
"""Rows of one table; a table with more is no test's data, and is refused when it was named."""

Rows = dict[str, list[dict[str, Any]]]


class NoSuchTable(InstructError):
    """Raise when a table that was named is not the app's, or is too large to be kept."""


def rows_about(db: SQLAlchemy, gid: str, tables: Iterable[str] = ()) -> Rows:
    """Return, by table and in the order of their keys, the rows of a handler's record and those that refer to it.

    Of a table with more than a thousand such rows none is taken. Needs an app context.

    :param tables: names of further tables, taken whole.
    :raises NoSuchTable: for a name that is no table of the app's default database, or one with more rows.
    """
    found: Rows = {}
    with db.engine.connect() as connection:
        for table, condition in _about(connection, db, gid):
            rows = _read(connection, table, condition)
            if len(rows) <= MOST:
                found[table.key] = rows
        for name in tables:
            named = db.metadata.tables.get(name)
            if named is None or name in Ledger.metadata.tables:
                known = ", ".join(sorted(set(db.metadata.tables) - set(Ledger.metadata.tables)))
                raise NoSuchTable(f"The app has no table {name!r} of its own; it has {known}.")
            found[name] = _read(connection, named, sa.true())
            if len(found[name]) > MOST:
                raise NoSuchTable(f"The table {name!r} has more than {MOST} rows, too many to be kept in a file.")
    return found


def key_of(db: SQLAlchemy, table: str) -> str | None:
    """Return the name of a table's key where the database counts it by itself, else None."""
    found = db.metadata.tables.get(table)
    column = None if found is None else found.autoincrement_column
    return None if column is None else column.key


def _about(connection: sa.Connection, db: SQLAlchemy, gid: str) -> Iterator[tuple[sa.Table, sa.ColumnElement[bool]]]:
    model = _model(gid)
    if model is None:
        return
    mapper: sa.orm.Mapper[Any] = sa.inspect(model)
    _, parts = read_gid(gid)
    of_mapper = [table for table in mapper.tables if isinstance(table, sa.Table) and table.key in db.metadata.tables]
    for table in of_mapper:
        columns = list(table.primary_key.columns)
        if len(columns) != len(parts):
            continue
        try:
            key = [read_key(part, _kind(column)) for part, column in zip(parts, columns, strict=True)]
        except HandlerError:
            continue
        is_record = sa.and_(*(column == value for column, value in zip(columns, key, strict=True)))
        yield table, is_record
        row = connection.execute(sa.select(table).where(is_record)).mappings().first()
        if row is not None:
            yield from _referring(db.metadata, table, row, of_mapper)


def _referring(
    metadata: sa.MetaData, table: sa.Table, row: Mapping[Any, Any], left_out: list[sa.Table]
) -> Iterator[tuple[sa.Table, sa.ColumnElement[bool]]]:
    for other in metadata.sorted_tables:
        if other.name in Ledger.metadata.tables or other in left_out:
            continue
        ways = [
            sa.and_(*(element.parent == row[element.column] for element in constraint.elements))
            for constraint in other.foreign_key_constraints
            if constraint.referred_table is table
        ]
        if ways:
            yield other, sa.or_(*ways)


def _read(connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]) -> list[dict[str, Any]]:
    order = list(table.primary_key.columns) or list(table.columns)
    rows = connection.execute(sa.select(table).where(condition).order_by(*order).limit(MOST + 1))
    return [{column.key: written(row[column]) for column in table.columns} for row in rows.mappings()]


def written(value: Any) -> Any:
    """Give a value of a column as JSON has it, the same from every database."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.name if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        # 1.50 of PostgreSQL is 1.5 of SQLite.
        return f"{value.normalize():f}" if value.is_finite() else str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): written(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [written(item) for item in value]
        return sorted(items, key=json.dumps) if isinstance(value, set | frozenset) else items
    return str(value)


def _model(gid: str) -> type | None:
    name, _ = read_gid(gid)
    cls = registered().get(name)
    return None if cls is None else _mapped(cls)


def _kind(column: sa.Column[Any]) -> type:
    try:
        return column.type.python_type
    except NotImplementedError:
        return str
