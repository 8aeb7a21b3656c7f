"""What one flush of a session changes: looked at before its first statement and after its last, not row by row.

Old values are those that SQLAlchemy keeps of a record, new ones those of the record itself. Only what neither knows, or
what the database may have stored in another form, is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import UOWTransaction
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.sql.elements import ClauseElement

from .cascades import Cascades
from .edits import Edit
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .row_keys import Key
from .values import PLAIN

Execute = Callable[[Any], Any]


class Flush:
    """One flush, from before its first statement.

    :ivar seen: whether it has changed anything of which changes are kept.
    """

    def __init__(self, context: UOWTransaction, layouts: Layouts) -> None:
        self._context = context
        self._layouts = layouts
        self._old: dict[Any, Row] = {}
        self._unsure: dict[Layout, list[tuple[Edit, list[str]]]] = {}
        self._new: set[Any] = set()
        self._deleted: list[tuple[Layout, Key, Row]] = []
        self._cascades = Cascades(layouts)
        self._problems: list[str] = []
        self.seen = False

    def is_own(self, options: Any) -> bool:
        """Tell whether a statement is one that the flush makes of records, by how it is executed.

        Those of a relationship's table of its own, and the app's, are no such.
        """
        return "compiled_cache" in options

    def look(self, execute: Execute) -> None:
        """Look at what is about to be changed; everything that a flush will do is known before its first statement."""
        self.seen = True
        missing: dict[Layout, dict[Key, list[tuple[Row, tuple[str, ...]]]]] = {}

        def want(layout: Layout, key: Key, row: Row, names: tuple[str, ...]) -> None:
            missing.setdefault(layout, {}).setdefault(key, []).append((row, names))

        gone: dict[Layout, list[Key]] = {}
        layout: Layout | None = None
        last = None
        for state, (is_delete, only_listed) in self._context.states.items():
            if state.key is None:
                self._new.add(state)
                continue
            if (mapper := state.manager.mapper) is not last:
                last, layout = mapper, self._layouts.of_class(mapper)
            if layout is None or (only_listed and not (is_delete and self._is_replaced(state))):
                continue
            if is_delete:
                row, names = _whole(layout, state)
                self._deleted.append((layout, state.key[1], row))
                if not only_listed:
                    gone.setdefault(layout, []).append(state.key[1])
            elif layout.restless or not _is_plain(layout, state):
                row, names = _unsure(layout, state)
                if row or names:
                    self._old[state] = row
            else:
                continue
            if names:
                want(layout, state.key[1], row, names)
        for layout, wanted in missing.items():
            found = layout.read(execute, wanted)
            for key, places in wanted.items():
                for row, names in places:
                    row.update({name: found[key][name] for name in names if key in found})
        for layout, keys in gone.items():
            self._cascades.look(execute, layout, keys)

    def edits(self, execute: Execute) -> tuple[list[Edit], list[str]]:
        """Return what has been changed, once the last statement was executed, and what could not be seen of it."""
        found = [Edit(layout, key, "delete", row, {}) for layout, key, row in self._deleted]
        later = {state for states, _ in self._context.post_update_states.values() for state in states}
        layout: Layout | None = None
        last = None
        for state, (is_delete, only_listed) in self._context.states.items():
            if is_delete or (only_listed and state not in later):
                continue
            if (mapper := state.manager.mapper) is not last:
                last, layout = mapper, self._layouts.of_class(mapper)
            if layout is None:
                continue
            edit = self._inserted(layout, state) if state in self._new else self._updated(layout, state)
            if edit is not None:
                found.append(edit)
        for its_layout, unsure in self._unsure.items():
            rows = its_layout.read(execute, (edit.key for edit, _ in unsure))
            for edit, names in unsure:
                edit.after.update({name: rows[edit.key][name] for name in names if edit.key in rows})
        found += self._cascades.edits(execute)
        return found, [*self._problems, *self._cascades.problems]

    def _is_replaced(self, state: Any) -> bool:
        """Tell whether a new record takes the row of one that was to be deleted: SQLAlchemy updates it then."""
        return any(
            other.key is None and other.manager.mapper._identity_key_from_state(other) == state.key
            for other in self._context.states
            if other.manager.mapper.base_mapper is state.manager.mapper.base_mapper
        )

    def _updated(self, layout: Layout, state: Any) -> Edit | None:
        fields, values = layout.fields, state.dict
        before: Row = {}
        after: Row = {}
        names: list[str] = []
        kept = state.committed_state
        if state in self._old:
            kept = {**kept, **self._old[state]}
        for name, was in kept.items():
            if name not in fields:
                continue
            value = values.get(name, NO_VALUE)
            if was is NO_VALUE:
                self._problems.append(f"What {name} of {layout.table} was before could not be seen.")
                continue
            if value.__class__ is not fields[name].plain and (value is NO_VALUE or not fields[name].is_settled(value)):
                names.append(name)
            elif value is was or (value.__class__ is was.__class__ and value == was):
                continue
            else:
                after[name] = value
            before[name] = was
        if not before:
            return None
        key = state.key[1]
        if not layout.keyed.isdisjoint(kept) and any(
            name in before and name in after and before[name] != after[name] for name in layout.key_names
        ):
            self._problems.append(f"The key of a row of {layout.table} was changed.")
            key = tuple(values.get(name) for name in layout.key_names)
        edit = Edit(layout, key, "update", before, after)
        if names:
            self._unsure.setdefault(layout, []).append((edit, names))
        return edit

    def _inserted(self, layout: Layout, state: Any) -> Edit:
        values = state.dict
        after: Row = {}
        names: list[str] = []
        for name, field in layout.fields.items():
            value = values.get(name, NO_VALUE)
            if value is NO_VALUE and not field.filled:
                after[name] = None
            elif value is NO_VALUE or not field.is_settled(value):
                names.append(name)
            else:
                after[name] = value
        edit = Edit(layout, tuple(values.get(name) for name in layout.key_names), "insert", {}, after)
        if names:
            self._unsure.setdefault(layout, []).append((edit, names))
        return edit


def _whole(layout: Layout, state: Any) -> tuple[Row, tuple[str, ...]]:
    """Return what is known of a row that is about to go, and the names of the rest."""
    values, kept = state.dict, state.committed_state
    row: Row = {}
    names: list[str] = []
    for name, field in layout.fields.items():
        value = kept.get(name, NO_VALUE) if name in kept else values.get(name, NO_VALUE)
        if value is NO_VALUE or not field.steady or _is_sql(value):
            names.append(name)
        else:
            row[name] = value
    return row, tuple(names)


def _is_plain(layout: Layout, state: Any) -> bool:
    """Tell whether all old values are known and stay so, and all new ones are no SQL: true of nearly every record."""
    values = state.dict
    for name in layout.references:
        if name not in values:
            return False
    for name, was in state.committed_state.items():
        if was is NO_VALUE or ((value := values.get(name)).__class__ not in PLAIN and _is_sql(value)):
            return False
    return True


def _is_sql(value: Any) -> bool:
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")


def _unsure(layout: Layout, state: Any) -> tuple[Row, tuple[str, ...]]:
    """Return the old values that the flush is going to forget, and the names of those that have to be read."""
    values, fields = state.dict, layout.fields
    row: Row = {}
    names: list[str] = []
    for name, was in state.committed_state.items():
        field = fields.get(name)
        if field is None:
            continue
        if was is NO_VALUE or not field.steady:
            names.append(name)
        elif _is_sql(values.get(name)):
            row[name] = was
    for name in layout.references:
        if name not in values and name not in names:
            names.append(name)
    for name in layout.updated:
        if name in values:
            row.setdefault(name, state.committed_state.get(name, values[name]))
        elif name not in names:
            names.append(name)
    return row, tuple(names)
