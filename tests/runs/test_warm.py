"""A worker rehearses before it forks: it writes nothing, leaves nothing open, and its first run compiles nothing."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.engine.interfaces import CacheStats

from flask_instruct.runs import points
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.prepared import Prepared
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.warm import warm

from . import notebook
from .conftest import reread
from .notebook import db

Ask = Callable[..., Run]


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture
def reached() -> Iterator[list[points.Point]]:
    found: list[points.Point] = []
    points.listen(found.append)
    yield found
    points._listeners.remove(found.append)


def test_the_first_run_of_a_warm_process_compiles_nothing_before_it_asks_its_model(
    app: Flask, ask: Ask, reached: list[points.Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask("talk")
    db.session.remove()
    warm(app.extensions["instruct"])
    assert reached == [], "a rehearsal looks like a run to nobody"
    compiled: list[str] = []
    prepare = Prepared.compile

    def prepared(statement: Prepared, dialect: sa.Dialect) -> Any:
        if "call leaves" not in reached:
            compiled.append(str(statement._statement))
        return prepare(statement, dialect)

    monkeypatch.setattr(Prepared, "compile", prepared)

    def look(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if context.cache_hit is CacheStats.CACHE_MISS and "call leaves" not in reached:
            compiled.append(statement)

    engines = {ledger_engine(db), db.engine}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", look)
    generate(run.id)
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", look)
    assert reread(run).status == "succeeded"
    assert "call leaves" in reached
    assert compiled == []


def test_a_rehearsal_needs_no_tables_and_leaves_no_connection_and_no_thread(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'empty.db'}")
    app = notebook.create_app()
    threads = set(threading.enumerate())
    with app.app_context():
        warm(app.extensions["instruct"])
        engines = (ledger_engine(db), db.engine)
        assert [engine.pool.checkedin() + engine.pool.checkedout() for engine in engines] == [0, 0]  # type: ignore[attr-defined]
        assert sa.inspect(db.engine).get_table_names() == []
        assert all(engine._compiled_cache for engine in engines)
        for engine in engines:
            engine.dispose()
    assert set(threading.enumerate()) == threads


def test_a_worker_starts_cold_and_says_so_while_the_database_is_away(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    app = notebook.create_app()
    with app.app_context(), caplog.at_level(logging.WARNING, "flask_instruct"):
        warm(app.extensions["instruct"])
    assert "starts cold" in caplog.text
