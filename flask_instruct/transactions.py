"""Doing something after a database session's outermost commit, and not at all when it rolls back.

SQLAlchemy's own ``after_commit`` also fires when a savepoint is released, and knows nothing of what was
registered inside a savepoint that rolled back later; this file adds both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from typing import Generic
from typing import TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.orm import SessionTransaction
from sqlalchemy.orm import scoped_session

logger = logging.getLogger("flask_instruct")

_FOLLOWERS = "flask_instruct.followers"
_COMMITTED = "flask_instruct.committed"
"""What a session keeps in its ``info``: whoever hears of its commits, and the transaction that was just committed."""

_T = TypeVar("_T")

Function = Callable[[], object]


class Kept(Generic[_T]):
    """Things that stand and fall with the transaction, or the savepoint, of a session in which they were added.

    :param over: called when the outermost transaction has come to its end, whichever it was.
    """

    def __init__(self, session: Session, over: Function = lambda: None) -> None:
        follow(type(session))
        self._session = session
        self._over = over
        self._items: list[tuple[SessionTransaction, _T]] = []
        session.info.setdefault(_FOLLOWERS, []).append(self)

    def add(self, item: _T) -> None:
        """Add to the innermost transaction, which must be open."""
        transaction = innermost(self._session)
        assert transaction is not None
        self._items.append((transaction, item))

    def take(self) -> list[_T]:
        """Return all there is, and keep it no longer."""
        items, self._items = self._items, []
        return [item for _, item in items]

    def committed(self, transaction: SessionTransaction) -> None:
        """Hand what was added to a savepoint on to what it is in."""
        if (parent := transaction.parent) is not None:
            self._items = [(parent if owner is transaction else owner, item) for owner, item in self._items]

    def ended(self, transaction: SessionTransaction) -> None:
        """Drop what a commit did not hand on: it belonged to a rollback."""
        self._items = [(owner, item) for owner, item in self._items if owner is not transaction]
        if transaction.parent is None:
            self._over()


class _Commits(Kept[Function]):
    """What waits for the commit of one session."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._ready: list[Function] = []

    @classmethod
    def of(cls, session: Session) -> _Commits:
        found = next((each for each in session.info.get(_FOLLOWERS, ()) if isinstance(each, cls)), None)
        return found or cls(session)

    def add(self, item: Function) -> None:
        super().add(item)
        # Others that hear of the commit may have heard of it before us, and after us.
        if (committed := self._session.info.get(_COMMITTED)) is not None:
            self.committed(committed)

    def committed(self, transaction: SessionTransaction) -> None:
        super().committed(transaction)
        if transaction.parent is None:
            self._ready += self.take()

    def ended(self, transaction: SessionTransaction) -> None:
        super().ended(transaction)
        if transaction.parent is None:
            ready, self._ready = self._ready, []
            for function in ready:
                try:
                    function()
                except Exception:
                    # The commit has happened: an error here would tell whoever called it that it had not.
                    logger.exception("Something that waited for a commit failed")


def follow(sessions: type[Session]) -> None:
    """Hear of the commits of a class of sessions; a second call changes nothing.

    Not of single sessions: whoever hears of a commit may broadcast, and while a session tells of it nobody can begin
    to listen to it.
    """
    for name, listener in (("after_commit", _after_commit), ("after_transaction_end", _after_transaction_end)):
        if not event.contains(sessions, name, listener):
            event.listen(sessions, name, listener)


def _after_commit(session: Session) -> None:
    transaction = innermost(session)
    if transaction is None:
        return
    session.info[_COMMITTED] = transaction
    for follower in session.info.get(_FOLLOWERS, ()):
        follower.committed(transaction)


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    if session.info.get(_COMMITTED) is transaction:
        del session.info[_COMMITTED]
    for follower in tuple(session.info.get(_FOLLOWERS, ())):
        follower.ended(transaction)


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
    _Commits.of(session).add(function)
