"""Doing something after a database session's outermost commit, and not at all when it rolls back.

SQLAlchemy's own ``after_commit`` also fires when a savepoint is released, and knows nothing of what was
registered inside a savepoint that rolled back later; this file adds both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.orm import SessionTransaction
from sqlalchemy.orm import scoped_session

_KEY = "flask_instruct.on_commit"

Function = Callable[[], object]


@dataclass(slots=True)
class _Waiting:
    owner: SessionTransaction
    function: Function


class _Commits:
    """What waits for the commit of one session."""

    def __init__(self, session: Session) -> None:
        self.waiting: list[_Waiting] = []
        self.ready: list[Function] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def _committed(self, session: Session) -> None:
        transaction = session.get_nested_transaction() or session.get_transaction()
        if transaction is None:
            return
        if transaction.parent is None:
            self.ready += [waiting.function for waiting in self.waiting]
            self.waiting.clear()
            return
        for waiting in self.waiting:
            if waiting.owner is transaction:
                waiting.owner = transaction.parent

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        # What a commit did not hand on belonged to a rollback.
        self.waiting = [waiting for waiting in self.waiting if waiting.owner is not transaction]
        if transaction.parent is None:
            ready, self.ready = self.ready, []
            for function in ready:
                function()


def on_commit(session: Session | scoped_session[Any], function: Function) -> None:
    """Call ``function`` once the session's outermost transaction has been committed.

    It is dropped when that transaction, or the savepoint it was registered in, rolls back. With no
    transaction open it is called at once. In a session that joins another transaction (a tool's), it
    waits for that other transaction instead.
    """
    session = session() if isinstance(session, scoped_session) else session
    joined = session.info.get("flask_instruct.unit")
    if joined is not None:
        joined.after_commit(function)
        return
    transaction = session.get_nested_transaction() or session.get_transaction()
    if transaction is None:
        function()
        return
    commits = session.info.get(_KEY)
    if commits is None:
        commits = session.info[_KEY] = _Commits(session)
    commits.waiting.append(_Waiting(transaction, function))
