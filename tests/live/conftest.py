"""What the tests of live pages share: a site, served, and a Redis that may fail."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Browser
from playwright.sync_api import Page

from tests import support

from .redis_process import RedisProcess
from .site import Board
from .site import board_of
from .site import live_of
from .site import make_site
from .watching import listening


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
        listening(page).goto(address)
        page.wait_for_selector("instruct-stream[connected]", state="attached")
        yield page
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
