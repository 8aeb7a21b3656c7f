"""What one INSERT, UPDATE or DELETE changes that is no part of a session's flush of records: its rows are read by its
own condition before it, and by their keys after it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import operators
from sqlalchemy.sql import visitors

from .cascades import Cascades
from .edits import Edit
from .edits import compared
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .ledger import Ledger
from .row_keys import Key

Execute = Callable[[Any], Any]
Parameters = list[dict[str, Any]]
Told = tuple[list[Edit], list[str]]


class Statement:
    """A statement that is being executed, of which nothing is kept."""

    def edits(self, execute: Execute, result: sa.CursorResult[Any]) -> Told:
        """Return what it changed, and what could not be seen of that."""
        return [], []


class Unseen(Statement):
    """One whose changes cannot be seen."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def edits(self, execute: Execute, result: sa.CursorResult[Any]) -> Told:
        return [], [self._problem]


class Changed(Statement):
    """An UPDATE or DELETE of rows that were read before it."""

    def __init__(self, layout: Layout, before: dict[Key, Row], cascades: Cascades, *, deletes: bool) -> None:
        self._layout = layout
        self._before = before
        self._cascades = cascades
        self._deletes = deletes

    def edits(self, execute: Execute, result: sa.CursorResult[Any]) -> Told:
        after = self._layout.read(execute, self._before) if self._before else {}
        found = compared(self._layout, self._before, after)
        problems = list(self._cascades.problems)
        if not self._deletes and any(edit.action == "delete" for edit in found):
            problems.append(f"Keys of rows of {self._layout.table} were changed.")
        return [*found, *self._cascades.edits(execute)], problems


class Added(Statement):
    """An INSERT, whose rows are found by the keys that were given, or that the database made."""

    def __init__(self, layout: Layout, given: list[Key] | None) -> None:
        self._layout = layout
        self._given = given

    def edits(self, execute: Execute, result: sa.CursorResult[Any]) -> Told:
        keys = self._given or _made_keys(self._layout, result)
        if keys is None:
            return [], [f"Rows were added to {self._layout.table} by a statement that does not tell their keys."]
        rows = self._layout.read(execute, keys)
        return [Edit(self._layout, key, "insert", {}, row) for key, row in rows.items()], []


def begin(clause: Any, parameters: Any, layouts: Layouts, execute: Execute) -> tuple[Any, Statement]:
    """Look at what a statement is about to change; return it as it is to be executed, and what follows it.

    :param parameters: one mapping, or a list of them, or none.
    """
    table = _plain(clause.table)
    if table is not None and table.name in Ledger.metadata.tables:
        return clause, Statement()
    layout = None if table is None else layouts.of_table(table)
    if table is None or layout is None:
        name = "what is no table" if table is None else f"{table.fullname}, which has no key"
        return clause, Unseen(f"A statement changed rows of {name}.")
    if _writes_elsewhere(clause):
        return clause, Unseen(f"A statement changed rows of {layout.table} and of other tables.")
    if clause._prefixes and not isinstance(clause, sa.Insert):
        # SQLite's UPDATE OR REPLACE deletes what is in its way.
        return clause, Unseen(f"Rows of {layout.table} were added or changed by an upsert.")
    given: Parameters = _as_list(parameters)
    if isinstance(clause, sa.Insert):
        return _begin_insert(clause, layout, given)
    before = _read(clause, layout, given, execute)
    cascades = Cascades(layouts)
    if isinstance(clause, sa.Delete) and before:
        cascades.look(execute, layout, list(before))
    return clause, Changed(layout, before, cascades, deletes=isinstance(clause, sa.Delete))


def _writes_elsewhere(clause: Any) -> bool:
    """Tell whether a statement has another one in it that writes; looked at beforehand, that would be carried out."""
    inside = (*clause._independent_ctes, *visitors.iterate(clause))
    return any(isinstance(one, sa.CTE) and isinstance(one.element, sa.UpdateBase) for one in inside)


def _as_list(parameters: Any) -> Parameters:
    if isinstance(parameters, list | tuple):
        return list(parameters)
    return [parameters] if parameters else []


def _begin_insert(clause: Any, layout: Layout, parameters: Parameters) -> tuple[Any, Statement]:
    if clause.select is not None:
        return clause, Unseen(f"Rows were added to {layout.table} by an INSERT from a SELECT.")
    if clause._post_values_clause is not None or clause._prefixes:
        return clause, Unseen(f"Rows of {layout.table} were added or changed by an upsert.")
    if clause._multi_values:
        rows: Any = [row for rows in clause._multi_values for row in rows]
        return clause, Added(layout, _given_keys(layout, rows))
    fixed = clause._values or {}
    keys = _given_keys(layout, [{**fixed, **row} for row in parameters or [{}]])
    if keys is None and len(parameters) > 1 and not clause._returning:
        # Without it the database is not asked for the keys of rows that are added many at a time.
        clause = clause.return_defaults(*layout.keys)
    return clause, Added(layout, keys)


def _given_keys(layout: Layout, rows: Iterable[Any]) -> list[Key] | None:
    found: list[Key] = []
    for row in rows:
        values = [row.get(column, row.get(column.key)) for column in layout.keys]
        plain = [value.value if isinstance(value, sa.BindParameter) else value for value in values]
        if any(value is None or isinstance(value, sa.ClauseElement) for value in plain):
            return None
        found.append(tuple(plain))
    return found


def _made_keys(layout: Layout, result: sa.CursorResult[Any]) -> list[Key] | None:
    """Return the keys that defaults of the columns made, or that the database told."""
    context: Any = result.context
    known = _given_keys(layout, context.compiled_parameters or [])
    if known is not None:
        return known
    try:
        rows = result.inserted_primary_key_rows
    except sa.exc.InvalidRequestError:
        return None
    keys = [tuple(row) for row in rows if row is not None]
    return keys if keys and all(None not in key for key in keys) else None


def _read(clause: Any, layout: Layout, parameters: Parameters, execute: Execute) -> dict[Key, Row]:
    condition = clause.whereclause
    names = _key_parameters(clause, layout)
    if names is not None and parameters:
        return layout.read(execute, [tuple(row[name] for name in names) for row in parameters])
    conditions = () if condition is None else (condition,)
    found: dict[Key, Row] = {}
    for row in parameters or [{}]:
        found |= layout.select(execute, *conditions, parameters=row)
    return found


def _key_parameters(clause: Any, layout: Layout) -> list[str] | None:
    """Return under which names the parameters have the key, where that is all of the condition."""
    names: dict[str, str] = {}
    for criterion in clause._where_criteria:
        if not isinstance(criterion, sa.BinaryExpression) or criterion.operator is not operators.eq:
            return None
        column, value = criterion.left, criterion.right
        if not isinstance(column, sa.Column) or not isinstance(value, sa.BindParameter) or not value.required:
            return None
        names[column.key] = value.key
    if set(names) != {column.key for column in layout.keys}:
        return None
    return [names[column.key] for column in layout.keys]


def _plain(table: Any) -> sa.Table | None:
    """Return the table itself: statements of mapped classes have one with notes on it."""
    if not isinstance(table, sa.Table):
        return None
    return table.metadata.tables.get(table.key, table)
