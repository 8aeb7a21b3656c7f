"""Can the ledger be kept in this database?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import ConfigurationError
from ..runs.ledger import Ledger
from ..runs.unit import ledger_engine
from .finding import Finding
from .finding import error
from .finding import ok
from .finding import warning

if TYPE_CHECKING:
    from ..state import State

KNOWN = ("sqlite", "postgresql")
IN_TIME = 5.0
"""Seconds in which the database must have answered; a host that is gone behind a firewall never does."""


def reachable(state: State) -> Iterator[Finding]:
    engine = state.db.engine
    where = engine.url.render_as_string(hide_password=True)
    begin = time.monotonic()
    asked = Future[None]()
    # A thread that nobody waits for at the end: what hangs in the driver cannot be broken off.
    threading.Thread(target=_ask, args=(engine, asked), name="instruct-doctor-database", daemon=True).start()
    try:
        asked.result(IN_TIME)
    except TimeoutError:
        yield error(
            f"The database {where} did not answer within {IN_TIME:g} s.",
            "Look whether its host can be reached from here (address, port, firewall), and whether it hangs.",
        )
    except sa.exc.SQLAlchemyError as failure:
        reason = str(getattr(failure, "orig", None) or failure).strip().splitlines()[0]
        yield error(f"The database {where} does not answer: {reason}.", "Start it, or correct SQLALCHEMY_DATABASE_URI.")
    else:
        yield ok(f"The database {where} answers in {(time.monotonic() - begin) * 1000:.1f} ms.")


def _ask(engine: sa.Engine, asked: Future[None]) -> None:
    try:
        with engine.connect() as connection:
            connection.execute(sa.select(sa.literal(1)))
        asked.set_result(None)
    except BaseException as failure:
        asked.set_exception(failure)


def kind(state: State) -> Iterator[Finding]:
    name = state.db.engine.dialect.name
    if name not in KNOWN:
        yield error(f"The database is {name}, on which exactly once is not shown.", "Use SQLite or PostgreSQL.")
        return
    try:
        ledger_engine(state.db)
    except ConfigurationError as refused:
        yield error("The database is SQLite in memory, which no worker can share.", str(refused))
    else:
        yield ok("Worker and web can share it.")


def tables(state: State) -> Iterator[Finding]:
    there = sa.inspect(state.db.engine)
    names = set(there.get_table_names())
    missing, columns = [], []
    for table in Ledger.metadata.sorted_tables:
        if table.name not in names:
            missing.append(table.name)
            continue
        known = {column["name"] for column in there.get_columns(table.name)}
        columns += [f"{table.name}.{column.name}" for column in table.columns if column.name not in known]
    if missing:
        yield error(
            f"The database has no {', '.join(missing)}.",
            "Make and apply a migration (flask db migrate, flask db upgrade), or call db.create_all() after "
            "instruct.init_app(app).",
        )
    if columns:
        yield error(
            f"The tables are older than this version of the package: {', '.join(columns)} is missing.",
            "Make and apply a migration (flask db migrate, flask db upgrade); db.create_all() adds no columns.",
        )
    if not missing and not columns:
        yield ok(f"All {len(Ledger.metadata.tables)} tables of the ledger are there, with all columns.")


def isolation(state: State) -> Iterator[Finding]:
    if state.db.engine.dialect.name == "sqlite":
        yield ok("SQLite has one writer at a time; the ledger takes its lock at the begin of each step.")
        return
    with state.db.engine.connect() as connection:
        level = connection.get_isolation_level()
        # PostgreSQL itself knows no such level: the driver ends each transaction.
        alone = getattr(connection.connection.driver_connection, "autocommit", False)
    if alone:
        yield error(
            "The app's engine commits every statement by itself: edits and ledger cannot be one transaction.",
            "Take isolation_level AUTOCOMMIT out of SQLALCHEMY_ENGINE_OPTIONS.",
        )
    elif level != "READ COMMITTED":
        yield warning(
            f"The isolation level is {level}: steps of runs that meet other writers fail and are taken up again later.",
            "Use READ COMMITTED for the app's engine; the ledger is made for it.",
        )
    else:
        yield ok("The isolation level is READ COMMITTED.")


def sqlite(state: State) -> Iterator[Finding]:
    if state.db.engine.dialect.name != "sqlite":
        return
    with state.db.engine.connect() as connection:
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        checked = connection.exec_driver_sql("PRAGMA foreign_keys").scalar()
    if mode == "wal":
        yield ok("SQLite is in WAL mode: pages are read while a tool writes.")
    elif mode != "memory":
        yield warning(
            f"SQLite is in journal mode {mode}: reading a page waits for every tool that writes.",
            "Start flask instruct worker, which sets it, or once: PRAGMA journal_mode = WAL.",
        )
    yield ok(
        "SQLite checks foreign keys."
        if checked
        else "SQLite does not check foreign keys here; the ledger does not need it, your own tables may."
    )
