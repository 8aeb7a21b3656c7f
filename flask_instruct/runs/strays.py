"""What a tool writes beside its transaction, through a connection of its own: seen as it is committed, said in the log,
and told to the model where the call fails, since there "nothing was kept" would be wrong.

Seen are all connections that SQLAlchemy makes in this process; what a driver is used for directly is not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from rq import get_current_job

from ..calls import ToolOutcome
from .sql_text import reads

logger = logging.getLogger("flask_instruct")

KEPT = (
    "Some of what it wrote to the database was kept all the same, because it was committed apart from this call. "
    "Look at what is there before you call it again."
)
"""What the model is told under the failure of a tool that did so."""

BESIDE = "It wrote to the database through a connection of its own, which nobody followed."
"""Why a call that did so cannot be undone."""

OURS = "instruct-watch-"
"""How the name of the one thread begins that writes to the ledger while a tool runs."""

_WROTE = "flask_instruct.wrote"
_lookouts: list[Lookout] = []


class Lookout:
    """Looks out, for the length of a tool, for commits of any connection but the tool's own.

    :param connection: the one that is committed with the call's result.
    """

    def __init__(self, connection: sa.Connection, tool: str) -> None:
        self._connection = connection
        self._tool = tool[:80]
        self._thread = threading.get_ident()
        # Elsewhere than in a job other threads serve other people.
        self._alone = get_current_job() is not None
        self.kept = False
        """Whether something was committed beside the tool's transaction."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        _lookouts.append(self)
        try:
            yield
        finally:
            _lookouts.remove(self)

    def told(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome as the model may believe it."""
        if not self.kept or not outcome.error:
            return outcome
        return replace(outcome, content=f"{outcome.content} {KEPT}")

    def concerns(self, connection: sa.Connection | None) -> bool:
        thread = threading.current_thread()
        near = thread.ident == self._thread or (self._alone and not thread.name.startswith(OURS))
        return near and connection is not self._connection

    def committed(self) -> None:
        self.kept = True
        told = (
            "Tool %s committed edits through a connection of its own, in thread %s: they stay whatever becomes of the "
            "call, and are made again if it is. Use db.session in the tool's own thread."
        )
        logger.warning(told, self._tool, threading.current_thread().name)

    def locked_out(self) -> None:
        told = (
            "Tool %s could not write through a connection of its own, in thread %s: SQLite has one writer at a time, "
            "which is the tool's own transaction. Use db.session in the tool's own thread."
        )
        logger.warning(told, self._tool, threading.current_thread().name)


def look_out() -> None:
    """Begin to look at what this process commits; to be called while no other thread uses a database."""
    if not sa.event.contains(sa.Engine, "commit", _commits):
        for name, listener in _LISTENERS.items():
            sa.event.listen(sa.Engine, name, listener)


def _executed(connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
    if _lookouts and not reads(statement) and any(each.concerns(connection) for each in _lookouts):
        connection.info[_WROTE] = True


def _commits(connection: sa.Connection) -> None:
    if _lookouts and connection.info.pop(_WROTE, False):
        for lookout in _lookouts:
            if lookout.concerns(connection):
                lookout.committed()


def _rolls_back(connection: sa.Connection) -> None:
    if _lookouts and not connection.invalidated:
        connection.info.pop(_WROTE, None)


def _failed(context: sa.engine.ExceptionContext) -> None:
    if _lookouts and "database is locked" in str(context.original_exception):
        for lookout in _lookouts:
            if lookout.concerns(context.connection):
                lookout.locked_out()


_LISTENERS: dict[str, Any] = {
    "after_cursor_execute": _executed,
    "commit": _commits,
    "rollback": _rolls_back,
    "handle_error": _failed,
}
