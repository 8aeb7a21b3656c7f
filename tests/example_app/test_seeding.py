"""Filling an empty studio, once."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import func
from sqlalchemy import select
from sqlalchemy import text

from example_app import create_app
from example_app import seeding
from example_app.database import db
from example_app.database import normal_url
from example_app.models import Assessment
from example_app.models import User
from example_app.seed_data import ASSESSMENTS
from example_app.seed_data import PEOPLE
from tests.support import Process

ROOT = Path(__file__).parents[2]


def count(model: type) -> int:
    return db.session.scalar(select(func.count()).select_from(model)) or 0


def test_the_first_start_fills_the_studio(context: Flask) -> None:
    assert (count(User), count(Assessment)) == (len(PEOPLE), len(ASSESSMENTS))


def test_a_second_start_changes_nothing(make_app: Callable[..., Flask]) -> None:
    make_app()
    with make_app().app_context():
        assert (count(User), count(Assessment)) == (len(PEOPLE), len(ASSESSMENTS))


def test_the_seed_command_says_what_it_did(make_app: Callable[..., Flask]) -> None:
    app = make_app(STUDIO_SEED=False)
    with app.app_context():
        assert count(User) == 0
    assert "is filled" in app.test_cli_runner().invoke(args=["seed"]).output
    assert "nothing was changed" in app.test_cli_runner().invoke(args=["seed"]).output


def test_seeding_works_on_every_database(make_app: Callable[..., Flask], database_url: str) -> None:
    app = make_app(SQLALCHEMY_DATABASE_URI=database_url)
    with app.app_context():
        assert count(Assessment) == len(ASSESSMENTS)
        assert not seeding.prepare(seed=True)


def test_processes_that_start_at_once_seed_once(
    sqlite_url: str, redis_url: str, start: Callable[..., Process], make_app: Callable[..., Flask]
) -> None:
    command = [sys.executable, "-c", "from example_app import create_app; create_app()"]
    settings = {"DATABASE_URL": sqlite_url, "SECRET_KEY": "x", "INSTRUCT_REDIS_URL": redis_url}
    starts = [start(command, env=settings, cwd=ROOT) for _ in range(3)]
    assert [each.wait(60) for each in starts] == [0, 0, 0], "\n".join(each.output for each in starts)
    with make_app().app_context():
        assert (count(User), count(Assessment)) == (len(PEOPLE), len(ASSESSMENTS))


def test_readers_go_on_while_sqlite_is_written(context: Flask) -> None:
    assert db.session.execute(db.text("PRAGMA journal_mode")).scalar() == "wal"


def test_hosting_services_addresses_are_understood() -> None:
    assert normal_url("postgres://u:p@h/db") == "postgresql+psycopg://u:p@h/db"
    assert normal_url("postgresql+psycopg://h/db") == "postgresql+psycopg://h/db"
    assert normal_url("sqlite:///x.db") == "sqlite:///x.db"


def test_without_configuration_the_instance_folder_holds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    for name in ("DATABASE_URL", "SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Flask, "auto_find_instance_path", lambda app: str(tmp_path / "instance"))
    first, second = (create_app({"INSTRUCT_REDIS_URL": redis_url}) for _ in range(2))
    assert first.secret_key == second.secret_key
    assert stat.S_IMODE((tmp_path / "instance" / "secret_key").stat().st_mode) == 0o600
    assert (tmp_path / "instance" / "studio.db").exists()


def test_a_database_of_an_earlier_version_is_put_aside_and_a_new_one_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(Flask, "auto_find_instance_path", lambda app: str(tmp_path))
    first = create_app({"INSTRUCT_REDIS_URL": redis_url})
    with first.app_context(), db.engine.begin() as connection:
        connection.execute(text("alter table assessment drop column due_on"))
        db.engine.dispose()
    second = create_app({"INSTRUCT_REDIS_URL": redis_url})
    with second.app_context():
        assert count(User) == len(PEOPLE)
        db.session.execute(select(Assessment.due_on)).all()
        db.session.remove()
        db.engine.dispose()
    assert (tmp_path / "studio.old.db").exists()
    assert "kept as studio.old.db" in capsys.readouterr().err
    create_app({"INSTRUCT_REDIS_URL": redis_url})
    assert capsys.readouterr().err == ""
