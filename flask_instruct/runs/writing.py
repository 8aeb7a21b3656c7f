"""Steps of a plan written into the database: records of mapped classes through their session, so that the app's own
hooks see them, and rows of other tables by statements. What the database refuses is told, never raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_modified
from sqlalchemy.orm.attributes import instance_dict
from sqlalchemy.orm.exc import StaleDataError

from .layouts import AT_ONCE
from .layouts import Row
from .parking import park
from .plans import WHOLE
from .plans import FieldPlan
from .plans import Plan
from .plans import Step

REFUSED = "The database refused it: a rule of its data, such as a unique or a foreign key, would be broken."
NOT_VALID = "The app's own rules refused it."


def apply(session: Session, plan: Plan) -> list[FieldPlan]:
    """Write a plan's steps in the session's transaction, call by call; return what was refused, with the reason."""
    refused: list[FieldPlan] = []
    for group in plan.steps:
        refused += _apply_group(session, group)
    return refused


def _apply_group(session: Session, group: list[Step]) -> list[FieldPlan]:
    if _tried(session, group) is None or _tried(session, group, parks=True) is None:
        return []
    # In another order each may do: a name is free once the row that has it is gone.
    waiting, why = group, ""
    while waiting:
        left = []
        for step in waiting:
            problem = _tried(session, [step])
            if problem is not None:
                left.append(step)
                why = problem
        if len(left) == len(waiting):
            left = [step for some in _by_table(left) if _tried(session, some, parks=True) is not None for step in some]
        if len(left) == len(waiting):
            return [_refusal(step, why) for step in left]
        waiting = left
    return []


def _by_table(steps: list[Step]) -> list[list[Step]]:
    tables = dict.fromkeys(step.layout.base for step in steps)
    return [[step for step in steps if step.layout.base is table] for table in tables]


def _tried(session: Session, steps: list[Step], *, parks: bool = False) -> str | None:
    """Write some steps in a savepoint of their own; return why that was refused, or None.

    :param parks: whether rows may get out of each other's way first.
    """
    try:
        with session.begin_nested():
            if parks:
                park(session, [step for step in steps if step.action == "update"])
            for action in ("unlink", "insert", "update", "delete", "link"):
                _write(session, [step for step in steps if _kind(step) == action], action)
            _ask_rules_that_wait(session)
    except (SQLAlchemyError, StaleDataError):
        session.expire_all()
        return REFUSED
    except (ValueError, TypeError, LookupError, AssertionError):
        session.expire_all()
        return NOT_VALID
    return None


def _ask_rules_that_wait(session: Session) -> None:
    """Have rules of the database that wait for the commit asked now, and wait again afterwards."""
    connection = session.connection()
    if connection.dialect.name != "postgresql":
        return
    session.flush()
    # What they are set to is part of a savepoint: a tool that comes later in the transaction may count on their wait.
    asking = connection.begin_nested()
    try:
        connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))
    finally:
        asking.rollback()


def _kind(step: Step) -> str:
    if step.layout.mapper is None and step.action != "update":
        return "unlink" if step.action == "delete" else "link"
    return step.action


def _write(session: Session, steps: list[Step], action: str) -> None:
    # Held until all is written, since a session forgets what nobody holds; read one by one, each would first have the
    # one before it written.
    held = [] if action == "insert" else _records(session, steps)
    # Parents come before their children and go after them, also where no relationship says so.
    tables = {table: number for number, table in enumerate(_sorted_tables(steps))}
    for table in sorted({step.layout.base for step in steps}, key=tables.__getitem__, reverse=action == "delete"):
        for step in _generations([step for step in steps if step.layout.base is table], action):
            _WRITERS[action](session, step)
            if step.layout.mapper is not None and _refers_to_itself(table):
                session.flush()
        session.flush()
    del held


def _records(session: Session, steps: list[Step]) -> list[Any]:
    """Read the records of steps, those of a class at once."""
    found: list[Any] = []
    for layout in dict.fromkeys(step.layout for step in steps):
        if layout.mapper is None:
            continue
        keys = [step.key for step in steps if step.layout is layout]
        for start in range(0, len(keys), AT_ONCE):
            where = layout.where(keys[start : start + AT_ONCE])
            found += session.scalars(sa.select(layout.mapper.class_).where(where)).unique()
    return found


def _sorted_tables(steps: list[Step]) -> list[sa.Table]:
    return list(steps[0].layout.base.metadata.sorted_tables) if steps else []


def _refers_to_itself(table: sa.Table) -> bool:
    return any(tie.referred_table is table for tie in table.foreign_key_constraints)


def _generations(steps: list[Step], action: str) -> list[Step]:
    """Order the rows of a tree: parents first as they come, last as they go."""
    if action == "update" or not steps or not _refers_to_itself(steps[0].layout.base):
        return steps
    columns = [
        element.parent
        for tie in steps[0].layout.base.foreign_key_constraints
        if tie.referred_table is steps[0].layout.base
        for element in tie.elements
    ]
    waiting = {step.key: step for step in steps}
    ordered: list[Step] = []
    while waiting:
        ready = [
            step
            for step in waiting.values()
            if not any((step.values.get(name),) in waiting for name in _names(step, columns))
        ] or list(waiting.values())
        ordered += ready
        for step in ready:
            del waiting[step.key]
    return ordered if action == "insert" else ordered[::-1]


def _names(step: Step, columns: list[Any]) -> list[str]:
    return [name for name, one in step.layout.fields.items() if any(one.column is column for column in columns)]


def _insert(session: Session, step: Step) -> None:
    layout = step.layout
    if layout.mapper is None:
        given = {layout.fields[name].column: value for name, value in step.values.items()}
        session.execute(sa.insert(layout.base).values(given))
        return
    # Not by its constructor, which may do what only a new record wants.
    record = layout.mapper.class_manager.new_instance()
    for name, value in step.values.items():
        # A column with a default would have that in the place of None.
        explicit = value is None and layout.fields[name].filled
        _set(record, name, sa.null() if explicit else value)
    session.add(record)


def _update(session: Session, step: Step) -> None:
    layout = step.layout
    record = None if layout.mapper is None else session.get(layout.mapper.class_, step.key)
    if record is None:
        # No class is mapped to it, or the app keeps its sessions from seeing the row, as one that is marked as deleted.
        _update_rows(session, step)
        return
    for name, value in step.values.items():
        _set(record, name, value)


def _update_rows(session: Session, step: Step) -> None:
    given: dict[sa.Table, Row] = {}
    for name, value in step.values.items():
        column = step.layout.fields[name].column
        given.setdefault(column.table, {})[column] = value  # type: ignore[index]
    for table, values in given.items():
        written: Any = session.execute(sa.update(table).where(*step.ties(table)).values(values))
        if written.rowcount != 1:
            raise StaleDataError(f"A row of {table.fullname} is gone.")


def _set(record: Any, name: str, value: Any) -> None:
    try:
        setattr(record, name, value)
    except ValueError:
        # A mutable document takes no NULL of SQL, nor the null of JSON, in the place of its own kind.
        if not isinstance(value, sa.ClauseElement) and value is not sa.JSON.NULL:
            raise
        instance_dict(record)[name] = value
        flag_modified(record, name)


def _delete(session: Session, step: Step) -> None:
    layout = step.layout
    record = None if layout.mapper is None else session.get(layout.mapper.class_, step.key)
    if record is not None:
        session.delete(record)
        return
    tables = (
        [layout.base] if layout.mapper is None else [one for one in layout.mapper.tables if isinstance(one, sa.Table)]
    )
    for table in sorted(tables, key=layout.base.metadata.sorted_tables.index, reverse=True):
        session.execute(sa.delete(table).where(*step.ties(table)))


_WRITERS: dict[str, Callable[[Session, Step], None]] = {
    "unlink": _delete,
    "insert": _insert,
    "update": _update,
    "delete": _delete,
    "link": _insert,
}


def _refusal(step: Step, why: str) -> FieldPlan:
    names = list(step.values) if step.action == "update" else [WHOLE]
    name = names[0] if len(names) == 1 else WHOLE
    place = f"{step.layout.table} {step.written_key} {name}"
    values = {} if step.action == "delete" else step.values
    wanted = {
        name: None if isinstance(value, sa.ClauseElement) else step.layout.fields[name].write(value)
        for name, value in values.items()
    }
    return FieldPlan(place, name, None, None, wanted or None, why)
