"""The panel in Chromium, with real Redis and a real socket; runs are carried out beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import Route
from playwright.sync_api import expect

from flask_instruct.panel.page import SHOWN_RUNS
from flask_instruct.runs.models import Run
from tests.support import wait_for

from .board import HOSTILE
from .board import LONG
from .test_views import post

Open = Callable[..., Page]
Work = Callable[[], list[str]]
Aside = Callable[[], Thread]


@pytest.fixture
def site(app: Flask, serve: Callable[..., str]) -> str:
    return serve(app)


@pytest.fixture
def enter(site: str, new_page: Callable[..., Page]) -> Open:
    """Open the board as someone, and wait until the page is live."""

    def enter(name: str = "Ada", *, live: bool = True, **options: Any) -> Page:
        page = new_page(**options)
        page.goto(f"{site}/as/{name}")
        if live:
            page.wait_for_selector("instruct-stream[connected]", state="attached")
        return page

    return enter


def ask(page: Page, text: str) -> None:
    page.get_by_label("Your request").fill(text)
    page.get_by_role("button", name="Send").click()


def log_of(page: Page) -> str:
    """The panel's requests and answers, less what may differ between two pages that show the same."""
    html: str = page.locator(".instruct-log").evaluate(
        """log => {
            const copy = log.cloneNode(true);
            for (const each of copy.querySelectorAll("[data-instruct-changed]")) {
                each.removeAttribute("data-instruct-changed");
            }
            for (const time of copy.querySelectorAll("time")) time.textContent = "";
            return copy.innerHTML;
        }"""
    )
    return re.sub(r"\s+", " ", html).replace("> <", "><")


def assert_equals_a_fresh_page(page: Page, enter: Open) -> None:
    fresh = enter("Fresh")
    assert log_of(page) == log_of(fresh)
    announcement = ".instruct-panel [role=status]"
    assert page.locator(announcement).inner_text() == fresh.locator(announcement).inner_text()
    identifiers = page.eval_on_selector_all("[id]", "all => all.map(each => each.id)")
    assert len(identifiers) == len(set(identifiers))


def status(page: Page) -> Any:
    return page.locator(".instruct-status__text").last


def test_t01_a_request_is_on_the_page_at_once_and_before_any_worker(enter: Open, client: FlaskClient) -> None:
    post(client, board=2)  # as in a server that has been up for a while
    page = enter()
    page.evaluate(
        """() => {
            const runs = document.querySelector(".instruct-runs");
            new MutationObserver(() => { window.shown ??= performance.now() }).observe(runs, {childList: true});
            addEventListener("submit", () => { window.sent = performance.now() }, {capture: true});
        }"""
    )
    ask(page, "Arrange it.")
    expect(page.locator(".instruct-prompt__text")).to_have_text("Arrange it.")
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    expect(page.get_by_label("Your request")).to_have_value("")
    assert page.evaluate("window.shown - window.sent") < 300


def test_two_people_see_the_same_run_to_its_end(enter: Open, work: Work) -> None:
    ada, bob = enter("Ada"), enter("Bob")
    ask(ada, "Arrange it.")
    expect(bob.locator(".instruct-prompt__text")).to_have_text("Arrange it.")
    work()
    for page in (ada, bob):
        expect(status(page)).to_have_text("Done")
        expect(page.locator(".instruct-call")).to_have_count(5)
        assert_equals_a_fresh_page(page, enter)


def test_each_step_shows_with_its_outcome(enter: Open, work: Work) -> None:
    page = enter()
    ask(page, "Arrange it.")
    work()
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-text strong")).to_have_text("two")
    heads = page.locator(".instruct-call__head").all_inner_texts()
    assert [" ".join(re.sub(r"\d\.\d s", "", head).split()) for head in heads] == [
        "Add card one Done",
        "Add card two Done",
        "Check Failed Refused by the tool: The weights total 110, not 100.",
        "Add card three Done",
        heads[4] and " ".join(re.sub(r"\d\.\d s", "", heads[4]).split()),
    ]
    assert "There is no such tool:" in heads[4]
    expect(page.locator(".instruct-status__line")).to_contain_text("3 steps done, 2 failed")


def test_a_page_opened_in_mid_run_catches_up(enter: Open, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Long story.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    late = enter("Bob")
    expect(status(late)).to_have_text("Done", timeout=20_000)
    expect(status(page)).to_have_text("Done")
    expect(late.locator(".instruct-text")).to_have_text(LONG.strip())
    assert_equals_a_fresh_page(late, enter)
    assert_equals_a_fresh_page(page, enter)


def test_streamed_text_is_exact_in_every_character(enter: Open, work_aside: Aside) -> None:
    page = enter()
    page.evaluate(
        """() => {
            window.texts = [];
            new MutationObserver(() => {
                const text = document.querySelector(".instruct-text--streaming")?.textContent;
                if (text) window.texts.push(text);
            }).observe(document.querySelector(".instruct-runs"), {childList: true, subtree: true, characterData: true});
        }"""
    )
    ask(page, "Chat with me.")
    work_aside()
    expect(status(page)).to_have_text("Done")
    texts = page.evaluate("window.texts")
    assert texts[-1] == "Hello, 👋 *world*.\r\nAnd more."
    assert all(texts[-1].startswith(text) for text in texts)
    expect(page.locator(".instruct-text em")).to_have_text("world")


def test_a_tool_shows_as_running_with_its_time(enter: Open, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Slow.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_have_text("One ")
    expect(status(page)).to_have_text("Writing")
    elapsed = page.locator(".instruct-status__line time")
    expect(elapsed).to_have_text(re.compile("[1-9] s"))
    expect(status(page)).to_have_text("Done")


def test_an_open_card_stays_open_and_focused_while_it_changes(enter: Open, work: Work) -> None:
    page = enter()
    page.evaluate(
        """() => new MutationObserver(() => {
            const summary = document.querySelector(".instruct-call summary");
            if (summary && !window.opened) { window.opened = true; summary.click(); summary.focus(); }
        }).observe(document.querySelector(".instruct-runs"), {childList: true, subtree: true})"""
    )
    ask(page, "Arrange it.")
    work()
    expect(status(page)).to_have_text("Done")
    first = page.locator(".instruct-call").first
    expect(first.locator(".instruct-result")).to_be_visible()
    expect(first.locator(".instruct-result")).to_have_text("Added one.")
    expect(first.locator("summary")).to_be_focused()


def test_a_failed_run_says_why_and_is_retried(enter: Open, work: Work) -> None:
    page = enter()
    ask(page, "Fail now.")
    work()
    expect(page.locator(".instruct-error")).to_contain_text("The AI service is overloaded.")
    assert "529" not in page.content()
    assert_equals_a_fresh_page(page, enter)
    page.get_by_role("button", name="Retry").click()
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    assert page.evaluate("document.activeElement.className") == "instruct-run"
    work()
    expect(page.locator(".instruct-error")).to_be_visible()
    assert_equals_a_fresh_page(page, enter)


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
    assert_equals_a_fresh_page(page, enter)


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


def test_t27_without_scripts_the_form_works_and_a_reload_shows_the_results(
    enter: Open, work: Work, runs: Callable[[], list[Run]]
) -> None:
    page = enter(java_script_enabled=False, live=False)
    ask(page, "Arrange it.")
    expect(page.locator(".instruct-prompt__text")).to_have_text("Arrange it.")
    assert page.url.endswith(page.locator(".instruct-panel").get_attribute("id") or "?")
    work()
    page.reload()
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-call")).to_have_count(5)
    page.locator(".instruct-call summary").first.click()
    expect(page.locator(".instruct-result").first).to_be_visible()

    page.get_by_role("button", name="Chat").click()
    assert runs()[-1].user_prompt == "Chat with me"


def test_t27_without_scripts_a_failed_run_is_retried(enter: Open, work: Work) -> None:
    page = enter(java_script_enabled=False, live=False)
    ask(page, "Fail now.")
    work()
    page.reload()
    page.get_by_role("button", name="Retry").click()
    expect(status(page)).to_have_text("Queued, waiting for a worker")


def test_t28_a_strict_policy_is_kept(enter: Open, work: Work, site: str) -> None:
    page = enter()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(site) else None)
    page.reload()
    page.wait_for_selector("instruct-stream[connected]", state="attached")
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


def test_t34_text_is_kept_when_it_could_not_be_sent(enter: Open, app: Flask, runs: Callable[[], list[Run]]) -> None:
    page = enter()
    page.route("**/instruct/runs", lambda route: route.abort())
    ask(page, "A long thought.")
    error = page.locator(".instruct-form .instruct-form__error")
    expect(error).to_contain_text("Your text is still here")
    expect(page.get_by_label("Your request")).to_have_value("A long thought.")

    def login_page(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body="<h1>Log in</h1>")

    page.unroute("**/instruct/runs")
    page.route("**/instruct/runs", login_page)
    page.get_by_role("button", name="Send").click()
    expect(error).to_contain_text("you may have been signed out")
    expect(page.get_by_label("Your request")).to_have_value("A long thought.")

    page.unroute("**/instruct/runs")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".instruct-prompt__text")).to_have_text("A long thought.")
    expect(error).to_be_hidden()
    expect(page.get_by_label("Your request")).to_have_value("")
    assert len(runs()) == 1


def test_t34_words_of_a_refusal_are_shown_and_the_text_kept(enter: Open) -> None:
    page = enter()
    page.locator(".instruct-form input[name=token]").evaluate("field => { field.value = 'forged' }")
    ask(page, "A long thought.")
    expect(page.locator(".instruct-form .instruct-form__error")).to_contain_text("This page can no longer send.")
    expect(page.get_by_label("Your request")).to_have_value("A long thought.")


def test_what_is_typed_while_sending_is_not_taken_away(enter: Open) -> None:
    page = enter()
    held: list[Route] = []
    page.route("**/instruct/runs", held.append)
    ask(page, "First.")
    wait_for(lambda: page.wait_for_timeout(10) or held)
    page.get_by_label("Your request").fill("Second")
    held[0].continue_()
    expect(page.locator(".instruct-prompt__text")).to_have_text("First.")
    expect(page.get_by_label("Your request")).to_have_value("Second")


def test_a_second_press_while_sending_sends_nothing_twice(enter: Open, runs: Callable[[], list[Run]]) -> None:
    page = enter()
    held: list[Route] = []
    page.route("**/instruct/runs", held.append)
    ask(page, "Once.")
    wait_for(lambda: page.wait_for_timeout(10) or held)
    page.get_by_role("button", name="Send").click()
    page.get_by_label("Your request").press("Control+Enter")
    held[0].continue_()
    expect(page.get_by_label("Your request")).to_have_value("")
    assert len(runs()) == len(held) == 1


def test_a_suggestion_is_sent_and_leaves_the_draft(enter: Open) -> None:
    page = enter()
    page.get_by_label("Your request").fill("A draft")
    page.get_by_role("button", name="Chat").click()
    expect(page.locator(".instruct-prompt__text")).to_have_text("Chat with me")
    expect(page.get_by_label("Your request")).to_have_value("A draft")


def test_the_keyboard_sends(enter: Open) -> None:
    page = enter()
    page.get_by_label("Your request").fill("By keyboard.")
    page.get_by_label("Your request").press("Enter")
    expect(page.locator(".instruct-prompt__text")).to_have_count(0)
    page.get_by_label("Your request").press("Control+Enter")
    expect(page.locator(".instruct-prompt__text")).to_have_text("By keyboard.")


def test_a_late_answer_does_not_turn_back_what_the_stream_brought(enter: Open, work: Work) -> None:
    page = enter()
    held: list[Route] = []

    def hold(route: Route) -> None:
        response = route.fetch()
        held.append(route)
        work()
        expect(status(page)).to_have_text("Done")
        route.fulfill(response=response)

    page.route("**/instruct/runs", hold)
    ask(page, "Arrange it.")
    expect(page.get_by_label("Your request")).to_have_value("")
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-run")).to_have_count(1)
    assert_equals_a_fresh_page(page, enter)


def test_the_oldest_request_leaves_as_a_new_one_comes(enter: Open, client: FlaskClient) -> None:
    for number in range(SHOWN_RUNS):
        post(client, data={"prompt": f"Arrange number {number}."})
    page = enter()
    ask(page, "Arrange the last.")
    expect(page.locator(".instruct-prompt__text").last).to_have_text("Arrange the last.")
    expect(page.locator(".instruct-run")).to_have_count(SHOWN_RUNS)
    expect(page.locator(".instruct-prompt__text").first).to_have_text("Arrange number 1.")
    assert_equals_a_fresh_page(page, enter)


def test_the_newest_line_stays_in_view(enter: Open, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Long story.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    expect(status(page)).to_have_text("Done", timeout=20_000)
    expect(status(page)).to_be_in_viewport()


def test_a_reader_who_scrolled_up_is_left_there(enter: Open, work: Work, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Long story.")
    work()
    ask(page, "Arrange it.")
    log = page.locator(".instruct-log")
    first = page.locator(".instruct-prompt__text").first
    expect(page.locator(".instruct-run")).to_have_count(2)
    log.evaluate("log => { log.scrollTop = -log.scrollHeight }")
    before = first.bounding_box()
    work()
    expect(status(page)).to_have_text("Done")
    assert first.bounding_box() == before


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
