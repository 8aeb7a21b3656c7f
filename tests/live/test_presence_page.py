"""The list of viewers in Chromium: it follows who comes and goes, and is the one that a fresh page has."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from flask import Flask
from flask import render_template_string
from flask import request
from playwright.sync_api import Page

from flask_instruct.testing import LivePage

from .site import live_of

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Room</title>{{ instruct_scripts() }}</head><body>
{{ turbo_stream_from("room", presence=True) }}{{ instruct_viewers("room") }}
</body></html>"""


def test_the_list_of_viewers_follows_who_comes_and_goes(
    make_app: Callable[..., Flask], serve_site: Callable[..., str], new_page: Callable[..., Page]
) -> None:
    app = make_app(handshakes_per_minute=1000)
    hooks = SimpleNamespace(authorize_stream=None)
    app.extensions["instruct"] = SimpleNamespace(db=None, actor=lambda: request.cookies.get("who"), hooks=hooks)
    app.add_url_rule("/room", "room", lambda: render_template_string(PAGE))
    address = serve_site(app)
    pages = {}
    for who in ("ann", "bob"):
        pages[who] = new_page()
        pages[who].context.add_cookies([{"name": "who", "value": who, "url": address}])
        pages[who].goto(f"{address}/room")
        LivePage(pages[who]).wait_connected()
    for page in pages.values():
        page.wait_for_function("document.querySelector('.instruct-viewers').innerText === 'ann\\nbob'")
    LivePage(pages["ann"]).converges()
    pages["bob"].reload()
    LivePage(pages["bob"]).wait_connected()
    pages["bob"].context.close()
    pages["ann"].wait_for_function("document.querySelector('.instruct-viewers').innerText === 'ann'")
    LivePage(pages["ann"]).converges()
    with app.app_context():
        live_of(app).bus.roll.sign_out("ann")
    pages["ann"].wait_for_selector("instruct-stream:not([connected])", state="attached")
    LivePage(pages["ann"]).wait_connected()
