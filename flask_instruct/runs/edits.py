"""A change of one row with the values themselves, as it is seen, and how several of one row become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .change import Action
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .row_keys import Key
from .values import PLAIN


@dataclass(slots=True)
class Edit:
    """One row that was changed; of an update the fields that were.

    :ivar whole: False where it has fields of which no one class has all: those are left out.
    """

    layout: Layout
    key: Key
    action: Action
    before: Row
    after: Row
    whole: bool = True


def merged(changes: Iterable[Edit], layouts: Layouts) -> list[Edit]:
    """Make one change of all that were made of a row, in the order of the first; none where nothing came of them."""
    rows: dict[tuple[str, Key], Edit] = {}
    for edit in changes:
        place = edit.layout.table, edit.key
        first = rows.get(place)
        if first is None:
            rows[place] = edit
            continue
        both = _both(first, edit)
        if both is None:
            del rows[place]
        else:
            rows[place] = both
    for edit in rows.values():
        if edit.layout.related:
            _fit(edit, layouts)
    return [edit for edit in rows.values() if edit.action != "update" or _told(edit)]


def _both(first: Edit, then: Edit) -> Edit | None:
    layout = then.layout
    steps = first.action, then.action
    if steps == ("insert", "delete"):
        return None
    if steps == ("delete", "insert"):
        return Edit(layout, first.key, "update", first.before, then.after)
    before = {**then.before, **first.before}
    after = {**first.after, **then.after}
    action = then.action if first.action == "update" else first.action
    return Edit(layout, first.key, action, before, {} if action == "delete" else after)


def _fit(edit: Edit, layouts: Layouts) -> None:
    """Give the change of a row that may be of one of several classes the layout of its own class."""
    row = edit.after if edit.action == "insert" else edit.before
    kind = None if edit.action == "update" else row.get(edit.layout.kind or "")
    names = {*edit.before, *edit.after}
    if kind is not None:
        # A table that classes share has the columns of them all.
        names = {name for name in names if row[name] is not None}
    fitting = layouts.of_row(edit.layout, names, kind)
    if fitting is not None and fitting is not edit.layout:
        edit.layout = fitting
        edit.whole = edit.action == "update" or row.keys() >= fitting.fields.keys()
    elif fitting is None or (edit.layout.partial and edit.action != "update"):
        edit.whole = False
    if not edit.whole or kind is not None:
        for values in (edit.before, edit.after):
            for name in [name for name in values if name not in edit.layout.fields]:
                del values[name]


def _told(edit: Edit) -> bool:
    """Leave of an update what it changed."""
    fields, before = edit.layout.fields, edit.before
    if before.keys() == edit.after.keys() and all(
        before[name].__class__ is value.__class__ in PLAIN and before[name] != value
        for name, value in edit.after.items()
    ):
        return True
    same = [name for name, value in edit.after.items() if name in before and fields[name].same(before[name], value)]
    same += [name for name in edit.after if name not in before] + [name for name in before if name not in edit.after]
    if same:
        edit.before = {name: value for name, value in before.items() if name not in same}
        edit.after = {name: value for name, value in edit.after.items() if name not in same}
    return bool(edit.after)


def _differ(one: object, other: object) -> bool:
    """Tell whether two values differ, where that is plain to see."""
    return one.__class__ is other.__class__ in PLAIN and one != other


def compared(layout: Layout, before: dict[Key, Row], after: dict[Key, Row]) -> list[Edit]:
    """Return what was changed between two looks at the same rows."""
    found: list[Edit] = []
    for key, row in before.items():
        now = after.get(key)
        if now is None:
            found.append(Edit(layout, key, "delete", row, {}))
            continue
        changed = [name for name, field in layout.fields.items() if not field.same(row[name], now[name])]
        if changed:
            was = {name: row[name] for name in changed}
            found.append(Edit(layout, key, "update", was, {name: now[name] for name in changed}))
    return found
