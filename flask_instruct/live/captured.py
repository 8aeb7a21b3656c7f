"""What a test sees of live pages: the broadcasts that really went out, taken apart, with no Redis and no waiting."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser

from flask import Flask
from flask import current_app

from . import assemble
from .addressed import EVERYBODY
from .addressed import Audience
from .broadcasts import EXTENSION
from .local_bus import LocalBus
from .subscription import Entry
from .turbo_stream import dom_id
from .turbo_stream import stream_name

_INLINE = frozenset({"a", "abbr", "b", "cite", "code", "em", "i", "kbd", "mark", "q", "s", "small", "span", "strong"})
"""Elements that stand in the middle of a word or sentence; others end it."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One ``<turbo-stream>`` that was sent.

    :param target: id of the element that it is about; ``targets``: a CSS selector instead.
    :param html: the fragment as it is inserted; ``text``: what a person reads of it, white space joined.
    :param audience: whom it is for.
    """

    stream: str
    action: str
    target: str | None
    targets: str | None
    html: str
    text: str
    attributes: dict[str, str]
    audience: Audience = EVERYBODY

    def __str__(self) -> str:
        where = self.target if self.target is not None else self.targets
        shown = f": {self.text[:80]}" if self.text else ""
        return f"{self.action} {where or ''}".strip() + f" on {self.stream}{shown}"


class Captured(list[Fragment]):
    """The fragments that went out, in their order."""

    def on(self, *streamables: object) -> list[Fragment]:
        """Return those of one stream."""
        stream = stream_name(*streamables)
        return [fragment for fragment in self if fragment.stream == stream]


@contextmanager
def captured_broadcasts(app: Flask | None = None) -> Iterator[Captured]:
    """Catch the broadcasts of an app (default: the current one) inside the block, which then needs no Redis.

    A fragment is there once it is committed, as a page would get it; what is rolled back never is. Pages that are
    requested inside the block, and their sockets, are served by the same bus, without any delay.

    :raises ConfigurationError: when the app is not under test.
    """
    app = app or current_app._get_current_object()  # type: ignore[attr-defined]
    captured = Captured()

    class Recording(LocalBus):
        def published(self, stream: str, entry: Entry) -> None:
            captured.extend(fragments(stream, entry))

    before = app.extensions[EXTENSION]
    live = assemble(app, before.config, Recording(app, before.config))
    state = app.extensions.get("instruct")
    if state is not None:
        state.live = live
    try:
        yield captured
    finally:
        live.close()
        app.extensions[EXTENSION] = before
        if state is not None:
            state.live = before


def assert_broadcast(
    captured: Sequence[Fragment],
    *streamables: object,
    action: str | None = None,
    target: object = None,
    text: str | None = None,
) -> Fragment:
    """Return the first fragment that went to a stream and is as described; what is left out may be anything.

    :param streamables: the stream, as for ``turbo_stream_from``.
    :param target: an element's id, or a record (its ``dom_id``).
    :param text: is in what a person reads of the fragment.
    :raises AssertionError: when none is; it lists what went out.
    """
    stream = stream_name(*streamables)
    wanted = target if target is None or isinstance(target, str) else dom_id(target)
    for fragment in captured:
        if (
            fragment.stream == stream
            and action in (None, fragment.action)
            and wanted in (None, fragment.target)
            and (text is None or text in fragment.text)
        ):
            return fragment
    told = " ".join(filter(None, [action or "broadcast", wanted, f"on {stream}", text and f"with {text!r}"]))
    sent = "\n".join(f"  {fragment}" for fragment in captured) or "  nothing"
    raise AssertionError(f"There was no {told}. What was sent:\n{sent}")


def fragments(stream: str, entry: Entry) -> list[Fragment]:
    """Take a broadcast apart."""
    parser = _Parser(entry.html)
    return [
        Fragment(
            stream,
            attributes.get("action", ""),
            attributes.get("target"),
            attributes.get("targets"),
            html,
            text,
            attributes,
            entry.audience,
        )
        for attributes, html, text in parser.elements
    ]


class _Parser(HTMLParser):
    """Finds the ``<turbo-stream>`` elements of a text, what stands in their templates, and the words of that."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[dict[str, str], str, str]] = []
        self._lines = html.split("\n")
        self._html = html
        self._attributes: dict[str, str] | None = None
        self._templates = 0
        self._begin = self._end = 0
        self._words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "turbo-stream" and self._attributes is None:
            self._attributes = {name: value or "" for name, value in attrs}
            self._begin = self._end = 0
            self._words = []
            return
        self._space(tag)
        if tag == "template":
            self._templates += 1
            if self._templates == 1:
                self._begin = self._end = self._place() + len(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self._space(tag)
        if tag == "template":
            self._templates -= 1
            if self._templates == 0:
                self._end = self._place()
        elif tag == "turbo-stream" and self._templates == 0 and self._attributes is not None:
            text = " ".join("".join(self._words).split())
            self.elements.append((self._attributes, self._html[self._begin : self._end], text))
            self._attributes = None

    def handle_data(self, data: str) -> None:
        if self._templates:
            self._words.append(data)

    def _space(self, tag: str) -> None:
        if tag not in _INLINE:
            self._words.append(" ")

    def _place(self) -> int:
        line, column = self.getpos()
        return sum(len(each) + 1 for each in self._lines[: line - 1]) + column
