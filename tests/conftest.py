"""The fixtures that every test may use: Redis, PostgreSQL, SQLite, Chromium, processes and served apps."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from typing import NoReturn

import pytest
from playwright.sync_api import Browser
from playwright.sync_api import Page
from playwright.sync_api import sync_playwright

from . import servers
from . import support

# No background traffic: on a machine without network it would log refused connections. No sandbox: root and
# containers cannot have one, and only pages of the tests are opened.
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs a browser last: Playwright keeps an event loop running in the main thread from then on."""
    items.sort(key=lambda item: "browser" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a private Redis; pair it with ``key_prefix`` to share nothing between tests."""
    with servers.redis_server() as url:
        yield url


@pytest.fixture
def key_prefix() -> str:
    """A prefix for Redis keys and channels that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a PostgreSQL server, in which databases may be made; ``postgres_database`` is one made for the test."""
    configured = os.environ.get("INSTRUCT_TEST_POSTGRES_URL")
    if configured:
        yield configured
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(servers.postgres_server())
        except servers.Unavailable as missing:
            _do_without(str(missing))
        yield url


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database."""
    with servers.postgres_database(postgres_url) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'test.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database, once of each kind that the package supports."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_database"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    return support.free_port()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., support.Process]]:
    """Start a process as ``start(command, env=…, cwd=…)``; it and its group are gone after the test."""
    started: list[support.Process] = []

    def start(command: list[str], **options: Any) -> support.Process:
        log = tmp_path / f"process-{len(started)}.log"
        started.append(support.Process(command, log=log, **options))
        return started[-1]

    yield start
    for process in reversed(started):
        process.stop()
        # Shown by pytest where the test failed.
        print(f"--- {process.popen.args!r}\n{process.output}")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve a WSGI app in a thread for the length of the test; gives its address."""
    with ExitStack() as stack:
        yield lambda app, port=0: stack.enter_context(support.served(app, port))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    # The headless shell opens a page with a third of the work: the whole browser draws a window for each.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = next((found for name in names if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        if executable is None and not Path(playwright.chromium.executable_path).exists():
            _do_without("no Chromium on PATH: install the package chromium, or run `playwright install chromium`")
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages as ``new_page(**context_options)``: each is another person, with cookies of its own.

    A test whose page had an uncaught script error fails.
    """
    contexts = []
    errors: list[str] = []

    def new_page(**options: Any) -> Page:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield new_page
    for context in contexts:
        context.close()
    assert not errors, f"scripts failed on the page: {errors}"


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A page in a browser of its own."""
    return new_page()


def _do_without(reason: str) -> NoReturn:
    """Skip what this machine cannot run; where everything must run (``CI`` is set) that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
