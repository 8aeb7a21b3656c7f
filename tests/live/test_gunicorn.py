"""Live pages on gunicorn's threads: real worker processes, their signals and their end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from werkzeug.serving import make_ssl_devcert

from flask_instruct.connections import connect
from flask_instruct.live import server
from flask_instruct.live.loop import HELPERS
from tests.support import Process
from tests.support import wait_for

from .conftest import Gunicorn
from .site import live_of
from .site import make_site
from .websocket import Client
from .websocket import Closed
from .websocket import Rejected


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Make a certificate of localhost, which this process trusts; gives its file and its key's."""
    cert, key = make_ssl_devcert(str(tmp_path / "site"), host="localhost")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", cert)
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    return cert, key


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


def worker_of(process: Process) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def count(pid: int, what: str) -> int:
    return len(os.listdir(f"/proc/{pid}/{what}"))


def test_case_29_open_pages_take_no_thread_and_no_request_waits_for_them(
    gunicorn: Gunicorn, follow: Callable[..., Client]
) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "2")
    with follow(address):
        pass
    worker = worker_of(process)
    threads = count(worker, "task")
    pages = [follow(address) for _ in range(30)]
    add(address, "a")
    for page in pages:
        assert "item_a" in page.receive()["html"]
    assert count(worker, "task") <= threads + HELPERS
    for page in pages:
        page.leave()


def test_descriptors_threads_and_pages_are_given_back(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "4")
    for _ in range(2 * HELPERS):
        with follow(address):
            pass
    worker = worker_of(process)
    files, threads = count(worker, "fd"), count(worker, "task")
    for number in range(150):
        page = follow(address)
        if number % 3 == 0:
            page.leave()
        elif number % 3 == 1:
            page.sock.close()
        else:
            page.sock.sendall(b"\xff" * 20)
            page.closed()
            page.sock.close()
    wait_for(lambda: count(worker, "fd") <= files, message="the descriptors to be closed")
    assert count(worker, "task") <= threads + HELPERS  # which come as they are needed


def test_a_server_that_ends_waits_for_the_request_in_hand_and_for_no_page(
    gunicorn: Gunicorn, follow: Callable[..., Client]
) -> None:
    """A socket that was taken over counts neither as a request in hand nor, twice, as one that has ended."""
    process, address = gunicorn("--worker-class", "gthread", "--threads", "4")
    pages = [follow(address) for _ in range(5)]
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(requests.get, f"{address}/slow", timeout=20)
        wait_for(lambda: requests.get(f"{address}/slow/begun", timeout=5).json())
        process.signal(signal.SIGTERM)
        assert [page.closed() for page in pages] == [1012] * 5
        assert slow.result().text == "done"
    process.wait(timeout=8)


def test_a_page_finds_its_way_through_workers_that_are_replaced(
    gunicorn: Gunicorn, follow: Callable[..., Client]
) -> None:
    _, address = gunicorn("--worker-class", "gthread", "--threads", "4", "--max-requests", "5")
    for _ in range(2):
        with eventually(follow, address) as page:
            add(address, "a")
            assert "item_a" in page.receive()["html"]
            for _ in range(6):
                requests.get(address, timeout=20)
            assert page.closed() == 1012


def test_under_gevent_a_page_takes_a_greenlet(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    process, address = gunicorn("--worker-class", "gevent")
    pages = [follow(address) for _ in range(20)]
    add(address, "a")
    for page in pages:
        assert "item_a" in page.receive()["html"]
    for page in pages[:10]:
        page.leave()
    add(address, "b")
    assert "item_b" in pages[-1].receive()["html"]
    process.signal(signal.SIGTERM)
    assert pages[-1].closed() == 1012
    process.wait(timeout=8)
    assert "Traceback" not in process.output


def test_behind_tls_of_pythons_own_a_page_keeps_its_thread(
    gunicorn: Gunicorn, follow: Callable[..., Client], certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    _, address = gunicorn("--worker-class", "gthread", "--threads", "4", "--certfile", cert, "--keyfile", key)
    pages = [follow(address) for _ in range(3)]
    with Client(address) as fourth:
        assert fourth.closed() == 1013
    add(address, "a")
    for page in pages:
        assert "item_a" in page.receive()["html"]


def test_nothing_is_logged_when_tabs_close(gunicorn: Gunicorn, follow: Callable[..., Client]) -> None:
    process, address = gunicorn("--worker-class", "gthread", "--threads", "8")
    for _ in range(5):
        with follow(address):
            pass
    add(address, "a")
    assert "Traceback" not in process.output
    assert "ERROR" not in process.output
    assert "lends no socket" not in process.output


def test_case_34_a_server_of_single_requests_says_what_to_use_as_it_starts_and_refuses(gunicorn: Gunicorn) -> None:
    process, address = gunicorn("--worker-class", "sync")
    # As it starts, and in the answer to whoever tries all the same.
    process.wait_for_output("--worker-class gthread")
    with pytest.raises(Rejected) as rejected:
        Client(address)
    assert rejected.value.status == 503


def test_an_app_that_another_process_publishes_to_needs_no_server(redis_url: str, key_prefix: str) -> None:
    """A shell, a cron job or a worker has a bus without a hub, and no thread."""
    app = make_site(redis_url, key_prefix)
    assert live_of(app).bus.publish("board", "x")
    with connect(redis_url) as redis:
        assert redis.xlen(f"{key_prefix}:live-stream:{{board}}") == 1
    live_of(app).bus.redis.close()


@pytest.mark.parametrize(
    ("running", "said"),
    [
        (None, None),
        ("gthread", None),
        ("ThreadWorker", None),
        ("gevent", None),
        ("GeventWorker", None),
        ("sync", "single request at a time"),
        ("eventlet", "eventlet lends no socket"),
        ("waitress", "waitress lends no socket"),
    ],
)
def test_a_server_that_hands_no_socket_out_is_named(running: str | None, said: str | None) -> None:
    problem = server.problem_of(running)
    assert problem is None if said is None else said in str(problem)
