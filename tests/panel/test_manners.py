"""How the panel behaves on anybody's page: hostile text, strict policies, screen readers, narrow and dark pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from flask import Flask
from playwright.sync_api import expect

from flask_instruct.testing import LivePage
from tests.support import Process

from .board import HOSTILE
from .board import NOVEL
from .pages import Aside
from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status


def test_t14_hostile_text_is_text_everywhere(enter: Open, work: Work, site: str) -> None:
    page = enter()
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if not request.url.startswith(site) else None)
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    scripts = page.locator("script").count()
    ask(page, f"Hostile {HOSTILE}")
    work()
    expect(status(page)).to_have_text("Done")
    for summary in page.locator(".instruct-call summary").all():
        summary.click()
    assert page.evaluate("window.broken") is None
    assert page.locator("script").count() == scripts
    assert page.locator(".instruct-panel :is(img, iframe, style, turbo-stream, [onerror])").count() == 0
    assert page.locator(".instruct-panel a[href^='javascript']").count() == 0
    assert "{{ 7 * 7 }}" in page.locator(".instruct-text").first.inner_text()
    assert foreign == []
    assert_equals_a_fresh_page(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_words_have_contrast(enter: Open, work: Work, scheme: str) -> None:
    page = enter(color_scheme=scheme)
    for text in ("Arrange it.", "Fail now."):
        ask(page, text)
        work()
        expect(status(page)).to_have_text(re.compile("Done|This did not work"))
    for summary in page.locator(".instruct-call summary").all():
        summary.click()
    weak = page.evaluate(CONTRAST)
    assert weak == []


def test_t24_a_screen_reader_hears_a_run_in_few_words(enter: Open, work_aside: Aside) -> None:
    page = enter()
    page.evaluate(
        """() => {
            window.heard = [];
            window.busy = false;
            const polite = document.querySelectorAll("[aria-live=polite], [role=status], [role=alert]");
            for (const region of polite) {
                new MutationObserver(() => window.heard.push(region.textContent)).observe(
                    region, {childList: true, subtree: true, characterData: true});
            }
            new MutationObserver(() => {
                window.busy ||= document.querySelector(".instruct-text--streaming")?.ariaBusy === "true";
            }).observe(document.querySelector(".instruct-runs"), {childList: true, subtree: true});
        }"""
    )
    ask(page, "Many things.")
    work_aside()
    expect(status(page)).to_have_text("Done", timeout=20_000)
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The AI has finished. 5 steps done.")
    heard = page.evaluate("window.heard")
    assert len(heard) <= 8, heard
    assert page.evaluate("window.busy")
    assert page.locator("[aria-busy=true]").count() == 0
    assert page.locator(".instruct-log").get_attribute("aria-live") == "off"


WATCH = """() => {
    window.watched = {long: [], pieces: [], nodes: new Set(), elements: new Set()};
    new PerformanceObserver((list) => watched.long.push(...list.getEntries().map((each) => Math.round(each.duration))))
        .observe({type: "longtask"});
    document.addEventListener("instruct:rendered", ({detail}) => {
        if (detail.action !== "text") return;
        watched.pieces.push(performance.now());
        watched.nodes.add(document.querySelector(".instruct-text--streaming").childNodes.length);
        watched.elements.add(document.getElementsByTagName("*").length);
    });
}"""


def test_t29_an_answer_of_two_thousand_tokens_is_painted_in_few_pieces_and_is_exact(
    enter: Open, worker: Callable[[], Process]
) -> None:
    page = enter()
    page.evaluate(WATCH)
    worker()
    ask(page, "Novel please.")
    expect(status(page)).to_have_text("Done", timeout=40_000)
    assert page.locator(".instruct-text > *").all_text_contents() == [NOVEL]
    watched = page.evaluate("({...watched, nodes: [...watched.nodes], elements: [...watched.elements]})")
    pieces = watched["pieces"]
    assert len(pieces) > 20
    # Sent twenty a second at most; two that the way has held up may arrive together.
    assert len(pieces) - 1 <= 20 * (pieces[-1] - pieces[0]) / 1000
    assert max(sum(begin <= at < begin + 1000 for at in pieces) for begin in pieces) <= 22
    assert max(watched["long"], default=0) < 200, watched["long"]
    # One text that grows, and nothing beside it.
    assert watched["nodes"] == [1]
    assert len(watched["elements"]) == 1, watched["elements"]
    assert_equals_a_fresh_page(page)


def test_t28_a_strict_policy_is_kept(enter: Open, work: Work, site: str) -> None:
    page = enter()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(site) else None)
    page.reload()
    LivePage(page).wait_connected()
    ask(page, "Arrange it.")
    work()
    expect(status(page)).to_have_text("Done")
    assert problems == []
    assert page.locator(".instruct-panel [style]").count() == 0


@pytest.mark.parametrize("width", [360, 1200])
def test_t31_it_fits_a_narrow_page_and_has_buttons_to_hit(enter: Open, work: Work, width: int) -> None:
    page = enter(viewport={"width": width, "height": 700})
    for text in ("Arrange it.", "Hostile " + "unbroken" * 60, "Fail now."):
        ask(page, text)
        work()
        expect(status(page)).to_have_text(re.compile("Done|This did not work"))
    for summary in page.locator(".instruct-call summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".instruct-log").evaluate("log => log.scrollWidth <= log.clientWidth")
    small = page.eval_on_selector_all(
        "button, summary",
        "all => all.filter(each => each.offsetParent && Math.min(each.offsetWidth, each.offsetHeight) < 24).length",
    )
    assert small == 0


def test_without_live_updates_the_page_says_so(app: Flask, enter: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.exceptions import ConnectionError as Unreachable

    def down(*arguments: object) -> str:
        raise Unreachable("down")

    bus = app.extensions["instruct"].live.bus
    monkeypatch.setattr(type(bus), "now", down)
    monkeypatch.setattr(type(bus), "cursor", down)
    page = enter(live=False)
    expect(page.get_by_text("Live updates are off")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_axe_finds_nothing_to_say(enter: Open, work: Work, scheme: str) -> None:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    page = enter(color_scheme=scheme, reduced_motion="reduce")
    for text in ("Arrange it.", "Hostile words.", "Fail now."):
        ask(page, text)
        work()
        expect(status(page)).to_have_text(re.compile("Done|This did not work"))
    for summary in page.locator(".instruct-call summary").all():
        summary.click()
    page.evaluate(Path(found.origin).with_name("axe.min.js").read_text())
    violations = page.evaluate("axe.run(document.querySelector('.instruct-panel')).then(found => found.violations)")
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in violations] == []


CONTRAST = """() => {
    const parse = (text) => {
        const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
        const context = canvas.getContext("2d", {willReadFrequently: true});
        context.fillStyle = text;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (rgb) => {
        const [r, g, b] = rgb.slice(0, 3).map((part) => {
            const value = part / 255;
            return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const colour = parse(getComputedStyle(each).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255];
    };
    const weak = [];
    const walker = document.createTreeWalker(document.querySelector(".instruct-panel"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
        const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) weak.push([walker.currentNode.data, ratio]);
    }
    return weak;
}"""
