"""Storms: pages are watched while everything under them fails, and end as a fresh page; `make chaos`."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil
import pytest
import requests
from flask import Flask
from playwright.sync_api import Page

from flask_instruct.live.loop import HELPERS
from flask_instruct.testing import LivePage
from tests.support import Process
from tests.support import free_port
from tests.support import wait_for

from .conftest import Gunicorn
from .conftest import serve_by_gunicorn
from .redis_process import RedisProcess
from .site import Board
from .site import board_of
from .site import live_of
from .watching import items
from .watching import open_live
from .websocket import Client

pytestmark = pytest.mark.chaos

GTHREAD = ("--worker-class", "gthread", "--threads", "8")


@pytest.fixture
def storm_board(make_app: Callable[..., Flask], make_redis: Callable[..., RedisProcess]) -> tuple[Board, RedisProcess]:
    """A board in a Redis of its own that keeps its data, to publish from this process."""
    redis = make_redis(keeps=True)
    return board_of(make_app(redis.url)), redis


def retried(change: Callable[[], object]) -> None:
    """Do a change; while Redis is away, again, as a web request that failed would be repeated by its person."""
    deadline = time.monotonic() + 30
    while True:
        try:
            change()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


@pytest.mark.parametrize("seed", [1, 2])
def test_g7_twenty_viewers_of_500_broadcasts_end_with_the_page_as_it_is(
    storm_board: tuple[Board, RedisProcess],
    key_prefix: str,
    start: Callable[..., Process],
    new_page: Callable[..., Page],
    seed: int,
) -> None:
    """Redis killed, the web process killed and reloaded, sockets cut, tabs hidden and frozen, all while it goes on."""
    board, redis = storm_board
    chance = random.Random(seed)
    port = free_port()
    servers = [serve_by_gunicorn(start, port, redis.url, key_prefix, *GTHREAD)]
    address = servers[0][1]
    viewers = [open_live(new_page(), address) for _ in range(20)]
    done = threading.Event()
    failed: list[BaseException] = []

    def broadcast() -> None:
        try:
            for number in range(500):
                kind = number % 5
                if kind == 0:
                    retried(partial(board.add, str(number)))
                elif kind == 1:
                    retried(partial(board.rename, f"Title {number}"))
                elif kind in (2, 3):
                    retried(partial(board.say, f"{number} "))
                elif chance.random() < 0.5:
                    retried(partial(board.tell, "remove", target=f"nobody_{number}"))
                time.sleep(0.02)
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    publisher = threading.Thread(target=broadcast)
    publisher.start()
    sessions = [page.context.new_cdp_session(page) for page in viewers[:6]]
    while not done.wait(0.5):
        blow = chance.choice(["redis", "kill web", "reload", "hide", "freeze", "offline", "calm"])
        if blow == "redis":
            redis.kill()
            time.sleep(chance.random())
            redis.start()
        elif blow == "kill web":
            os.killpg(servers[-1][0].pid, signal.SIGKILL)
            servers.append(serve_by_gunicorn(start, port, redis.url, key_prefix, *GTHREAD))
        elif blow == "reload":
            servers[-1][0].signal(signal.SIGHUP)
        elif blow == "hide":
            page = chance.choice(viewers)
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        elif blow == "freeze":
            session = chance.choice(sessions)
            session.send("Page.setWebLifecycleState", {"state": "frozen"})
            time.sleep(0.3)
            session.send("Page.setWebLifecycleState", {"state": "active"})
        elif blow == "offline":
            context = chance.choice(viewers).context
            context.set_offline(True)
            time.sleep(0.3)
            context.set_offline(False)
    publisher.join()
    assert not failed
    for page in viewers:
        # A page that had to fetch itself again and again lets half a minute pass before it does once more.
        LivePage(page).wait_connected(timeout=45)
    for page in viewers:
        LivePage(page).converges()
        shown = items(page)
        assert shown == [str(number) for number in range(0, 500, 5)]


def test_g7_every_broadcast_arrives_although_the_line_drops_for_two_seconds_five_times(
    page: Page, new_page: Callable[..., Page], make_app: Callable[..., Flask], serve_site: Callable[..., str]
) -> None:
    """The bar that AnyCable has published: all of them, where plain Socket.IO delivered 85 of a hundred."""
    app = make_app()
    board, address = board_of(app), serve_site(app)
    open_live(page, address)
    for drop in range(5):
        page.context.set_offline(True)
        for connection in list(live_of(app).hub._connections):
            connection.close(1001, "cut by the test")
        for number in range(20):
            board.add(f"{drop}-{number}")
            time.sleep(0.1)
        page.context.set_offline(False)
        LivePage(page).wait_connected()
    expected = [f"{drop}-{number}" for drop in range(5) for number in range(20)]
    wait_for(lambda: items(page) == expected, timeout=30)
    LivePage(page).converges()


def test_descriptors_threads_and_memory_are_flat_after_100_000_connects(
    gunicorn: Gunicorn, follow: Callable[..., Client]
) -> None:
    process, address = gunicorn(*GTHREAD)
    worker = psutil.Process(process.pid).children()[0].pid

    def figures() -> tuple[int, int, int]:
        one = psutil.Process(worker)
        return one.num_fds(), one.num_threads(), one.memory_info().rss

    def connect(count: int) -> None:
        def some() -> None:
            for _ in range(count // 4):
                with suppress(OSError, requests.RequestException), Client(address) as page:
                    page.send({"type": "ping"})
                    page.receive()

        threads = [threading.Thread(target=some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    connect(5_000)
    files, threads, memory = figures()
    connect(95_000)
    wait_for(lambda: figures()[0] <= files + 5, message="the descriptors to be closed")
    after = figures()
    assert after[1] <= threads + HELPERS  # which come as they are needed
    assert after[2] < memory * 1.05
    follow(address)
