"""What live pages cost in Chromium: from the publication to the element in the page, and a text that is streamed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from flask_instruct.live.broadcasts import broadcast_append_to
from flask_instruct.live.broadcasts import broadcast_replace_to
from flask_instruct.live.broadcasts import broadcast_text_to

from .board import MARK
from .board import STREAM
from .hosts import Bare
from .hosts import Ground
from .hosts import Host
from .hosts import Ours
from .hosts import is_installed
from .hosts import standing
from .jobs import Line
from .jobs import Table

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import CDPSession
    from playwright.sync_api import Page

RAW = 1.5
"""Most that ours may take until the element is there, as a multiple of the raw way."""
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
REST = 0.05
"""Seconds between a publication and the question when it arrived, which must not be felt by the page."""
PIECE = 100
"""Characters of a piece: what a model says in a twentieth of a second, which is what the panel sends at once."""
CALIBRATIONS = 15


def missing() -> str | None:
    """Say what brings a browser, or None when there is one."""
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install playwright"
    if _program() is None and not _own_program():
        return "no Chromium on PATH: install the package chromium, or run: playwright install chromium"
    return None


@dataclass(frozen=True, slots=True)
class Reading:
    """How much is measured in the browser.

    :param marks: publications to each page.
    :param answers: texts that are streamed in each way, of so many ``characters`` and of half as many.
    :param pause: seconds between two pieces.
    """

    marks: int = 100
    answers: int = 3
    characters: int = 20_000
    pause: float = 0.02


QUICK = Reading(marks=2, answers=1, characters=400, pause=0.0)


def tables(ground: Ground, sizes: Reading) -> Iterator[Table]:
    """Measure both."""
    ours = Ours(ground, 1)
    hosts: list[Host] = [ours, *([Bare(ground, 1)] if is_installed(Bare) else [])]
    with standing(hosts), _browser() as browser:
        yield until_shown(browser, hosts, sizes.marks)
        yield streamed(browser, ours, sizes)


# -- from the publication to the page ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watched:
    """A page, and the way in which it is told."""

    name: str
    page: Page
    host: Host
    offset: float
    """Milliseconds from the page's clock to the system's."""

    def time(self, number: int) -> float:
        """Publish an element; return the seconds until it is in the page."""
        html = Markup('<{0} id="mark_{1}" data-number="{1}"><p>A comment of Ada</p></{0}>').format(Markup(MARK), number)
        start = time.time()
        if isinstance(self.host, Ours):
            broadcast_append_to(STREAM, target="marks", html=html)
        else:
            self.host.publish(str(html))
        time.sleep(REST)
        return float(self.page.evaluate("seen", number) + self.offset) / 1000 - start


def until_shown(browser: Browser, hosts: list[Host], marks: int) -> Table:
    """Measure the time from the call that publishes until the element is in the page, by the system's clock."""
    watched = [_watched(browser, host, hosts[0]) for host in hosts]
    times: dict[str, list[float]] = {each.name: [] for each in watched}
    for number in range(marks + 1):
        for each in watched if number % 2 else reversed(watched):
            times[each.name].append(each.time(number))
    for each in watched:
        each.page.context.close()
    # The first of each is not counted.
    ours, *others = [(name, median(found[1:])) for name, found in times.items()]
    lines = [Line(f"{ours[0]:<40}{ours[1] * 1e3:>7.2f} ms")]
    for name, raw in others:
        ratio = ours[1] / raw
        text = f"{name:<40}{raw * 1e3:>7.2f} ms   ours is {ratio:.2f} of it"
        lines.append(Line(text, f"aim {RAW}", ratio / RAW))
    return Table("From the publication to the page in Chromium", tuple(lines))


def _watched(browser: Browser, host: Host, pages: Host) -> Watched:
    page = browser.new_context().new_page()
    site = f"http://127.0.0.1:{pages.port}"
    if isinstance(host, Ours):
        page.goto(f"{site}/ours")
        page.wait_for_selector("instruct-stream[connected]", state="attached")
        name = "broadcast_append_to, instruct.js"
    else:
        page.goto(f"{site}/raw?socket={quote(f'ws://127.0.0.1:{host.port}/')}")
        page.wait_for_selector("body[connected]", state="attached")
        name = "PUBLISH, websockets, insertAdjacentHTML"
    return Watched(name, page, host, median(page.evaluate("offset()") for _ in range(CALIBRATIONS)))


# -- a text that is streamed -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a text cost the page: bytes on its socket, characters put into it, and seconds of its thread."""

    bytes: int
    put: int
    task: float

    def __str__(self) -> str:
        return f"{self.bytes / 1000:>8.1f} kB {self.put:>10,} characters put into the page {self.task * 1e3:>7.0f} ms"


def streamed(browser: Browser, host: Host, sizes: Reading) -> Table:
    """Measure a text that comes in pieces, ours beside the whole message each time; half as long, and whole."""
    lengths = (sizes.characters // 2, sizes.characters)
    found: dict[tuple[str, int], list[Streamed]] = {(way, length): [] for length in lengths for way in WAYS}
    for _ in range(sizes.answers):
        for way, length in found:
            found[way, length].append(_stream(browser, host, WAYS[way], length, sizes.pause))
    middle = {key: sorted(each, key=lambda one: one.task)[len(each) // 2] for key, each in found.items()}
    lines = [Line(f"{way:<28}{length:>7,} {middle[way, length]}") for way, length in middle]
    ours, other = (middle[way, sizes.characters] for way in WAYS)
    share = f"{ours.bytes / other.bytes:.3f} of the bytes, {ours.put / other.put:.3f} of the characters"
    lines.append(Line(f"{'ours is':<28}{share}, {ours.task / other.task:.2f} of the time of the page's thread"))
    return Table(f"An answer in pieces of {PIECE} characters, in Chromium", tuple(lines))


def _by_pieces(text: str, end: int) -> None:
    broadcast_text_to(STREAM, target="talk", text=text[end - PIECE : end], offset=end - PIECE)


def _as_a_whole(text: str, end: int) -> None:
    broadcast_replace_to(STREAM, target="talk", html=Markup('<p id="talk">{}</p>').format(text[:end]))


WAYS: Mapping[str, Callable[[str, int], None]] = {
    "text, each piece once": _by_pieces,
    "replace, the whole each time": _as_a_whole,
}
"""What is sent when a text has grown to ``end``; the second as Turbo does it."""


def _stream(browser: Browser, host: Host, way: Callable[[str, int], None], characters: int, pause: float) -> Streamed:
    context = browser.new_context()
    page = context.new_page()
    sizes: list[int] = []
    page.on("websocket", lambda opened: opened.on("framereceived", lambda data: sizes.append(_frame_size(data))))
    page.goto(f"http://127.0.0.1:{host.port}/ours")
    page.wait_for_selector("instruct-stream[connected]", state="attached")
    counters = context.new_cdp_session(page)
    counters.send("Performance.enable")
    text = ("A student who does one of the two things cannot be placed on a level. " * characters)[:characters]
    page.evaluate("count()")
    sizes.clear()
    before = _busy(counters)
    for end in range(PIECE, characters + 1, PIECE):
        way(text, end)
        time.sleep(pause)
    shown = page.evaluate("written", characters)
    spent = _busy(counters) - before
    put = int(page.evaluate("put"))
    context.close()
    if shown != text:
        raise RuntimeError(f"The page shows {len(shown)} characters, and not the {characters} that were sent.")
    return Streamed(sum(sizes), put, spent)


def _frame_size(payload: str | bytes) -> int:
    size = len(payload.encode() if isinstance(payload, str) else payload)
    return size + (2 if size < 126 else 4 if size < 65536 else 10)


def _busy(counters: CDPSession) -> float:
    """Return the seconds that the page's thread has worked: script, style and layout."""
    metrics = {each["name"]: each["value"] for each in counters.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


# -- the browser -------------------------------------------------------------------------------------------------------


@contextmanager
def _browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # Is not there everywhere.

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_program(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def _own_program() -> bool:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path).exists()
