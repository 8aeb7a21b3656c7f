"""How every page of the panel behaves for people who see, hear, move and hold their screens differently: the decision,
the approval page, a proposal, the inbox, the undo page, the chat, one run, history, badge, activity, and a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page

from .pages import Open
from .pages import Work
from .scenes import addresses
from .scenes import make_everything_happen
from .scenes import show

SMALL = """all => all.filter(each => {
    const box = each.getBoundingClientRect();
    const inText = each.matches("a") && getComputedStyle(each).display === "inline";
    return each.checkVisibility() && !each.closest(".instruct-hidden") && box.width && !inText
        && Math.min(box.width, box.height) < 24;
}).map(each => each.outerHTML.slice(0, 200))"""
WIDE = """() => [...document.querySelectorAll("main *")].filter(each => {
    const box = each.getBoundingClientRect();
    return each.checkVisibility() && !each.closest(".instruct-hidden, .instruct-origin__more") && box.width
        && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(each => each.outerHTML.slice(0, 200))"""
MOVING = "document.getAnimations().filter(each => each.playState === 'running').map(each => each.animationName)"
UNBORDERED = """() => [...document.querySelectorAll("button, .instruct-origin, .instruct-ask")].filter(each => {
    const style = getComputedStyle(each);
    const bordered = parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none";
    return each.checkVisibility() && !bordered;
}).map(each => each.outerHTML.slice(0, 200))"""
CORNERED = """() => [...document.querySelectorAll(".instruct-facts > div, .instruct-prompt, .instruct-status__line")]
    .filter(each => each.checkVisibility() && getComputedStyle(each).direction !== "rtl")
    .map(each => each.outerHTML.slice(0, 200))"""


@pytest.fixture
def shown(app: Flask) -> None:
    show(app)


@pytest.fixture(autouse=True)
def happened(app: Flask, shown: None, client: FlaskClient, work: Work) -> None:
    make_everything_happen(app, client, work)


def each_page(app: Flask, page: Page, site: str, query: str = "") -> Iterator[str]:
    """Open every page and unfold what is on it; gives the name of each."""
    for name, path in addresses(app).items():
        page.goto(f"{site}{path}{query if not path.startswith('/instruct') else ''}")
        if query == "?dir=rtl":
            page.evaluate("document.documentElement.dir = 'rtl'")
        page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
        yield name
    page.goto(f"{site}/chat")
    with page.expect_navigation():
        # As without a script: nothing was written, so a page says that this is refused.
        page.evaluate("HTMLFormElement.prototype.submit.call(document.querySelector('.instruct-form'))")
    assert page.locator(".instruct-refused").count() == 1
    yield "refused"


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_t31_every_page_fits_360_pixels_in_both_directions(app: Flask, enter: Open, site: str, direction: str) -> None:
    page = enter("Lead Lea", live=False, viewport={"width": 360, "height": 700})
    found = {}
    for name in each_page(app, page, site, f"?dir={direction}"):
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found[f"{name} scrolls"] = page.evaluate(WIDE)
        if small := page.eval_on_selector_all("main :is(button, summary, a, input, select, textarea)", SMALL):
            found[f"{name} is small"] = small
        if direction == "rtl" and (odd := page.evaluate(CORNERED)):
            found[f"{name} is not turned"] = odd
    assert found == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_axe_finds_nothing_to_say_of_any_page(app: Flask, enter: Open, site: str, scheme: str) -> None:
    origin = find_spec("axe_playwright_python").origin  # type: ignore[union-attr]
    script = Path(str(origin)).with_name("axe.min.js").read_text()
    page = enter("Lead Lea", live=False, color_scheme=scheme, reduced_motion="reduce")
    found = {}
    for name in each_page(app, page, site):
        page.evaluate(script)
        said = page.evaluate("axe.run(document).then(found => found.violations)")
        if said:
            found[name] = [(each["id"], each["impact"], each["nodes"][0]["html"][:300]) for each in said]
    assert found == {}


def test_t26_nothing_moves_for_who_wants_no_motion_and_forced_colours_leave_edges(
    app: Flask, enter: Open, site: str
) -> None:
    page = enter("Lead Lea", live=False, reduced_motion="reduce", forced_colors="active")
    found = {}
    for name in each_page(app, page, site):
        if name == "everything":
            assert page.locator(".instruct-origin").count() == 1
        if moving := page.evaluate(MOVING):
            found[f"{name} moves"] = moving
        if bare := page.evaluate(UNBORDERED):
            found[f"{name} has no edge"] = bare
    assert found == {}
