"""The order of what a page is sent, event by event; and when a backlog counts as whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flask_instruct.live.addressed import Audience
from flask_instruct.live.frames import Event
from flask_instruct.live.frames import Frame
from flask_instruct.live.position import Position
from flask_instruct.live.subscription import Entry
from flask_instruct.live.subscription import History
from flask_instruct.live.subscription import Replay
from flask_instruct.live.subscription import Subscription

DAY = 86_400_000
NOW = 10 * DAY


def entries(*numbers: int) -> tuple[Entry, ...]:
    return tuple(Entry(Position(number), f"<{number}>") for number in numbers)


def event(number: int, after: int | None = None) -> tuple[Position, Event]:
    before = None if after is None else Position(after)
    return Position(number), Event(Position(number), "s", f"<{number}>", before)


def messages(sent: list[Frame]) -> list[dict[str, Any]]:
    """Return all that a page hears, what comes in one message apart."""
    heard: list[dict[str, Any]] = []
    for frame in sent:
        message: Any = json.loads(frame.payload)
        heard += message if isinstance(message, list) else [message]
    return heard


def told(sent: list[Frame]) -> list[str]:
    """Return what a page hears, in short: ids of events, and the types of other messages."""
    heard: list[str] = []
    for frame in sent:
        message: Any = json.loads(frame.payload)
        for part in message if isinstance(message, list) else [message]:
            heard.append(part.get("type") or part["id"])
    return heard


def test_the_backlog_comes_first_then_what_waited_then_ready() -> None:
    subscription = Subscription("s", Position(1))
    assert subscription.event(*event(4)) == []
    sent = subscription.replayed(Replay(True, entries(2, 3), Position(3)))
    assert told(sent) == ["subscribed", "2-0", "3-0", "4-0", "ready"]
    assert told(subscription.event(*event(5))) == ["5-0"]


def test_what_is_in_the_backlog_and_waited_is_sent_once() -> None:
    subscription = Subscription("s", Position(1))
    subscription.event(*event(2))
    subscription.event(*event(3))
    subscription.event(*event(4))
    sent = subscription.replayed(Replay(True, entries(2, 3), Position(3)))
    assert told(sent) == ["subscribed", "2-0", "3-0", "4-0", "ready"]


def test_what_comes_again_later_is_not_sent_again() -> None:
    subscription = Subscription("s", Position(1))
    subscription.replayed(Replay(True, entries(2), Position(2)))
    assert told(subscription.event(*event(2))) == []
    assert told(subscription.event(*event(3))) == ["3-0"]
    assert told(subscription.event(*event(3))) == []


def test_a_backlog_with_a_hole_is_a_reset_and_never_taken_for_whole() -> None:
    subscription = Subscription("s", Position(1))
    subscription.event(*event(8))
    subscription.event(*event(9))
    sent = subscription.replayed(Replay(False, (), Position(8)))
    assert told(sent) == ["subscribed", "reset", "9-0", "ready"]
    assert json.loads(sent[1].payload)["id"] == "8-0"


def test_each_names_the_one_before_it_as_the_page_was_told_of_it() -> None:
    subscription = Subscription("s", Position(1), viewer="1")
    subscription.event(*event(4, after=3))
    sent = messages(subscription.replayed(Replay(True, entries(2, 3), Position(3))))
    assert [each.get("after") for each in sent] == [None, "1-0", "2-0", "3-0", "4-0"]
    # What was for others left no gap for this page.
    assert subscription.event(*event(5, after=4), Audience(frozenset({"2"}))) == []
    assert [each["after"] for each in messages(subscription.event(*event(6, after=5)))] == ["4-0"]
    # A page that began later is further than the one before was.
    assert [each["after"] for each in messages(subscription.event(*event(7, after=2)))] == ["2-0"]
    sent = messages(subscription.caught_up(Replay(True, entries(7, 8, 9), Position(9))))
    assert [each["after"] for each in sent] == ["7-0", "8-0"]


def test_a_page_is_assured_once_of_how_far_it_was_told() -> None:
    subscription = Subscription("s", Position(1), viewer="1")
    assert subscription.assurance() is None
    subscription.replayed(Replay(True, (), Position(1)))

    def assured() -> list[dict[str, Any]]:
        return messages([frame for frame in [subscription.assurance()] if frame is not None])

    assert [each["id"] for each in assured()] == ["1-0"]
    assert assured() == []
    subscription.event(*event(2))
    subscription.event(*event(3), Audience(frozenset({"2"})))
    assert assured() == [{"type": "told", "stream": "s", "id": "2-0"}]
    assert assured() == []


def test_the_page_is_told_where_the_backlog_begins() -> None:
    sent = Subscription("s", Position(1)).replayed(Replay(True, (), Position(1)))
    assert json.loads(sent[0].payload) == {"type": "subscribed", "stream": "s", "id": "1-0"}
    assert json.loads(sent[-1].payload) == {"type": "ready", "stream": "s", "id": "1-0", "after": "1-0"}


def test_after_redis_was_lost_only_what_was_missed_is_sent() -> None:
    subscription = Subscription("s", Position(1))
    subscription.replayed(Replay(True, entries(2, 3), Position(3)))
    assert told(subscription.caught_up(Replay(True, entries(3, 4, 5), Position(5)))) == ["4-0", "5-0"]
    assert told(subscription.event(*event(5))) == []
    assert told(subscription.caught_up(Replay(True, entries(4), Position(4)))) == []
    assert told(subscription.event(*event(6))) == ["6-0"]


def test_after_redis_was_lost_with_its_data_the_page_is_reset() -> None:
    subscription = Subscription("s", Position(1))
    subscription.replayed(Replay(True, entries(2, 3), Position(3)))
    assert told(subscription.caught_up(Replay(False, (), Position(1)))) == ["reset"]


def history(**changes: Any) -> History:
    given = {
        "now": NOW,
        "epoch": NOW - 9 * DAY,
        "first": Position(NOW - 500),
        "last": Position(NOW - 100),
        "length": 3,
        "added": 3,
        "lifetime": DAY,
        "maxlen": 100,
    }
    return History(**{**given, **changes})


def missing(**changes: Any) -> History:
    return history(first=None, last=None, length=0, added=None, **changes)


@pytest.mark.parametrize(
    ("case", "known", "since", "whole"),
    [
        ("nothing was ever removed", history(), NOW - 5000, True),
        ("trimmed, but the cursor is within what is kept", history(added=9), NOW - 500, True),
        ("trimmed, and the cursor lies before the first kept", history(added=9), NOW - 501, False),
        ("trimmed to nothing, and the newest was seen", history(first=None, length=0, added=9), NOW - 100, True),
        ("trimmed to nothing, and the newest was not seen", history(first=None, length=0, added=9), NOW - 101, False),
        ("there never was such a stream", missing(), NOW - 5000, True),
        ("the stream may have expired since", missing(), NOW - DAY - 1, False),
        ("the stream may have expired and begun anew", history(), NOW - DAY - 1, False),
        ("older than a day, but nothing went after the cursor", history(first=Position(5 * DAY)), 5 * DAY, True),
        ("it may have, as positions went at half speed", missing(lead=60_000), NOW - DAY + 59_999, False),
        ("it cannot have, as their lead was no greater", missing(lead=60_000), NOW - DAY + 60_000, True),
        ("Redis has lost its data since the cursor", history(epoch=NOW - 900), NOW - 1000, False),
        ("Redis has lost its data just now", history(epoch=None), NOW - 50, False),
        ("a cursor from the future", history(), NOW + 1, False),
        ("a cursor from the future, and no stream", missing(), NOW + 1, False),
        ("ahead of the clock, but Redis has given that id", history(last=Position(NOW + 9)), NOW + 9, True),
        ("Redis 6 does not count, and cannot have trimmed yet", history(added=None), NOW - 5000, True),
        ("Redis 6 does not count, and may have trimmed", history(added=None, length=100), NOW - 5000, False),
    ],
)
def test_a_backlog_counts_as_whole_only_when_it_certainly_is(
    case: str, known: History, since: int, whole: bool
) -> None:
    assert known.covers(Position(since)) is whole, case


def test_a_live_event_of_data_that_began_after_the_pages_position_makes_it_fetch_itself() -> None:
    page = Subscription("s", Position(100))
    page.replayed(Replay(True, (), Position(150), epoch=150))
    event = Event(Position(200), "s", "<p>")
    assert page.event(Position(200), event, epoch=150) == [event]
    assert json.loads(page.event(Position(400), event, epoch=300)[0].payload)["type"] == "reset"
    assert page.event(Position(401), event, epoch=300) == [event]


def test_data_whose_positions_are_lower_make_the_page_fetch_itself_and_are_followed() -> None:
    """After two restarts positions are two minutes ahead; data lost right then began with one minute again."""
    page = Subscription("s", Position(100))
    page.replayed(Replay(True, (), Position(900), epoch=50))
    event = Event(Position(400), "s", "<p>")
    assert json.loads(page.event(Position(400), event, epoch=300)[0].payload)["id"] == "400-0"
    assert page.event(Position(401), event, epoch=300) == [event]
    # The same, noticed by the connection.
    assert json.loads(page.caught_up(Replay(False, (), Position(350), epoch=310))[0].payload)["id"] == "350-0"
    assert page.event(Position(351), event, epoch=310) == [event]
