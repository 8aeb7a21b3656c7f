"""Which proposed changes belong together: a new row and what refers to it, a row that goes and what referred to it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from .change import Recorded
from .layouts import Layouts

Values = dict[str, Any]


def torn_apart(changes: Iterable[Recorded], numbers: Collection[int], layouts: Layouts) -> list[str]:
    """Return in words why some of the changes cannot be made without the others; nothing where they can.

    A database that enforces its foreign keys would refuse it, and another would be left with rows that belong nowhere.

    :param numbers: of the changes that are to be made, from 1.
    """
    made: list[Recorded] = []
    left: list[Recorded] = []
    for number, change in enumerate(changes, 1):
        (made if number in numbers else left).append(change)
    found: dict[str, None] = {}
    for change in made:
        for table, values in _references(change, change.after, layouts):
            if any(one.action == "insert" and _is_at(one.table, one.after, table, values) for one in left):
                found[f"{change.table} {change.key} *: It refers to a new row of {table} that was not accepted."] = None
    gone = [change for change in made if change.action == "delete"]
    for change in left if gone else ():
        for table, values in _references(change, change.before, layouts):
            for one in gone:
                if _is_at(one.table, one.before, table, values):
                    found[f"{one.table} {one.key} *: Rows of {change.table} refer to it by now."] = None
    return list(found)


def _is_at(name: str, row: Values | None, table: str, values: Values) -> bool:
    return name == table and row is not None and all(row.get(key) == value for key, value in values.items())


def _references(change: Recorded, row: Values | None, layouts: Layouts) -> Iterator[tuple[str, Values]]:
    """Give what a row refers to: a table, and what the row there has in which fields."""
    layout = layouts.of_change(change.entity, change.table)
    if layout is None or not row:
        return
    for table in layout.tables:
        for tie in table.foreign_key_constraints:
            parent = layouts.of_table(tie.referred_table)
            if parent is None or (parent.table == layout.table and set(tie.columns) == set(table.primary_key)):
                continue
            values = {
                parent.name_of(element.column): row.get(layout.name_of(element.parent)) for element in tie.elements
            }
            if None not in values.values():
                yield parent.table, values
