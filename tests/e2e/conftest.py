"""The whole studio as people have it: web server, worker, Redis, database and browsers, each its own process."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa
from playwright.sync_api import Page
from playwright.sync_api import expect

from example_app import create_app
from example_app.database import db
from example_app.models import Assessment
from example_app.models import Comment
from example_app.models import Criterion
from flask_instruct.testing import LivePage
from tests.support import Process
from tests.support import free_port
from tests.support import wait_for

ROOT = Path(__file__).parents[2]
REGIONS = ("[id^=heading_]", "#instructions", "#rubric", "#discussion", ".instruct-runs")


@dataclass
class Studio:
    """The running studio, and what a test looks up in its database."""

    database_url: str
    environment: dict[str, str]
    launch: Callable[..., Process]
    port: int = field(default_factory=free_port)
    web: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_web(self, *, server: str = "gunicorn") -> Process:
        app = "example_app:create_app()"
        commands = {
            "gunicorn": ["-m", "gunicorn", "-k", "gthread", "--threads", "64", "-b", f"127.0.0.1:{self.port}", app],
            "flask": ["-m", "flask", "--app", "example_app", "run", "--port", str(self.port)],
        }
        self.web = self.launch([sys.executable, *commands[server]], env=self.environment, cwd=ROOT)
        wait_for(self._answers, 30, "the web server")
        return self.web

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/login").status_code == 200
        except httpx2.TransportError:
            return False

    def start_worker(self, **environment: str) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "example_app", "instruct", "worker"]
        return self.launch(command, env={**self.environment, **environment}, cwd=ROOT)

    @property
    def engine(self) -> sa.Engine:
        return sa.create_engine(self.database_url, poolclass=sa.NullPool)

    def key_of(self, title: str) -> int:
        with self.engine.connect() as connection:
            return connection.scalars(sa.select(Assessment.id).where(Assessment.title == title)).one()

    def comments(self, key: int) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.select(Comment.body).where(Comment.assessment_id == key)))

    def weights(self, key: int) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.select(Criterion.weight).where(Criterion.assessment_id == key)))

    def statuses(self) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.text("select status from instruct_run order by created_at")))

    def sign_in(self, page: Page, name: str) -> None:
        page.goto(f"{self.url}/login")
        page.get_by_role("button", name=re.compile(name)).click()
        page.wait_for_url(f"{self.url}/")

    def open(self, page: Page, name: str, key: int) -> Page:
        """Sign in and open an assessment; returns once the page is live."""
        self.sign_in(page, name)
        page.goto(f"{self.url}/assessments/{key}")
        return LivePage(page).wait_connected().page


def ask(page: Page, prompt: str) -> None:
    page.locator(".instruct-form textarea").fill(prompt)
    page.locator(".instruct-form button[type=submit]:not(.instruct-chip)").click()


def status(page: Page) -> str:
    """The state of the newest run in words."""
    return page.locator(".instruct-status").last.inner_text()


def wait_for_status(page: Page, text: str, timeout: float = 40) -> None:
    expect(page.locator(".instruct-status").last).to_contain_text(text, timeout=timeout * 1000)


def assert_converged(page: Page) -> None:
    """The page one watched equals the page one loads now (G7), and no element is there twice."""
    LivePage(page).converges(*REGIONS)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Path:
    """An SQLite file with the seeded studio, made once."""
    path = tmp_path_factory.mktemp("studio") / "seeded.db"
    _seed(f"sqlite:///{path}", redis_url)
    return path


def _seed(url: str, redis_url: str) -> None:
    app = create_app({"SECRET_KEY": "x", "SQLALCHEMY_DATABASE_URI": url, "INSTRUCT_REDIS_URL": redis_url})
    with app.app_context():
        if url.startswith("sqlite"):
            # What is still in the write-ahead log would not be copied with the file.
            db.session.execute(db.text("PRAGMA wal_checkpoint(TRUNCATE)"))
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def make_studio(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    redis_url: str,
    start: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Studio]:
    """Make a studio over a fresh database, with nothing started yet: ``make_studio("postgresql")`` for that one."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "INSTRUCT_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def make_studio(kind: str = "sqlite") -> Studio:
        prefix = f"test-{uuid.uuid4().hex[:12]}"
        if kind == "postgresql":
            url = request.getfixturevalue("postgres_database")
            _seed(url, redis_url)
        else:
            shutil.copy(request.getfixturevalue("seeded"), tmp_path / f"{prefix}.db")
            url = f"sqlite:///{tmp_path / prefix}.db"
        environment = {
            "DATABASE_URL": url,
            "SECRET_KEY": "a long random text for tests",
            "INSTRUCT_REDIS_URL": redis_url,
            "INSTRUCT_KEY_PREFIX": prefix,
            "INSTRUCT_QUEUE": prefix,
            "INSTRUCT_LEASE": "2",
            "INSTRUCT_SWEEP_INTERVAL": "0.5",
        }
        return Studio(url, environment, start)

    return make_studio


@pytest.fixture
def studio(request: pytest.FixtureRequest, make_studio: Callable[..., Studio]) -> Studio:
    """A studio on SQLite; parametrise with ``"postgresql"`` for that one."""
    return make_studio(getattr(request, "param", "sqlite"))
