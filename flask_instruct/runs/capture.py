"""What a tool changes in its database transaction: each row that is inserted, updated or deleted, before and after.

Listens to the tool's one session and its one connection, and to nothing else of the app. What a savepoint's rollback
undid is dropped. See docs/decisions/0015.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import UOWTransaction

from .change import Recorded
from .edits import Edit
from .edits import merged
from .flushes import Flush
from .layouts import Layout
from .layouts import Layouts
from .layouts import Row
from .row_keys import MOST_KEY
from .sql_text import reads
from .statements import Statement
from .statements import begin
from .values import REDACTED
from .values import is_kept

if TYPE_CHECKING:
    from ..state import State


_SAVEPOINT = re.compile(r"(SAVEPOINT|ROLLBACK TO SAVEPOINT|RELEASE SAVEPOINT) (\w+)")
"""As SQLAlchemy writes them for every database."""


@dataclass(slots=True)
class _Frame:
    """What was done since a savepoint."""

    name: str | None
    edits: list[Edit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Capture:
    """Follows one tool. Afterwards :attr:`changes` are the rows it changed, each once, in order.

    :ivar problem: the first reason why its changes cannot be undone, in a sentence; None when they can.
    :ivar once: why they could not be made again as they are written down, though they can be undone.
    """

    def __init__(self, state: State, connection: sa.Connection) -> None:
        self._layouts: Layouts = state.layouts(connection.dialect)
        self._connection = connection
        self._frames = [_Frame(None)]
        self._flush: Flush | None = None
        self._statement: Statement | None = None
        self._session: Session | None = None
        self._reading = False
        self.changes: list[Recorded] = []
        self.problem: str | None = None
        self.once: str | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record what is done to the connection inside; leaving by an exception leaves no changes."""
        _hear_statements(self._connection.engine)
        _following[self._connection] = self
        try:
            yield
        finally:
            del _following[self._connection]
        self._finish()

    def follow(self, session: Session) -> None:
        """Record what the session flushes; it is thrown away after the tool."""
        self._session = session
        _hear_flushes(type(session))
        session.info[_FOLLOWED_BY] = self

    def discard(self) -> None:
        """Forget all: nothing of the tool was kept."""
        self.changes, self.problem, self.once = [], None, None

    def refuse(self, reason: str) -> None:
        """Say why the tool's changes cannot be undone, unless that is known."""
        self.problem = self.problem or reason

    # -- the session -----------------------------------------------------------------------------------------------

    def flush_begins(self, context: UOWTransaction) -> None:
        self._flush = Flush(context, self._layouts)

    def flush_has_written(self) -> None:
        flush, self._flush = self._flush, None
        if flush is not None and flush.seen:
            with self._reads():
                self._add(*flush.edits(self._connection.execute))

    # -- the connection --------------------------------------------------------------------------------------------

    def before(self, clause: Any, given: Any, options: Any) -> Any:
        """Look at what a statement is about to change; returns it as it is to be executed."""
        if self._reading or not isinstance(clause, sa.UpdateBase):
            return clause
        if self._flush is not None and not (self._session is not None and self._session._flushing):
            self._flush = None
        if self._flush is not None and self._flush.is_own(options):
            if not self._flush.seen:
                with self._reads():
                    self._flush.look(self._connection.execute)
            return clause
        with self._reads():
            clause, self._statement = begin(clause, given, self._layouts, self._connection.execute)
        return clause

    def after(self, result: Any) -> None:
        """Look at what the statement has changed."""
        if self._reading or self._statement is None:
            return
        statement, self._statement = self._statement, None
        with self._reads():
            self._add(*statement.edits(self._connection.execute, result))

    def sends(self, statement: str, context: Any) -> None:
        """Follow savepoints, and take note of SQL text that is no statement of SQLAlchemy's making."""
        if (savepoint := _SAVEPOINT.fullmatch(statement)) is not None:
            self._savepoint(*savepoint.groups())
            return
        if self._reading:
            return
        known = getattr(getattr(context, "compiled", None), "statement", None)
        if not isinstance(known, sa.UpdateBase) and not reads(statement):
            word = statement.split(None, 1)[0][:20].upper() if statement.strip() else "?"
            self._add((), [f"It ran SQL text ({word}), of which nobody knows what it changed."])

    def _savepoint(self, what: str, name: str) -> None:
        if what == "SAVEPOINT":
            self._frames.append(_Frame(name))
            return
        ended = list(self._since(name))
        self._statement = None
        if what.startswith("RELEASE"):
            for frame in reversed(ended):
                self._add(frame.edits, frame.problems)

    def _since(self, name: str) -> Iterator[_Frame]:
        """Take the frames from the innermost to that of a savepoint; of one from before there is none."""
        if any(frame.name == name for frame in self._frames):
            while (frame := self._frames.pop()).name != name:
                yield frame
            yield frame

    @contextmanager
    def _reads(self) -> Iterator[None]:
        self._reading = True
        try:
            yield
        finally:
            self._reading = False

    # -- the end ---------------------------------------------------------------------------------------------------

    def _add(self, edits: Iterable[Edit], problems: Iterable[str] = ()) -> None:
        self._frames[-1].edits += edits
        self._frames[-1].problems += problems

    def _finish(self) -> None:
        edits = [one for frame in self._frames for one in frame.edits]
        for frame in self._frames:
            for problem in frame.problems:
                self.refuse(problem)
        self.changes = [self._recorded(one) for one in merged(edits, self._layouts)]

    def _recorded(self, edit: Edit) -> Recorded:
        layout = edit.layout
        before = None if edit.action == "insert" else self._written(layout, edit.before)
        after = None if edit.action == "delete" else self._written(layout, edit.after)
        for name, value in (before or {}).items():
            if value.__class__ is dict and name not in layout.keyed and not is_kept(value):
                self.refuse(f"What {name} of {layout.table} was before is not kept.")
        self._refuse_odd(edit)
        key = layout.write_key(edit.key)
        if len(key) > MOST_KEY:
            self.refuse(f"A key of {layout.table} is too long to be kept.")
            key = key[:MOST_KEY]
        return Recorded(edit.action, layout.entity, layout.table, key, before, after)

    def _refuse_odd(self, edit: Edit) -> None:
        layout = edit.layout
        if edit.action == "update":
            if layout.kind in edit.after or not edit.whole:
                self.refuse(f"A row of {layout.table} became one of another class.")
            if not layout.letting_go.isdisjoint(edit.after):
                self.refuse(f"Rows of other tables no longer refer to {layout.table}, since their key there changed.")
        elif not edit.whole or (layout.unmapped and edit.action == "delete"):
            self.refuse(f"A row of {layout.table} has columns that could not be seen.")
        if layout.numbered and edit.action == "delete":
            self.refuse(f"A row of {layout.table} cannot come back: the database alone makes its key.")
        if layout.numbered and edit.action == "insert":
            self.once = f"The database alone makes the key of a row of {layout.table}."
        if not layout.key_form.keeps(edit.key):
            self.refuse(f"A key of {layout.table} is of a kind that is not kept.")

    def _written(self, layout: Layout, values: Row) -> Row:
        fields = layout.fields
        written: Row = {}
        for name, value in values.items():
            one = fields[name]
            if one.redacted:
                written[name] = REDACTED
            else:
                written[name] = value if value.__class__ is str and one.plain is str else one.write(value)
        return written


_following: dict[sa.Connection, Capture] = {}
"""Who follows the tool that has a connection at this moment."""

_FOLLOWED_BY = "flask_instruct.capture"
"""What a joined session has in its ``info``: who follows its tool."""


def _hear_statements(engine: sa.Engine) -> None:
    # Once for an engine and a class of sessions: to listen to one of each takes longer than a tool's statements.
    if not sa.event.contains(engine, "after_execute", _after_execute):
        sa.event.listen(engine, "before_execute", _before_execute, retval=True)
        sa.event.listen(engine, "after_execute", _after_execute)
        sa.event.listen(engine, "before_cursor_execute", _before_cursor)


def _before_execute(
    connection: sa.Connection, clause: Any, many: Any, parameters: Any, options: Any
) -> tuple[Any, Any, Any]:
    capture = _following.get(connection)
    return clause if capture is None else capture.before(clause, many or parameters, options), many, parameters


def _after_execute(
    connection: sa.Connection, clause: Any, many: Any, parameters: Any, options: Any, result: Any
) -> None:
    if (capture := _following.get(connection)) is not None:
        capture.after(result)


def _before_cursor(
    connection: sa.Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: Any
) -> None:
    if (capture := _following.get(connection)) is not None:
        capture.sends(statement, context)


def _hear_flushes(kind: type[Session]) -> None:
    if not sa.event.contains(kind, "after_flush", _after_flush):
        sa.event.listen(kind, "before_flush", _before_flush)
        sa.event.listen(kind, "after_flush", _after_flush)


def _before_flush(session: Session, context: UOWTransaction, instances: Any) -> None:
    if (capture := session.info.get(_FOLLOWED_BY)) is not None:
        capture.flush_begins(context)


def _after_flush(session: Session, context: UOWTransaction) -> None:
    if (capture := session.info.get(_FOLLOWED_BY)) is not None:
        capture.flush_has_written()
