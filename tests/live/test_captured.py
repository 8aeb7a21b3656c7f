"""What a test of an app sees of its broadcasts: taken apart, after the commit, with no Redis anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator

import pytest
from flask import Flask
from markupsafe import Markup

from flask_instruct import Instruct
from flask_instruct.errors import ConfigurationError
from flask_instruct.live.audience import sign_stream
from flask_instruct.live.broadcasts import broadcast
from flask_instruct.live.captured import Captured
from flask_instruct.live.captured import Fragment
from flask_instruct.live.captured import assert_broadcast
from flask_instruct.live.captured import captured_broadcasts
from flask_instruct.live.captured import fragments
from flask_instruct.live.local_bus import LocalBus
from flask_instruct.live.position import Position
from flask_instruct.live.subscription import Entry

from .blog import Assessment
from .blog import db
from .blog import make_blog
from .blog import make_tables
from .site import live_of
from .websocket import Client


@pytest.fixture
def app() -> Iterator[Flask]:
    """An app whose Redis does not exist."""
    app, instruct = make_blog("sqlite://", INSTRUCT_REDIS_URL="redis://127.0.0.1:1/0")
    app.extensions["blog"] = instruct
    with app.app_context():
        make_tables()
        yield app
        db.session.remove()
        db.engine.dispose()
        live_of(app).close()


def test_a_fragment_is_taken_apart(app: Flask) -> None:
    with captured_broadcasts() as captured:
        html = Markup('<ul id="l">\n <li>One &amp; <b>t</b>wo</li><li>three</li>\n</ul>')
        broadcast("s", "replace", target="l", html=html, method="morph", only=["1"])
        broadcast("s", "remove", targets=".old > a")
    (fragment, removal) = captured
    assert (fragment.stream, fragment.action, fragment.target) == ("s", "replace", "l")
    assert fragment.html == html
    assert fragment.text == "One & two three"
    assert fragment.attributes["method"] == "morph"
    assert fragment.audience.includes("1")
    assert not fragment.audience.includes("2")
    assert (removal.targets, removal.target, removal.html, removal.text) == (".old > a", None, "", "")


def test_templates_within_a_fragment_and_several_elements_are_taken_apart_too() -> None:
    one = '<turbo-stream action="append" target="a"><template>x\n<template>y</template>z</template></turbo-stream>'
    found = fragments("s", Entry(Position(1), f"{one}\n<turbo-stream action=refresh></turbo-stream>"))
    assert [(fragment.action, fragment.html) for fragment in found] == [
        ("append", "x\n<template>y</template>z"),
        ("refresh", ""),
    ]


def test_what_waits_for_a_commit_is_not_caught_before_and_what_is_rolled_back_never(app: Flask) -> None:
    with captured_broadcasts() as captured:
        db.session.add(Assessment())
        db.session.flush()
        broadcast("s", "refresh")
        assert captured == []
        db.session.commit()
        assert len(captured) == 1
        db.session.add(Assessment())
        broadcast("s", "refresh")
        db.session.rollback()
    assert len(captured) == 1


def test_the_fragments_of_one_stream_can_be_asked_for(app: Flask) -> None:
    assessment = Assessment()
    db.session.add(assessment)
    db.session.commit()
    instruct: Instruct = app.extensions["blog"]
    with captured_broadcasts(app) as captured:
        instruct.broadcast_refresh_to(assessment, "comments")
        instruct.broadcast_refresh_to("news")
        assert [fragment.action for fragment in captured.on(assessment, "comments")] == ["refresh"]
        assert_broadcast(captured, assessment, "comments", action="refresh")


@pytest.fixture
def sent(app: Flask) -> Captured:
    with captured_broadcasts() as captured:
        broadcast("s", "update", target="x", html="Hello Ada")
        broadcast("s", "refresh")
    return captured


def test_an_expected_broadcast_is_found_and_returned(sent: Captured) -> None:
    assert isinstance(assert_broadcast(sent, "s", action="update", target="x", text="Ada"), Fragment)
    assert assert_broadcast(sent, "s", action="refresh").target is None


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ({"action": "append"}, "append on s"),
        ({"target": "y"}, "broadcast y on s"),
        ({"action": "update", "target": "x", "text": "Bob"}, "update x on s with 'Bob'"),
    ],
)
def test_a_missing_broadcast_is_named_beside_all_that_was_sent(
    sent: Captured, wanted: dict[str, str], missing: str
) -> None:
    said = f"There was no {missing}. What was sent:\n  update x on s: Hello Ada\n  refresh on s"
    with pytest.raises(AssertionError, match=re.escape(said)):
        assert_broadcast(sent, "s", **wanted)


def test_where_nothing_was_sent_that_is_what_is_said(app: Flask) -> None:
    with pytest.raises(AssertionError, match="nothing"):
        assert_broadcast([], "s")


def test_outside_of_tests_it_is_refused_with_the_reason(app: Flask) -> None:
    app.testing = False
    with pytest.raises(ConfigurationError, match="web process and worker would not hear"), captured_broadcasts():
        pass


def test_afterwards_the_app_has_its_own_bus_again(app: Flask) -> None:
    before = live_of(app)
    with captured_broadcasts():
        assert live_of(app) is not before
        assert app.extensions["instruct"].live is live_of(app)
    assert live_of(app) is before
    assert app.extensions["instruct"].live is before


def test_pages_are_served_by_the_same_bus_with_what_came_before_them_and_after(
    app: Flask, serve: Callable[..., str]
) -> None:
    with captured_broadcasts() as captured:
        live = live_of(app)
        since = live.bus.now()
        broadcast("s", "update", target="x", html="before")
        with Client(serve(app)) as page:
            page.subscribe(sign_stream(live.signer, "s", ""), since)
            assert [message.get("type", "event") for message in page.until("ready")] == ["subscribed", "event", "ready"]
            broadcast("s", "update", target="x", html="after")
            assert "after" in page.receive()["html"]
        assert [fragment.text for fragment in captured] == ["before", "after"]


def test_the_local_bus_leaves_out_what_it_has_seen(app: Flask) -> None:
    bus = LocalBus(app, live_of(app).config)
    since = Position.parse(bus.now())
    assert bus.publish("s", "1", broadcast_id="a") is not None
    assert bus.publish("s", "1", broadcast_id="a") is None
    assert bus.publish("s", "2") is not None
    assert bus.publish("s", "2") is not None
    assert [entry.html for entry in bus.replay("s", since).entries] == ["1", "2", "2"]
    assert bus.replay("s", bus.replay("s", since).position).entries == ()
    assert bus.streams == ("s",)
