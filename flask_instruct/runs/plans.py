"""A plan: what would become of rows, field by field, and the steps that make it so."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy import Table

from .layouts import Layout
from .layouts import Row
from .row_keys import Key

WHOLE = "*"
"""In the place of a field: the row itself, which comes or goes."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """What becomes of one field; ``name`` is ``*`` for a whole row that comes or goes.

    :ivar id: the name by which it is forced or left out, such as ``note [1] text``.
    :ivar wrote: what the changes left in it, as typed JSON; ``current``: what it is now; ``wanted``: what it is to be.
    :ivar conflict: why it is left as it is, in words; None where nothing is in the way.
    """

    id: str
    name: str
    wrote: Any
    current: Any
    wanted: Any
    conflict: str | None = None


@dataclass(slots=True)
class RowPlan:
    """What becomes of one row."""

    entity: str | None
    table: str
    key: str
    action: str
    fields: list[FieldPlan] = field(default_factory=list)

    @property
    def known(self) -> dict[str, Any]:
        """What is told of its fields, as typed JSON: as they would be, else as they are."""
        whole = next((one for one in self.fields if one.name == WHOLE), None)
        if whole is not None:
            return dict(whole.wanted or whole.wrote or whole.current or {})
        return {one.name: one.wanted for one in self.fields}


@dataclass(slots=True)
class Step:
    """One row that is to be written, with the values of its fields."""

    layout: Layout
    key: Key
    written_key: str
    action: str
    values: Row

    def ties(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the condition for the row's part in one of its tables."""
        parts = dict(zip(self.layout.key_names, self.key, strict=True))
        columns = list(table.primary_key) or list(self.layout.keys)
        return [column == parts[self.layout.name_of(column)] for column in columns]


@dataclass(slots=True)
class Plan:
    """What applying changes would do; ``steps`` are those of each call, in the order in which they are done."""

    rows: list[RowPlan]
    steps: list[list[Step]]

    @property
    def conflicts(self) -> list[FieldPlan]:
        return [one for row in self.rows for one in row.fields if one.conflict is not None]
