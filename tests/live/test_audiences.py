"""Broadcasts for only some of the viewers of a stream: the others' sockets never see them, live or replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from flask import Flask
from flask import request

from flask_instruct.live.addressed import EVERYBODY
from flask_instruct.live.addressed import NOBODY
from flask_instruct.live.addressed import Audience
from flask_instruct.live.addressed import addressed
from flask_instruct.live.addressed import audience
from flask_instruct.live.addressed import opened
from flask_instruct.live.audience import sign_stream
from flask_instruct.live.broadcasts import broadcast
from flask_instruct.live.broadcasts import outlet
from flask_instruct.live.frames import Event
from flask_instruct.live.position import Position
from flask_instruct.live.subscription import Entry
from flask_instruct.live.subscription import Replay
from flask_instruct.live.subscription import Subscription
from flask_instruct.runs.notices import Fragment
from flask_instruct.runs.notices import publish_late

from .site import live_of
from .websocket import Client

PLAIN = '<turbo-stream action="refresh"></turbo-stream>'


@pytest.mark.parametrize(
    ("only", "except_", "gets", "not_gets"),
    [
        (None, None, ["1", "2", ""], []),
        (["1", 2], None, ["1", "2"], ["3", ""]),
        ("12", None, ["12"], ["1", "2", ""]),
        (7, None, ["7"], ["1"]),
        (SimpleNamespace(id=7), None, ["7"], [""]),
        (SimpleNamespace(id=7, get_id=lambda: "x"), None, ["x"], ["7"]),
        ([], None, [], ["1", ""]),
        ([None, ""], None, [], ["1", ""]),
        (None, ["1"], ["2", ""], ["1"]),
        (None, [None], ["1", ""], []),
    ],
)
def test_users_may_be_named_as_such_or_by_their_ids(
    only: object, except_: object, gets: list[str], not_gets: list[str]
) -> None:
    whom = audience(only, except_)
    assert all(whom.includes(viewer) for viewer in gets)
    assert not any(whom.includes(viewer) for viewer in not_gets)


def test_only_and_except_together_are_a_mistake() -> None:
    with pytest.raises(TypeError, match="not both"):
        audience([1], [2])


@pytest.mark.parametrize(
    "whom",
    [
        EVERYBODY,
        NOBODY,
        Audience(frozenset({"1", "a,b", "-->", "ü <x>", "only 1"})),
        Audience(frozenset({"1", "%2C"}), others=True),
    ],
)
def test_an_audience_comes_out_of_its_envelope_as_it_went_in(whom: Audience) -> None:
    assert opened(addressed(PLAIN, whom)) == (whom, PLAIN)


def test_what_is_for_everybody_travels_as_it_is() -> None:
    assert addressed(PLAIN, EVERYBODY) == PLAIN


@pytest.mark.parametrize("broken", ["<!--instruct-", "<!--instruct-only 1", "<!--instruct-others 1-->x"])
def test_an_envelope_that_cannot_be_read_is_for_nobody(broken: str) -> None:
    assert opened(broken)[0] == NOBODY


def test_a_page_is_not_sent_what_is_for_others_live_waiting_or_replayed() -> None:
    ours, theirs = Audience(frozenset({"1"})), Audience(frozenset({"1"}), others=True)
    subscription = Subscription("s", Position(1), viewer="1")
    for number, whom in ((4, ours), (5, theirs)):
        subscription.event(Position(number), Event(Position(number), "s", str(number)), whom)
    entries = (Entry(Position(2), "2", theirs), Entry(Position(3), "3", ours))
    sent = b"".join(frame.payload for frame in subscription.replayed(Replay(True, entries, Position(3))))
    assert [number for number in "2345" if f'"html":"{number}"'.encode() in sent] == ["3", "4"]
    assert subscription.event(Position(6), Event(Position(6), "s", "6"), theirs) == []
    missed = (Entry(Position(7), "7", theirs), Entry(Position(8), "8", ours))
    (frame,) = subscription.caught_up(Replay(True, missed, Position(8)))
    assert [message["html"] for message in json.loads(frame.payload)] == ["8"]


# -- over the wire -----------------------------------------------------------------------------------------------------


@pytest.fixture
def people(app: Flask) -> Flask:
    """The site, where the cookie ``who`` tells the viewer; ``aliases`` change who a cookie stands for."""
    aliases: dict[str, str] = {}
    app.extensions["instruct"] = SimpleNamespace(
        db=None,
        hooks=None,
        live=live_of(app),
        aliases=aliases,
        actor=lambda: aliases.get(request.cookies["who"], request.cookies["who"]),
    )
    return app


@pytest.fixture
def follow(people: Flask, serve_site: Callable[..., str]) -> Iterator[Callable[..., Client]]:
    """Open a page of a viewer as ``follow(who, since)``."""
    address = serve_site(people)
    with ExitStack() as stack:

        def follow(who: str, since: str | None = None) -> Client:
            page = stack.enter_context(Client(address, headers={"Cookie": f"who={who}"}))
            token = sign_stream(live_of(people).signer, "s", who)
            page.subscribe(token, since or live_of(people).bus.now())
            return page

        yield follow


def words(page: Client) -> list[str]:
    """Return what a page is told up to the word "last"."""
    found: list[str] = []
    while "last" not in found:
        message = page.receive()
        if "html" in message:
            assert message["html"].startswith("<turbo-stream")
            found.append(message["html"].split("<template>")[1].split("<")[0])
    return found


def test_only_the_viewers_it_is_for_get_a_fragment_live_and_replayed(
    people: Flask, follow: Callable[..., Client]
) -> None:
    since = live_of(people).bus.now()
    pages = {who: follow(who) for who in ("ada", "bob")}
    for page in pages.values():
        page.until("ready")
    with people.app_context():
        broadcast("s", "update", target="x", html="for ada", only="ada")
        broadcast("s", "update", target="x", html="not for ada", except_=["ada"])
        broadcast("s", "update", target="x", html="last")
    expected = {"ada": ["for ada", "last"], "bob": ["not for ada", "last"]}
    assert {who: words(page) for who, page in pages.items()} == expected
    assert {who: words(follow(who, since)) for who in pages} == expected


def test_a_page_whose_viewer_has_become_another_is_closed(people: Flask, follow: Callable[..., Client]) -> None:
    page = follow("ada")
    page.until("ready")
    people.extensions["instruct"].aliases["ada"] = "bob"
    page.subscribe(sign_stream(live_of(people).signer, "t", "bob"), None)
    assert page.closed() == 4401


def test_for_nobody_nothing_is_sent(people: Flask) -> None:
    since = Position.parse(live_of(people).bus.now())
    with people.app_context():
        broadcast("s", "refresh", only=[])
    assert live_of(people).bus.replay("s", since).entries == ()


def test_a_tools_outlet_and_a_late_refresh_keep_the_audience(people: Flask) -> None:
    taken: list[tuple[str, str]] = []
    token = outlet.set(lambda stream, html: taken.append((stream, html)))
    try:
        with people.app_context():
            broadcast("s", "update", target="x", html="secret", only=["ada"])
    finally:
        outlet.reset(token)
    since = Position.parse(live_of(people).bus.now())
    publish_late(people.extensions["instruct"], [Fragment("1", *taken[0])])
    (entry,) = live_of(people).bus.replay("s", since).entries
    assert entry.audience == Audience(frozenset({"ada"}))
    assert entry.html == PLAIN
