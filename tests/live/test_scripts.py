"""The client's modules on the wire: small, never stale, and readable where a developer looks."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from flask import Flask

MOST = 12_000
"""Bytes that the client may have, packed."""

NAMES = sorted(script.name for script in (files("flask_instruct.live") / "static").iterdir())


def test_the_client_is_small_and_comes_in_one_piece(app: Flask) -> None:
    client = app.test_client()
    size = len(client.get("/instruct/live/instruct.js", headers={"Accept-Encoding": "gzip"}).data)
    assert 0 < size < MOST
    text = client.get("/instruct/live/instruct.js").text
    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE)
    app.debug = True
    named = {
        name for script in NAMES for name in re.findall(r'"\./(\w+\.js)"', client.get(f"/instruct/live/{script}").text)
    }
    assert named == set(NAMES) - {"instruct.js"}


@pytest.mark.parametrize("name", NAMES)
def test_a_module_comes_without_comments_and_in_debug_mode_as_it_is(app: Flask, name: str) -> None:
    client = app.test_client()
    path = f"/instruct/live/{name}"
    response = client.get(path)
    assert response.mimetype == "text/javascript"
    assert not re.search(r"^\s*(//|/\*)", response.text, re.M)
    app.debug = True
    assert client.get(path).text == (files("flask_instruct.live") / "static" / name).read_text("utf-8")


def test_a_browser_asks_each_time_and_mostly_hears_that_nothing_changed(app: Flask) -> None:
    client = app.test_client()
    plain = client.get("/instruct/live/instruct.js")
    packed = client.get("/instruct/live/instruct.js", headers={"Accept-Encoding": "gzip"})
    assert plain.headers["Cache-Control"] == "no-cache"
    assert plain.headers["Vary"] == "Accept-Encoding"
    assert plain.headers["ETag"] != packed.headers["ETag"]
    again = client.get("/instruct/live/instruct.js", headers={"If-None-Match": plain.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize("path", ["nothing.js", "../live/hub.py", "..%2Fhub.py", "hub.py", "", "sub/instruct.js"])
def test_nothing_else_is_served(app: Flask, path: str) -> None:
    assert app.test_client().get(f"/instruct/live/{path}").status_code == 404
