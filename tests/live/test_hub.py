"""The hub between a real Redis and connections that note what they get."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis import Redis

from flask_instruct.config import Config
from flask_instruct.connections import connect_bus
from flask_instruct.live.bus import Bus
from flask_instruct.live.frames import Frame
from flask_instruct.live.hub import Hub
from flask_instruct.live.hub import Unavailable
from flask_instruct.live.position import Position
from flask_instruct.live.roll import EVERY_PROCESS
from flask_instruct.live.servers import Cluster
from tests.support import holds
from tests.support import wait_for

from .redis_process import RedisProcess


class Noting:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.codes: list[int] = []
        self.hub: Hub | None = None

    def send(self, *messages: Frame) -> None:
        for frame in messages:
            message = json.loads(frame.payload)
            self.messages += message if isinstance(message, list) else [message]

    def close(self, code: int, reason: str) -> None:
        self.codes.append(code)
        if self.hub is not None:
            self.hub.remove(self)

    def tick(self, now: float) -> None:
        pass

    @property
    def htmls(self) -> list[str]:
        return [message["html"] for message in self.messages if "html" in message]

    def heard(self, count: int) -> bool:
        return len(self.htmls) >= count

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.messages if "type" in message]


MakeHub = Callable[..., tuple[Hub, Bus]]


@pytest.fixture
def make_hub(redis_url: str, key_prefix: str) -> Iterator[MakeHub]:
    hubs: list[Hub] = []
    clients: list[Redis | Cluster] = []

    def make(url: str = redis_url, limit: int = 100, stopping: Callable[[], bool] = lambda: False) -> tuple[Hub, Bus]:
        redis = connect_bus(url)
        clients.append(redis)
        bus = Bus(lambda: redis, Config(key_prefix=key_prefix))
        hubs.append(Hub(bus, limit=lambda: limit, stopping=stopping))
        return hubs[-1], bus

    yield make
    for hub in hubs:
        hub.close()
    for client in clients:
        client.close()


def join(hub: Hub) -> Noting:
    connection = Noting()
    assert hub.add(connection)
    connection.hub = hub
    return connection


def test_what_was_published_before_and_after_arrives_once_and_in_order(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    since = Position.parse(bus.now())
    bus.publish("s", "1")
    connection = join(hub)
    hub.subscribe(connection, "s", since)
    bus.publish("s", "2")
    wait_for(lambda: connection.htmls == ["1", "2"])
    assert connection.types == ["subscribed", "ready"]


def test_nothing_is_lost_or_doubled_while_pages_subscribe_into_a_stream_of_broadcasts(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    since = Position.parse(bus.now())
    publisher = threading.Thread(target=lambda: [bus.publish("s", str(number)) for number in range(600)])
    publisher.start()
    connections: list[Noting] = []
    while publisher.is_alive() and len(connections) < 60:
        connections.append(join(hub))
        hub.subscribe(connections[-1], "s", since)
    publisher.join()
    expected = [str(number) for number in range(600)]
    for connection in connections:
        wait_for(partial(connection.heard, 600))
        assert connection.htmls == expected


def test_case_6_pages_that_come_and_go_leave_no_gap_in_what_another_sees(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    watching = join(hub)
    hub.subscribe(watching, "s", Position.parse(bus.now()))
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            page = join(hub)
            hub.subscribe(page, "s", Position.parse(bus.now()))
            hub.unsubscribe(page, "s")
            hub.remove(page)

    others = [threading.Thread(target=come_and_go) for _ in range(3)]
    for other in others:
        other.start()
    for number in range(300):
        bus.publish("s", str(number))
    done.set()
    for other in others:
        other.join()
    wait_for(lambda: watching.heard(300))
    assert watching.htmls == [str(number) for number in range(300)]


def test_case_20_a_thousand_events_of_one_process_arrive_in_their_order(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    pages = [join(hub) for _ in range(3)]
    for page in pages:
        hub.subscribe(page, "s", Position.parse(bus.now()))
    for number in range(1000):
        bus.publish("s", str(number))
    for page in pages:
        wait_for(partial(page.heard, 1000))
        assert page.htmls == [str(number) for number in range(1000)]


def test_a_page_may_ask_again_from_further_back(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    since = Position.parse(bus.now())
    connection = join(hub)
    hub.subscribe(connection, "s", since)
    bus.publish("s", "1")
    wait_for(lambda: connection.htmls == ["1"])
    hub.subscribe(connection, "s", since)
    bus.publish("s", "2")
    wait_for(lambda: connection.htmls == ["1", "1", "2"])
    assert connection.types == ["subscribed", "ready", "subscribed", "ready"]


def test_unsubscribing_ends_the_stream_and_nothing_else(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    connection = join(hub)
    for stream in ("s", "t"):
        hub.subscribe(connection, stream, Position.parse(bus.now()))
    hub.unsubscribe(connection, "s")
    bus.publish("s", "no")
    bus.publish("t", "yes")
    wait_for(lambda: connection.htmls == ["yes"])


def test_a_stream_that_nobody_follows_is_given_up_and_can_be_followed_again(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    channel = bus._channel("s")

    def followers() -> int:
        return bus.redis.pubsub_numsub(channel)[0][1]

    for _ in range(3):
        connection = join(hub)
        hub.subscribe(connection, "s", Position.parse(bus.now()))
        assert followers() == 1
        hub.remove(connection)
        wait_for(lambda: followers() == 0)
    assert hub._channels == {}


def test_a_page_that_comes_as_the_last_one_leaves_is_served(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    for number in range(30):
        connection = join(hub)
        hub.subscribe(connection, "s", Position.parse(bus.now()))
        hub.remove(connection)
        following = join(hub)
        hub.subscribe(following, "s", Position.parse(bus.now()))
        bus.publish("s", str(number))
        # One of the same millisecond may come before it, once more.
        wait_for(lambda page=following, last=str(number): page.htmls[-1:] == [last])
        hub.remove(following)


def test_200_streams_on_one_page(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    connection = join(hub)
    since = Position.parse(bus.now())
    for number in range(200):
        hub.subscribe(connection, f"s{number}", since)
    for number in range(200):
        bus.publish(f"s{number}", str(number))
    wait_for(lambda: len(connection.htmls) == 200)


def test_after_a_restart_of_redis_a_page_is_told_to_fetch_itself_and_then_is_live(
    make_hub: MakeHub, make_redis: Callable[..., RedisProcess], caplog: pytest.LogCaptureFixture
) -> None:
    process = make_redis(keeps=True)
    hub, bus = make_hub(process.url)
    connection = join(hub)
    hub.subscribe(connection, "s", Position.parse(bus.now()))
    bus.publish("s", "1")
    wait_for(lambda: connection.htmls == ["1"])
    process.kill()
    process.start()
    # Straight into the gap: the hub has not connected again yet, or is just about to.
    bus.publish("s", "2")
    wait_for(lambda: "reset" in connection.types)
    bus.publish("s", "3")
    wait_for(lambda: connection.htmls[-1] == "3")
    assert connection.types.count("reset") == 1
    assert connection.codes == []
    assert "have lost Redis" in caplog.text


def test_after_a_restart_of_redis_without_its_data_every_page_is_reset(
    make_hub: MakeHub, make_redis: Callable[..., RedisProcess]
) -> None:
    process = make_redis(keeps=False)
    hub, bus = make_hub(process.url)
    connections = [join(hub) for _ in range(3)]
    for connection in connections:
        hub.subscribe(connection, "s", Position.parse(bus.now()))
    process.kill()
    process.start()
    for connection in connections:
        wait_for(lambda connection=connection: "reset" in connection.types)
        # They do not all come at once.
        assert [message["within"] for message in connection.messages if message.get("type") == "reset"] == [15]
    bus.publish("s", "later")
    for connection in connections:
        wait_for(lambda connection=connection: connection.htmls == ["later"])


def test_while_redis_is_away_a_subscriber_is_told_and_not_left_waiting(
    make_hub: MakeHub, make_redis: Callable[..., RedisProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.hub.PATIENCE", 0.3)
    process = make_redis(keeps=False)
    hub, bus = make_hub(process.url)
    since = Position.parse(bus.now())
    process.kill()
    connection = join(hub)
    with pytest.raises(Unavailable):
        hub.subscribe(connection, "s", since)
    hub.remove(connection)
    process.start()
    following = join(hub)

    def subscribed() -> bool:
        try:
            hub.subscribe(following, "s", since)
        except Unavailable:
            return False
        return True

    wait_for(subscribed)
    assert following.types == ["subscribed", "reset", "ready"]


def test_a_full_house_sends_pages_away_for_a_while(make_hub: MakeHub, caplog: pytest.LogCaptureFixture) -> None:
    hub, _ = make_hub(limit=1)
    first, second = join(hub), Noting()
    assert not hub.add(second)
    assert second.codes == [1013]
    assert "raise INSTRUCT_MAX_SOCKETS" in caplog.text
    hub.remove(first)
    assert hub.add(second)
    hub.remove(second)


def test_a_server_that_is_about_to_end_says_so_to_all_pages_and_takes_no_more(make_hub: MakeHub) -> None:
    ending = threading.Event()
    hub, _ = make_hub(stopping=ending.is_set)
    connection = join(hub)
    ending.set()
    wait_for(lambda: connection.codes == [1012])
    late = Noting()
    assert not hub.add(late)
    assert late.codes == [1012]


def hub_threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name == "flask-instruct-hub"}


def test_closing_ends_the_thread_and_tells_the_pages(make_hub: MakeHub) -> None:
    before = hub_threads()
    hub, bus = make_hub()
    connection = join(hub)
    hub.subscribe(connection, "s", Position.parse(bus.now()))
    began = time.monotonic()
    hub.close()
    assert time.monotonic() - began < 2
    assert connection.codes == [1012]
    assert hub_threads() == before
    assert not hub.add(Noting())


def test_no_thread_starts_before_the_first_page(make_hub: MakeHub) -> None:
    before = hub_threads()
    make_hub()
    assert hub_threads() == before


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_process_has_a_thread_and_pages_of_its_own(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    parent = join(hub)
    hub.subscribe(parent, "s", Position.parse(bus.now()))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            connection = join(hub)
            hub.subscribe(connection, "s", Position.parse(bus.now()))
            bus.publish("s", "from the child")
            wait_for(lambda: connection.htmls == ["from the child"])
            assert len(hub) == 1
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_for(lambda: parent.htmls == ["from the child"])


def test_memory_stays_flat_when_readers_have_left(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    connection = join(hub)
    hub.subscribe(connection, "s", Position.parse(bus.now()))
    hub.unsubscribe(connection, "s")
    wait_for(lambda: not hub._channels)
    for _ in range(100):
        bus.publish("s", "x")
    assert holds(lambda: not connection.htmls and not hub._channels, 0.2)


def test_who_was_signed_out_while_redis_was_lost_is_sent_away_as_it_is_back(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    seven, eight = join(hub), join(hub)
    for connection, viewer in ((seven, "7"), (eight, "8")):
        assert hub.introduce(connection, viewer)
        hub.subscribe(connection, "s", Position.parse(bus.now()), viewer)
    # As the other process notes it, but nothing of it comes through.
    bus.redis.zadd(bus._key(EVERY_PROCESS, "signed-out"), {"7": bus._read_clock("").now})
    assert holds(lambda: not seven.codes, 0.3)
    bus.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    wait_for(lambda: seven.codes == [1012])
    assert eight.codes == []


def test_a_page_that_was_sent_away_is_forgotten_with_its_viewer(make_hub: MakeHub) -> None:
    hub, bus = make_hub()
    pages = [join(hub) for _ in range(3)]
    for page in pages:
        assert hub.introduce(page, "7")
        hub.subscribe(page, "s", Position.parse(bus.now()), "7")
    bus.roll.sign_out("7")
    wait_for(lambda: not len(hub))
    assert [page.codes for page in pages] == [[1012]] * 3
    assert hub._connections.pages_of("7") == ()


def test_redis_loses_its_data_while_positions_are_far_ahead_and_pages_follow_what_comes(
    make_hub: MakeHub, redis_url: str
) -> None:
    """As by ``FLUSHALL`` after some restarts: no connection is lost, and new positions are lower than the old ones."""
    hub, bus = make_hub()
    bus.now()
    mark = bus._mark(bus._servers, "s")
    owner, since, _ = (bus.redis.get(mark) or b"").decode().split()
    bus.redis.set(mark, f"{owner} {since} 300000")
    page = join(hub)
    cursor = Position.parse(bus.now())
    hub.subscribe(page, "s", cursor)
    bus.publish("s", "1")
    wait_for(lambda: page.htmls == ["1"])
    bus.redis.delete(mark, bus._key("s"))
    # Whoever publishes next has seen none of it.
    with connect_bus(redis_url) as redis:
        other = Bus(lambda: redis, bus._config)
        other.publish("s", "2")
        other.publish("s", "3")
    wait_for(lambda: page.htmls == ["1", "3"])
    assert page.types == ["subscribed", "ready", "reset"]
    # Where the next one has seen it, positions go on, and a page that was away is told.
    bus.redis.delete(mark, bus._key("s"))
    last = bus.publish("s", "4")
    assert last is not None
    assert Position.parse(last) > cursor
    assert not bus.replay("s", cursor).lossless
