"""What a page is given: the element with token and cursor, and the script."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask import g
from flask import render_template_string

import flask_instruct.live
from flask_instruct.live.position import Position

from .redis_process import RedisProcess
from .site import live_of

STATIC = Path(flask_instruct.live.__file__).parent / "static"


def attributes(markup: str, tag: str) -> dict[str, str]:
    match = re.search(rf"<{tag}([^>]*)></{tag}>", markup)
    assert match is not None, markup
    return {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', match[1])}


def code(file: Path) -> str:
    """Return a script without its comments."""
    return re.sub(r"/\*.*?\*/|^\s*//[^\n]*\n", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)


def render(app: Flask, source: str, **context: Any) -> str:
    app.add_url_rule("/render", "render", lambda: render_template_string(source, **context))
    response = app.test_client().get("/render")
    assert response.status_code == 200
    return response.text


def test_the_element_carries_a_token_for_its_stream_and_viewer(app: Flask) -> None:
    app.extensions["instruct"] = SimpleNamespace(actor=lambda: SimpleNamespace(id=7), hooks=None, db=None)
    given = attributes(render(app, "{{ turbo_stream_from('a', 'b', data_x='\"') }}"), "instruct-stream")
    signed = live_of(app).signer.unsign(given["token"], "stream", 60)
    assert (signed.payload, signed.viewer) == ({"stream": "a:b"}, "7")
    assert given["name"] == "a:b"
    assert given["data-x"] == '"'


def test_the_cursor_is_that_of_the_requests_beginning(app: Flask) -> None:
    bus = live_of(app).bus
    bus.now()

    def view() -> str:
        bus.publish("s", "while the page was made")
        return render_template_string("{{ turbo_stream_from('s') }}")

    app.add_url_rule("/", "view", view)
    del app.view_functions["page"]
    app.add_url_rule("/late", "late", view)
    since = attributes(app.test_client().get("/late").text, "instruct-stream")["since"]
    replay = bus.replay("s", Position.parse(since))
    assert replay.lossless
    assert [entry.html for entry in replay.entries] == ["while the page was made"]


def test_the_cursor_lies_before_what_runs_before_the_request(app: Flask) -> None:
    moments = []
    app.before_request(lambda: moments.append((g.instruct_started, time.monotonic())))
    app.test_client().get("/")
    assert moments[0][0] <= moments[0][1]


def test_a_page_without_streams_does_not_ask_redis(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    live_of(app).bus.prepare()
    monkeypatch.setattr(live_of(app).bus, "_redis_factory", None)
    assert render(app, "plain") == "plain"


def test_without_redis_the_page_renders_and_says_that_it_is_not_live(
    make_app: Callable[..., Flask], make_redis: Callable[..., RedisProcess], caplog: pytest.LogCaptureFixture
) -> None:
    process = make_redis(keeps=False)
    app = make_app(process.url)
    process.kill()
    given = attributes(render(app, "{{ turbo_stream_from('s') }}"), "instruct-stream")
    assert given["data-instruct-live"] == "off"
    assert given["since"] == ""
    assert "without live updates" in caplog.text


def test_the_script_has_the_pages_nonce(app: Flask) -> None:
    app.before_request(lambda: setattr(g, "csp_nonce", "n1"))
    given = attributes(render(app, "{{ instruct_scripts() }}"), "script")
    assert given["nonce"] == "n1"
    assert given["type"] == "module"
    assert given["data-instruct-socket"] == "/instruct/socket"
    with app.test_client().get(given["src"]) as script:
        assert script.mimetype == "text/javascript"


def test_the_words_of_the_script_are_translated(app: Flask) -> None:
    app.jinja_env.globals["gettext"] = lambda text: text.upper()
    given = attributes(render(app, "{{ instruct_scripts(nonce='\"><b>') }}"), "script")
    assert given["data-instruct-text-mine"] == "YOUR VERSION"
    assert given["nonce"] == '"><b>'


class Shouted:
    """A translation into capitals."""

    def gettext(self, text: str) -> str:
        return text.upper()


@pytest.mark.parametrize(("texts", "said"), [(None, "Your version"), (Shouted(), "YOUR VERSION")])
def test_with_flask_babel_they_come_from_the_texts_of_the_package(app: Flask, texts: Shouted | None, said: str) -> None:
    pytest.importorskip("flask_babel").Babel(app)
    if texts is not None:
        app.extensions["instruct_panel_domain"] = texts
    assert attributes(render(app, "{{ instruct_scripts() }}"), "script")["data-instruct-text-mine"] == said


def test_the_routes_are_where_the_setting_says(make_app: Callable[..., Flask]) -> None:
    app = make_app(url_prefix="/ai")
    given = attributes(render(app, "{{ instruct_scripts() }}"), "script")
    assert given["src"] == "/ai/live/instruct.js"
    assert given["data-instruct-socket"] == "/ai/socket"


def test_the_client_needs_no_leave_from_a_strict_policy() -> None:
    for file in STATIC.glob("*.js"):
        assert not re.search(r"\beval\(|new Function|setAttribute\(\"style\"|\.style\b|import\(", code(file)), file.name
