"""The page driver of the test kit, against a real page: what it waits for, and what it finds wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from flask import Flask
from flask import request
from playwright.sync_api import Page

from flask_instruct.testing import LivePage
from flask_instruct.testing import live_page

from .site import Board

__all__ = ["live_page"]  # A user's tests have it by pytest_plugins.

SHORT = 0.3


def test_a_page_is_connected_once_it_follows_every_stream(live_page: LivePage, address: str) -> None:
    live_page.goto(f"{address}/?second=1")
    assert live_page.page.locator("instruct-stream[connected]").count() == 2


def test_a_page_that_does_not_follow_is_said_to(
    app: Flask, address: str, live_page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = SimpleNamespace(authorize_stream=lambda viewer, stream: stream != "second")
    app.extensions["instruct"] = SimpleNamespace(db=None, actor=lambda: None, hooks=hooks)
    live_page.page.goto(f"{address}/?second=1")
    with pytest.raises(AssertionError, match=r"/\?second=1 does not follow (board, )?second\.$"):
        live_page.wait_connected(timeout=SHORT)
    live_page.page.goto("about:blank")
    with pytest.raises(AssertionError, match="follows no stream"):
        live_page.wait_connected(timeout=SHORT)


def test_a_page_without_redis_is_said_to_be_off(
    make_app: Callable[..., Flask], serve_site: Callable[..., str], live_page: LivePage
) -> None:
    app = make_app("redis://127.0.0.1:1/0")
    app.add_url_rule("/off", "off", lambda: "<instruct-stream name='board' data-instruct-live='off'></instruct-stream>")
    live_page.page.goto(serve_site(app) + "/off")
    with pytest.raises(AssertionError, match=r"board \(off: the server could not reach Redis"):
        live_page.wait_connected(timeout=SHORT)


def test_broadcasts_are_found_by_what_they_do_whenever_they_came(
    live_page: LivePage, address: str, board: Board
) -> None:
    live_page.goto(address)
    for word in ("a", "b"):
        board.add(word)
    board.rename("New  title")
    title = live_page.wait_for_broadcast("replace", target="title", text="New title")
    assert (title.stream, title.text) == ("board", "New title")
    assert [live_page.wait_for_broadcast("append").text for _ in range(2)] == ["a", "b"]
    board.tell("update", targets="#items li", html="x")
    assert live_page.wait_for_broadcast(target="#items li").action == "update"
    board.rename("Newer")
    with pytest.raises(
        AssertionError, match=re.escape("No broadcast with action 'append', text 'a' in 0.3 s")
    ) as missed:
        live_page.wait_for_broadcast("append", text="a", timeout=SHORT)
    assert "Newer" in str(missed.value)


def test_a_refresh_counts_once_the_page_has_been_fetched_again(live_page: LivePage, address: str, board: Board) -> None:
    live_page.goto(address)
    board.write(title="Fetched")
    board.tell("refresh")
    live_page.wait_for_broadcast("refresh")
    assert live_page.page.locator("#title").inner_text() == "Fetched"


def test_a_page_that_is_already_open_can_be_driven(page: Page, address: str, board: Board) -> None:
    page.goto(address)
    live = LivePage(page).wait_connected()
    board.add("a")
    live.wait_for_broadcast("append", target="items")
    page.reload()
    board.add("b")
    live.wait_for_broadcast("append", text="b")


def test_a_page_that_shows_every_change_converges(live_page: LivePage, address: str, board: Board) -> None:
    live_page.goto(address)
    board.add("a")
    live_page.converges()
    live_page.converges("#items", "#title")


def test_a_change_that_nobody_was_told_of_is_found(live_page: LivePage, address: str, board: Board) -> None:
    live_page.goto(address)
    board.write(title="Silent")
    with pytest.raises(AssertionError, match=r"differs from a fresh page in h1:\nwatched .*Board.*\nfresh .*Silent"):
        live_page.converges("#items", "h1", timeout=SHORT)
    with pytest.raises(AssertionError, match="Silent"):
        live_page.converges(timeout=SHORT)


def test_an_element_that_is_there_twice_is_found(live_page: LivePage, address: str, board: Board) -> None:
    live_page.goto(address)
    board.write(items=["a", "a"])
    live_page.page.reload()
    with pytest.raises(AssertionError, match=re.escape("element ids twice: ['item_a']")):
        live_page.converges()


def test_a_region_that_is_not_there_is_no_success(live_page: LivePage, address: str) -> None:
    live_page.goto(address)
    with pytest.raises(AssertionError, match="shows nothing at #comments"):
        live_page.converges("#comments")


def test_the_fresh_page_is_the_same_persons(app: Flask, address: str, live_page: LivePage) -> None:
    app.add_url_rule("/me", "me", lambda: f"<p>{request.cookies.get('who')} {request.headers['Accept-Language']}</p>")
    live_page.page.context.add_cookies([{"name": "who", "value": "ann", "url": address}])
    live_page.page.goto(f"{address}/me")
    live_page.converges("p")
    with pytest.raises(AssertionError, match="fr"):
        live_page.converges("p", timeout=SHORT, locale="fr")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("<p id=a class=b>x  y</p>", "<p class='b'\n id='a'> x y</p>", True),
        ("<input type=hidden name=csrf_token value=1>", "<input type=hidden name=csrf_token value=2>", True),
        ("<input type=hidden name=version value=1>", "<input type=hidden name=version value=2>", False),
        ("<p data-instruct-changed>x</p>", "<p>x</p>", True),
        ("<p data-changed>x</p>", "<p>x</p>", False),
        ("<p>x <time>1</time></p>", "<p>x <time>2</time></p>", True),
        ("<p>x <!-- 1 --></p>", "<p>x</p>", True),
        ("<p>x</p><p>y</p>", "<p>y</p><p>x</p>", False),
        ("<details open>x</details>", "<details>x</details>", False),
    ],
)
def test_what_differs_from_request_to_request_is_left_out(
    app: Flask, address: str, live_page: LivePage, one: str, other: str, equal: bool
) -> None:
    said = iter([one])
    app.add_url_rule("/said", "said", lambda: next(said, other))
    live_page.page.goto(f"{address}/said")
    if equal:
        live_page.converges(timeout=SHORT)
    else:
        with pytest.raises(AssertionError, match="differs"):
            live_page.converges(timeout=SHORT)


def test_more_can_be_left_out(app: Flask, address: str, live_page: LivePage) -> None:
    said = iter(["<p>x<i>1</i></p><details open>x</details>"])
    app.add_url_rule("/said", "said", lambda: next(said, "<p>x<i>2</i></p><details>x</details>"))
    live_page.page.goto(f"{address}/said")
    live_page.converges(ignore=["i"], ignore_attributes=["open"])


def test_a_text_that_came_in_pieces_is_one(live_page: LivePage, address: str, board: Board) -> None:
    live_page.goto(address)
    for piece in ("one ", "two ", "three"):
        board.say(piece)
    live_page.wait_for_broadcast("text", text="three")
    live_page.converges("#talk")
