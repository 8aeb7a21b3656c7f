"""The bus on one server: encrypted, with a user of few rights, restarted and promoted, and used without an app."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError
from redis.exceptions import NoPermissionError
from redis.exceptions import RedisError

from flask_instruct import publish
from flask_instruct import turbo_stream
from flask_instruct.addresses import Place
from flask_instruct.config import Config
from flask_instruct.connections import connect
from flask_instruct.connections import connect_bus
from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import InstructError
from flask_instruct.live import bus_scripts
from flask_instruct.live.listener import Arrived
from flask_instruct.live.position import Position
from tests.support import wait_for

from .buses import DEPLOYMENT
from .buses import MakeBus
from .buses import documented_user
from .buses import goes_through
from .buses import make_bus
from .redis_cast import Node
from .redis_cast import running
from .redis_cast import sentinels
from .test_bus import heard
from .test_bus import htmls
from .tls import Certificates
from .tls import Door

__all__ = ["make_bus"]

LIVE = DEPLOYMENT.parent / "live.md"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


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


def test_through_tls_with_the_authority_of_its_certificate_and_not_without(
    make_bus: MakeBus, certificates: Certificates
) -> None:
    with running(Node(certificates=certificates)) as (node,):
        for host in ("localhost", "127.0.0.1"):
            goes_through(make_bus(f"rediss://{host}:{node.port}/0?ssl_ca_certs={certificates.authority}"), host)
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            make_bus(f"rediss://localhost:{node.port}/0").now()


def test_a_certificate_for_another_name_is_refused(make_bus: MakeBus, certificates: Certificates) -> None:
    with running(Node()) as (node,), Door(node.port, certificates, host="127.0.0.2") as door:
        url = f"rediss://127.0.0.2:{door.port}/0?ssl_ca_certs={certificates.authority}"
        with pytest.raises(ConnectionError, match=r"CERTIFICATE_VERIFY_FAILED.*IP address mismatch"):
            make_bus(url).now()


def test_a_server_may_ask_for_a_certificate_of_its_clients(make_bus: MakeBus, certificates: Certificates) -> None:
    with running(Node()) as (node,), Door(node.port, certificates, strict=True) as door:
        url = f"rediss://localhost:{door.port}/0?ssl_ca_certs={certificates.authority}"
        goes_through(make_bus(f"{url}&ssl_certfile={certificates.certificate}&ssl_keyfile={certificates.key}"))
        with pytest.raises(RedisError):
            make_bus(url).now()


def test_through_sentinel_with_tls(make_bus: MakeBus, certificates: Certificates) -> None:
    with sentinels(certificates) as (master, _, url):
        bus = make_bus(url)
        goes_through(bus)
        assert isinstance(bus.redis, Redis)
        assert bus.redis.info("server")["tcp_port"] == master.inner_port
        with pytest.raises(RedisError):
            make_bus(url.partition("?")[0]).now()


@contextmanager
def server_of(user: str) -> Iterator[Node]:
    """Run a server that has read a line of the docs from its file of users, and has no other user but the default."""
    with running(Node(users=[user])) as (node,):
        yield node


def test_a_user_with_the_documented_rights_suffices_and_has_no_more(make_bus: MakeBus) -> None:
    with server_of(documented_user("pages")) as node:
        url = f"redis://pages:PASSWORD@{node.address}/1"
        goes_through(make_bus(url, Config().key_prefix))
        with connect(url) as redis:
            for command in (
                "GET other",
                "PUBLISH other x",
                "KEYS *",
                "FLUSHALL",
                "CONFIG GET *",
                "ZADD instruct:runs 1 x",
                "HSET instruct:live-x a b",
            ):
                with pytest.raises(NoPermissionError):
                    redis.execute_command(*command.split())


def test_none_of_the_documented_rights_is_needless(make_bus: MakeBus) -> None:
    line = documented_user("pages")
    with server_of(line) as node, node.client() as administrator:
        rights = line.split()[2:]
        needless = []
        for right in (right for right in rights if right.startswith("+")):
            administrator.flushall()
            administrator.script_flush()
            administrator.execute_command(
                "ACL", "SETUSER", "pages", "reset", *(each for each in rights if each != right)
            )
            with suppress(RedisError):
                goes_through(make_bus(f"redis://pages:PASSWORD@{node.address}/1", Config().key_prefix))
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


def test_publishing_asks_a_server_once_in_a_second_who_it_is(redis_url: str, make_bus: MakeBus) -> None:
    bus = make_bus(redis_url)
    with connect(redis_url) as redis:
        bus.publish("s", "first")
        before, began = _asked(redis), time.monotonic()
        for number in range(100):
            bus.publish("s", str(number))
        assert _asked(redis) - before <= 1 + (time.monotonic() - began) / bus_scripts.TRUST
        # What tells a page where it is asks each time.
        before = _asked(redis)
        for _ in range(10):
            bus.replay("s", None)
            bus.now()
        assert _asked(redis) - before >= 20


def _asked(redis: Redis) -> int:
    # This one is counted too, after it has answered.
    return int(redis.info("commandstats").get("cmdstat_info", {}).get("calls", 0))


def test_a_master_that_was_relieved_and_is_back_marks_a_new_beginning_before_it_publishes(make_bus: MakeBus) -> None:
    with running(Node()) as (master,), running(Node()) as (other,):
        bus = make_bus(f"redis://{master.address}/0")
        listener = bus.listen()
        listener.subscribe("s")
        heard(listener, 1)
        bus.publish("s", "1")
        master.client().replicaof("127.0.0.1", str(other.port))
        with pytest.raises(RedisError):
            bus.publish("s", "2")
        master.client().replicaof("NO", "ONE")
        bus.publish("s", "3")
        before, after = (notice.epoch for notice in heard(listener, 2) if isinstance(notice, Arrived))
        assert after > before
        listener.close()


def test_who_was_relieved_without_our_noticing_is_found_out_within_a_second(make_bus: MakeBus) -> None:
    with running(Node()) as (master,), running(Node()) as (other,):
        bus = make_bus(f"redis://{master.address}/0")
        first = bus.publish("s", "1")
        assert first is not None
        master.client().replicaof("127.0.0.1", str(other.port))
        master.client().replicaof("NO", "ONE")
        # At once for pages, and for a publisher as soon as it asks again.
        publisher = make_bus(f"redis://{master.address}/0")
        publisher.publish("s", "2")
        assert not bus.replay("s", Position.parse(first)).lossless


# -- without an app ----------------------------------------------------------------------------------------------------


def test_a_shell_or_another_service_publishes_without_an_app(
    redis_url: str, key_prefix: str, make_bus: MakeBus
) -> None:
    bus = make_bus(redis_url)
    since = bus.now()
    assert publish(redis_url, "s", "<p>é</p>", key_prefix=key_prefix, broadcast_id="x")
    assert publish(redis_url, "s", "<p>é</p>", key_prefix=key_prefix, broadcast_id="x") is None
    assert htmls(bus, "s", since) == ["<p>é</p>"]


def test_a_broadcast_that_is_too_large_is_refused_by_name_and_size_also_without_an_app(
    redis_url: str, make_bus: MakeBus, key_prefix: str
) -> None:
    since = make_bus(redis_url).now()
    with pytest.raises(InstructError, match=r"to news has 1048577 bytes.*INSTRUCT_BROADCAST_BYTES is 1048576"):
        publish(redis_url, "news", "x" * 1_048_577, key_prefix=key_prefix)
    with pytest.raises(InstructError, match=r"to news has 11 bytes.*INSTRUCT_BROADCAST_BYTES is 10"):
        publish(redis_url, "news", "x" * 11, key_prefix=key_prefix, broadcast_bytes=10)
    assert htmls(make_bus(redis_url), "news", since) == []


def test_without_an_app_a_stream_is_kept_as_the_app_keeps_it(
    redis_url: str, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(redis_url) as redis:
        publish(redis_url, "given", "1", key_prefix=key_prefix, stream_ttl=60)
        assert 0 < redis.pttl(f"{key_prefix}:live-stream:{{given}}") <= 60_000
        monkeypatch.setenv("INSTRUCT_KEY_PREFIX", key_prefix)
        monkeypatch.setenv("INSTRUCT_STREAM_TTL", "30")
        monkeypatch.setenv("INSTRUCT_STREAM_MAXLEN", "10")
        for number in range(500):
            publish(redis_url, "set", str(number))
        assert 0 < redis.pttl(f"{key_prefix}:live-stream:{{set}}") <= 30_000
        assert redis.xlen(f"{key_prefix}:live-stream:{{set}}") < 200


def test_a_cron_job_publishes_in_a_process_that_has_no_app(redis_url: str, make_bus: MakeBus, key_prefix: str) -> None:
    bus = make_bus(redis_url)
    since = bus.now()
    # The code of the docs, as its own program.
    code = next(
        code for code in re.findall(r"```python\n(.*?)```", LIVE.read_text(), re.DOTALL) if "import publish" in code
    )
    code = code.replace("redis://localhost:6379/0", redis_url).replace("html=text", "html='<p>1</p>'")
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        timeout=60,
        env={**os.environ, "INSTRUCT_KEY_PREFIX": key_prefix},
    )
    (html,) = htmls(bus, "news", since)
    assert html == turbo_stream("append", target="news", html="<p>1</p>")
