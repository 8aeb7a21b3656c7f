"""What tests do with a page in Chromium: open it, wait until it is live, and compare it with a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from tests.support import wait_for

READ = """() => {
  const body = document.body.cloneNode(true);
  for (const element of body.querySelectorAll("instruct-stream")) {
    for (const name of ["token", "since", "connected"]) element.removeAttribute(name);
  }
  for (const element of body.querySelectorAll("[data-instruct-changed]")) {
    element.removeAttribute("data-instruct-changed");
  }
  return body.innerHTML.replace(/\\s+/g, " ");
}"""

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
    page.goto(address + path)
    is_live(page)
    return page


def is_live(page: Page) -> None:
    page.wait_for_selector("instruct-stream[connected]", state="attached", timeout=20_000)


def heard(page: Page, name: str) -> list[Any]:
    """Return what a listening page has heard of one event."""
    return [detail for each, detail in page.evaluate("heard") if each == name]


def read(page: Page) -> str:
    """Return all that the page shows, without what differs from request to request."""
    text: str = page.evaluate(READ)
    return text


def converge(watched: Page, new_page: Callable[..., Page], address: str, path: str = "/") -> None:
    """Wait until the watched page equals one that is freshly loaded."""
    fresh = new_page(java_script_enabled=True)
    fresh.goto(address + path)
    expected = read(fresh)
    fresh.context.close()
    wait_for(lambda: read(watched) == expected, message=f"{read(watched)}\n\nis not\n\n{expected}\n\n")


def items(page: Page) -> list[str]:
    texts: list[str] = page.locator("#items li").all_inner_texts()
    return texts
