"""Pages through a failover: of the master under Sentinel, and of a node of a cluster."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from flask_instruct.live.position import Position
from flask_instruct.live.roll import EVERY_PROCESS
from flask_instruct.live.servers import Cluster
from tests.support import wait_for

from .buses import STREAMS
from .buses import publish_when_possible
from .redis_cast import cluster
from .redis_cast import sentinels
from .test_bus import htmls
from .test_hub import MakeHub
from .test_hub import join
from .test_hub import make_hub

__all__ = ["make_hub"]


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
        assert isinstance(bus.redis, Redis)
        assert bus.redis.info("server")["tcp_port"] == replica.port
        assert not bus.replay("s", since).lossless
        wait_for(lambda: "reset" in page.types, timeout=30)
        bus.publish("s", "3")
        wait_for(lambda: page.htmls[-1] == "3")
        cursor = bus.cursor("s", time.monotonic())
        bus.publish("s", "4")
        assert htmls(bus, "s", cursor)[-1] == "4"
        assert bus.replay("s", Position.parse(cursor)).lossless
        assert hub.introduce(page, "7")
        bus.roll.sign_out("7")
        wait_for(lambda: page.codes == [1012])


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
        # The node that also says what is for every process.
        address = redis.owner(EVERY_PROCESS)
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
        assert lost
        assert redis.owner(min(lost)) == ("127.0.0.1", stand_in.port)
        wait_for(lambda: {each["stream"] for each in page.messages if each.get("type") == "reset"} >= lost, timeout=30)
        for stream in STREAMS:
            publish_when_possible(bus, stream, f"later {stream}")
        wait_for(lambda: {f"later {stream}" for stream in STREAMS} <= set(page.htmls), timeout=30)
        assert {each["stream"] for each in page.messages if each.get("type") == "reset"} == lost
        kept = [html for html in page.htmls if html.partition(" ")[2] not in lost]
        assert len(kept) == len(set(kept)) == 3 * len(set(STREAMS) - lost)
        assert hub.introduce(page, "7")
        bus.roll.sign_out("7")
        wait_for(lambda: page.codes == [1012])
