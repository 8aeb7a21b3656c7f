"""The bus in a cluster: each stream on its node, slots that move, and users."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError
from redis.exceptions import NoPermissionError
from redis.exceptions import RedisError

from flask_instruct.config import Config
from flask_instruct.connections import connect
from flask_instruct.connections import connect_bus
from flask_instruct.doctor import examine
from flask_instruct.errors import ConfigurationError
from flask_instruct.live.bus import Bus
from flask_instruct.live.listener import Arrived
from flask_instruct.live.listener import SignedOut
from flask_instruct.live.page import turbo_stream_from
from flask_instruct.live.position import Position
from flask_instruct.live.roll import EVERY_PROCESS
from flask_instruct.live.servers import Cluster
from flask_instruct.live.servers import slot_of
from tests.operating import notebook_site
from tests.runs.notebook import instruct
from tests.support import wait_for

from .buses import DEPLOYMENT
from .buses import STREAMS
from .buses import MakeBus
from .buses import documented_user
from .buses import goes_through
from .buses import make_bus
from .redis_cast import Node
from .redis_cast import begin_move
from .redis_cast import cluster
from .redis_cast import end_move
from .test_bus import heard
from .test_bus import htmls
from .test_hub import MakeHub
from .test_hub import join
from .test_hub import make_hub
from .tls import Certificates

__all__ = ["make_bus", "make_hub"]


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


def parts(nodes: tuple[Node, ...], bus: Bus, stream: str) -> tuple[Node, Node, Node]:
    """Return the node that keeps a stream, and the two others."""
    assert isinstance(bus.redis, Cluster)
    keeper = bus.redis.owner(stream)[1]
    source = next(node for node in nodes if node.port == keeper)
    target, third = (node for node in nodes if node is not source)
    return source, target, third


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


def test_a_user_of_a_cluster_needs_the_documented_rights_and_no_others(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus
) -> None:
    said = re.search(r"In a cluster besides: `([^`]+)`", DEPLOYMENT.read_text())
    assert said is not None
    besides = said[1].split()
    if nodes[0].version < (7, 0):
        # Which knows no sharded channels, nor rights to what it does not know.
        besides = [right for right in besides if not right.endswith(("publish", "subscribe"))]
    url = cluster_url.replace("://", "://pages:PASSWORD@")
    for lacking in ("", *besides):
        # A cluster has only the database that is 0, so nobody selects one.
        rights = documented_user("pages", *(right for right in besides if right != lacking)).split()[2:]
        for node in nodes:
            node.client().execute_command(
                "ACL", "SETUSER", "pages", "reset", *(right for right in rights if right != "+select")
            )
        bus = make_bus(url, Config().key_prefix)
        if not lacking:
            for stream in STREAMS[:3]:
                goes_through(bus, stream)
        elif lacking == "+asking":
            source, target, third = parts(nodes, bus, "asked")
            begin_move(slot_of("asked"), source, target)
            with pytest.raises(NoPermissionError):
                bus.now("asked")
            end_move(slot_of("asked"), source, target, (third,))
        else:
            with pytest.raises(RedisError):
                goes_through(bus, f"without {lacking}")


def test_what_is_said_to_every_process_is_heard_once_whatever_it_follows(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus
) -> None:
    bus = make_bus(cluster_url)
    for followed in ([], STREAMS):
        listener = bus.listen()
        listener.subscribe(*followed)
        heard(listener, len(followed))
        wait_for(lambda listener=listener: listener.poll(0.05) is None and listener.connected == 1)
        for viewer in ("7", "8"):
            bus.roll.sign_out(viewer)
        bus.publish(STREAMS[0], "later")
        notices = heard(listener, 3 if followed else 2)
        assert [notice.viewer for notice in notices if isinstance(notice, SignedOut)] == ["7", "8"]
        assert not [notice for _ in range(8) if (notice := listener.poll(0.1)) is not None]
        listener.close()


def test_the_pages_of_who_was_signed_out_connect_anew_on_whatever_node_their_streams_are(
    nodes: tuple[Node, ...], cluster_url: str, make_hub: MakeHub
) -> None:
    hub, bus = make_hub(cluster_url)
    pages = {stream: join(hub) for stream in STREAMS}
    for stream, page in pages.items():
        assert hub.introduce(page, "7" if stream in STREAMS[::2] else "8")
        hub.subscribe(page, stream, Position.parse(bus.now(stream)), "7")
    bus.roll.sign_out("7")
    wait_for(lambda: [stream for stream, page in pages.items() if page.codes == [1012]] == STREAMS[::2])
    assert all(page.codes == [] for stream, page in pages.items() if stream not in STREAMS[::2])


def test_who_was_signed_out_while_the_node_that_says_so_was_lost_is_sent_away_as_it_is_back(
    nodes: tuple[Node, ...], cluster_url: str, make_hub: MakeHub
) -> None:
    hub, bus = make_hub(cluster_url)
    page = join(hub)
    assert hub.introduce(page, "7")
    hub.subscribe(page, STREAMS[0], Position.parse(bus.now(STREAMS[0])), "7")
    speaker, *_ = parts(nodes, bus, EVERY_PROCESS)
    # As another process notes it, but nothing of it comes through.
    now = bus._read_clock(EVERY_PROCESS).now
    speaker.client().zadd(bus._key(EVERY_PROCESS, "signed-out"), {"7": now})
    speaker.client().execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    wait_for(lambda: page.codes == [1012])


def test_a_cluster_without_sharded_channels_as_redis_6_2_is_heard_at_each_node(
    make_bus: MakeBus, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The servers do not know these words, and say that they are of another version.
    monkeypatch.setattr("flask_instruct.live.cluster_listener.SHARDED", 99)
    monkeypatch.setattr("flask_instruct.live.listener.PLACE_CHECK", 0.2)
    with cluster(unknown=("SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE")) as (nodes, url):
        bus = make_bus(url)
        for stream in STREAMS[:4]:
            goes_through(bus, stream)
        hub, bus = make_hub(url)
        page = join(hub)
        hub.subscribe(page, "moving", Position.parse(bus.now("moving")))
        bus.publish("moving", "1", broadcast_id="1")
        wait_for(lambda: page.htmls == ["1"])
        source, target, third = parts(nodes, bus, "moving")
        begin_move(slot_of("moving"), source, target)
        end_move(slot_of("moving"), source, target, (third,))
        bus.publish("moving", "2")
        wait_for(lambda: "reset" in page.types)
        bus.publish("moving", "3")
        wait_for(lambda: page.htmls[-1] == "3")


def test_an_app_keeps_its_jobs_on_one_server_and_its_broadcasts_in_a_cluster(
    redis_url: str, cluster_url: str, sqlite_url: str, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"INSTRUCT_REDIS_URL": redis_url, "INSTRUCT_LIVE_URL": cluster_url, "INSTRUCT_KEY_PREFIX": key_prefix}
    with notebook_site(monkeypatch, DATABASE_URL=sqlite_url, **settings) as app:
        with app.test_request_context():
            pages = {stream: str(turbo_stream_from(stream)) for stream in STREAMS}
            for stream, element in pages.items():
                instruct.bus.publish(stream, "1")
                since = re.search(r'since="([^"]+)"', element)
                assert since is not None
                assert htmls(instruct.bus, stream, since[1]) == ["1"]
            assert instruct.viewers("s1") == []
        found = {each.check: each for each in examine(lambda: app)}
        assert found["broadcasts"].level == "ok"
        assert "the cluster" in found["broadcasts"].sentence
        with connect(redis_url) as redis:
            assert redis.keys(f"{key_prefix}:live*") == []


def test_a_cluster_with_tls(tmp_path: Path, make_bus: MakeBus) -> None:
    with cluster(certificates=Certificates.make(tmp_path / "certificates")) as (nodes, url):
        bus = make_bus(url)
        assert isinstance(bus.redis, Cluster)
        assert {bus.redis.owner(stream)[1] for stream in STREAMS} == {node.port for node in nodes}
        for stream in STREAMS[:4]:
            goes_through(bus, stream)
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            make_bus(url.partition("?")[0]).now("s")


def test_a_slot_that_moves_takes_its_streams_along_and_their_pages_are_reset(
    nodes: tuple[Node, ...], cluster_url: str, make_bus: MakeBus, make_hub: MakeHub
) -> None:
    hub, bus = make_hub(cluster_url)
    redis = bus.redis
    assert isinstance(redis, Cluster)
    stream, other = "moving", next(each for each in STREAMS if redis.owner(each) != redis.owner("moving"))
    source, target, third = parts(nodes, bus, stream)
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
    source, target, third = parts(nodes, bus, "half")
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
