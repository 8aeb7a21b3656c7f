"""Asking: the request shows at once, nothing written is lost, and it works without scripts."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from playwright.sync_api import Route
from playwright.sync_api import expect

from flask_instruct.runs.models import Run
from tests.support import wait_for

from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status
from .pages import write


def test_t01_a_request_is_on_the_page_at_once_and_before_any_worker(enter: Open) -> None:
    page = enter()
    page.evaluate(
        """() => {
            const runs = document.querySelector(".instruct-runs");
            new MutationObserver(() => { window.shown ??= performance.now() }).observe(runs, {childList: true});
            addEventListener("submit", () => {
                window.shown = undefined;
                window.sent = performance.now();
            }, {capture: true});
        }"""
    )
    took = []
    for number in range(5):
        ask(page, f"Arrange {number}.")
        expect(page.locator(".instruct-prompt__text").last).to_have_text(f"Arrange {number}.")
        expect(status(page)).to_have_text(f"Queued, place {number + 1}" if number else "Queued, waiting for a worker")
        took.append(page.evaluate("window.shown - window.sent"))
    # The first one warms the server up, and a machine that is busy with other tests may delay any single one.
    assert min(took) < 300, took


def test_t34_text_is_kept_when_it_could_not_be_sent(enter: Open, app: Flask, runs: Callable[[], list[Run]]) -> None:
    page = enter()
    page.route("**/instruct/runs", lambda route: route.abort())
    write(page, "A long thought.")
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
    write(page, "A long thought.")
    expect(page.locator(".instruct-form .instruct-form__error")).to_contain_text("This page can no longer send.")
    expect(page.get_by_label("Your request")).to_have_value("A long thought.")


def test_what_is_typed_while_sending_is_not_taken_away(enter: Open) -> None:
    page = enter()
    held: list[Route] = []
    page.route("**/instruct/runs", lambda route: held.append(route))
    write(page, "First.")
    wait_for(lambda: page.wait_for_timeout(10) or held)
    page.get_by_label("Your request").fill("Second")
    held[0].continue_()
    expect(page.locator(".instruct-prompt__text")).to_have_text("First.")
    expect(page.get_by_label("Your request")).to_have_value("Second")


def test_a_second_press_while_sending_sends_nothing_twice(enter: Open, runs: Callable[[], list[Run]]) -> None:
    page = enter()
    held: list[Route] = []
    page.route("**/instruct/runs", lambda route: held.append(route))
    write(page, "Once.")
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
    write(page, "Arrange it.")
    expect(page.get_by_label("Your request")).to_have_value("")
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-run")).to_have_count(1)
    assert_equals_a_fresh_page(page)


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
