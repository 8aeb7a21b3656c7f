"""The tests' own servers: empty for each test, and gone when the test run is."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import redis
from flask import Flask
from playwright.sync_api import Page
from sqlalchemy import create_engine
from sqlalchemy import text

from .support import Process
from .support import wait_for


def test_redis_answers_on_a_unix_socket(redis_url: str, key_prefix: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set(key_prefix, "here")
        assert client.get(key_prefix) == b"here"


def test_each_test_has_an_empty_database(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("create table thing (id integer primary key)"))
        connection.execute(text("insert into thing values (1)"))
        assert connection.execute(text("select count(*) from thing")).scalar() == 1
    engine.dispose()


def test_a_page_can_be_looked_at(page: Page, serve: Callable[..., str]) -> None:
    app = Flask(__name__)
    app.add_url_rule("/", view_func=lambda: "<h1>Hello</h1>")
    page.goto(serve(app))
    assert page.inner_text("h1") == "Hello"


def test_a_killed_test_run_leaves_no_server_behind(start: Callable[..., Process], tmp_path: Path) -> None:
    code = (
        "import time\nfrom tests.servers import redis_server\n"
        "with redis_server() as url:\n    print('at', url, flush=True)\n    time.sleep(600)\n"
    )
    run = start([sys.executable, "-c", code], cwd=Path(__file__).parent.parent)
    url = run.wait_for_output("?db=0").split()[1]
    client = redis.Redis.from_url(url)
    assert client.ping()
    client.close()
    run.signal(signal.SIGKILL)
    wait_for(lambda: not _answers(url), message="the server outlived the killed run")
    folder = Path(url.removeprefix("unix://")).parent
    wait_for(lambda: not folder.exists(), message="the server's folder stayed")


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, retry=None) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False
