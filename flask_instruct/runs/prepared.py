"""Statements that the ledger sends at every step: compiled once for a database, after which only their values are read.

What SQLAlchemy does for a statement that might be a new one takes several times as long as SQLite takes over it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import BindTyping

Values = Mapping[str, Any]


class Prepared:
    """A statement of which nothing but the values changes. It has no defaults: each row comes with all that it has.

    Not for a tool's own transaction while the tool runs: there only what SQLAlchemy has made is known for what it does.

    :param names: the columns that an INSERT, or an UPDATE that does not name them, is given.
    """

    def __init__(self, statement: sa.Select[Any] | sa.UpdateBase, *names: str) -> None:
        self._statement = statement
        self._names = names
        self._texts: WeakKeyDictionary[sa.Dialect, _Text] = WeakKeyDictionary()
        _made.add(self)

    def execute(self, connection: sa.Connection, *rows: Values) -> sa.CursorResult[Any]:
        """Execute it with one mapping of values, or several one after the other.

        What it returns of a row is as the driver has it.
        """
        dialect, options = connection.dialect, connection.get_execution_options()
        if dialect.bind_typing is BindTyping.SETINPUTSIZES or "schema_translate_map" in options:
            # The text alone would not do: the driver wants types, or tables have other names on this connection.
            return connection.execute(self._statement, rows)
        text = self._texts.get(dialect) or self.compile(dialect)
        return connection.exec_driver_sql(text.sql, [text.parameters(row) for row in rows])

    def compile(self, dialect: sa.Dialect) -> _Text:
        """Make its text for a database."""
        text = self._texts[dialect] = _Text(self._statement, dialect, self._names)
        return text


_made: WeakSet[Prepared] = WeakSet()


def compile_all(dialect: sa.Dialect) -> None:
    """Make the text of each statement that there is for a database, before it is sent for the first time."""
    for statement in tuple(_made):
        statement.compile(dialect)


def into(table: sa.FromClause, *names: str) -> Prepared:
    """Return the INSERT of rows of so many columns: nothing is added to what is given, and nothing told of the row."""
    bare = sa.table(table.name, *(sa.column(name, table.c[name].type) for name in names))  # type: ignore[attr-defined]
    return Prepared(sa.insert(bare), *names)


class _Text:
    """The text for one database, and how values become its parameters."""

    def __init__(self, statement: sa.Select[Any] | sa.UpdateBase, dialect: sa.Dialect, names: tuple[str, ...]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names) or None)
        self.sql = str(compiled)
        self._fixed = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        self._positions = compiled.positiontup if compiled.positional else None
        self._writers: dict[str, Callable[[Any], Any]] = {
            name: writer
            for name, bind in compiled.binds.items()
            if (writer := bind.type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }

    def parameters(self, row: Values) -> tuple[Any, ...] | dict[str, Any]:
        values = {**self._fixed, **row}
        for name, write in self._writers.items():
            values[name] = write(values[name])
        return values if self._positions is None else tuple([values[name] for name in self._positions])
