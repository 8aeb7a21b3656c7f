"""Doing something after a database session's outermost commit, and not at all when it rolls back.

SQLAlchemy's own ``after_commit`` also fires when a savepoint is released, and knows nothing of what was
registered inside a savepoint that rolled back later; this file adds both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Generic
from typing import TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.orm import SessionTransaction
from sqlalchemy.orm import scoped_session

_KEY = "flask_instruct.on_commit"

_T = TypeVar("_T")

Function = Callable[[], object]


class Kept(Generic[_T]):
    """Things that stand and fall with the transaction, or the savepoint, of a session in which they were added."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._items: list[tuple[SessionTransaction, _T]] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, item: _T) -> None:
        """Add to the innermost transaction, which must be open."""
        transaction = innermost(self._session)
        assert transaction is not None
        self._items.append((transaction, item))

    def take(self) -> list[_T]:
        """Return all there is, and keep it no longer."""
        items, self._items = self._items, []
        return [item for _, item in items]

    def _committed(self, session: Session) -> None:
        transaction = innermost(session)
        if transaction is not None and (parent := transaction.parent) is not None:
            self._items = [(parent if owner is transaction else owner, item) for owner, item in self._items]

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        # What a commit did not hand on belonged to a rollback.
        self._items = [(owner, item) for owner, item in self._items if owner is not transaction]


class _Commits:
    """What waits for the commit of one session."""

    def __init__(self, session: Session) -> None:
        self.waiting: Kept[Function] = Kept(session)
        self._ready: list[Function] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def _committed(self, session: Session) -> None:
        transaction = innermost(session)
        if transaction is not None and transaction.parent is None:
            self._ready += self.waiting.take()

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            ready, self._ready = self._ready, []
            for function in ready:
                function()


def innermost(session: Session) -> SessionTransaction | None:
    """Return the transaction, or savepoint, that the session is in."""
    return session.get_nested_transaction() or session.get_transaction()


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
    else:
        on_own_commit(session, function)


def on_own_commit(session: Session, function: Function) -> None:
    """Do :func:`on_commit` by the session's own outermost commit, also where it joins another transaction."""
    if innermost(session) is None:
        function()
        return
    commits = session.info.get(_KEY)
    if commits is None:
        commits = session.info[_KEY] = _Commits(session)
    commits.waiting.add(function)
