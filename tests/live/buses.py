"""What the tests of the bus in every kind of Redis share: a bus by its address, and the way through it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from flask_instruct.config import Config
from flask_instruct.connections import connect_bus
from flask_instruct.live.bus import Bus
from flask_instruct.live.listener import Arrived
from flask_instruct.live.listener import SignedOut
from flask_instruct.live.listener import Subscribed
from flask_instruct.live.servers import Cluster
from tests.support import wait_for

from .test_bus import heard
from .test_bus import htmls

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"
STREAMS = [f"s{number}" for number in range(12)]

MakeBus = Callable[..., Bus]


@pytest.fixture
def make_bus(key_prefix: str) -> Iterator[MakeBus]:
    clients: list[Redis | Cluster] = []

    def make(url: str, key_prefix: str = key_prefix) -> Bus:
        redis = connect_bus(url)
        clients.append(redis)
        return Bus(lambda: redis, Config(key_prefix=key_prefix))

    yield make
    for client in clients:
        client.close()


def goes_through(bus: Bus, stream: str = "s") -> None:
    """Publish, hear and replay; say who is there, and sign somebody out."""
    since = bus.now(stream)
    with closing(bus.listen()) as listener:
        listener.subscribe(stream)
        assert heard(listener, 1) == [Subscribed(stream)]
        bus.now(stream)
        began = time.monotonic()
        bus.publish(stream, "1", broadcast_id="a")
        bus.publish(stream, "1", broadcast_id="a")
        bus.publish(stream, "2")
        assert [notice.html for notice in heard(listener, 2) if isinstance(notice, Arrived)] == ["1", "2"]
        assert htmls(bus, stream, since) == ["1", "2"]
        assert htmls(bus, stream, bus.cursor(stream, began)) == ["1", "2"]
        bus.roll.sign_out("7")
        assert heard(listener, 1) == [SignedOut("7")]
        assert bus.roll.signed_out(60) == ["7"]
        _call_the_roll(bus, stream)
        listener.unsubscribe(stream)
        listener.wake()
        assert [listener.poll(0.05) for _ in range(3)] == [None] * 3


def _call_the_roll(bus: Bus, stream: str) -> None:
    assert bus.roll.attend(stream, "p" * 32, ["7", "8"]) == (["7", "8"], [])
    assert bus.roll.may_tell(stream)
    assert not bus.roll.may_tell(stream)
    bus.roll.told(stream, ["7"], 60)
    assert bus.roll.attend(stream, "p" * 32, ["7"], ["8"]) == (["7", "8"], ["7"])
    assert bus.roll.may_tell(stream)


def documented_user(name: str, *besides: str) -> str:
    """Return the line of the docs that gives a user its rights."""
    line = re.search(rf"^user {name} .+$", DEPLOYMENT.read_text(), re.MULTILINE)
    assert line is not None
    return " ".join([line[0], *besides])


def publish_when_possible(bus: Bus, stream: str, html: str) -> str:
    """Publish during a failover, again and again under the same name."""

    def tried() -> str | None:
        with suppress(RedisError):
            return bus.publish(stream, html, broadcast_id=html)
        return None

    return wait_for(tried, timeout=40, message="publishing to go on")
