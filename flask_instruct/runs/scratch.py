"""A database to throw away: an app's engines are exchanged for those of a copy, or of empty tables, for a while.

What is copied is only read. See docs/decisions/0011.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import CompileError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from ..loading import lack_of_driver
from .file_format import CannotReplay
from .ledger import Ledger

if TYPE_CHECKING:
    from ..state import State

Engines = dict[str | None, sa.Engine]

IN_USE = "55006"
"""PostgreSQL's word for a database that cannot be copied because somebody is connected to it."""

NO_OWN_POSTGRESQL = (
    "The app's own database is on PostgreSQL, and a copy of it can only be made while nobody else is connected. Name "
    "the database to begin from with --database URL (a restored backup, say; it is copied and not touched), or begin "
    "with empty tables and a function that fills them: --seed MODULE:FUNCTION."
)


@contextmanager
def scratch_copy(state: State, url: str | None = None, *, own_postgresql: bool = False) -> Iterator[None]:
    """Let the app work on a copy of a database for the length of the block; needs its context.

    A SQLite database is copied as it is at this moment, also one that is in use or in memory. PostgreSQL copies one to
    which nobody is connected. Of other binds those on SQLite are copied, the others become empty tables.

    :param url: the database to copy; default: the app's own.
    :param own_postgresql: whether the app's own may be copied when it is on PostgreSQL.
    :raises CannotReplay: when there is no such database, or it cannot be copied.
    """
    own = state.db.engine
    if url is None and own.dialect.name != "sqlite" and not own_postgresql:
        raise CannotReplay(NO_OWN_POSTGRESQL)
    with _exchanged(state.db) as (stack, folder, former):
        options = state.app.config.get("SQLALCHEMY_ENGINE_OPTIONS") or {}
        connect_args = options.get("connect_args") or {}
        copies: Engines = {}
        for key, engine in former.items():
            source = _source(stack, url) if key is None and url is not None else engine
            if source.dialect.name == "sqlite":
                copies[key] = _like(engine, _copied_file(source, folder / f"{len(copies)}.sqlite3"))
            elif key is not None:
                copies[key] = _like(engine, _new_file(folder / f"{len(copies)}.sqlite3"))
            else:
                # Idle connections of the app's own pool would be in the way as well.
                engine.dispose()
                copies[key] = _like(engine, stack.enter_context(_copied_postgresql(source)), connect_args)
        _use(stack, state.db, copies)
        empty: list[str | None] = [
            key for key, engine in former.items() if key is not None and engine.dialect.name != "sqlite"
        ]
        if empty:
            _create_tables(state.db, empty)
        _complete_ledger(state.db)
        yield


@contextmanager
def scratch_tables(state: State, seed: Callable[[], object]) -> Iterator[None]:
    """Let the app work on new SQLite databases with empty tables of its models; needs its context.

    :param seed: adds to ``db.session`` what the run found; it is committed.
    :raises CannotReplay: when the tables cannot be made on SQLite.
    """
    with _exchanged(state.db) as (stack, folder, former):
        files = {key: _new_file(folder / f"{number}.sqlite3") for number, key in enumerate(former)}
        _use(stack, state.db, {key: _like(former[key], url) for key, url in files.items()})
        _create_tables(state.db, list(former))
        try:
            seed()
            state.db.session.commit()
        except Exception as error:
            raise CannotReplay(f"The tables could not be filled, {type(error).__name__}: {error}") from error
        finally:
            state.db.session.remove()
        yield


@contextmanager
def _exchanged(db: SQLAlchemy) -> Iterator[tuple[ExitStack, Path, Engines]]:
    # What the session has open holds on to the database as it is; PostgreSQL would refuse to copy it.
    db.session.remove()
    with tempfile.TemporaryDirectory(prefix="instruct-replay-") as folder, ExitStack() as stack:
        yield stack, Path(folder), dict(db.engines)


def _use(stack: ExitStack, db: SQLAlchemy, engines: Engines) -> None:
    current = cast(Engines, db.engines)
    former = dict(current)

    def back() -> None:
        db.session.remove()
        current.update(former)
        for engine in engines.values():
            getattr(engine, "_flask_instruct_engine", engine).dispose()
            engine.dispose()

    stack.callback(back)
    current.update(engines)


def _source(stack: ExitStack, url: str) -> sa.Engine:
    try:
        # Before its driver is asked for, which would be of no use.
        name = sa.make_url(url).get_backend_name()
        if name not in ("sqlite", "postgresql"):
            raise CannotReplay(f"--database must be the URL of a SQLite or PostgreSQL database, and is one of {name}.")
        engine = sa.create_engine(url, poolclass=NullPool)
    except ImportError as error:
        raise CannotReplay(lack_of_driver(error) or str(error)) from None
    except (ArgumentError, SQLAlchemyError) as error:
        raise CannotReplay(f"--database must be the URL of a SQLite or PostgreSQL database: {error}") from None
    stack.callback(engine.dispose)
    # SQLite would make an empty one.
    if name == "sqlite" and not Path(engine.url.database or "").is_file():
        raise CannotReplay(f"There is no database in the file {engine.url.database!r}.")
    return engine


def _like(engine: sa.Engine, url: sa.URL, connect_args: dict[str, Any] | None = None) -> sa.Engine:
    """Make an engine for a copy, whose connections are prepared as the app has said (foreign keys on, functions)."""
    same = engine.dialect.name == url.get_backend_name()
    options: dict[str, Any] = {
        "json_serializer": getattr(engine.dialect, "_json_serializer", None),
        "json_deserializer": getattr(engine.dialect, "_json_deserializer", None),
    }
    if same and connect_args:
        options["connect_args"] = connect_args
    made = sa.create_engine(url, poolclass=NullPool, **options)
    if same:
        for listener in getattr(engine.pool.dispatch.connect, "listeners", ()):
            if not getattr(listener, "__module__", "").startswith(("sqlalchemy.", "flask_instruct.")):
                sa.event.listen(made, "connect", listener)
    return made


def _new_file(path: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(path))


def _copied_file(source: sa.Engine, path: Path) -> sa.URL:
    url = _new_file(path)
    target = sa.create_engine(url, poolclass=NullPool)
    try:
        with source.connect() as reading, target.connect() as writing:
            original: Any = reading.connection.driver_connection
            original.backup(writing.connection.driver_connection)
    except (SQLAlchemyError, OSError, AttributeError) as error:
        raise CannotReplay(f"The SQLite database {source.url.database!r} could not be copied: {error}") from error
    finally:
        target.dispose()
    return url


@contextmanager
def _copied_postgresql(source: sa.Engine) -> Iterator[sa.URL]:
    name = f"instruct_replay_{uuid.uuid4().hex[:16]}"
    elsewhere = "template1" if source.url.database == "postgres" else "postgres"
    server = sa.create_engine(source.url.set(database=elsewhere), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    quote = server.dialect.identifier_preparer.quote_identifier
    try:
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {quote(name)} TEMPLATE {quote(source.url.database or '')}")
    except SQLAlchemyError as error:
        server.dispose()
        raise CannotReplay(_why_no_copy(source.url, error)) from error
    try:
        yield source.url.set(database=name)
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {quote(name)} WITH (FORCE)")
        server.dispose()


def _why_no_copy(url: sa.URL, error: SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    what = f"The database {url.database!r} could not be copied"
    if state == IN_USE:
        return f"{what}: somebody is connected to it. End the app, its workers and other clients of it first."
    return f"{what}: {str(original or error).strip()} (its user must be allowed to make databases: CREATEDB)."


def _create_tables(db: SQLAlchemy, keys: list[str | None]) -> None:
    try:
        db.create_all(bind_key=keys)
    except (CompileError, SQLAlchemyError) as error:
        raise CannotReplay(
            f"The app's tables could not be made in an empty SQLite database: {error} Name a database to copy instead: "
            "--database URL."
        ) from error


def _complete_ledger(db: SQLAlchemy) -> None:
    """Make what the copy lacks of the ledger: it may be a database from before the first run."""
    ours = [db.metadata.tables[name] for name in Ledger.metadata.tables]
    db.metadata.create_all(db.engine, tables=ours)
    there = sa.inspect(db.engine)
    for table in ours:
        missing = {column.name for column in table.columns} - {one["name"] for one in there.get_columns(table.name)}
        if missing:
            raise CannotReplay(
                f"The table {table.name} is older than this version of the package: {', '.join(sorted(missing))} is "
                "missing. Apply the app's migrations to the database first (flask db upgrade)."
            )
