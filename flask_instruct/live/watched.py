"""A live page in a test: wait until it follows, wait for a broadcast, and compare it with a page that is loaded now.

It drives a page of Playwright's (the synchronous API), which is not needed for anything else here.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAUSE = 25
"""Milliseconds between two looks at a page."""

RELOAD = 1.0
"""Seconds that a page may differ from a fresh one before that is loaded again: it may have become the older of both."""

MOST_NOTED = 500
"""Broadcasts that a page keeps note of: an hour of them must not fill its memory."""

_NOTE = """(most) => {
  window.instructShown ??= (() => {
    const shown = [];
    document.addEventListener("instruct:rendered", ({ detail: { action, stream, element } }) => {
      // Asking for a refresh shows nothing yet; the page says so again once it has been fetched.
      if (action === "refresh" && element) return;
      if (shown.length >= most) shown.shift();
      shown.push({
        action,
        stream: stream ?? "",
        target: element?.getAttribute("target") ?? element?.getAttribute("targets") ?? "",
        text: element?.querySelector("template")?.content.textContent.replace(/\\s+/g, " ").trim() ?? "",
      });
    });
    return shown;
  })();
}"""

_TAKE = """([action, target, text]) => {
  const fits = (each) => (!action || each.action === action) && (!target || each.target === target);
  const at = instructShown.findIndex((each) => fits(each) && each.text.includes(text ?? ""));
  return at < 0 ? null : instructShown.splice(at, 1)[0];
}"""

_CONNECTED = """(all) => {
  const streams = [...document.querySelectorAll("instruct-stream")];
  const wanted = all ? streams : streams.filter((each) => each.dataset.instructLive !== "off");
  return (!all || streams.length > 0) && wanted.every((each) => each.hasAttribute("connected"));
}"""

_LEFT = """() => [...document.querySelectorAll("instruct-stream:not([connected])")].map((each) => {
  const off = each.dataset.instructLive === "off";
  return each.getAttribute("name") + (off ? " (off: the server could not reach Redis)" : "");
})"""

# Attributes are told in order: a patched element may have them in another one than a new element.
_READ = """([regions, elements, attributes]) => {
  const signed = /token|csrf/i;
  const left = (element) => element.localName === "instruct-below" || elements.some((each) => element.matches(each));
  const passing = (element, name) =>
    name === "nonce" || name === "data-instruct-changed" || attributes.includes(name) ||
    (element.localName === "instruct-stream" && ["token", "since", "connected"].includes(name)) ||
    (name === "value" && element.type === "hidden" && signed.test(element.name));
  const told = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data.replace(/\\s+/g, " ").trim();
    if (node.nodeType !== Node.ELEMENT_NODE || left(node)) return "";
    const named = [...node.attributes].filter(({ name }) => !passing(node, name));
    const listed = named.map(({ name, value }) => ` ${name}="${value}"`).sort().join("");
    return `<${node.localName}${listed}>${[...node.childNodes].map(told).join("")}`;
  };
  const copy = (element) => {
    const copied = element.cloneNode(true);
    copied.normalize();
    return copied;
  };
  return regions.map((region) => [...document.querySelectorAll(region)].map(copy).map(told).join("\\n"));
}"""

_DOUBLED = """() => {
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  return ids.filter((id, at) => ids.indexOf(id) !== at);
}"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A broadcast that a page has rendered: ``text`` is what a person reads in it."""

    action: str
    stream: str
    target: str
    text: str


class LivePage:
    """A page that follows streams, driven in a test: ``LivePage(page).goto(url)``.

    :param page: Playwright's; what it renders from now on is noted.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        page.add_init_script(f"({_NOTE})({MOST_NOTED})")
        page.evaluate(_NOTE, MOST_NOTED)

    def goto(self, url: str) -> LivePage:
        """Open an address and wait until the page follows all its streams.

        :raises AssertionError: when it does not come to that.
        """
        self.page.goto(url)
        return self.wait_connected()

    def wait_connected(self, timeout: float = 20.0) -> LivePage:
        """Wait until the page follows all its streams and shows what was broadcast since it was requested.

        :param timeout: seconds.
        :raises AssertionError: naming the streams that it does not follow.
        """
        self._wait_connected(self.page, timeout, everything=True)
        return self

    def wait_for_broadcast(
        self,
        action: str | None = None,
        *,
        target: str | None = None,
        text: str | None = None,
        timeout: float = 10.0,
    ) -> Shown:
        """Return the first broadcast that fits and was not returned before, as soon as the page has rendered it.

        It may have been rendered before the call, as one of the last 500. A refresh counts once the page has been
        fetched again, which is not seen where Turbo does it.

        :param action: such as ``"append"``; ``target``: the element's id, or the selector of ``targets=``.
        :param text: a part of what a person reads in it.
        :param timeout: seconds.
        :raises AssertionError: listing what was rendered instead.
        """
        deadline = time.monotonic() + timeout
        while (found := self.page.evaluate(_TAKE, [action, target, text])) is None and time.monotonic() < deadline:
            self.page.wait_for_timeout(PAUSE)
        if found is None:
            asked = {"action": action, "target": target, "text": text}
            wanted = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
            seen = "\n".join(str(each) for each in self.page.evaluate("instructShown")) or "nothing"
            raise AssertionError(f"No broadcast with {wanted or 'anything'} in {timeout} s; there was:\n{seen}")
        return Shown(**found)

    def converges(
        self,
        *regions: str,
        ignore: Collection[str] = ("time",),
        ignore_attributes: Collection[str] = (),
        timeout: float = 10.0,
        **context: Any,
    ) -> None:
        """Wait until the page equals one that is loaded now by the same person, with each element id there once.

        Compared is the markup, without what differs from request to request: nonces, the values of hidden fields
        with ``token`` or ``csrf`` in their name, the mark of what has just changed, the button of a log that was
        scrolled up, and spaces.

        :param regions: selectors of what is compared; the whole body by default.
        :param ignore: selectors of elements that are left out.
        :param ignore_attributes: names of attributes that are left out.
        :param timeout: seconds.
        :param context: options for the context of the fresh page, such as ``locale="fr"``.
        :raises AssertionError: with the first difference, or naming a region that the fresh page does not have.
        """
        compared = [list(regions or ("body",)), list(ignore), list(ignore_attributes)]
        browser = self.page.context.browser
        assert browser is not None, "A page of a persistent context has no browser to open a fresh one in."
        fresh = browser.new_context(**{"storage_state": self.page.context.storage_state(), **context})
        try:
            self._compare(fresh.new_page(), compared, timeout)
        finally:
            fresh.close()
        doubled = self.page.evaluate(_DOUBLED)
        assert not doubled, f"{self.page.url} has these element ids twice: {doubled}"

    def _compare(self, fresh: Page, compared: list[list[str]], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            fresh.goto(self.page.url)
            self._wait_connected(fresh, timeout, everything=False)
            expected: list[str] = fresh.evaluate(_READ, compared)
            for region, told in zip(compared[0], expected, strict=True):
                assert told, f"A fresh {self.page.url} shows nothing at {region}: there is nothing to compare."
            reload_at = min(deadline, time.monotonic() + RELOAD)
            while (seen := self.page.evaluate(_READ, compared)) != expected and time.monotonic() < reload_at:
                self.page.wait_for_timeout(PAUSE)
            if seen == expected:
                return
            assert time.monotonic() < deadline, _difference(self.page.url, compared[0], seen, expected)

    def _wait_connected(self, page: Page, timeout: float, *, everything: bool) -> None:
        from playwright.sync_api import TimeoutError as PlaywrightTimeout

        try:
            page.wait_for_function(_CONNECTED, arg=everything, timeout=timeout * 1000)
        except PlaywrightTimeout:
            left = page.evaluate(_LEFT)
            what = f"does not follow {', '.join(left)}" if left else "follows no stream: it has no turbo_stream_from"
            raise AssertionError(f"After {timeout} s {page.url} {what}.") from None


def _difference(url: str, regions: Collection[str], seen: list[str], expected: list[str]) -> str:
    for region, one, other in zip(regions, seen, expected, strict=True):
        if one != other:
            at = next(
                (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            around = slice(max(0, at - 80), at + 200)
            return f"{url} differs from a fresh page in {region}:\nwatched …{one[around]}…\nfresh   …{other[around]}…"
    raise AssertionError("two that are equal have no difference")
