"""Publishing, replay and cursors, on a real Redis."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import RedisError

from flask_instruct.config import Config
from flask_instruct.connections import connect
from flask_instruct.errors import InstructError
from flask_instruct.live import bus as bus_module
from flask_instruct.live.bus import Bus
from flask_instruct.live.listener import Arrived
from flask_instruct.live.listener import Listener
from flask_instruct.live.listener import SignedOut
from flask_instruct.live.listener import Subscribed
from flask_instruct.live.position import Position
from tests.support import wait_for

from .redis_process import RedisProcess


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as redis:
        yield redis


@pytest.fixture
def bus(redis: Redis, key_prefix: str) -> Bus:
    return Bus(lambda: redis, Config(key_prefix=key_prefix))


def heard(listener: Listener, count: int) -> list[Subscribed | Arrived | SignedOut]:
    found: list[Subscribed | Arrived | SignedOut] = []
    deadline = time.monotonic() + 10
    while len(found) < count:
        assert time.monotonic() < deadline, found
        notice = listener.poll(0.1)
        if notice is not None:
            found.append(notice)
    return found


def htmls(bus: Bus, stream: str, since: str) -> list[str]:
    replay = bus.replay(stream, Position.parse(since))
    assert replay.lossless
    return [entry.html for entry in replay.entries]


def cursor_behind(bus: Bus, published: str | None) -> str:
    """Wait for a cursor behind what was published: one of the same millisecond replays it once more, which is safe."""
    assert published is not None
    return wait_for(lambda: now if Position.parse(now := bus.now()) > Position.parse(published) else None)


def test_what_is_published_is_announced_and_kept_under_one_position(bus: Bus) -> None:
    since = bus.now()
    listener = bus.listen()
    listener.subscribe("s")
    assert heard(listener, 1) == [Subscribed("s")]
    position = bus.publish("s", "<p>é</p>")
    assert position is not None
    assert heard(listener, 1) == [Arrived("s", Position.parse(position), "<p>é</p>")]
    assert [(str(entry.position), entry.html) for entry in bus.replay("s", Position.parse(since)).entries] == [
        (position, "<p>é</p>")
    ]
    listener.close()


def test_streams_do_not_mix(bus: Bus) -> None:
    since = bus.now()
    bus.publish("a", "1")
    bus.publish("a:b", "2")
    assert htmls(bus, "a", since) == ["1"]
    assert htmls(bus, "a:b", since) == ["2"]


def test_a_broadcast_that_is_sent_again_is_not_applied_again(bus: Bus) -> None:
    since = bus.now()
    assert bus.publish("s", "1", broadcast_id="x") is not None
    assert bus.publish("s", "1", broadcast_id="x") is None
    assert bus.publish("s", "2", broadcast_id="y") is not None
    assert htmls(bus, "s", since) == ["1", "2"]


def test_several_are_published_at_once_in_their_order_and_without_those_that_were_sent_before(bus: Bus) -> None:
    since = bus.now()
    listener = bus.listen()
    listener.subscribe("s")
    assert heard(listener, 1) == [Subscribed("s")]
    bus.publish("s", "1", broadcast_id="x")
    positions = bus.publish_all("s", [("x", "1"), ("y", "2"), (None, "3"), ("y", "2"), ("z", "4")])
    assert [position is None for position in positions] == [True, False, False, True, False]
    told = [Position.parse(position) for position in positions if position is not None]
    assert told == sorted(told)
    assert heard(listener, 4)[1:] == [Arrived("s", at, html) for at, html in zip(told, ["2", "3", "4"], strict=True)]
    assert htmls(bus, "s", since) == ["1", "2", "3", "4"]
    listener.close()


def test_redis_gets_the_script_again_when_it_has_forgotten_it(bus: Bus, redis: Redis) -> None:
    since = bus.now()
    bus.publish("s", "1")
    redis.script_flush()
    bus.publish("s", "2")
    assert htmls(bus, "s", since) == ["1", "2"]


def test_a_cursor_excludes_nothing_that_is_published_after_it(bus: Bus) -> None:
    for number in range(300):
        since = bus.now()
        bus.publish(f"s{number}", "x")
        assert htmls(bus, f"s{number}", since) == ["x"]


def test_a_cursor_is_that_of_the_moment_although_it_is_asked_for_later(bus: Bus) -> None:
    bus.now()
    began = time.monotonic()
    bus.publish("s", "while the page was made")
    assert htmls(bus, "s", bus.cursor("s", began)) == ["while the page was made"]


def test_cursors_are_reckoned_without_asking_redis_each_time(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    read = bus._read_clock
    monkeypatch.setattr(bus, "_read_clock", lambda *call: asked.append(call) or read(*call))
    cursors = [Position.parse(bus.cursor("s", time.monotonic())) for _ in range(50)]
    assert len(asked) <= 2
    assert cursors == sorted(cursors)
    exact = Position.parse(bus.now())
    assert 0 <= exact.ms - cursors[-1].ms < 5000


def test_the_first_cursor_ever_is_a_valid_one(bus: Bus) -> None:
    bus.now()
    cursor = bus.cursor("s", time.monotonic())
    assert bus.replay("never", Position.parse(cursor)).lossless


def test_four_writers_are_heard_in_the_order_of_their_positions(bus: Bus, redis_url: str, key_prefix: str) -> None:
    listener = bus.listen()
    listener.subscribe("s")
    heard(listener, 1)

    def write() -> None:
        with connect(redis_url) as redis:
            writer = Bus(lambda: redis, Config(key_prefix=key_prefix))
            for number in range(100):
                writer.publish("s", str(number))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    notices = heard(listener, 400)
    for writer in writers:
        writer.join()
    positions = [notice.position for notice in notices if isinstance(notice, Arrived)]
    assert positions == sorted(positions)
    listener.close()


def test_a_trimmed_history_is_not_whole(redis: Redis, key_prefix: str) -> None:
    bus = Bus(lambda: redis, Config(key_prefix=key_prefix, stream_maxlen=100))
    since = bus.now()
    positions = [bus.publish("s", str(number)) for number in range(500)]
    replay = bus.replay("s", Position.parse(since))
    assert not replay.lossless
    assert replay.entries == ()
    assert str(replay.position) == positions[-1]
    assert positions[-50] is not None
    assert htmls(bus, "s", positions[-50]) == [str(number) for number in range(451, 500)]


def test_case_27_a_stream_does_not_grow_without_end_nor_live_for_ever(redis: Redis, key_prefix: str) -> None:
    bus = Bus(lambda: redis, Config(key_prefix=key_prefix, stream_maxlen=50, stream_ttl=60))
    for number in range(500):
        bus.publish("s", "x" * 100, broadcast_id=str(number))
    keys = list(redis.scan_iter(f"{key_prefix}:live-*:{{s}}"))
    assert len(keys) == 2
    assert all(0 < redis.pttl(key) <= 60_000 for key in keys)
    assert redis.xlen(f"{key_prefix}:live-stream:{{s}}") < 200
    assert redis.zcard(f"{key_prefix}:live-seen:{{s}}") == 50


def test_a_redis_that_has_lost_its_data_is_never_taken_for_one_where_nothing_happened(
    make_redis: Callable[..., RedisProcess], key_prefix: str
) -> None:
    process = make_redis(keeps=False)
    with connect(process.url) as redis:
        bus = Bus(lambda: redis, Config(key_prefix=key_prefix))
        since = bus.now()
        bus.publish("s", "1")
        process.kill()
        process.start()
        assert not bus.replay("s", Position.parse(since)).lossless
        last = bus.publish("s", "2")
        assert not bus.replay("s", Position.parse(since)).lossless
        assert htmls(bus, "s", cursor_behind(bus, last)) == []


def test_a_redis_that_was_restarted_may_have_lost_the_newest_and_replays_only_what_came_since(
    make_redis: Callable[..., RedisProcess], key_prefix: str
) -> None:
    process = make_redis(keeps=True)
    with connect(process.url) as redis:
        bus = Bus(lambda: redis, Config(key_prefix=key_prefix))
        since = bus.now()
        before = bus.publish("s", "1")
        process.kill()
        process.start()
        after = bus.publish("s", "2")
        assert not bus.replay("s", Position.parse(since)).lossless
        assert before is not None
        assert after is not None
        assert Position.parse(after) > Position.parse(before)
        since = bus.now()
        bus.publish("s", "3")
        assert htmls(bus, "s", since)[-1] == "3"


def test_a_page_does_not_wait_for_a_dead_redis_again_and_again(
    make_redis: Callable[..., RedisProcess], key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = make_redis(keeps=False)
    with connect(process.url) as redis:
        bus = Bus(lambda: redis, Config(key_prefix=key_prefix))
        bus.now()
        monkeypatch.setattr(bus_module, "CLOCK_AGE", 0.0)
        process.pause()
        with pytest.raises(RedisError):
            bus.cursor("s", time.monotonic())
        began = time.monotonic()
        with pytest.raises(RedisError):
            bus.cursor("s", time.monotonic())
        assert time.monotonic() - began < 0.5
        process.resume()


def test_a_fragment_that_is_too_large_is_refused_with_its_stream_and_size(redis: Redis, key_prefix: str) -> None:
    bus = Bus(lambda: redis, Config(key_prefix=key_prefix, broadcast_bytes=10))
    assert bus.publish("s", "é" * 5)
    with pytest.raises(InstructError, match=r"broadcast to s has 12 bytes.*INSTRUCT_BROADCAST_BYTES is 10"):
        bus.publish("s", "é" * 6)


def test_case_41_html_survives_a_queue_that_makes_json_of_it(bus: Bus) -> None:
    since = bus.now()
    html = '<p title="&quot;">&lt;b&gt; \u2028 </p>'
    bus.publish("s", json.loads(json.dumps(html)))
    assert htmls(bus, "s", since) == [html]


def test_unsubscribing_and_subscribing_at_once_ends_subscribed(bus: Bus) -> None:
    listener = bus.listen()
    listener.subscribe("s", "t")
    heard(listener, 2)
    listener.unsubscribe("s")
    listener.subscribe("s")
    assert heard(listener, 1) == [Subscribed("s")]
    bus.publish("s", "x")
    assert isinstance(heard(listener, 1)[0], Arrived)
    listener.close()
