"""What of a turn no other ledger could leave out: the same statements sent by hand, and what pages are told.

The statements of a recorded run are played again through ``sqlite3`` alone, with the same transactions, on a copy of
the database as it was before; what pages are told is timed as it happens.
"""

from __future__ import annotations

import gc
import sqlite3
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flask_instruct.runs.job import generate
from flask_instruct.runs.unit import ledger_engine

from . import archive
from .workers import Site
from .workers import start_run

Sent = tuple[str, Any, bool]
"""A statement, its parameters, and whether these are many rows."""


@dataclass(slots=True)
class Floor:
    """Processor seconds of one run."""

    statements: float = 0.0
    told: float = 0.0
    """Making the fragments and giving them to Redis."""


def floor(site: Site, model: str, folder: Path) -> Floor:
    """Carry out a run and play its statements again."""
    run_id = start_run(model)
    archive.db.session.remove()
    copy = folder / f"{run_id}.sqlite3"
    _copy(str(archive.db.engine.url.database), copy)
    found = Floor()
    with _recorded() as sent, _timed_pages(site, found):
        generate(run_id)
    archive.db.session.remove()
    found.statements = _played(copy, sent)
    return found


def _copy(database: str, copy: Path) -> None:
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _recorded() -> Iterator[list[Sent]]:
    """Write down what this thread sends to the ledger's engine inside; the watch has a transaction of its own."""
    sent: list[Sent] = []
    here = threading.get_ident()

    def add(text: str, parameters: Any, many: bool) -> None:
        if threading.get_ident() == here:
            sent.append((text, parameters, many))

    def statement(_: object, __: object, text: str, parameters: Any, ___: object, many: bool) -> None:
        add(text, parameters, many)

    def begin(_: object) -> None:
        add("BEGIN IMMEDIATE", (), False)

    def commit(_: object) -> None:
        add("COMMIT", (), False)

    def rollback(_: object) -> None:
        add("ROLLBACK", (), False)

    engine = ledger_engine(archive.db)
    listeners = {"begin": begin, "before_cursor_execute": statement, "commit": commit, "rollback": rollback}
    for name, listener in listeners.items():
        sa.event.listen(engine, name, listener)
    try:
        yield sent
    finally:
        for name, listener in listeners.items():
            sa.event.remove(engine, name, listener)


@contextmanager
def _timed_pages(site: Site, found: Floor) -> Iterator[None]:
    """Add up the processor time in which observers hear of changes and broadcasts are published."""
    state = site.app.extensions["instruct"]
    bus, observers = state.live.bus, list(state.observers)

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return call(*args, **options)
            finally:
                found.told += time.process_time() - start

        return timed_call

    state.observers[:] = [_Heard(observer, timed) for observer in observers]
    bus.publish_all = timed(bus.publish_all)
    try:
        yield
    finally:
        state.observers[:] = observers
        del bus.publish_all


class _Heard:
    """An observer each of whose calls is timed."""

    def __init__(self, observer: Any, timed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._observer = observer
        self._timed = timed

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._timed(getattr(self._observer, name))


def _played(copy: Path, sent: list[Sent]) -> float:
    """Send the statements again; returns processor seconds."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        gc.collect()
        start = time.process_time()
        for text, parameters, many in sent:
            cursor = connection.executemany(text, parameters) if many else connection.execute(text, parameters)
            cursor.fetchall()
        return time.process_time() - start
