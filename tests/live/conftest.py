"""What the tests of live pages share: a site, served, and a Redis that may fail."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask
from playwright.sync_api import Browser
from playwright.sync_api import Page

from flask_instruct.live.audience import sign_stream
from tests import support
from tests.support import Process
from tests.support import wait_for

from .redis_process import RedisProcess
from .site import Board
from .site import board_of
from .site import live_of
from .site import make_site
from .watching import listening
from .watching import open_live
from .websocket import Client

ROOT = Path(__file__).parents[2]
Gunicorn = Callable[..., tuple[Process, str]]


@pytest.fixture
def make_app(redis_url: str, key_prefix: str) -> Iterator[Callable[..., Flask]]:
    """Make sites as ``make_app(redis_url=…, **settings)``; their threads and connections end with the test."""
    apps: list[Flask] = []

    def make(redis_url: str = redis_url, **settings: Any) -> Flask:
        apps.append(make_site(redis_url, key_prefix, **settings))
        return apps[-1]

    yield make
    for app in apps:
        live_of(app).close()
        live_of(app).bus.redis.close()


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def board(app: Flask) -> Board:
    return board_of(app)


@pytest.fixture
def publish(app: Flask) -> Callable[..., str | None]:
    """Publish a fragment as ``publish(stream, html)``; gives its position."""
    return live_of(app).bus.publish


@pytest.fixture
def serve_site() -> Iterator[Callable[..., str]]:
    """Serve a site; its open sockets are closed before its server."""
    with ExitStack() as stack:

        def serve(app: Flask, port: int = 0) -> str:
            address = stack.enter_context(support.served(app, port))
            stack.callback(live_of(app).close)
            return address

        yield serve


@pytest.fixture
def address(app: Flask, serve_site: Callable[..., str]) -> str:
    """Where the site is served."""
    return serve_site(app)


@pytest.fixture(scope="module")
def canvas(browser: Browser, redis_url: str) -> Iterator[Page]:
    """A page that the tests of a file share, each with a body of its own: see :func:`tests.live.watching.render`."""
    app = make_site(redis_url, f"test-{uuid.uuid4().hex}")
    context = browser.new_context()
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    with support.served(app) as address:
        yield open_live(listening(page), address)
        context.close()
        live_of(app).close()
        live_of(app).bus.redis.close()
    assert not errors


@pytest.fixture
def make_redis() -> Iterator[Callable[..., RedisProcess]]:
    """Start a Redis as ``make_redis(keeps=…)`` that this test may kill."""
    made: list[RedisProcess] = []

    def make(*, keeps: bool) -> RedisProcess:
        made.append(RedisProcess(keeps=keeps))
        made[-1].start()
        return made[-1]

    yield make
    for redis in made:
        redis.remove()


@pytest.fixture
def gunicorn(start: Callable[..., Process], free_port: int, redis_url: str, key_prefix: str) -> Gunicorn:
    """Start gunicorn as ``gunicorn(*options, **settings)``; gives the process and the site's address."""

    return lambda *options, **settings: serve_by_gunicorn(start, free_port, redis_url, key_prefix, *options, **settings)


@pytest.fixture
def follow(redis_url: str, key_prefix: str) -> Iterator[Callable[..., Client]]:
    """Let a client follow the board as a page would, with a token of the same site."""
    app = make_site(redis_url, key_prefix)
    pages: list[Client] = []

    def follow(address: str) -> Client:
        page = Client(address)
        pages.append(page)
        with app.app_context():
            page.subscribe(sign_stream(live_of(app).signer, "board", ""), live_of(app).bus.now())
        page.until("ready")
        return page

    yield follow
    for page in pages:
        page.leave()
    live_of(app).bus.redis.close()


def serve_by_gunicorn(
    start: Callable[..., Process], port: int, redis_url: str, key_prefix: str, *options: str, **settings: Any
) -> tuple[Process, str]:
    """Start gunicorn on a port and wait until it answers; gives the process and the site's address."""
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--graceful-timeout", "20"]
    command += ["--no-control-socket", *options, "tests.live.site:from_environment()"]
    env = {"SITE_REDIS_URL": redis_url, "SITE_KEY_PREFIX": key_prefix, "SITE_SETTINGS": json.dumps(settings)}
    process = start(command, env=env, cwd=ROOT)
    scheme, host = ("https", "localhost") if "--certfile" in options else ("http", "127.0.0.1")
    address = f"{scheme}://{host}:{port}"

    def answers() -> bool:
        try:
            return requests.get(f"{address}/instruct/live/instruct.js", timeout=20).ok
        except requests.RequestException:
            return False

    wait_for(answers, timeout=40, message="gunicorn does not answer")
    return process, address
