"""What the database does by itself as rows go: children that it deletes with them, or lets go of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from .edits import Edit
from .edits import compared
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .row_keys import Key


class Cascades:
    """The rows that foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT tie to rows that are deleted."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._seen: dict[Layout, dict[Key, Row]] = {}
        self.problems: list[str] = []

    def look(self, execute: Callable[[Any], Any], layout: Layout, keys: list[Key]) -> None:
        """Look at the children of rows that are about to be deleted, and at theirs."""
        waiting = [(table, keys) for table in layout.tables]
        while waiting:
            table, some = waiting.pop()
            for child_table, constraint in self._layouts.dependents(table):
                child = self._layouts.of_table(child_table)
                if child is None:
                    self.problems.append(f"Rows of {child_table.fullname} have no key, so what became of them is lost.")
                    continue
                found = child.select(execute, _belongs(table, child_table, constraint, some))
                known = self._seen.setdefault(child, {})
                new = {key: row for key, row in found.items() if key not in known}
                known |= new
                if new and (constraint.ondelete or "").upper() == "CASCADE":
                    waiting.append((child_table, list(new)))

    def edits(self, execute: Callable[[Any], Any]) -> list[Edit]:
        """Return what became of them."""
        found: list[Edit] = []
        for layout, rows in self._seen.items():
            found += compared(layout, rows, layout.read(execute, rows) if rows else {})
        return found


def _belongs(table: sa.Table, child: sa.Table, constraint: sa.ForeignKeyConstraint, keys: list[Key]) -> Any:
    parent = table.alias()
    columns = [parent.c[column.key] for column in table.primary_key.columns]
    if len(columns) == 1:
        wanted: Any = columns[0].in_([key[0] for key in keys])
    else:
        wanted = sa.or_(*(sa.and_(*(one == value for one, value in zip(columns, key, strict=True))) for key in keys))
    ties = [element.parent == parent.c[element.column.key] for element in constraint.elements]
    return sa.exists().where(wanted, *ties).correlate(child)
