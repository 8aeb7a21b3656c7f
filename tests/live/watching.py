"""What only our own tests do with a page in Chromium: render on it, and hear its events and sockets."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from flask_instruct.testing import LivePage

HEAR = """
window.heard = [];
for (const name of ["connected", "disconnected", "stale", "before-render", "rendered"]) {
  document.addEventListener(`instruct:${name}`, ({ detail: { element, target, ...rest } }) => heard.push([name, rest]));
}
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...parameters) {
    super(...parameters);
    sockets.push(this);
  }
};
"""


RENDER = """async ([html, body]) => {
  if (body !== null) {
    document.body.innerHTML = body;
    heard.length = 0;
  }
  const { render } = await import("/instruct/live/actions.js");
  return render(html, "test");
}"""


def render(page: Page, *elements: str, body: str | None = None) -> Any:
    """Render fragments on a page that listens, in a body of the test's own if it likes."""
    return page.evaluate(RENDER, ["".join(elements), body])


def listening(page: Page) -> Page:
    """Let a page note the events of live pages, and its sockets, from its beginning."""
    page.add_init_script(HEAR)
    return page


def open_live(page: Page, address: str, path: str = "/") -> Page:
    """Go to a page and wait until it is up to date."""
    return LivePage(page).goto(address + path).page


def heard(page: Page, name: str) -> list[Any]:
    """Return what a listening page has heard of one event."""
    return [detail for each, detail in page.evaluate("heard") if each == name]


def items(page: Page) -> list[str]:
    texts: list[str] = page.locator("#items li").all_inner_texts()
    return texts
