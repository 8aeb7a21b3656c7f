"""A small site whose page follows a board that is kept in Redis, so that several processes can serve it.

``gunicorn "tests.live.site:from_environment()"`` serves it; in a test, ``make_site`` makes it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from flask import Flask
from flask import Response
from flask import jsonify
from flask import make_response
from flask import render_template_string
from flask import request
from redis import Redis
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_instruct.config import Config
from flask_instruct.connections import connect
from flask_instruct.live import Live
from flask_instruct.live import init_live
from flask_instruct.live.broadcasts import EXTENSION
from flask_instruct.live.turbo_stream import turbo_stream

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ board.title }}</title>{{ instruct_scripts() }}</head><body>
{{ turbo_stream_from("board") }}
<h1 id="title">{{ board.title }}</h1>
<ul id="items">{% for item in board["items"] %}<li id="item_{{ item }}">{{ item }}</li>{% endfor %}</ul>
<p id="talk">{{ board.talk }}</p>
<form id="form" action="/" method="post">
<label>Note <textarea id="note" name="note">{{ board.note }}</textarea></label>
<label>Name <input id="name" name="name" value="{{ board.name }}"></label>
<label>Kind <select id="kind" name="kind">
{% for kind in ("a", "b", "c") %}<option{% if kind == board.kind %} selected{% endif %}>{{ kind }}</option>{% endfor %}
</select></label>
<label>Done <input id="done" name="done" type="checkbox"{% if board.done %} checked{% endif %}></label>
</form>
{% if request.args.get("second") %}{{ turbo_stream_from("second") }}{% endif %}
</body></html>"""

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; base-uri 'none'"

EMPTY: dict[str, Any] = {
    "title": "Board",
    "items": [],
    "talk": "",
    "note": "first",
    "name": "Ada",
    "kind": "a",
    "done": False,
}


class Board:
    """What the page shows. Each change is stored, then told to the pages."""

    def __init__(self, redis: Redis, live: Live, prefix: str) -> None:
        self._redis = redis
        self._live = live
        self._key = f"{prefix}:board"

    def read(self) -> dict[str, Any]:
        stored: Any = self._redis.get(self._key)
        return {**EMPTY, **json.loads(stored or b"{}")}

    def write(self, **changes: Any) -> dict[str, Any]:
        """Change the board without telling anyone."""
        board = {**self.read(), **changes}
        self._redis.set(self._key, json.dumps(board))
        return board

    def add(self, item: str) -> None:
        """Add an item, or tell of it again where Redis went away in between."""
        self.write(items=[*(each for each in self.read()["items"] if each != item), item])
        self.tell("append", target="items", html=element("li", f"item_{item}", item))

    def rename(self, title: str) -> None:
        self.write(title=title)
        self.tell("replace", target="title", html=element("h1", "title", title))

    def say(self, piece: str) -> None:
        talk = self.read()["talk"]
        self.write(talk=talk + piece)
        self.tell("text", target="talk", html=piece, offset=len(talk))

    def tell(self, action: str, **options: Any) -> str | None:
        return self._live.bus.publish("board", turbo_stream(action, **options))


def element(tag: str, identifier: str, text: str) -> Any:
    from markupsafe import Markup

    return Markup("<{0} id={1}>{2}</{0}>").format(Markup(tag), identifier, text)


def make_site(redis_url: str, key_prefix: str, **settings: Any) -> Flask:
    """Make the app; its board is ``app.extensions["board"]``."""
    app = Flask(__name__)
    app.secret_key = "a secret of the tests"
    redis = connect(redis_url)
    live = init_live(app, Config(key_prefix=key_prefix, **settings), lambda: redis)
    begun = threading.Event()
    board = app.extensions["board"] = Board(redis, live, key_prefix)

    @app.get("/")
    def page() -> Response:
        response = make_response(render_template_string(PAGE, board=board.read()))
        response.headers["Content-Security-Policy"] = POLICY
        return response

    @app.get("/slow")
    def slow() -> str:
        """Answer when there has been time to end the server; ``/slow/begun`` tells that it is at it."""
        begun.set()
        time.sleep(1)
        return "done"

    @app.get("/slow/begun")
    def slow_begun() -> Response:
        return jsonify(begun.is_set())

    @app.post("/say/<verb>/<word>")
    def change(verb: str, word: str) -> str:
        getattr(board, verb)(word)
        return request.path

    return app


def live_of(app: Flask) -> Live:
    live: Live = app.extensions[EXTENSION]
    return live


def board_of(app: Flask) -> Board:
    board: Board = app.extensions["board"]
    return board


def from_environment() -> Flask:
    """Make the app as a server process does; with the setting ``behind_proxy`` it believes a proxy in front."""
    settings = json.loads(os.environ.get("SITE_SETTINGS", "{}"))
    behind_proxy = settings.pop("behind_proxy", False)
    app = make_site(os.environ["SITE_REDIS_URL"], os.environ["SITE_KEY_PREFIX"], **settings)
    if behind_proxy:
        app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    return app
