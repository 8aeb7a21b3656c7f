"""Jobs on a Redis of another cast: with a user of few rights, and under Sentinel."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from flask_instruct.doctor import examine
from flask_instruct.runs.models import Run
from tests.live.redis_cast import Node
from tests.live.redis_cast import running
from tests.live.redis_cast import sentinels
from tests.support import Process

from .conftest import notes
from .conftest import wait_for_end

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"


@pytest.fixture
def node(key_prefix: str) -> Iterator[Node]:
    """A server with a user named as in the docs, who has the rights given there."""
    line = re.search(r"^user instruct (.+)$", DEPLOYMENT.read_text(), re.MULTILINE)
    assert line is not None
    rights = line[1].replace("instruct:", f"{key_prefix}:").split()
    with running(Node()) as (node,), node.client() as administrator:
        administrator.execute_command("ACL", "SETUSER", "instruct", *rights)
        yield node


@pytest.fixture
def watched() -> Iterator[tuple[Node, Node, str]]:
    with sentinels() as found:
        yield found


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    if "watched" in request.fixturenames:
        url: str = request.getfixturevalue("watched")[2]
        return url
    return f"redis://instruct:PASSWORD@{request.getfixturevalue('node').address}/0"


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'notebook.db'}"


def test_runs_and_pages_with_a_user_of_the_documented_rights(
    node: Node, app: Flask, ask: Callable[..., Run], worker: Callable[..., Process]
) -> None:
    process = worker()
    assert wait_for_end(ask("write_two")).status == "succeeded"
    stopped = ask("write_two")
    stopped.cancel()
    found = examine(lambda: app)
    assert [each.level for each in found if each.check in ("redis", "broadcasts", "workers", "runs", "clocks")] == [
        "ok"
    ] * 5
    process.signal(signal.SIGTERM)
    process.wait(timeout=20)
    with node.client() as administrator:
        # CONFIG only tells the doctor more than it must know.
        assert [refused["object"] for refused in administrator.acl_log() if refused["object"] != "config|get"] == []


@pytest.mark.parametrize("right", ["publish", "zrange", "zrangebyscore", "info"])
def test_the_doctor_names_a_right_that_pages_lack(node: Node, app: Flask, right: str) -> None:
    with node.client() as administrator:
        administrator.execute_command("ACL", "SETUSER", "instruct", f"-{right}")
        (found,) = (each for each in examine(lambda: app) if each.check == "broadcasts")
        assert found.level == "error"
        assert "rights" in found.fix
        assert right in {refused["object"] for refused in administrator.acl_log()}


@pytest.mark.chaos
def test_a_worker_under_sentinel_goes_on_with_the_new_master(
    watched: tuple[Node, Node, str], app: Flask, ask: Callable[..., Run], worker: Callable[..., Process]
) -> None:
    master, replica, _ = watched
    worker()
    assert wait_for_end(ask("write_two")).status == "succeeded"
    master.kill()
    # Nobody can be called for this one; the sweep finds it.
    run = ask("write_two")
    assert wait_for_end(run, timeout=60).status == "succeeded"
    assert len(notes()) == 4
    state = app.extensions["instruct"]
    assert state.redis.info("server")["tcp_port"] == replica.port
    assert wait_for_end(ask("write_two"), timeout=60).status == "succeeded"
