"""Live pages on gunicorn's threads: real worker processes, their signals and their end."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from flask_instruct.connections import connect
from tests.support import Process
from tests.support import wait_for

from .site import live_of
from .site import make_site
from .websocket import Client
from .websocket import Closed
from .websocket import Rejected

ROOT = Path(__file__).parents[2]

Gunicorn = Callable[..., tuple[Process, str]]


@pytest.fixture
def gunicorn(start: Callable[..., Process], free_port: int, redis_url: str, key_prefix: str) -> Gunicorn:
    """Start gunicorn as ``gunicorn(*options, **settings)``; gives the process and the site's address."""

    def run(*options: str, **settings: Any) -> tuple[Process, str]:
        command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{free_port}", "--graceful-timeout", "20"]
        command += ["--no-control-socket", *options, "tests.live.site:from_environment()"]
        env = {"SITE_REDIS_URL": redis_url, "SITE_KEY_PREFIX": key_prefix, "SITE_SETTINGS": json.dumps(settings)}
        process = start(command, env=env, cwd=ROOT)
        address = f"http://127.0.0.1:{free_port}"

        def answers() -> bool:
            try:
                return requests.get(f"{address}/instruct/live/instruct.js", timeout=20).ok
            except requests.RequestException:
                return False

        wait_for(answers, timeout=40, message="gunicorn does not answer")
        return process, address

    return run


@pytest.fixture
def follow(redis_url: str, key_prefix: str) -> Iterator[Callable[..., Client]]:
    """Let a client follow the board as a page would, with a token of the same site."""
    app = make_site(redis_url, key_prefix)
    pages: list[Client] = []

    def follow(address: str) -> Client:
        page = Client(address)
        pages.append(page)
        with app.app_context():
            from flask_instruct.live.audience import sign_stream

            page.subscribe(sign_stream(live_of(app).signer, "board", ""), live_of(app).bus.now())
        page.until("ready")
        return page

    yield follow
    for page in pages:
        page.leave()
    live_of(app).bus.redis.close()


def add(address: str, word: str) -> None:
    assert requests.post(f"{address}/say/add/{word}", timeout=20).ok


def test_a_page_follows_across_two_worker_processes(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    _, address = gunicorn("--worker-class", "gthread", "--threads", "8", "--workers", "2")
    with follow(address) as one, follow(address) as other:
        for word in ("a", "b", "c"):
            add(address, word)
        for page in (one, other):
            assert [f"item_{word}" in page.receive()["html"] for word in "abc"] == [True] * 3


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGQUIT])
def test_case_37_a_worker_that_is_told_to_end_says_1012_and_leaves_at_once(
    gunicorn: Gunicorn, follow: Callable[..., Client], kind: signal.Signals
) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "8")
    pages = [follow(address) for _ in range(4)]
    began = time.monotonic()
    process.signal(kind)
    assert [page.closed() for page in pages] == [1012] * 4
    process.wait(timeout=8)
    assert time.monotonic() - began < 8


def test_after_a_reload_new_workers_take_the_pages(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "8", "--preload")
    with follow(address) as page:
        process.signal(signal.SIGHUP)
        assert page.closed() == 1012
    with eventually(follow, address) as page:
        add(address, "a")
        assert "item_a" in page.receive()["html"]


def eventually(follow: Callable[..., Client], address: str) -> Client:
    """Follow the board as soon as there is a place for one more page."""
    pages: list[Client] = []

    def follows() -> bool:
        with suppress(Closed, Rejected, OSError):
            pages.append(follow(address))
        return bool(pages)

    wait_for(follows)
    return pages[0]


def test_case_29_open_pages_leave_threads_for_requests(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    _, address = gunicorn("--worker-class", "gthread", "--threads", "4")
    pages = [follow(address) for _ in range(3)]
    with Client(address) as fourth:
        assert fourth.closed() == 1013
    for word in "abcdef":
        add(address, word)
    for page in pages:
        assert "item_a" in page.receive()["html"]
        page.leave()
    # The threads have returned to the pool.
    for _ in range(12):
        with eventually(follow, address):
            pass


def test_nothing_is_logged_when_tabs_close(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "8")
    for _ in range(5):
        with follow(address):
            pass
    add(address, "a")
    assert "Traceback" not in process.output
    assert "ERROR" not in process.output


def test_case_34_a_server_of_single_requests_refuses_and_says_what_to_use(gunicorn: Gunicorn) -> None:
    process, address = gunicorn("--worker-class", "sync")
    with pytest.raises(Rejected) as rejected:
        Client(address)
    assert rejected.value.status == 503
    process.wait_for_output("--worker-class gthread")


def test_an_app_that_another_process_publishes_to_needs_no_server(redis_url: str, key_prefix: str) -> None:
    """A shell, a cron job or a worker has a bus without a hub, and no thread."""
    app = make_site(redis_url, key_prefix)
    assert live_of(app).bus.publish("board", "x")
    with connect(redis_url) as redis:
        assert redis.xlen(f"{key_prefix}:live-stream:{{board}}") == 1
    live_of(app).bus.redis.close()
