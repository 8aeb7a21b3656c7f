"""A page without a browser: fetched, kept up to date over its socket by the rules of ``streams.js`` and ``actions.js``.

It sees what a browser would see, so that a test that kills processes can compare the page that somebody watched with
one that is loaded afterwards.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.live.websocket import Client
from tests.live.websocket import Closed
from tests.live.websocket import Rejected

VOID = frozenset({"input", "link", "meta", "br", "img", "hr", "path", "circle"})
VOLATILE = re.compile(r"token|since|value|datetime|open|connected|data-instruct-.*|nonce|style")
"""Attributes that differ between two views of one state."""


class Element:
    """One element, with its attributes and what is in it."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None = None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element | str] = []

    def walk(self) -> Iterator[Element]:
        """Give this element and all below it, in the page's order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, identifier: str) -> Element | None:
        return next((each for each in self.walk() if each.attributes.get("id") == identifier), None)

    def named(self, tag: str) -> list[Element]:
        return [each for each in self.walk() if each.tag == tag]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def put(self, position: int, content: list[Element | str]) -> None:
        for child in content:
            if isinstance(child, Element):
                child.parent = self
        self.children[position:position] = content

    def leave(self) -> tuple[Element, int]:
        """Go out of the parent; tell it and the place."""
        assert self.parent is not None
        place = next(at for at, child in enumerate(self.parent.children) if child is self)
        del self.parent.children[place]
        return self.parent, place

    def written(self) -> str:
        """Write it with what is in it, without what differs between two views of one state."""
        kept = {name: value for name, value in self.attributes.items() if not VOLATILE.fullmatch(name)}
        opening = "".join(f' {name}="{value}"' for name, value in sorted(kept.items()))
        inner = "" if self.tag == "time" else "".join(map(_written, self.children))
        return f"<{self.tag}{opening}>{inner}</>"


def _written(child: Element | str) -> str:
    return child.written() if isinstance(child, Element) else re.sub(r"\s+", " ", child).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._open = Element("root", {})

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attributes}, self._open)
        self._open.children.append(made)
        if tag not in VOID:
            self._open = made

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._open.children.append(Element(tag, {name: value or "" for name, value in attributes}, self._open))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open.tag == tag, f"<{self._open.tag}> is closed by </{tag}>"
        assert self._open.parent is not None
        self._open = self._open.parent

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)


def read(html: str) -> Element:
    """Return the elements of a page or a fragment, below a root."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.root


ORDER = "data-instruct-order"


class Stale(Exception):
    """Raise when only fetching the page again makes it right."""


def perform(page: Element, html: str) -> None:
    """Do to a page what the ``<turbo-stream>`` elements of a message say.

    :raises Stale: for a refresh, and where text that comes before is missing.
    """
    for element in read(html).children:
        if not isinstance(element, Element):
            continue
        action = element.attributes["action"]
        if action == "refresh":
            raise Stale("refresh")
        target = page.find(element.attributes["target"])
        if target is not None:
            content = element.named("template")
            ACTIONS[action](target, content[0].children if content else [], element.attributes)


def _append(target: Element, content: list[Element | str], _: dict[str, str]) -> None:
    for child in content:
        identifier = child.attributes.get("id") if isinstance(child, Element) else None
        for old in [each for each in target.children if isinstance(each, Element)]:
            if identifier and old.attributes.get("id") == identifier:
                old.leave()
    order = next((child.attributes.get(ORDER) for child in content if isinstance(child, Element)), None)
    behind = [place for place, each in enumerate(target.children) if order and _order(each) > order]
    target.put(behind[0] if behind else len(target.children), content)


def _order(child: Element | str) -> str:
    return "" if isinstance(child, str) else child.attributes.get(ORDER, "")


def _replace(target: Element, content: list[Element | str], _: dict[str, str]) -> None:
    parent, place = target.leave()
    parent.put(place, content)


def _update(target: Element, content: list[Element | str], _: dict[str, str]) -> None:
    target.children = []
    target.put(0, content)


def _remove(target: Element, _content: list[Element | str], _: dict[str, str]) -> None:
    target.leave()


def _text(target: Element, content: list[Element | str], attributes: dict[str, str]) -> None:
    # Browsers count UTF-16 code units; the stories of these tests hold nothing beyond the first plane.
    offset, length = int(attributes["offset"]), len(target.text)
    if offset > length:
        raise Stale("gap")
    if offset == length:
        target.put(len(target.children), content)


ACTIONS: dict[str, Callable[[Element, list[Element | str], dict[str, str]], None]] = {
    "append": _append,
    "replace": _replace,
    "update": _update,
    "remove": _remove,
    "text": _text,
}
"""What the panel and these tests' handlers send."""


class WatchedPage:
    """A page that somebody has open; ``with`` closes it.

    :param address: of the site; :param path: of the page.
    """

    def __init__(self, address: str, path: str) -> None:
        self._address, self._path = address, path
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ready: set[str] = set()
        self._last: dict[str, str] = {}
        self._client: Client | None = None
        self.fetched = 0
        """How often the page was fetched."""
        self._page = self._fetch()
        self._thread = threading.Thread(target=self._follow, name="watched-page", daemon=True)

    def __enter__(self) -> WatchedPage:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        if self._client is not None:
            # Only wakes the thread, which takes its leave itself.
            with suppress(OSError):
                self._client.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    @property
    def live(self) -> bool:
        """Whether the page is up to date with all its streams."""
        return self._ready >= {each.attributes["name"] for each in self._page.named("instruct-stream")}

    def shown(self) -> str:
        """Write what the page shows now."""
        with self._lock:
            return content_of(self._page)

    def _fetch(self) -> Element:
        self.fetched += 1
        return fetch(self._address, self._path)

    def _follow(self) -> None:
        while not self._closed.is_set():
            with suppress(Closed, Rejected, OSError), Client(self._address, timeout=60) as client:
                self._client = client
                self._subscribe(client, self._page)
                while not self._closed.is_set():
                    self._take(client, client.receive())
            self._ready.clear()
            self._closed.wait(0.1)

    def _subscribe(self, client: Client, page: Element, *, rewinding: bool = False) -> None:
        """Ask for the streams of a page; of one that was fetched again only those it is behind with."""
        for stream in page.named("instruct-stream"):
            name, since = stream.attributes["name"], stream.attributes["since"]
            last = self._last.get(name)
            if not rewinding:
                client.subscribe(stream.attributes["token"], last or since or None)
            elif since and (last is None or _position(last) > _position(since)):
                self._last[name] = since
                client.subscribe(stream.attributes["token"], since)

    def _take(self, client: Client, frame: dict[str, Any]) -> None:
        stream = frame.get("stream", "")
        try:
            if "html" in frame:
                if stream in self._last and _position(frame["id"]) <= _position(self._last[stream]):
                    return
                self._last[stream] = frame["id"]
                with self._lock:
                    perform(self._page, frame["html"])
            elif frame["type"] == "subscribed" and frame["id"]:
                self._last[stream] = frame["id"]
            elif frame["type"] == "reset":
                self._last[stream] = frame["id"]
                raise Stale("reset")
            elif frame["type"] == "ready":
                self._ready.add(stream)
        except Stale:
            self._refresh(client)

    def _refresh(self, client: Client) -> None:
        while not self._closed.is_set():
            with suppress(OSError):
                page = self._fetch()
                break
            time.sleep(0.2)
        else:
            return
        with self._lock:
            self._page = page
        self._subscribe(client, page, rewinding=True)


def fetch(address: str, path: str) -> Element:
    """Load a page.

    :raises URLError: when it cannot be had now.
    """
    with urlopen(address + path, timeout=30) as response:
        page = read(response.read().decode().partition("<main>")[2].partition("</main>")[0])
    if not page.children:
        raise URLError("no page")
    return page


def content_of(page: Element) -> str:
    return "".join(map(_written, page.children))


def without_names(shown: str) -> str:
    """Write a page's content so that it equals that of another run of the same story: ids by order, no durations."""
    names: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"#{len(names)}")

    shown = re.sub(r'<span class="instruct-badge">[^<]*</>', "", shown)
    shown = re.sub(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|note_\d+", numbered, shown)
    # What took no time worth telling has no duration at all.
    return re.sub(r"\d+(?:\.\d+)? (?:ms|s|min|h)\b(?: · )?", "", shown)


def _position(identifier: str) -> tuple[int, int]:
    milliseconds, _, number = identifier.partition("-")
    return int(milliseconds), int(number or 0)
