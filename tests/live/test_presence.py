"""Who watches a record: counted over processes, shown to the pages, and not fooled by reloads, crashes or Redis."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask import render_template_string
from flask import request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import Instruct
from flask_instruct.live.audience import sign_stream
from flask_instruct.live.audience import verified_stream
from flask_instruct.live.captured import captured_broadcasts
from flask_instruct.live.position import Position
from flask_instruct.live.presence import VIEWERS
from flask_instruct.live.presence import viewers
from tests.support import Process
from tests.support import holds
from tests.support import wait_for

from .redis_process import RedisProcess
from .site import live_of
from .websocket import Client

MakeApp = Callable[..., Flask]
Serve = Callable[..., str]
Open = Callable[..., Client]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what takes seconds take less."""
    monkeypatch.setattr("flask_instruct.live.presence.GATHERING", 0.05)
    monkeypatch.setattr("flask_instruct.live.presence.RENEWAL", 0.3)
    for module in ("presence", "roll", "local_bus"):
        monkeypatch.setattr(f"flask_instruct.live.{module}.GRACE", 1.5)


def people(app: Flask, **hooks: Any) -> Flask:
    """Let the header X-User say who looks, as a login would."""
    app.extensions["instruct"] = SimpleNamespace(
        db=None,
        actor=lambda: request.headers.get("X-User"),
        hooks=SimpleNamespace(**{"authorize_stream": None, **hooks}),
    )
    return app


@pytest.fixture
def house(make_app: MakeApp) -> Flask:
    return people(make_app())


@pytest.fixture
def open_page() -> Iterator[Open]:
    """Open a page of somebody as ``open_page(app, address, who)`` that follows ``board`` and is counted."""
    with ExitStack() as stack:

        def open_page(app: Flask, address: str, who: str, stream: str = "board", present: bool = True) -> Client:
            page = stack.enter_context(Client(address, headers={"X-User": who} if who else {}))
            page.subscribe(sign_stream(live_of(app).signer, stream, who, present=present), live_of(app).bus.now())
            page.until("ready")
            return page

        yield open_page


def watchers(app: Flask, *streamables: object) -> list[str]:
    with app.app_context():
        return viewers(*streamables or ("board",))


def see(app: Flask, *expected: str) -> None:
    wait_for(lambda: watchers(app) == list(expected), message=f"{watchers(app)} are there")


def presence_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "flask-instruct-presence"]


def test_the_viewers_of_all_processes_are_known_once_each_and_sorted(
    house: Flask, make_app: MakeApp, serve_site: Serve, open_page: Open
) -> None:
    other = people(make_app())
    here, there = serve_site(house), serve_site(other)
    for address, app, who in ((here, house, "bob"), (there, other, "ann"), (there, other, "bob"), (here, house, "bob")):
        open_page(app, address, who)
    for app in (house, other):
        see(app, "ann", "bob")
    assert watchers(house, "another") == []


def test_a_change_is_told_to_the_pages_that_show_the_viewers(house: Flask, serve_site: Serve, open_page: Open) -> None:
    address = serve_site(house)
    page = open_page(house, address, "ann", "board" + VIEWERS, present=False)
    bob = open_page(house, address, "bob")
    told = page.receive()
    assert told["stream"] == "board!viewers"
    assert 'action="update"' in told["html"]
    assert 'target="viewers_board"' in told["html"]
    assert "<li>bob</li>" in told["html"]
    assert "ann" not in told["html"]  # She only looks at the list, and is at no page of the board.
    bob.leave()
    assert "bob" not in page.receive()["html"]
    see(house)


def test_the_list_on_a_page_is_the_one_that_is_broadcast(house: Flask, serve_site: Serve, open_page: Open) -> None:
    address = serve_site(house)
    page = open_page(house, address, "ann", "board" + VIEWERS, present=False)
    open_page(house, address, "<b>bob")
    told = page.receive()["html"]
    with house.test_request_context():
        shown = render_template_string("{{ instruct_viewers('board') }}")
    assert '<instruct-stream name="board!viewers"' in shown
    assert '<div class="instruct-viewers" id="viewers_board"><ul><li>&lt;b&gt;bob</li></ul></div>' in shown
    assert "<ul><li>&lt;b&gt;bob</li></ul>" in told


def test_the_app_may_show_the_viewers_in_its_own_way(
    make_app: MakeApp, serve_site: Serve, open_page: Open, tmp_path: Path
) -> None:
    (tmp_path / "instruct").mkdir()
    (tmp_path / "instruct" / "viewers.html").write_text("{{ viewers|map('upper')|join(' and ') }} in {{ stream }}")
    app = people(make_app())
    app.jinja_loader.searchpath.insert(0, str(tmp_path))  # type: ignore[union-attr]
    address = serve_site(app)
    page = open_page(app, address, "ann", "board" + VIEWERS, present=False)
    open_page(app, address, "bob")
    assert "BOB in board" in page.receive()["html"]


def test_a_reload_is_no_leave(house: Flask, serve_site: Serve, open_page: Open) -> None:
    address = serve_site(house)
    page = open_page(house, address, "ann", "board" + VIEWERS, present=False)
    bob = open_page(house, address, "bob")
    assert "bob" in page.receive()["html"]
    for _ in range(3):
        bob.leave()
        bob = open_page(house, address, "bob")
        assert holds(lambda: watchers(house) == ["bob"], 0.4)
    open_page(house, address, "carl")
    assert "<li>bob</li><li>carl</li>" in page.receive()["html"]  # The next thing that is told.


def test_another_page_of_the_same_viewer_keeps_them_there(house: Flask, serve_site: Serve, open_page: Open) -> None:
    address = serve_site(house)
    first, second = open_page(house, address, "bob"), open_page(house, address, "bob")
    see(house, "bob")
    first.leave()
    assert holds(lambda: watchers(house) == ["bob"], 2.0)
    second.send({"type": "unsubscribe", "streams": ["board"]})
    see(house)


def test_who_comes_while_another_leaves_does_not_hide_the_leave(
    house: Flask, serve_site: Serve, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.presence.RENEWAL", 30.0)
    address = serve_site(house)
    page = open_page(house, address, "ann", "board" + VIEWERS, present=False)
    bob = open_page(house, address, "bob")
    page.receive()
    bob.leave()
    assert holds(lambda: watchers(house) == ["bob"], 0.3)
    open_page(house, address, "carl")
    assert "<li>bob</li><li>carl</li>" in page.receive()["html"]
    assert "bob" not in page.receive()["html"]


def test_what_nobody_asks_for_costs_nothing(house: Flask, serve_site: Serve, open_page: Open, key_prefix: str) -> None:
    before = presence_threads()
    address = serve_site(house)
    open_page(house, address, "bob", present=False)
    open_page(house, address, "")
    assert presence_threads() == before
    assert not [key for key in live_of(house).bus.redis.keys(f"{key_prefix}*") if b"there" in key]
    assert watchers(house) == []


def test_the_viewers_of_a_process_that_was_killed_expire_and_the_pages_are_told(
    house: Flask, serve_site: Serve, open_page: Open, start: Callable[..., Process], redis_url: str, key_prefix: str
) -> None:
    page = open_page(house, serve_site(house), "ann", "board" + VIEWERS, present=False)
    code = (
        "import threading\n"
        "from flask_instruct.live import presence, roll\n"
        "from flask_instruct.live.reader import Reader\n"
        "from tests.live.site import live_of, make_site\n"
        "roll.LIFETIME, presence.RENEWAL = 1.5, 0.3\n"
        f"app = make_site({redis_url!r}, {key_prefix!r})\n"
        "presence.Presence(app, live_of(app).bus, 60).came(presence.Attendance('board', 'bob', Reader()))\n"
        "threading.Event().wait()\n"
    )
    other = start([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert "bob" in page.receive()["html"]
    other.signal(signal.SIGKILL)
    other.wait()
    assert "bob" not in page.receive()["html"]
    assert watchers(house) == []


def test_pages_that_move_to_another_process_as_theirs_ends_were_never_away(
    house: Flask, make_app: MakeApp, serve_site: Serve, open_page: Open
) -> None:
    other = people(make_app())
    here, there = serve_site(house), serve_site(other)
    page = open_page(other, there, "ann", "board" + VIEWERS, present=False)
    bob = open_page(house, here, "bob")
    assert "bob" in page.receive()["html"]
    live_of(house).close()
    assert bob.closed() == 1012
    open_page(other, there, "bob")
    assert holds(lambda: watchers(other) == ["bob"], 2.0)
    open_page(other, there, "carl")
    assert "<li>bob</li><li>carl</li>" in page.receive()["html"]


def test_after_a_restart_of_redis_without_its_data_the_viewers_are_there_again(
    make_app: MakeApp, serve_site: Serve, open_page: Open, make_redis: Callable[..., RedisProcess],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("flask_instruct.live.presence.PAUSE", 0.2)
    process = make_redis(keeps=False)
    app = people(make_app(process.url))
    open_page(app, serve_site(app), "bob")
    see(app, "bob")
    process.kill()
    wait_for(lambda: "Presence has lost Redis" in caplog.text)
    assert watchers(app) == []
    with app.test_request_context():
        assert "viewers_board" in render_template_string("{{ instruct_viewers('board') }}")
    process.start()
    see(app, "bob")


def test_who_may_not_follow_the_record_does_not_hear_who_watches_it(
    make_app: MakeApp, serve_site: Serve, open_page: Open
) -> None:
    asked: list[tuple[str, str]] = []

    def rule(viewer: str, stream: str) -> bool:
        asked.append((viewer, stream))
        return viewer == "bob"

    app = people(make_app(), authorize_stream=rule)
    address = serve_site(app)
    open_page(app, address, "bob")
    see(app, "bob")
    with Client(address, headers={"X-User": "eve"}) as page:
        page.subscribe(sign_stream(live_of(app).signer, "board" + VIEWERS, "eve"), live_of(app).bus.now())
        assert page.closed() == 4403
    assert asked == [("bob", "board"), ("eve", "board")]


def test_the_wish_to_be_counted_is_signed(house: Flask) -> None:
    with house.test_request_context(headers={"X-User": "bob"}):
        pages = [
            render_template_string("{{ turbo_stream_from('s', presence=wish) }}", wish=wish) for wish in (True, False)
        ]
        tokens = [page.split('token="')[1].split('"')[0] for page in pages]
        granted = [verified_stream(live_of(house).signer, token, "bob", 60) for token in tokens]
    assert [each.present for each in granted] == [True, False]
    assert "presence" not in pages[0]


def test_a_test_without_redis_sees_viewers_too(house: Flask, serve_site: Serve, open_page: Open) -> None:
    house.testing = True
    address = serve_site(house)
    with captured_broadcasts(house) as captured:
        page = open_page(house, address, "bob")
        see(house, "bob")
        wait_for(lambda: [fragment.text for fragment in captured if fragment.stream == "board!viewers"] == ["bob"])
        page.leave()
        see(house)


def test_an_error_in_the_apps_list_is_logged_and_the_next_one_is_told(
    make_app: MakeApp, serve_site: Serve, open_page: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "instruct").mkdir()
    file = tmp_path / "instruct" / "viewers.html"
    file.write_text("{{ viewers.broken.name }}")
    app = people(make_app())
    app.jinja_env.auto_reload = True
    app.jinja_loader.searchpath.insert(0, str(tmp_path))  # type: ignore[union-attr]
    address = serve_site(app)
    page = open_page(app, address, "ann", "board" + VIEWERS, present=False)
    open_page(app, address, "bob")
    wait_for(lambda: "The viewers of board could not be shown" in caplog.text)
    file.write_text("mended: {{ viewers }}")
    assert "mended" in page.receive()["html"]


def test_a_change_is_told_once_however_many_processes_notice_it(
    house: Flask, make_app: MakeApp, serve_site: Serve, open_page: Open
) -> None:
    apps = [house, people(make_app()), people(make_app())]
    addresses = [serve_site(app) for app in apps]
    pages = [
        open_page(app, address, "ann", "board" + VIEWERS, present=False)
        for app, address in zip(apps, addresses, strict=True)
    ]
    since = Position.parse(live_of(house).bus.now())
    bob = open_page(apps[1], addresses[1], "bob")
    for page in pages:
        assert "bob" in page.receive()["html"]
    assert holds(lambda: watchers(house) == ["bob"], 1.0)
    bob.leave()
    for page in pages:
        assert "bob" not in page.receive()["html"]
    assert holds(lambda: watchers(house) == [], 1.0)
    assert len(live_of(house).bus.replay("board" + VIEWERS, since).entries) == 2


def test_pages_that_a_process_told_something_before_it_died_are_told_what_is_true(
    house: Flask, serve_site: Serve, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.roll.TELLING", 0.5)
    page = open_page(house, serve_site(house), "ann", "board" + VIEWERS, present=False)
    bus = live_of(house).bus
    assert bus.roll.may_tell("board")
    bus.publish("board" + VIEWERS, "the last words of a process")
    assert page.receive()["html"] == "the last words of a process"
    assert "<ul></ul>" in page.receive()["html"]


def test_the_extension_asks_for_records(redis_url: str, key_prefix: str) -> None:
    db = SQLAlchemy()
    app = Flask(__name__)
    app.config |= {"SECRET_KEY": "s", "SQLALCHEMY_DATABASE_URI": "sqlite://", "INSTRUCT_REDIS_URL": redis_url}
    app.config["INSTRUCT_KEY_PREFIX"] = key_prefix
    db.init_app(app)
    instruct = Instruct(app, db)

    class Note(db.Model):  # type: ignore[name-defined, misc]
        id: Mapped[int] = mapped_column(primary_key=True)

    with app.test_request_context():
        db.create_all()
        note = Note(id=7)
        db.session.add(note)
        db.session.commit()
        live_of(app).bus.roll.attend("Note/7", "0" * 32, ["bob"])
        assert instruct.viewers(note) == ["bob"]
        template = "{{ turbo_stream_from(note, presence=True) }}{{ instruct_viewers(note) }}"
        page = render_template_string(template, note=note)
        assert "<li>bob</li>" in page
        assert 'name="Note/7"' in page
        instruct.disconnect("bob")
        instruct.disconnect(None)
        assert live_of(app).bus.roll.signed_out(60) == ["bob"]
        db.drop_all()
        db.engine.dispose()
    live_of(app).bus.redis.close()
