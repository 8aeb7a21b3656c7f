"""The bus on Redis in all its casts: encrypted, with a user of few rights, promoted replicas, and in a cluster."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError
from redis.exceptions import NoPermissionError
from redis.exceptions import RedisError
from werkzeug.serving import make_ssl_devcert

from flask_instruct import publish
from flask_instruct.addresses import Place
from flask_instruct.config import Config
from flask_instruct.connections import connect
from flask_instruct.connections import connect_bus
from flask_instruct.errors import ConfigurationError
from flask_instruct.live.bus import Bus
from flask_instruct.live.listener import Arrived
from flask_instruct.live.listener import Subscribed
from flask_instruct.live.position import Position
from flask_instruct.live.servers import Cluster
from flask_instruct.live.servers import slot_of
from tests.support import wait_for

from .redis_cast import Node
from .redis_cast import begin_move
from .redis_cast import cluster
from .redis_cast import encrypted
from .redis_cast import end_move
from .redis_cast import running
from .redis_cast import sentinels
from .test_bus import heard
from .test_bus import htmls
from .test_hub import MakeHub
from .test_hub import join
from .test_hub import make_hub

__all__ = ["make_hub"]

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"
STREAMS = [f"s{number}" for number in range(12)]

MakeBus = Callable[[str], Bus]


@pytest.fixture
def make_bus(key_prefix: str) -> Iterator[MakeBus]:
    clients: list[Redis | Cluster] = []

    def make(url: str) -> Bus:
        redis = connect_bus(url)
        clients.append(redis)
        return Bus(lambda: redis, Config(key_prefix=key_prefix))

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def nodes_and_url() -> Iterator[tuple[tuple[Node, ...], str]]:
    with cluster() as found:
        yield found


@pytest.fixture
def nodes(nodes_and_url: tuple[tuple[Node, ...], str]) -> tuple[Node, ...]:
    return nodes_and_url[0]


@pytest.fixture
def cluster_url(nodes_and_url: tuple[tuple[Node, ...], str]) -> str:
    return nodes_and_url[1]


def goes_through(bus: Bus, stream: str = "s") -> None:
    """Publish, hear and replay."""
    since = bus.now(stream)
    listener = bus.listen()
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
    listener.unsubscribe(stream)
    listener.wake()
    for _ in range(3):
        listener.poll(0.05)
    listener.close()


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words", "plain"),
    [
        ("redis://u:p@h/1", "h:6379", "redis://u:p@h/1"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock", "unix:///run/redis.sock?db=1"),
        ("redis+sentinel://u:p%40@a,b:1,[::1]:2/m/3", "m of a:26379, b:1, ::1:2", "redis://u:p%40@localhost/3"),
        ("rediss+cluster://:p@a:1?ssl_ca_certs=x", "the cluster a:1", "rediss://:p@localhost/?ssl_ca_certs=x"),
    ],
)
def test_an_address_is_taken_apart_and_named_without_its_password(url: str, words: str, plain: str) -> None:
    place = Place.read(url)
    assert str(place) == words
    assert place.plain == plain


@pytest.mark.parametrize(
    "url", ["redis+sentinel://a:1", "redis+sentinel://u:se/cret@a/m", "redis+cluster://", "http+x"]
)
def test_what_is_no_address_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        connect_bus(url)
    assert "secret" not in str(refused.value)
    assert "se/cret" not in str(refused.value)


def test_jobs_are_not_put_into_a_cluster() -> None:
    with pytest.raises(ConfigurationError, match="INSTRUCT_LIVE_URL to the cluster"):
        connect("redis+cluster://a:1")


def test_sentinels_may_have_a_user_of_their_own() -> None:
    url = "rediss+sentinel://u:p@a:1/m/2?ssl_ca_certs=ca&sentinel_username=w&sentinel_password=x%2Fy"
    pool: Any = connect(url).connection_pool
    (asked,) = pool.sentinel_manager.sentinels
    assert {"username": "w", "password": "x/y", "ssl_ca_certs": "ca"}.items() <= _options(asked).items()
    assert {"username": "u", "password": "p", "db": 2, "ssl_ca_certs": "ca"}.items() <= pool.connection_kwargs.items()


def _options(redis: Redis) -> dict[str, Any]:
    return dict(redis.connection_pool.connection_kwargs)


# -- one server --------------------------------------------------------------------------------------------------------


def test_a_shell_or_another_service_publishes_without_an_app(
    redis_url: str, key_prefix: str, make_bus: MakeBus
) -> None:
    bus = make_bus(redis_url)
    since = bus.now()
    assert publish(redis_url, "s", "<p>é</p>", key_prefix=key_prefix, broadcast_id="x")
    assert publish(redis_url, "s", "<p>é</p>", key_prefix=key_prefix, broadcast_id="x") is None
    assert htmls(bus, "s", since) == ["<p>é</p>"]


def test_through_tls_with_the_authority_of_its_certificate_and_not_without(make_bus: MakeBus, tmp_path: Path) -> None:
    certificate, key = make_ssl_devcert(str(tmp_path / "redis"), host="localhost")
    with running(Node()) as (node,), encrypted(node.port, certificate, key) as port:
        goes_through(make_bus(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}"))
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            make_bus(f"rediss://localhost:{port}/0").now()


def documented_user(name: str, key_prefix: str) -> list[str]:
    """Return the rights that the docs give a user, for the keys of a test."""
    line = re.search(rf"^user {name} (.+)$", DEPLOYMENT.read_text(), re.MULTILINE)
    assert line is not None
    return line[1].replace("instruct:live", f"{key_prefix}:live").replace("~instruct:", f"~{key_prefix}:").split()


def test_a_user_with_the_documented_rights_suffices_and_has_no_more(make_bus: MakeBus, key_prefix: str) -> None:
    with running(Node()) as (node,):
        with node.client() as administrator:
            administrator.execute_command("ACL", "SETUSER", "pages", *documented_user("pages", key_prefix))
        url = f"redis://pages:PASSWORD@{node.address}/1"
        bus = make_bus(url)
        goes_through(bus)
        with connect(url) as redis:
            for command in (
                "GET other",
                "PUBLISH other x",
                "KEYS *",
                "FLUSHALL",
                "CONFIG GET *",
                f"DEL {key_prefix}:live-x",
            ):
                with pytest.raises(NoPermissionError):
                    redis.execute_command(*command.split())


def test_none_of_the_documented_rights_is_needless(key_prefix: str, make_bus: MakeBus) -> None:
    rights = documented_user("pages", key_prefix)
    with running(Node()) as (node,), node.client() as administrator:
        needless = []
        for right in (right for right in rights if right.startswith("+")):
            administrator.flushall()
            administrator.script_flush()
            administrator.execute_command(
                "ACL", "SETUSER", "pages", "reset", *(each for each in rights if each != right)
            )
            with suppress(RedisError):
                goes_through(make_bus(f"redis://pages:PASSWORD@{node.address}/1"))
                needless.append(right)
        assert not needless


def test_a_promoted_replica_that_lacks_the_newest_never_says_that_a_page_is_up_to_date(make_bus: MakeBus) -> None:
    with running(Node()) as (master,), running(Node("--replicaof", "127.0.0.1", str(master.port))) as (replica,):
        old, new = make_bus(f"redis://{master.address}/0"), make_bus(f"redis://{replica.address}/0")
        since = old.now()
        first = old.publish("s", "1")
        assert first is not None
        wait_for(lambda: replica.client().keys("*stream*"))
        with pytest.raises(RedisError):
            new.replay("s", Position.parse(first))
        replica.client().replicaof("NO", "ONE")
        lost = old.publish("s", "2")
        assert lost is not None
        master.kill()
        for cursor in (since, first, lost):
            assert not new.replay("s", Position.parse(cursor)).lossless
        cursor = new.now()
        assert Position.parse(cursor) > Position.parse(lost)
        new.publish("s", "3")
        assert htmls(new, "s", cursor) == ["3"]


def test_positions_go_on_after_those_of_a_server_whose_clock_was_ahead(
    redis_url: str, make_bus: MakeBus, key_prefix: str
) -> None:
    bus = make_bus(redis_url)
    with connect(redis_url) as redis:
        ahead = int(time.time() * 1000) + 50_000
        redis.xadd(f"{key_prefix}:live-stream:{{s}}", {"html": "1"}, id=f"{ahead}-0")
        redis.set(f"{key_prefix}:live-epoch:{{}}", f"{'0' * 40} {ahead - 86_400_000} 0")
        listener = bus.listen()
        listener.subscribe("s", "t")
        heard(listener, 2)
        cursor = bus.now()
        assert Position.parse(cursor).ms > ahead
        assert not bus.replay("s", Position(ahead)).lossless
        assert not bus.replay("t", Position(ahead)).lossless
        for stream in ("s", "t"):
            bus.publish_all(stream, [(None, str(number)) for number in range(5)])
            told = [notice.position for notice in heard(listener, 5) if isinstance(notice, Arrived)]
            assert told == sorted(set(told))
            assert told[0].ms > ahead
            assert htmls(bus, stream, cursor) == ["0", "1", "2", "3", "4"]
        listener.close()


def test_the_time_of_positions_meets_the_clock_again_and_never_goes_back(
    redis_url: str, make_bus: MakeBus, key_prefix: str
) -> None:
    bus = make_bus(redis_url)
    cursors = []
    with connect(redis_url) as redis:
        bus.now()
        owner, since, lead = (redis.get(f"{key_prefix}:live-epoch:{{}}") or b"").decode().split()
        for age in (0, 1_000, 60_000, 119_000, 120_000, 121_000):
            redis.set(f"{key_prefix}:live-epoch:{{}}", f"{owner} {int(since) - age} {lead}")
            # As time passes, and not as the beginning recedes.
            cursors.append(Position.parse(bus.now()).ms - int(time.time() * 1000))
    assert cursors == sorted(cursors, reverse=True)
    assert 59_000 < cursors[0] <= 60_000
    assert -1_000 < cursors[-1] <= 0


# -- a cluster ---------------------------------------------------------------------------------------------------------


def test_the_streams_of_a_cluster_are_on_all_its_nodes_and_each_goes_through(
    cluster_url: str, make_bus: MakeBus
) -> None:
    bus = make_bus(cluster_url)
    assert isinstance(bus.redis, Cluster)
    assert len({bus.redis.owner(stream) for stream in STREAMS}) == 3
    for stream in STREAMS:
        goes_through(bus, stream)


def test_in_a_cluster_the_order_of_positions_is_that_of_arrival(cluster_url: str, make_bus: MakeBus) -> None:
    bus = make_bus(cluster_url)
    listener = bus.listen()
    listener.subscribe(*STREAMS[:3])
    assert len(heard(listener, 3)) == 3

    def write() -> None:
        writer = make_bus(cluster_url)
        for number in range(150):
            writer.publish(STREAMS[number % 3], str(number))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    notices = [notice for notice in heard(listener, 600) if isinstance(notice, Arrived)]
    for writer in writers:
        writer.join()
    for stream in STREAMS[:3]:
        told = [notice.position for notice in notices if notice.stream == stream]
        assert len(told) == 200
        assert told == sorted(set(told))
    listener.close()


def test_a_user_of_a_cluster_needs_the_documented_rights(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus, key_prefix: str
) -> None:
    besides = re.search(r"In a cluster besides: `([^`]+)`", DEPLOYMENT.read_text())
    assert besides is not None
    for node in nodes:
        rights = [right for right in documented_user("pages", key_prefix) if right != "+select"]
        old = str(node.client().info("server")["redis_version"]).startswith("6.")
        rights += besides[1].split()[: 2 if old else None]
        node.client().execute_command("ACL", "SETUSER", "pages", *rights)
    goes_through(make_bus(cluster_url.replace("://", "://pages:PASSWORD@")))


def test_a_slot_that_moves_takes_its_streams_along_and_their_pages_are_reset(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus, make_hub: MakeHub
) -> None:
    hub, bus = make_hub(cluster_url)
    redis = bus.redis
    assert isinstance(redis, Cluster)
    stream, other = "moving", next(each for each in STREAMS if redis.owner(each) != redis.owner("moving"))
    source = next(node for node in nodes if node.port == redis.owner(stream)[1])
    target, third = (node for node in nodes if node is not source)
    page = join(hub)
    for each in (stream, other):
        hub.subscribe(page, each, Position.parse(bus.now(each)))
    bus.publish(stream, "1", broadcast_id="1")
    wait_for(lambda: page.htmls == ["1"])
    begin_move(slot_of(stream), source, target)
    bus.publish(stream, "2", broadcast_id="2")
    wait_for(lambda: page.htmls == ["1", "2"])
    end_move(slot_of(stream), source, target, (third,))
    assert redis.owner(stream) == ("127.0.0.1", source.port)
    bus.publish(stream, "3", broadcast_id="3")
    assert redis.owner(stream) == ("127.0.0.1", target.port)
    wait_for(lambda: [each["stream"] for each in page.messages if each.get("type") == "reset"] == [stream])
    bus.publish(stream, "4", broadcast_id="4")
    bus.publish(other, "there")
    wait_for(lambda: {"4", "there"} <= set(page.htmls))
    cursor = bus.now(stream)
    bus.publish(stream, "5")
    assert htmls(bus, stream, cursor)[-1] == "5"


def test_publishing_waits_for_a_stream_that_is_half_way(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus
) -> None:
    bus = make_bus(cluster_url)
    redis = bus.redis
    assert isinstance(redis, Cluster)
    source = next(node for node in nodes if node.port == redis.owner("half")[1])
    target, third = (node for node in nodes if node is not source)
    cursor = bus.now("half")
    begin_move(slot_of("half"), source, target)
    published: list[str | None] = []
    # The mark is there and the stream is not: neither node has all that the script needs.
    writer = threading.Thread(target=lambda: published.append(bus.publish("half", "1")))
    writer.start()
    writer.join(0.3)
    assert writer.is_alive()
    end_move(slot_of("half"), source, target, (third,))
    writer.join(5)
    assert published
    assert published[0] is not None
    assert not bus.replay("half", Position.parse(cursor)).lossless


def test_a_prefix_with_braces_is_refused_in_a_cluster(cluster_url: str) -> None:
    redis = connect_bus(cluster_url)
    with pytest.raises(ConfigurationError, match="must have no braces"):
        Bus(lambda: redis, Config(key_prefix="{x}")).now("s")


# -- failovers ---------------------------------------------------------------------------------------------------------


def publish_when_possible(bus: Bus, stream: str, html: str) -> str:
    def tried() -> str | None:
        with suppress(RedisError):
            return bus.publish(stream, html, broadcast_id=html)
        return None

    return wait_for(tried, timeout=40, message="publishing to go on")


@pytest.mark.chaos
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_pages_go_on_with_the_master_that_sentinel_names_and_are_reset(make_hub: MakeHub, how: str) -> None:
    with sentinels() as (master, replica, url):
        hub, bus = make_hub(url)
        page = join(hub)
        since = Position.parse(bus.now())
        hub.subscribe(page, "s", since)
        bus.publish("s", "1")
        wait_for(lambda: page.htmls == ["1"])
        # A master that is cut off does not say so; the connection to it stays.
        getattr(master, how)()
        publish_when_possible(bus, "s", "2")
        assert bus.redis.info("server")["tcp_port"] == replica.port  # type: ignore[union-attr]
        assert not bus.replay("s", since).lossless
        wait_for(lambda: "reset" in page.types, timeout=30)
        bus.publish("s", "3")
        wait_for(lambda: page.htmls[-1] == "3")
        cursor = bus.cursor("s", time.monotonic())
        bus.publish("s", "4")
        assert htmls(bus, "s", cursor)[-1] == "4"
        assert bus.replay("s", Position.parse(cursor)).lossless


@pytest.mark.chaos
@pytest.mark.parametrize("how", ["killed", "relieved"])
def test_a_node_of_a_cluster_is_replaced_and_only_its_pages_are_reset(make_hub: MakeHub, how: str) -> None:
    with cluster(replicas=3) as (nodes, url):
        hub, bus = make_hub(url)
        redis = bus.redis
        assert isinstance(redis, Cluster)
        page = join(hub)
        for stream in STREAMS:
            hub.subscribe(page, stream, Position.parse(bus.now(stream)))
            bus.publish(stream, f"before {stream}")
        wait_for(lambda: len(page.htmls) == len(STREAMS))
        address = redis.owner(STREAMS[0])
        lost = {stream for stream in STREAMS if redis.owner(stream) == address}
        node = next(node for node in nodes if node.port == address[1])
        stand_in = nodes[3 + nodes.index(node)]
        if how == "killed":
            node.kill()
        else:
            # The old one stays, and the connections to it do.
            stand_in.client().execute_command("CLUSTER", "FAILOVER")
        for stream in STREAMS:
            publish_when_possible(bus, stream, f"after {stream}")
        assert redis.owner(STREAMS[0]) == ("127.0.0.1", stand_in.port)
        wait_for(lambda: {each["stream"] for each in page.messages if each.get("type") == "reset"} >= lost, timeout=30)
        for stream in STREAMS:
            publish_when_possible(bus, stream, f"later {stream}")
        wait_for(lambda: {f"later {stream}" for stream in STREAMS} <= set(page.htmls), timeout=30)
        assert {each["stream"] for each in page.messages if each.get("type") == "reset"} == lost
        kept = [html for html in page.htmls if html.partition(" ")[2] not in lost]
        assert len(kept) == len(set(kept)) == 3 * len(set(STREAMS) - lost)
