"""One transaction for a tool's edits, its ledger rows and its broadcasts.

For the length of a tool ``db.session`` is a session that is joined to our connection: its ``commit()`` releases
a savepoint, its ``rollback()`` returns to one, and only we commit. See docs/decisions/0001.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session as FlaskSession
from sqlalchemy.orm import Session

from ..errors import ConfigurationError
from ..errors import ToolError
from ..errors import ToolTimeout
from .sql_text import ends_transaction

logger = logging.getLogger("flask_instruct")

BUSY_TIMEOUT = 30_000
"""Milliseconds that a write waits for SQLite's one writer."""

_UNIT, _DEFAULT = "flask_instruct.unit", "flask_instruct.default"
"""What a joined session has in its ``info``: its unit, and the app's engine that the unit's connection stands for."""


def ledger_engine(db: SQLAlchemy) -> sa.Engine:
    """Return the engine that units of work run on; needs an app context.

    PostgreSQL: the app's own engine. SQLite: a second engine over the same connection settings, with the driver's
    transaction handling off and ``BEGIN IMMEDIATE`` emitted by us. On the app's engine as it comes, Python's sqlite3
    driver commits behind our back and a rollback keeps the tool's rows. The app's engine is left alone, but for what
    becomes of a statement in which a tool's timeout strikes.

    :raises ConfigurationError: for SQLite in memory, which a worker process cannot share.
    """
    engine = db.engine
    if engine.dialect.name != "sqlite":
        if not sa.event.contains(engine, "handle_error", _stop_statement):
            sa.event.listen(engine, "handle_error", _stop_statement)
            _keep_open(engine)
        return engine
    made: sa.Engine | None = getattr(engine, "_flask_instruct_engine", None)
    if made is None:
        made = _sqlite_engine(engine)
        engine._flask_instruct_engine = made  # type: ignore[attr-defined]  # lives and dies with the app's engine
    return made


def _sqlite_engine(engine: sa.Engine) -> sa.Engine:
    database = engine.url.database
    if not database or database == ":memory:" or "mode=memory" in str(engine.url):
        raise ConfigurationError(
            "Runs need a database that the worker can open too, and SQLite in memory cannot be shared between "
            "processes: set SQLALCHEMY_DATABASE_URI to a file, such as sqlite:///app.db, or to PostgreSQL."
        )
    # recreate() keeps the app's creator and its connect listeners (foreign_keys, functions, collations).
    made = sa.create_engine(
        engine.url,
        pool=engine.pool.recreate(),
        json_serializer=getattr(engine.dialect, "_json_serializer", None),
        json_deserializer=getattr(engine.dialect, "_json_deserializer", None),
    )
    sa.event.listen(made, "connect", _hand_over_transactions)
    # Where the driver begins none; as a statement of SQLAlchemy's it would take ten times as long.
    made.dialect.do_begin = _begin_immediate  # type: ignore[method-assign]
    for method, words in _SAVEPOINTS.items():
        setattr(made.dialect, method, _in_words(words))
    sa.event.listen(made, "handle_error", _keep_connection)
    _keep_open(made)
    return made


def _hand_over_transactions(dbapi_connection: Any, _record: object) -> None:
    dbapi_connection.isolation_level = None
    dbapi_connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")


def _begin_immediate(dbapi_connection: Any) -> None:
    dbapi_connection.driver_connection.execute("BEGIN IMMEDIATE")


_SAVEPOINTS = {
    "do_savepoint": "SAVEPOINT",
    "do_release_savepoint": "RELEASE SAVEPOINT",
    "do_rollback_to_savepoint": "ROLLBACK TO SAVEPOINT",
}
"""What a dialect does with savepoints. SQLAlchemy compiles each anew, and a tool needs four."""


def _in_words(what: str) -> Callable[[sa.Connection, str], object]:
    return lambda connection, name: connection.exec_driver_sql(f"{what} {name}")


def _keep_connection(context: sa.engine.ExceptionContext) -> None:
    # SQLAlchemy gives a connection up that anything but an Exception interrupts. SQLite's has ended its statement by
    # then, and given up in the middle it may keep the write lock for as long as a traceback lives.
    if isinstance(context.original_exception, ToolTimeout):
        context.is_disconnect = False


def _stop_statement(context: sa.engine.ExceptionContext) -> None:
    # The connection is given up; without this the server would go on with the statement, and hold the tool's locks.
    if not isinstance(context.original_exception, ToolTimeout) or context.connection is None:
        return
    cancel = getattr(context.connection.connection.driver_connection, "cancel", None)
    if cancel is None:
        return
    try:
        cancel()
    except Exception:
        logger.warning("The statement of a tool that took too long could not be stopped", exc_info=True)


class Unit:
    """An open transaction of the ledger, and what waits for its commit."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.actor: str | None = None
        """Who asked for the run that this unit is a step of."""
        self._transaction = connection.get_transaction()
        self.spoiled = False
        """Whether something was left behind in it that nobody can clear up."""
        self._ledger: Session | None = None
        self.broadcasts: list[tuple[str, str]] = []
        """Stream and fragment of each broadcast that is committed with this unit."""
        self.told: dict[str, Any] = {}
        """The runs of which observers were told something in it, by their ids."""
        self._after: list[Callable[[], object]] = []

    @property
    def ledger(self) -> Session:
        """The session of the ledger's rows; it has what was flushed, and the connection has no other."""
        if self._ledger is None:
            self._ledger = Session(self.connection, join_transaction_mode="rollback_only", expire_on_commit=False)
        return self._ledger

    def flush(self) -> None:
        """Write what the ledger's session still holds back."""
        if self._ledger is not None:
            self._ledger.flush()

    def close(self) -> None:
        """Let the ledger's rows go: they can be read on, but are no longer watched."""
        if self._ledger is not None:
            self._ledger.close()

    @property
    def stands(self) -> bool:
        """Whether it can still be written to and committed."""
        transaction = self._transaction
        sound = not self.spoiled and not self.connection.invalidated
        return sound and transaction is not None and transaction.is_active

    def give_up(self) -> None:
        """End a transaction that no longer stands at the driver: its connection would go back to the pool as it is."""
        if self.stands or self.connection.invalidated:
            return
        try:
            self.connection.connection.rollback()
        except Exception as error:
            logger.warning("A transaction could not be rolled back, its connection is closed: %r", error)
        self.connection.invalidate()

    def after_commit(self, function: Callable[[], object]) -> None:
        """Call ``function`` once this unit's transaction is committed."""
        self._after.append(function)

    def mark(self) -> int:
        """Return a position in the list of waiting functions, for :meth:`forget_since`."""
        return len(self._after)

    def forget_since(self, mark: int) -> None:
        """Drop what was registered after the mark: its savepoint was rolled back."""
        del self._after[mark:]

    def committed(self) -> None:
        for function in self._after:
            try:
                function()
            except Exception:
                # Too late to undo anything: the commit has happened.
                logger.exception("Something that waited for a tool's commit failed")


@contextmanager
def unit_of_work(engine: sa.Engine) -> Iterator[Unit]:
    """Open a transaction, commit it at the end, then call what waited for the commit."""
    with engine.connect() as connection, connection.begin():
        unit = Unit(connection)
        try:
            yield unit
            unit.flush()
        except BaseException:
            unit.give_up()
            raise
        finally:
            unit.close()
    unit.committed()


class SessionReplaced(ToolError):
    """Raise when a tool has removed the session that was joined to its transaction."""


class TransactionEnded(ToolError):
    """Raise when a tool is about to end the transaction that it shares with the ledger."""


@contextmanager
def joined_session(db: SQLAlchemy, unit: Unit) -> Iterator[Session]:
    """Make ``db.session`` a session joined to the unit, inside a savepoint of its own.

    Leaving normally keeps what was committed or flushed; leaving by an exception undoes everything done inside,
    also what the tool committed.

    :raises SessionReplaced: when ``db.session.remove()`` was called inside; nothing is kept.
    :raises TransactionEnded: inside, for a commit or rollback that is not the session's.
    """
    registry = db.session.registry
    previous = registry() if registry.has() else None
    mark = unit.mark()
    savepoint = unit.connection.begin_nested()
    own: Any = db.session.session_factory.class_
    session = _joined_class(own)(**{**_session_options(db), "bind": unit.connection})
    session.info.update({_UNIT: unit, _DEFAULT: db.engine})
    registry.set(session)
    try:
        with _kept_open(unit.connection):
            yield session
        if not registry.has() or registry() is not session:
            raise SessionReplaced(
                "The tool called db.session.remove(), which takes its edits out of its transaction. Leave the "
                "session open: it is closed when the tool has returned. Nothing of this call was kept."
            )
        session.commit()
        savepoint.commit()
    except BaseException:
        unit.forget_since(mark)
        try:
            session.close()
        finally:  # A session that a timeout has left in the middle of something refuses to be closed.
            if savepoint.is_active:
                savepoint.rollback()
        raise
    finally:
        if registry.has() and registry() is not session:
            registry().close()
        registry.clear()
        if previous is not None:
            registry.set(previous)
        session.close()


_shared: set[sa.Connection] = set()
"""The connections whose transaction a tool shares with the ledger at this moment."""


@contextmanager
def _kept_open(connection: sa.Connection) -> Iterator[None]:
    """Refuse what would really end the transaction: it would tear the tool's edits from the call's result."""
    _shared.add(connection)
    try:
        yield
    finally:
        _shared.discard(connection)


def _keep_open(engine: sa.Engine) -> None:
    # Once for an engine and not at each tool: to listen to one connection costs more than all that a tool sends.
    sa.event.listen(engine, "commit", _refuse_end)
    sa.event.listen(engine, "rollback", _refuse_end)
    sa.event.listen(engine, "before_cursor_execute", _refuse_statement)


def _refuse_end(connection: sa.Connection) -> None:
    if connection in _shared:
        raise TransactionEnded(
            "The tool ends the transaction of its connection, which its result belongs to as well. Use "
            "db.session.commit() and db.session.rollback(). Nothing of this call was kept."
        )


def _refuse_statement(connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
    if connection in _shared and ends_transaction(statement):
        _refuse_end(connection)


def _session_options(db: SQLAlchemy) -> dict[str, Any]:
    options = dict(db.session.session_factory.kw)
    options.pop("class_", None)
    return options | {"join_transaction_mode": "create_savepoint"}


@lru_cache(maxsize=16)
def _joined_class(parent: type[FlaskSession]) -> type[FlaskSession]:
    # Made once for each of the apps' session classes: SQLAlchemy sets up the events of every new one.

    class JoinedSession(parent):  # type: ignore[misc,valid-type]
        """The app's session class, bound to the unit's connection."""

        def get_bind(self, mapper: Any = None, clause: Any = None, bind: Any = None, **kwargs: Any) -> Any:
            chosen = super().get_bind(mapper=mapper, clause=clause, bind=bind, **kwargs)
            connection = self.info[_UNIT].connection
            if chosen is self.info[_DEFAULT] or chosen is connection:
                return connection
            if self._flushing or isinstance(clause, sa.UpdateBase):
                raise ToolError(
                    "This tool edits a second database, which cannot be committed together with the run's ledger. "
                    "Nothing of this call was kept."
                )
            return chosen

    return JoinedSession
