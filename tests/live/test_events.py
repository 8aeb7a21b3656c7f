"""Events in place of the socket, for pages behind a proxy without WebSockets: the same words, the same ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests
from flask import Flask
from flask_wtf import CSRFProtect
from playwright.sync_api import Page

from flask_instruct.live.audience import sign_stream
from flask_instruct.testing import LivePage
from tests.support import wait_for

from .site import Board
from .site import board_of
from .site import live_of
from .watching import heard
from .watching import items
from .watching import listening
from .watching import open_live

Serve = Callable[..., str]
MakeApp = Callable[..., Flask]


@pytest.fixture(params=["loop", "thread"])
def carriage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "thread":
        monkeypatch.setattr("flask_instruct.live.takeover.is_possible", lambda sock: False)


class Listening:
    """A page's side of the events."""

    def __init__(self, response: requests.Response) -> None:
        self.response = response
        self._messages = self._read()

    def _read(self) -> Iterator[Any]:
        for line in self.response.iter_lines(chunk_size=1):
            if line:
                message = json.loads(line.removeprefix(b"data: "))
                yield from message if isinstance(message, list) else [message]

    def receive(self) -> Any:
        return next(self._messages)

    def until(self, kind: str) -> list[Any]:
        found = [self.receive()]
        while found[-1].get("type") != kind:
            found.append(self.receive())
        return found

    def leave(self) -> None:
        self.response.close()


@pytest.fixture
def listen(app: Flask) -> Iterator[Callable[..., Listening]]:
    """Ask for the board's events as ``listen(address, token=…, since=…, headers=…)``."""
    with ExitStack() as stack:

        def listen(
            address: str, token: str | None = None, since: str | None = None, headers: dict[str, str] | None = None
        ) -> Listening:
            with app.app_context():
                token = token or sign_stream(live_of(app).signer, "board", "")
            stream = {"token": token, "since": since or live_of(app).bus.now()}
            response = requests.post(
                f"{address}/instruct/events",
                json={"type": "subscribe", "streams": [stream]},
                headers={"Origin": address, **(headers or {})},
                stream=True,
                timeout=20,
            )
            stack.callback(response.close)
            return Listening(response)

        yield listen


@pytest.mark.usefixtures("carriage")
def test_events_bring_the_backlog_and_then_what_happens(
    app: Flask, address: str, board: Board, listen: Callable[..., Listening]
) -> None:
    since = live_of(app).bus.now()
    board.add("1")
    page = listen(address, since=since)
    assert page.response.headers["Content-Type"].startswith("text/event-stream")
    assert page.response.headers["X-Accel-Buffering"] == "no"
    messages = page.until("ready")
    assert "item_1" in messages[1]["html"]
    board.rename("a\nb")
    assert "a\nb" in page.receive()["html"]
    page.leave()
    wait_for(lambda: (board.add("x"), not len(live_of(app).hub))[1], message="the page to be forgotten")


@pytest.mark.usefixtures("carriage")
def test_a_page_that_may_not_listen_is_told_why_and_the_response_ends(
    address: str, listen: Callable[..., Listening]
) -> None:
    page = listen(address, token="forged")
    assert page.receive() == {"type": "bye", "code": 4401, "reason": "not valid"}
    with pytest.raises(StopIteration):
        page.receive()
    assert listen(address, headers={"Origin": "https://evil.example"}).response.status_code == 403


@pytest.mark.usefixtures("carriage")
def test_a_line_without_news_shows_that_it_is_alive(
    make_app: MakeApp, serve_site: Serve, listen: Callable[..., Listening]
) -> None:
    app = make_app(ping_interval=0.1)
    page = listen(serve_site(app))
    assert page.until("ping")[-1] == {"type": "ping"}


@pytest.mark.usefixtures("carriage")
def test_an_ending_server_says_so(app: Flask, address: str, listen: Callable[..., Listening]) -> None:
    page = listen(address)
    page.until("ready")
    live_of(app).close()
    assert page.receive()["code"] == 1012


def test_a_message_that_is_none_ends_with_1008_and_a_huge_one_in_http(address: str) -> None:
    def ask(body: bytes) -> requests.Response:
        return requests.post(f"{address}/instruct/events", body, headers={"Origin": address}, timeout=5)

    assert '"code":1008' in ask(b"no json").text
    assert '"code":1008' in ask(b"\xff\xfe").text
    assert ask(b"x" * 300_000).status_code == 413


def test_flask_wtf_lets_the_events_pass(make_app: MakeApp, serve_site: Serve, listen: Callable[..., Listening]) -> None:
    app = make_app()
    CSRFProtect(app)
    address = serve_site(app)
    assert requests.post(f"{address}/say/add/a", timeout=5).status_code == 400
    listen(address).until("ready")


def test_a_page_behind_a_proxy_without_websockets_is_live_all_the_same(
    page: Page, new_page: Callable[..., Page], make_app: MakeApp, serve_site: Serve
) -> None:
    app = make_app()
    board = board_of(app)
    refused: list[str] = []

    @app.before_request
    def proxy() -> tuple[str, int] | None:
        from flask import request

        if request.path == "/instruct/socket":
            refused.append(request.path)
            return "no upgrade here", 502
        return None

    address = serve_site(app)
    open_live(listening(page), address)
    assert len(refused) == 2
    board.add("a")
    wait_for(lambda: items(page) == ["a"])
    LivePage(page).converges()
    # The server lets go of all pages, and they come back, still by events and at once.
    for connection in list(live_of(app).hub._connections):
        connection.close(1012, "restarting")
    wait_for(lambda: len(heard(page, "disconnected")) == 1)
    board.add("b")
    wait_for(lambda: items(page) == ["a", "b"])
    # Another stream joins on the same page.
    page.evaluate("location.search = '?second=1'")
    page.wait_for_selector("instruct-stream[name=second][connected]", state="attached")
    assert page.evaluate("sessionStorage.getItem('instruct-line')") == "events"
