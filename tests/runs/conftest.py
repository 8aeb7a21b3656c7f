"""The notebook app over each database, with real Redis, and a worker process beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.runs.models import Run
from tests.support import Process
from tests.support import wait_for

from . import notebook
from .notebook import Note
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

ROOT = Path(__file__).parents[2]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, redis_url: str, key_prefix: str, database_url: str) -> dict[str, str]:
    """The environment of the app and of its worker."""
    settings = {
        "DATABASE_URL": database_url,
        "INSTRUCT_REDIS_URL": redis_url,
        "INSTRUCT_KEY_PREFIX": key_prefix,
        "INSTRUCT_QUEUE": key_prefix,
        "INSTRUCT_LEASE": "2",
        "INSTRUCT_SWEEP_INTERVAL": "0.3",
        "INSTRUCT_RETRIES": "0",
    }
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    return settings


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    app = notebook.create_app()
    with app.app_context():
        db.create_all()
        db.session.add(Notebook(title="Field notes"))
        db.session.commit()
        yield app
        db.session.remove()
        state = app.extensions["instruct"]
        state.live.close()
        if state._redis is not None:
            state.redis.close()
        from flask_instruct.runs.unit import ledger_engine

        ledger_engine(db).dispose()
        for engine in db.engines.values():
            engine.dispose()


@pytest.fixture
def ask(app: Flask) -> Callable[..., Run]:
    """Start a run on the one notebook: ``ask("write_two")`` or ``ask(turns=[[…]])``."""

    def ask(
        script: str | None = None,
        *,
        turns: list[list[object]] | None = None,
        handler: type[NoteKeeper] = NoteKeeper,
        **options: object,
    ) -> Run:
        if turns is not None:
            script = "made"
            register_script(script, turns)
        record = db.session.scalars(sa.select(Notebook)).one()
        run = instruct.generate_for(handler(record), user_prompt="Go.", model=f"scripted:{script}", **options)
        if options.get("commit", True):
            # Kept as it was at the start, whatever becomes of the session; reread() tells how it stands.
            db.session.refresh(run)
            db.session.expunge(run)
        return run

    return ask


@pytest.fixture
def carry_out(app: Flask, ask: Callable[..., Run]) -> Callable[..., Run]:
    """Start a run and carry it out in this process, as the worker's job does."""
    from flask_instruct.runs.job import generate

    def carry_out(*tools: Use, script: str | None = None, **options: object) -> Run:
        turns = None if script else [list(tools), []]
        run = ask(script, turns=turns, **options)
        generate(run.id)
        return reread(run)

    return carry_out


def reread(run: Run) -> Run:
    """Return the run as it stands in the database now."""
    db.session.remove()
    found = db.session.get(Run, sa.inspect(run).identity)
    assert found is not None
    return found


def notes() -> list[str]:
    """The texts of all notes, oldest first."""
    with db.engine.connect() as connection:
        return list(connection.scalars(sa.select(Note.text).order_by(Note.id)))


@pytest.fixture
def worker(start: Callable[..., Process], settings: dict[str, str]) -> Callable[..., Process]:
    """Start ``flask instruct worker`` for the notebook app."""

    def worker(*arguments: str, **env: str) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "tests.runs.notebook", "instruct", "worker", *arguments]
        return start(command, env={**settings, **env}, cwd=ROOT)

    return worker


def wait_for_end(run: Run, timeout: float = 20) -> Run:
    """Wait until a worker has brought the run to an end."""
    return wait_for(lambda: found if (found := reread(run)).ended else None, timeout, f"run {run.id} to end")
