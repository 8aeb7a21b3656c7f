"""Recorded changes put into effect again: backwards for an undo, forwards for what was proposed.

First a plan, by which nothing is written: what each field is now, what it would become, and where the row is no longer
as the changes left it. Such a conflict is left alone unless it is forced by its name.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from typing import Literal

from sqlalchemy import ClauseElement
from sqlalchemy import ForeignKeyConstraint
from sqlalchemy.orm import Session

from .change import Change
from .change import Recorded
from .fields import Field
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .plans import WHOLE
from .plans import FieldPlan
from .plans import Plan
from .plans import RowPlan
from .plans import Step
from .row_keys import Key
from .values import Lost

Direction = Literal["backwards", "forwards"]
Group = Sequence[Recorded | Change]
"""The changes of one call, in their order."""


def plan(
    session: Session,
    layouts: Layouts,
    groups: Sequence[Group],
    direction: Direction,
    *,
    force: Collection[str] = (),
    skip: Collection[str] = (),
    lock: bool = False,
) -> Plan:
    """Look at what applying changes would do now; nothing is written.

    :param groups: the changes of each call, oldest first.
    :param force: ids of fields that are written though somebody changed them since.
    :param skip: ids of fields that are left alone.
    :param lock: whether others are kept from changing the rows until the transaction's end, since it is to be done.
    """
    return _Planner(session, layouts, direction, force, skip, lock=lock).plan(groups)


class _Planner:
    def __init__(
        self,
        session: Session,
        layouts: Layouts,
        direction: Direction,
        force: Collection[str],
        skip: Collection[str],
        *,
        lock: bool,
    ) -> None:
        # SQLite has one writer anyway.
        self._lock = lock and layouts.dialect.name != "sqlite"
        self._execute = session.connection().execute
        self._layouts = layouts
        self._backwards = direction == "backwards"
        self._force, self._skip = frozenset(force), frozenset(skip)
        self._rows: dict[tuple[str, str], _Rehearsed] = {}
        self._known: dict[tuple[str | None, str], Layout | None] = {}

    def plan(self, groups: Sequence[Group]) -> Plan:
        ordered = [list(group) for group in groups]
        for change in (change for group in ordered for change in group):
            made = _Rehearsed(change.entity, change.table, change.key)
            row = self._rows.setdefault((change.table, change.key), made)
            row.names.update(change.before or (), change.after or ())
        self._read()
        steps = []
        for group in reversed(ordered) if self._backwards else ordered:
            changes = reversed(group) if self._backwards else group
            steps.append([step for change in changes for step in self._rehearse(change)])
        self._refuse_orphans(steps)
        self._keep_what_is_referred_to(steps)
        rows = [row.planned() for row in self._rows.values()]
        return Plan([row for row in rows if row.fields], [group for group in steps if group])

    def _read(self) -> None:
        wanted: dict[Layout, list[_Rehearsed]] = {}
        for row in self._rows.values():
            row.layout = self._layout(row)
            if row.layout is not None:
                try:
                    row.identity = row.layout.key_form.read(row.key)
                except Lost:
                    row.layout = None
                    continue
                wanted.setdefault(row.layout, []).append(row)
        for layout, rows in wanted.items():
            if self._lock:
                layout.lock(self._execute, [row.identity for row in rows])
            found = layout.read(self._execute, [row.identity for row in rows])
            for row in rows:
                row.current = row.now = found.get(row.identity)

    def _layout(self, row: _Rehearsed) -> Layout | None:
        place = row.entity, row.table
        if place not in self._known:
            self._known[place] = self._layouts.of_change(*place)
        layout = self._known[place]
        return layout and (self._layouts.of_row(layout, row.names) or layout)

    def _rehearse(self, change: Recorded | Change) -> Iterator[Step]:
        """Do one change in mind; give what has to be written for it."""
        row = self._rows[change.table, change.key]
        layout = row.layout
        expects, gives = (change.after, change.before) if self._backwards else (change.before, change.after)
        if layout is None:
            row.note(WHOLE, None, None, gives, "This kind of row is not known any more.")
        elif gives is None:
            yield from self._rehearse_leaving(row, layout, expects or {})
        elif expects is None:
            yield from self._rehearse_coming(row, layout, gives)
        else:
            yield from self._rehearse_changing(row, layout, expects, gives)

    def _rehearse_leaving(self, row: _Rehearsed, layout: Layout, expects: Row) -> Iterator[Step]:
        if row.now is None:
            row.note(WHOLE, expects, None, None, None if row.gone else "It is gone already.")
            return
        known = {name: one for name, one in layout.fields.items() if name in expects}
        changed = [n for n, one in known.items() if not one.bookkeeping and not one.holds(row.now[n], expects[n])]
        why = f"It was changed since: {', '.join(changed)}." if changed else None
        current = {name: layout.fields[name].write(row.now[name]) for name in changed or layout.fields}
        if self._may(row, WHOLE, expects, current, None, why):
            was, row.now, row.gone = row.now, None, True
            yield Step(layout, row.identity, row.key, "delete", was)

    def _rehearse_coming(self, row: _Rehearsed, layout: Layout, gives: Row) -> Iterator[Step]:
        parts = dict(zip(layout.key_names, row.identity, strict=True))
        try:
            values = {
                name: parts[name] if name in parts else one.read(gives[name])
                for name, one in layout.fields.items()
                if name in gives
            }
        except (Lost, LookupError, ValueError, TypeError):
            row.note(WHOLE, None, None, gives, "Not all of its values were kept.")
            return
        if row.now is not None:
            row.note(WHOLE, None, row.written(), gives, "There is a row with this key by now.")
        elif self._may(row, WHOLE, None, None, gives, None):
            row.now = {name: _plain(values.get(name)) for name in layout.fields}
            yield Step(layout, row.identity, row.key, "insert", values)

    def _rehearse_changing(self, row: _Rehearsed, layout: Layout, expects: Row, gives: Row) -> Iterator[Step]:
        if row.now is None:
            for name in gives:
                row.note(name, expects.get(name), None, gives[name], None if row.gone else "Its row is gone.")
            return
        quiet = [name for name in gives if name in layout.fields and layout.fields[name].bookkeeping]
        asked = [name for name in gives if name not in quiet]
        values: Row = {}
        for name in asked:
            self._rehearse_field(row, name, expects.get(name), gives[name], values)
        for name in quiet if values or not asked else ():
            self._follow(row, layout.fields[name], expects.get(name), gives[name], values)
        if values:
            yield Step(layout, row.identity, row.key, "update", values)

    def _rehearse_field(self, row: _Rehearsed, name: str, expected: Any, wanted: Any, values: Row) -> None:
        """Add what is to be written to a field to ``values``, unless something is in the way."""
        one = row.layout.fields.get(name) if row.layout is not None else None
        if one is None or row.now is None:
            row.note(name, expected, None, wanted, "There is no such field any more.")
            return
        current = one.write(row.now[name])
        try:
            value = one.read(wanted)
        except (Lost, LookupError, ValueError, TypeError):
            row.note(name, expected, current, wanted, "Its value was not kept.")
            return
        why = None if one.holds(row.now[name], expected) else "Somebody changed it since."
        if self._may(row, name, expected, current, wanted, why):
            values[name], row.now[name] = value, _plain(value)

    def _follow(self, row: _Rehearsed, one: Field, expected: Any, wanted: Any, values: Row) -> None:
        """Let bookkeeping go along with the fields of its row; what somebody did since is told by what is there."""
        if row.now is None or row.place(one.name) in self._skip:
            return
        if self._backwards and not one.holds(row.now[one.name], expected):
            return
        with suppress(Lost, LookupError, ValueError, TypeError):
            value = one.read(wanted)
            earlier = row.notes.get(one.name)
            current = one.write(row.now[one.name]) if earlier is None else earlier.current
            row.note(one.name, expected, current, wanted, None)
            values[one.name], row.now[one.name] = value, _plain(value)

    def _may(self, row: _Rehearsed, name: str, wrote: Any, current: Any, wanted: Any, why: str | None) -> bool:
        """Note what is about to become of a field, and tell whether it is to be written."""
        place = row.place(name)
        refused = why is not None and place not in self._force
        earlier = row.notes.get(name)
        if earlier is not None:
            # What a later change left stands as it is, what an earlier one found is what is wanted.
            blocked = earlier.conflict is not None and place not in self._force
            row.note(name, earlier.wrote, earlier.current, wanted, earlier.conflict if blocked else why)
            return not blocked and not refused and place not in self._skip
        row.note(name, wrote, current, wanted, why)
        return not refused and place not in self._skip

    def _refuse_orphans(self, steps: list[list[Step]]) -> None:
        """Keep rows to which others refer that stay: they would go along, or lose their parent."""
        waiting = True
        while waiting:
            waiting = False
            for row in self._rows.values():
                if row.layout is None or row.current is None or row.now is not None:
                    continue
                referring = next(self._referring(row), None)
                if referring is None or row.place(WHOLE) in self._force:
                    continue
                note = row.notes[WHOLE]
                row.note(WHOLE, note.wrote, note.current, note.wanted, f"Rows of {referring} refer to it by now.")
                # It stays as it would have been, and so does what it refers to.
                row.now, waiting = row.current, True
                for group in steps:
                    for step in [one for one in group if row.is_of(one) and one.action == "delete"]:
                        row.now = step.values
                        group.remove(step)

    def _keep_what_is_referred_to(self, steps: list[list[Step]]) -> None:
        """Let a row that would go and come back be changed in its place, where others refer to it by now."""
        for row in self._rows.values():
            if not row.gone or row.layout is None or row.current is None or row.now is None:
                continue
            if next(self._referring(row), None) is None:
                continue
            for group in steps:
                group[:] = [one for one in group if not (row.is_of(one) and one.action == "delete")]
                for step in [one for one in group if row.is_of(one) and one.action == "insert"]:
                    step.action = "update"

    def _referring(self, row: _Rehearsed) -> Iterator[str]:
        """Give the tables that have rows which refer to one that is to go, and which stay themselves."""
        layout = row.layout
        assert layout is not None
        tables = layout.tables
        for table in layout.base.metadata.tables.values():
            child = self._layouts.of_table(table)
            if child is None:
                continue
            for tie in table.foreign_key_constraints:
                is_same_row = table in tables and child.table == layout.table and _is_key(tie)
                if tie.referred_table not in tables or is_same_row:
                    continue
                values = [_value_of(row, layout, element.column) for element in tie.elements]
                if None in values:
                    continue
                parents = [element.parent for element in tie.elements]
                found = child.select(self._execute, *map(operator.eq, parents, values))
                names = [child.name_of(one) for one in parents]
                for other in found:
                    mine = self._rows.get((child.table, child.write_key(other)))
                    if mine is None or (mine.now is not None and _refers(mine.now, names, values)):
                        yield table.fullname


class _Rehearsed:
    """One row as it would be after the changes that were done in mind so far."""

    def __init__(self, entity: str | None, table: str, key: str) -> None:
        self.entity, self.table, self.key = entity, table, key
        self.names: set[str] = set()
        """The fields that the changes are about."""
        self.layout: Layout | None = None
        self.identity: Key = ()
        self.current: Row | None = None
        self.now: Row | None = None
        self.gone = False
        """Whether these changes have taken it away."""
        self.notes: dict[str, FieldPlan] = {}

    def place(self, name: str) -> str:
        return f"{self.table} {self.key} {name}"

    def is_of(self, step: Step) -> bool:
        return (step.layout.table, step.written_key) == (self.table, self.key)

    def note(self, name: str, wrote: Any, current: Any, wanted: Any, conflict: str | None) -> None:
        self.notes[name] = FieldPlan(self.place(name), name, wrote, current, wanted, conflict)

    def written(self) -> Row | None:
        if self.layout is None or self.now is None:
            return None
        return {name: one.write(self.now[name]) for name, one in self.layout.fields.items()}

    def planned(self) -> RowPlan:
        whole = self.notes.get(WHOLE)
        action = "update" if whole is None else "insert" if self.current is None else "delete"
        if whole is not None and whole.conflict is None:
            return RowPlan(self.entity, self.table, self.key, action, [whole] if whole.current != whole.wanted else [])
        notes = [note for note in self.notes.values() if note.conflict or note.current != note.wanted]
        asked = [note for note in notes if not self._is_bookkeeping(note.name)]
        return RowPlan(self.entity, self.table, self.key, action, asked or notes)

    def _is_bookkeeping(self, name: str) -> bool:
        one = self.layout.fields.get(name) if self.layout is not None else None
        return one is not None and one.bookkeeping


def _plain(value: Any) -> Any:
    """Return what is in the place of a NULL that is written as SQL."""
    return None if isinstance(value, ClauseElement) else value


def _refers(row: Row, names: Iterable[str], values: Iterable[Any]) -> bool:
    return all(row.get(name) == value for name, value in zip(names, values, strict=True))


def _is_key(tie: ForeignKeyConstraint) -> bool:
    """Tell whether it ties a table of a class that inherits to its root's: both have one row."""
    return set(tie.columns) == set(tie.table.primary_key.columns)


def _value_of(row: _Rehearsed, layout: Layout, column: Any) -> Any:
    """Return what a row that is there has in a column; None where that is not seen."""
    name = layout.name_of(column)
    if name in layout.key_names:
        return row.identity[layout.key_names.index(name)]
    return (row.current or {}).get(name)
