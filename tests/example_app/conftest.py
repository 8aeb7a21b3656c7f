"""The studio on a database of its own, and a client for each of its two people."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page
from sqlalchemy import select
from werkzeug.test import TestResponse

from example_app import create_app
from example_app.database import db
from example_app.models import Assessment
from example_app.models import User
from example_app.seed_data import AUTHOR
from example_app.seed_data import LEAD
from flask_instruct.testing import LivePage
from tests.support import Process

ROOT = Path(__file__).parents[2]

LAB_REPORT = "Lab report: Enzyme kinetics"
ESSAY = "Essay: Who owns a river?"
POSTER = "Poster: A week of weather"
ORAL = "Oral exam: Reading a proof aloud"
PROJECT = "Project: A tool somebody needs"


@pytest.fixture(scope="session")
def seeded_file(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Path:
    """An SQLite file with the seeded studio, made once: seeding takes longer than most tests."""
    path = tmp_path_factory.mktemp("studio") / "seeded.db"
    app = create_app(
        {"SECRET_KEY": "x", "SQLALCHEMY_DATABASE_URI": f"sqlite:///{path}", "INSTRUCT_REDIS_URL": redis_url}
    )
    with app.app_context():
        # What is still in the write-ahead log would not be copied with the file.
        db.session.execute(db.text("PRAGMA wal_checkpoint(TRUNCATE)"))
        db.session.remove()
        db.engine.dispose()
    return path


@pytest.fixture
def make_app(
    sqlite_url: str, redis_url: str, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Flask]]:
    """Make studios as ``make_app(KEY=value, …)``, with no provider's key in the environment."""
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "INSTRUCT_DEFAULT_MODEL",
        "DATABASE_URL",
        "STUDIO_SMTP",
    ):
        monkeypatch.delenv(name, raising=False)
    made: list[Flask] = []

    def make_app(**config: object) -> Flask:
        defaults = {
            "TESTING": True,
            "SECRET_KEY": "a key that only tests know",
            "SQLALCHEMY_DATABASE_URI": sqlite_url,
            "INSTRUCT_REDIS_URL": redis_url,
            "INSTRUCT_KEY_PREFIX": key_prefix,
            "INSTRUCT_QUEUE": key_prefix,
            "INSTRUCT_RETRIES": 0,
            "STUDIO_MAIL_FOLDER": str(tmp_path / "mail"),
        }
        made.append(create_app({**defaults, **config}))
        return made[-1]

    yield make_app
    for app in made:
        with app.app_context():
            db.session.remove()
            db.engine.dispose()


@pytest.fixture
def app(make_app: Callable[..., Flask], seeded_file: Path, sqlite_url: str) -> Flask:
    """The seeded studio."""
    shutil.copy(seeded_file, sqlite_url.removeprefix("sqlite:///"))
    return make_app()


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """An app context for the length of a test that works on records directly."""
    with app.app_context():
        yield app


@dataclass(frozen=True)
class Visitor:
    """A person's browser, as far as a test without one can be: it says where its forms come from."""

    client: FlaskClient

    def get(self, path: str) -> TestResponse:
        return self.client.get(path, buffered=True)

    def post(self, path: str, **form: object) -> TestResponse:
        return self.client.post(path, data=form, headers={"Sec-Fetch-Site": "same-origin"})


@pytest.fixture
def visit(app: Flask) -> Callable[[str], Visitor]:
    """Sign in as ``visit(name)``."""

    def visit(name: str) -> Visitor:
        visitor = Visitor(app.test_client())
        with app.app_context():
            key = db.session.scalar(select(User.id).where(User.name == name))
        assert visitor.post("/login", user_id=key).status_code == 302
        return visitor

    return visit


@pytest.fixture
def lead(visit: Callable[[str], Visitor]) -> Visitor:
    return visit(LEAD)


@pytest.fixture
def author(visit: Callable[[str], Visitor]) -> Visitor:
    return visit(AUTHOR)


def find(title: str) -> Assessment:
    """Return a seeded assessment in the current app context."""
    return db.session.scalars(select(Assessment).where(Assessment.title == title)).one()


@pytest.fixture
def key_of(app: Flask) -> Callable[[str], int]:
    """Look up the id of a seeded assessment by its title."""

    def key_of(title: str) -> int:
        with app.app_context():
            return find(title).id

    return key_of


@dataclass(frozen=True)
class Studio:
    """The studio as it is run: served, with a worker beside it."""

    address: str
    key_of: Callable[[str], int]

    def enter(self, page: Page, name: str, title: str | None = None) -> Page:
        """Sign a page in and open an assessment, or the list; returns once it is live."""
        page.goto(f"{self.address}/login")
        page.get_by_role("button", name=name).click()
        page.wait_for_url(f"{self.address}/")
        if title is not None:
            page.goto(f"{self.address}/assessments/{self.key_of(title)}")
        return LivePage(page).wait_connected().page


@pytest.fixture
def studio(
    app: Flask,
    serve: Callable[..., str],
    start: Callable[..., Process],
    key_of: Callable[[str], int],
) -> Studio:
    names = ("SECRET_KEY", "INSTRUCT_REDIS_URL", "INSTRUCT_KEY_PREFIX", "INSTRUCT_QUEUE", "STUDIO_MAIL_FOLDER")
    settings = {name: app.config[name] for name in names} | {"DATABASE_URL": app.config["SQLALCHEMY_DATABASE_URI"]}
    start([sys.executable, "-m", "flask", "--app", "example_app", "instruct", "worker"], env=settings, cwd=ROOT)
    return Studio(serve(app), key_of)
