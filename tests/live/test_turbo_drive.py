"""A live page with real Turbo Drive on it, in Chromium."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from flask import Response
from flask import render_template_string
from flask import request
from markupsafe import Markup
from playwright.sync_api import Page

from flask_instruct.testing import LivePage
from tests.support import wait_for

from .site import board_of
from .site import live_of
from .test_conformance import turbo_source
from .watching import heard
from .watching import items
from .watching import listening
from .watching import open_live

__all__ = ["turbo_source"]

PAGE = """<!doctype html><html lang="en"><head><title>{{ board.title }}</title>
<script type="module" src="/turbo.js"></script>{{ instruct_scripts() }}</head><body>
{{ turbo_stream_from("board") }}<h1 id="title">{{ board.title }}</h1><textarea id="note"></textarea><p id="box"></p>
<a id="other" href="/drive?page={{ 3 - page }}">other</a><p id="page">{{ page }}</p>
<ul id="items">{% for item in board["items"] %}<li id="item_{{ item }}">{{ item }}</li>{% endfor %}</ul>
</body></html>"""


def test_a_page_of_turbo_drive_keeps_its_socket_and_what_is_being_written(
    page: Page, app: Flask, serve_site: Callable[..., str], turbo_source: str
) -> None:
    board = board_of(app)
    app.add_url_rule("/turbo.js", "turbo", lambda: Response(turbo_source, mimetype="text/javascript"))
    app.add_url_rule(
        "/drive",
        "drive",
        lambda: render_template_string(PAGE, board=board.read(), page=request.args.get("page", 1, int)),
    )
    open_live(listening(page), serve_site(app), "/drive?page=1")
    page.wait_for_function("window.Turbo !== undefined")
    page.click("#other")
    wait_for(lambda: page.inner_text("#page") == "2")
    board.add("a")
    wait_for(lambda: items(page) == ["a"])
    page.go_back()
    wait_for(lambda: page.inner_text("#page") == "1" and items(page) == ["a"])
    # Refreshed by Turbo, then, as somebody writes, by ours.
    for title, note in (("by Turbo", ""), ("by us", "mine")):
        page.fill("#note", note)
        page.evaluate("document.activeElement.blur()")
        board.write(title=title)
        board.tell("refresh")
        wait_for(lambda title=title: page.inner_text("#title") == title)
        assert page.input_value("#note") == note
    board.tell("text", target="box", html="what is before it was missed", offset=500)
    wait_for(lambda: heard(page, "stale"))
    LivePage(page).wait_connected()
    # Turbo puts a stream within a fragment into the page; what runs is taken out of it all the same.
    nested = "<template><li id='item_b'>b<img src='/none' onerror='window.ran = true'></li></template>"
    inner = Markup(f"<turbo-stream action='append' target='items'>{nested}</turbo-stream>")
    board.tell("update", target="box", html=inner)
    wait_for(lambda: items(page) == ["a", "b"])
    assert page.locator("[onerror]").count() == 0
    assert page.evaluate("sockets.length") == 1
    assert len(live_of(app).hub) == 1
