"""A run on an open page: every step shows, and the page ends the same as a fresh one."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.panel.page import SHOWN_RUNS
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from tests.support import Process
from tests.support import holds

from .board import LONG
from .board import WorkerDied
from .board import db
from .board import released
from .pages import Aside
from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status
from .test_views import post


@pytest.fixture
def hold() -> Iterator[None]:
    """Let the tool ``hold`` hold, until ``released`` is set or the test has ended."""
    released.clear()
    yield
    released.set()


@pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)
def test_two_people_see_the_same_run_to_its_end(enter: Open, work: Work) -> None:
    ada, bob = enter("Ada"), enter("Bob")
    ask(ada, "Arrange it.")
    expect(bob.locator(".instruct-prompt__text")).to_have_text("Arrange it.")
    work()
    for page in (ada, bob):
        expect(status(page)).to_have_text("Done")
        expect(page.locator(".instruct-call")).to_have_count(5)
        assert_equals_a_fresh_page(page)


def test_each_step_shows_with_its_outcome(enter: Open, work: Work) -> None:
    page = enter()
    ask(page, "Arrange it.")
    work()
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-text strong")).to_have_text("two")
    told = [
        ("Add card", "one", "Done"),
        ("Add card", "two", "Done"),
        ("Check", "Failed", "Refused by the tool: The weights total 110, not 100."),
        ("Add card", "three", "Done"),
        ("Check all", "Failed", "There is no such tool:"),
    ]
    heads = page.locator(".instruct-call__head")
    for number, words in enumerate(told):
        for word in words:
            expect(heads.nth(number)).to_contain_text(word)
    expect(page.locator(".instruct-status__line")).to_contain_text("3 steps done, 2 failed")


def test_a_page_opened_in_mid_run_catches_up(enter: Open, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Long story.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    late = enter("Bob")
    # What is finished of the text is Markdown already, on both.
    for each in (late, page):
        expect(each.locator(".instruct-text--streaming strong")).to_have_text("Story")
    expect(status(late)).to_have_text("Done", timeout=20_000)
    expect(status(page)).to_have_text("Done")
    expect(late.locator(".instruct-text")).to_have_text(f"Story {LONG.strip()}")
    assert_equals_a_fresh_page(late)
    assert_equals_a_fresh_page(page)


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
    # What is left as the model comes to its end arrives with the finished text.
    whole = "Hello, 👋 *world*.\nAnd more."
    assert len(texts) > 1
    assert all(whole.startswith(text) for text in texts)
    assert [len(text) for text in texts] == sorted(len(text) for text in texts)
    expect(page.locator(".instruct-text em")).to_have_text("world")


def test_a_tool_shows_as_running_with_its_time_also_on_a_page_opened_then(
    enter: Open, work_aside: Aside, hold: None
) -> None:
    page = enter()
    ask(page, "Hold on.")
    work_aside()
    states = page.locator(".instruct-call__state")
    expect(states.nth(0)).to_have_text(re.compile("Running [1-9] s"))
    expect(states.nth(1)).to_have_text("Waiting")
    expect(status(page)).to_have_text("Using “Hold”")
    expect(page.locator(".instruct-status__line time")).to_have_text(re.compile("[1-9] s"))
    assert_equals_a_fresh_page(page)
    released.set()
    expect(states.nth(0)).to_have_text(re.compile(r"Done [1-9]\.[0-9] s"))
    expect(status(page)).to_have_text("Done")
    assert_equals_a_fresh_page(page)


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
    assert "busy" not in page.content()
    assert_equals_a_fresh_page(page)
    page.get_by_role("button", name="Retry").click()
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    # The fragment comes by the socket, the focus with the answer to the click: either may be first.
    expect(page.locator(".instruct-run")).to_be_focused()
    work()
    expect(page.locator(".instruct-error")).to_be_visible()
    assert_equals_a_fresh_page(page)


def test_t09_stop_ends_a_text_and_a_list_of_tools_in_time_and_nothing_comes_after(
    enter: Open, app: Flask, worker: Callable[[], Process], runs: Callable[[], list[Run]]
) -> None:
    page = enter()
    worker()
    run = page.locator(".instruct-run").last
    ask(page, "Endless text.")
    assert seconds_to_stop(page) < 1.5
    expect(run).to_contain_text("The answer breaks off here.")
    ask(page, "Five slow ones.")
    states = run.locator(".instruct-call__state")
    assert seconds_to_stop(page, tool=2) < 1.5
    expect(states).to_have_text([re.compile("Done")] * 3 + [re.compile("Failed")] * 2)
    kept = written(app)
    assert_equals_a_fresh_page(page)
    assert holds(lambda: written(app) == kept, 2)
    assert [each.status for each in runs()] == ["cancelled", "cancelled"]
    assert [call.error_kind for call in runs()[1].calls] == [None, None, None, "interrupted", "interrupted"]
    ask(page, "Chat with me.")
    expect(status(page)).to_have_text("Done")
    assert_equals_a_fresh_page(page)


STOP = """(tool) => new Promise((resolve) => {
    let pressed = 0;
    const look = () => {
        const run = [...document.querySelectorAll(".instruct-run")].at(-1);
        const state = run.querySelectorAll(".instruct-call__state")[tool]?.textContent ?? "";
        const text = run.querySelector(".instruct-text--streaming")?.textContent ?? "";
        if (!pressed && (tool === null ? text.length > 50 : state.includes("Running"))) {
            pressed = performance.now();
            run.querySelector(".instruct-stop").click();
        }
        if (pressed && run.querySelector(".instruct-status__text").textContent === "Stopped") {
            observer.disconnect();
            resolve((performance.now() - pressed) / 1000);
        }
    };
    const observer = new MutationObserver(look);
    observer.observe(document.querySelector(".instruct-runs"), {childList: true, subtree: true, characterData: true});
    look();
})"""


def seconds_to_stop(page: Page, tool: int | None = None) -> float:
    """Press Stop in the middle of a text, or as a tool is running; return how long it takes until the page says so."""
    return float(page.evaluate(STOP, tool))


def written(app: Flask) -> dict[str, list[Any]]:
    """All that the ledger and the app's tables hold, but for what Redis has answered to the last broadcasts."""
    with app.app_context():
        tables = [table for table in db.metadata.sorted_tables if table.name != "instruct_outbox"]
        found = {
            table.name: list(db.session.execute(sa.select(table).order_by(*table.primary_key))) for table in tables
        }
        found["outbox"] = list(db.session.scalars(sa.select(Outbox.id).order_by(Outbox.seq)))
        return found


def test_the_oldest_request_leaves_as_a_new_one_comes(enter: Open, client: FlaskClient) -> None:
    for number in range(SHOWN_RUNS):
        post(client, data={"prompt": f"Arrange number {number}."})
    page = enter()
    ask(page, "Arrange the last.")
    expect(page.locator(".instruct-prompt__text").last).to_have_text("Arrange the last.")
    expect(page.locator(".instruct-run")).to_have_count(SHOWN_RUNS)
    expect(page.locator(".instruct-prompt__text").first).to_have_text("Arrange number 1.")
    assert_equals_a_fresh_page(page)


def test_t35_the_newest_line_stays_in_view(enter: Open, work_aside: Aside) -> None:
    page = enter()
    ask(page, "Long story.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    expect(status(page)).to_have_text("Done", timeout=20_000)
    expect(status(page)).to_be_in_viewport()
    expect(page.get_by_role("button", name="New below")).to_have_count(0)


def test_t35_a_reader_who_scrolled_up_is_left_there_and_a_button_goes_to_what_is_new(
    enter: Open, work: Work, work_aside: Aside
) -> None:
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
    new = page.get_by_role("button", name="New below")
    expect(new).to_be_in_viewport()
    # By keyboard: it stands between the log and the form.
    page.get_by_role("button", name="Arrange").first.focus()
    page.keyboard.press("Shift+Tab")
    expect(new).to_be_focused()
    page.keyboard.press("Enter")
    expect(status(page)).to_be_in_viewport()
    expect(new).to_have_count(0)
    expect(log).to_be_focused()
    assert_equals_a_fresh_page(page)


def test_a_run_whose_worker_died_is_resumed_on_the_page_in_its_order(
    enter: Open, app: Flask, runs: Callable[[], list[Run]]
) -> None:
    page = enter()
    ask(page, "Crash in between.")
    [run] = runs()
    with app.app_context(), pytest.raises(WorkerDied):
        generate(run.id)
    expect(status(page)).to_have_text("Using “Crash once”")
    silence(app, run.id)
    with app.app_context():
        generate(run.id)
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-badge")).to_have_text("Resumed after an interruption")
    expect(page.locator(".instruct-call__name")).to_have_text(["Add card", "Crash once", "Add card"])
    expect(page.locator(".instruct-call__state")).to_have_text([re.compile("Done")] * 3)
    assert_equals_a_fresh_page(page)


def test_half_an_answer_leaves_the_page_when_the_run_is_taken_up_again(
    enter: Open, app: Flask, runs: Callable[[], list[Run]]
) -> None:
    page = enter()
    ask(page, "Chat with me.")
    [run] = runs()
    with app.app_context():
        held = db.session.get_one(Run, run.id)
        held.status, held.attempt = "running", 1
        db.session.add(Message(run_id=run.id, seq=1, text="Half an ans", state="streaming"))
        db.session.commit()
    silence(app, run.id)
    page.reload()
    expect(page.locator(".instruct-text--streaming")).to_have_text("Half an ans")
    with app.app_context():
        generate(run.id)
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-text")).to_have_count(1)
    assert "Half an ans" not in page.locator(".instruct-log").inner_text()
    assert_equals_a_fresh_page(page)


def test_an_answer_that_a_limit_of_the_provider_cut_is_a_failure_with_its_reason(enter: Open, work: Work) -> None:
    page = enter()
    ask(page, "Cut it.")
    work()
    expect(page.locator(".instruct-error")).to_contain_text("cut off because it became too long")
    assert_equals_a_fresh_page(page)


def test_a_run_that_met_its_limit_says_which(enter: Open, work: Work) -> None:
    page = enter()
    ask(page, "Forever on.")
    work()
    expect(status(page)).to_have_text("Stopped at a limit")
    expect(page.locator(".instruct-error")).to_contain_text("used its tools as many times as one request allows")
    assert_equals_a_fresh_page(page)


def silence(app: Flask, run_id: str) -> None:
    """Let the lease of a run's dead worker run out."""
    with app.app_context():
        db.session.get_one(Run, run_id).lease_until = now() - timedelta(seconds=1)
        db.session.commit()
