"""Behind Caddy: the lines of the documentation, and what is left where they let no WebSocket through."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser
from playwright.sync_api import Page
from playwright.sync_api import Response

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
CADDY = shutil.which("caddy", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")

pytestmark = pytest.mark.skipif(CADDY is None, reason="Caddy is not installed")

GTHREAD = ("--worker-class", "gthread", "--threads", "4")

# Nothing of the machine's own Caddy is touched, and no certificate asked for.
GLOBAL = """{{
    admin unix/{folder}/admin
    auto_https disable_redirects
    skip_install_trust
    storage file_system {folder}/storage
}}
"""

WITHOUT_WEBSOCKETS = "@socket path /instruct/socket\n    respond @socket 502\n    "


def documented() -> str:
    """Return the lines that docs/deployment.md says to use."""
    found = re.search(r"```caddy\n(.*?)```", (ROOT / "docs/deployment.md").read_text(), re.S)
    assert found
    return found[1]


class Caddy:
    """A Caddy in front of a server.

    :param scheme: where it is ``https``, the certificate is of an authority that Caddy makes for itself.
    :param before: lines that go before the documented ones.
    """

    def __init__(self, folder: Path, upstream: str, scheme: str, before: str) -> None:
        self._file = folder / "Caddyfile"
        self._environment = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
        self.address = f"{scheme}://localhost:{free_port()}"
        inside = ("tls internal\n    " if scheme == "https" else "") + before
        site = documented().replace("example.com {\n    ", f"{self.address} {{\n    {inside}")
        assert self.address in site
        assert "127.0.0.1:8000" in site
        site = site.replace("127.0.0.1:8000", upstream.removeprefix("http://"))
        self._file.write_text(GLOBAL.format(folder=folder) + site)

    def start(self, start: Callable[..., Process]) -> None:
        start([CADDY, "run", "--config", self._file], env=self._environment)
        wait_for(self._answers, message="Caddy does not answer")

    def reload(self) -> None:
        """Let it read its file again, as ``systemctl reload caddy`` does."""
        command = [CADDY or "", "reload", "--force", "--config", str(self._file)]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=30)

    def say(self, verb: str, word: str) -> None:
        assert requests.post(f"{self.address}/say/{verb}/{word}", timeout=20, verify=False).ok

    def _answers(self) -> bool:
        try:
            return requests.get(self.address, timeout=5, verify=False).ok
        except requests.ConnectionError:
            return False


@pytest.fixture
def caddy(start: Callable[..., Process], tmp_path: Path) -> Callable[..., Caddy]:
    """Put Caddy in front as ``caddy(upstream, scheme, before)``."""

    def run(upstream: str, scheme: str = "http", before: str = "") -> Caddy:
        made = Caddy(tmp_path, upstream, scheme, before)
        made.start(start)
        return made

    return run


@pytest.fixture
def trusting(browser: Browser) -> Iterator[Page]:
    """A page that takes a certificate of whomever."""
    context = browser.new_context(ignore_https_errors=True)
    yield listening(context.new_page())
    context.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_page_is_live_behind_the_documented_lines(
    gunicorn: Gunicorn, caddy: Callable[..., Caddy], trusting: Page
) -> None:
    """With TLS, as they are meant: the app hears plain HTTP, and knows the public address from ProxyFix."""
    _, upstream = gunicorn(*GTHREAD, behind_proxy=True)
    proxy = caddy(upstream, "https")
    open_live(trusting, proxy.address)
    proxy.say("add", "a")
    wait_for(lambda: items(trusting) == ["a"])
    assert trusting.evaluate("sockets.map((socket) => socket.url.slice(0, 6))") == ["wss://"]
    assert trusting.evaluate("sessionStorage.getItem('instruct-line')") is None


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_events_come_at_once_where_no_websocket_gets_through(
    gunicorn: Gunicorn, caddy: Callable[..., Caddy], trusting: Page, scheme: str
) -> None:
    """Over HTTP/2 where there is TLS. Caddy compresses text, and a compressor may keep events back: not ours."""
    _, upstream = gunicorn(*GTHREAD, behind_proxy=True)
    proxy = caddy(upstream, scheme, WITHOUT_WEBSOCKETS)
    assert requests.get(proxy.address, timeout=20, verify=False).headers["Content-Encoding"] == "gzip"
    answers: list[Response] = []
    trusting.on("response", lambda answer: answers.append(answer) if answer.url.endswith("/events") else None)
    open_live(trusting, proxy.address)
    for word in ("a", "b", "c"):
        proxy.say("add", word)
        wait_for(lambda: items(trusting)[-1:] == [word])  # noqa: B023
    proxy.reload()
    proxy.say("add", "d")
    wait_for(lambda: items(trusting) == ["a", "b", "c", "d"])
    assert ["content-encoding" in answer.headers for answer in answers] == [False]
    assert trusting.evaluate("sessionStorage.getItem('instruct-line')") == "events"
    assert heard(trusting, "disconnected") == []


def test_the_servers_close_codes_reach_the_page(
    gunicorn: Gunicorn, caddy: Callable[..., Caddy], follow: Callable[..., Client]
) -> None:
    process, upstream = gunicorn(*GTHREAD, behind_proxy=True)
    proxy = caddy(upstream)
    with Client(proxy.address) as page:
        page.send("no JSON")
        assert page.closed() == 1008
    with Client(proxy.address) as page:
        page.subscribe("forged", None)
        assert page.closed() == 4401
    page = follow(proxy.address)
    process.signal(signal.SIGTERM)
    assert page.closed() == 1012


def test_a_page_comes_back_when_caddy_reads_its_file_again(
    gunicorn: Gunicorn, caddy: Callable[..., Caddy], trusting: Page
) -> None:
    _, upstream = gunicorn(*GTHREAD, behind_proxy=True)
    proxy = caddy(upstream)
    open_live(trusting, proxy.address)
    proxy.reload()
    wait_for(lambda: heard(trusting, "disconnected"))
    proxy.say("add", "a")
    wait_for(lambda: items(trusting) == ["a"])


def test_a_visitor_cannot_name_an_address_of_its_own(gunicorn: Gunicorn, caddy: Callable[..., Caddy]) -> None:
    """Handshakes are counted by address: one more in X-Forwarded-For must not be a fresh allowance."""
    _, upstream = gunicorn(*GTHREAD, handshakes_per_minute=2)
    proxy = caddy(upstream)
    statuses = [
        requests.post(
            f"{proxy.address}/instruct/events",
            json.dumps({"type": "ping"}),
            headers={"X-Forwarded-For": f"203.0.113.{number}"},
            timeout=20,
        ).status_code
        for number in range(3)
    ]
    assert statuses == [403, 403, 429]
