"""Behind nginx: the lines of the documentation, and what is left where a proxy has none of them."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Page

from tests.support import Process
from tests.support import free_port
from tests.support import wait_for

from .conftest import Gunicorn
from .watching import heard
from .watching import items
from .watching import listening
from .watching import open_live
from .websocket import Client

ROOT = Path(__file__).parents[2]
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

GTHREAD = ("--worker-class", "gthread", "--threads", "4")

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/a;
    proxy_temp_path {folder}/b;
    fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d;
    scgi_temp_path {folder}/e;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""

BARE = "location / { proxy_pass http://127.0.0.1:8000; proxy_set_header Host $host:$server_port; }"


def documented() -> str:
    """Return the lines that docs/deployment.md says to use."""
    found = re.search(r"```nginx\n(.*?)```", (ROOT / "docs/deployment.md").read_text(), re.S)
    assert found
    # There the public port is 80 or 443, which no address names.
    return found[1].replace("Host $host", "Host $host:$server_port")


@pytest.fixture
def nginx(start: Callable[..., Process], tmp_path: Path) -> Callable[..., str]:
    """Put nginx in front as ``nginx(address, location)``; gives the public address."""

    def run(upstream: str, location: str) -> str:
        port = free_port()
        text = location.replace("http://127.0.0.1:8000", upstream)
        (tmp_path / "nginx.conf").write_text(CONFIGURATION.format(folder=tmp_path, port=port, location=text))
        start([NGINX, "-e", tmp_path / "errors", "-c", tmp_path / "nginx.conf"])
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return requests.get(address, timeout=5).ok
            except requests.ConnectionError:
                return False

        wait_for(answers, message="nginx does not answer")
        return address

    return run


def say(address: str, verb: str, word: str) -> None:
    assert requests.post(f"{address}/say/{verb}/{word}", timeout=20).ok


def test_case_35_a_quiet_page_stays_open_behind_the_documented_lines(
    gunicorn: Gunicorn, nginx: Callable[..., str], follow: Callable[..., Client]
) -> None:
    """nginx gives a line up on which nothing came for its read timeout; our pings come sooner. Tenfold speed."""
    _, upstream = gunicorn(*GTHREAD, ping_interval=2.5)
    address = nginx(upstream, documented().replace("proxy_read_timeout 60s", "proxy_read_timeout 6s"))
    page = follow(address)
    quiet_until = time.monotonic() + 7
    while time.monotonic() < quiet_until:
        assert page.receive() == {"type": "ping"}
    say(address, "add", "a")
    assert "item_a" in page.receive()["html"]


def test_a_page_is_live_behind_the_documented_lines(page: Page, gunicorn: Gunicorn, nginx: Callable[..., str]) -> None:
    _, upstream = gunicorn(*GTHREAD)
    address = nginx(upstream, documented())
    open_live(listening(page), address)
    say(address, "add", "a")
    wait_for(lambda: items(page) == ["a"])
    assert page.evaluate("sessionStorage.getItem('instruct-line')") is None


def test_a_page_is_live_behind_a_proxy_that_knows_nothing_of_websockets(
    page: Page, gunicorn: Gunicorn, nginx: Callable[..., str]
) -> None:
    """As nginx is without those lines: it answers the handshake itself, and buffers what is not forbidden to be."""
    _, upstream = gunicorn(*GTHREAD, ping_interval=1.0)
    address = nginx(upstream, BARE)
    open_live(listening(page), address)
    for word in ("a", "b", "c"):
        say(address, "add", word)
    wait_for(lambda: items(page) == ["a", "b", "c"])
    assert page.evaluate("sessionStorage.getItem('instruct-line')") == "events"
    assert heard(page, "disconnected") == []
