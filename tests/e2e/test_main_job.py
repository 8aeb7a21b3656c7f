"""The product's main job in real browsers: someone asks, an AI edits in the background, every open page follows."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page
from playwright.sync_api import WebSocketRoute
from playwright.sync_api import expect

from flask_instruct.testing import LivePage
from tests.live.redis_process import RedisProcess
from tests.support import wait_for

from .conftest import Studio
from .conftest import ask
from .conftest import assert_converged
from .conftest import wait_for_status

NewPage = Callable[..., Page]

LAB_REPORT = "Lab report: Enzyme kinetics"
REVIEW = "Give this assessment a full review"
DONE = "Done"


@pytest.mark.parametrize("studio", ["sqlite", "postgresql"], indirect=True)
def test_two_people_watch_one_assessment_and_both_end_with_the_page_as_it_is(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    asks, watches = studio.open(new_page(), "Mina", key), studio.open(new_page(), "Theo", key)
    ask(asks, REVIEW)
    wait_for_status(watches, DONE)
    wait_for_status(asks, DONE)
    assert sum(studio.weights(key)) == 100
    for page in (asks, watches):
        assert_converged(page)


def test_what_was_asked_is_on_every_page_before_any_worker_starts(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    key = studio.key_of(LAB_REPORT)
    asks, watches = studio.open(new_page(), "Mina", key), studio.open(new_page(), "Theo", key)
    ask(asks, "What makes a rubric fair?")
    for page in (asks, watches):
        expect(page.locator(".instruct-prompt__text").last).to_have_text("What makes a rubric fair?")
        assert_converged(page)
    studio.start_worker()
    wait_for_status(watches, DONE)
    assert_converged(watches)


def test_a_page_opened_after_the_run_began_misses_nothing(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    asks = studio.open(new_page(), "Mina", key)
    ask(asks, REVIEW)
    expect(asks.locator(".instruct-call").first).to_be_visible(timeout=20_000)
    late = studio.open(new_page(), "Theo", key)
    wait_for_status(late, DONE)
    assert_converged(late)


def test_a_socket_held_back_until_the_run_has_ended_misses_nothing(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    held: list[WebSocketRoute] = []
    holding = True

    def route(socket: WebSocketRoute) -> None:
        if holding:
            held.append(socket)
        else:
            socket.connect_to_server()

    watches = new_page()
    studio.sign_in(watches, "Theo")
    watches.route_web_socket("**/instruct/socket**", route)
    watches.goto(f"{studio.url}/assessments/{key}")
    loaded = watches.evaluate("() => window.loadedOnce = Math.random()")
    asks = studio.open(new_page(), "Mina", key)
    ask(asks, REVIEW)
    wait_for_status(asks, DONE)
    expect(watches.locator(".instruct-run")).to_have_count(0)
    assert held
    holding = False
    for socket in held:
        socket.close(code=1012)
    wait_for_status(watches, DONE)
    assert watches.evaluate("() => window.loadedOnce") == loaded
    assert_converged(watches)


def test_offline_for_five_seconds_in_the_middle(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    watches, asks = studio.open(new_page(), "Theo", key), studio.open(new_page(), "Mina", key)
    ask(asks, REVIEW)
    expect(watches.locator(".instruct-call").first).to_be_visible(timeout=20_000)
    watches.context.set_offline(True)
    seen = watches.locator(".instruct-call").count()
    wait_for(lambda: asks.locator(".instruct-call").count() >= seen + 4, 20, "the run to go on elsewhere")
    watches.wait_for_timeout(5_000)
    watches.context.set_offline(False)
    LivePage(watches).wait_connected()
    wait_for_status(watches, DONE)
    assert_converged(watches)


@pytest.mark.parametrize("studio", ["sqlite", "postgresql"], indirect=True)
def test_a_worker_killed_between_two_tools_doubles_nothing(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    worker = studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    before = studio.comments(key)
    page = studio.open(new_page(), "Mina", key)
    ask(page, "Read the comments and answer what is open")
    wait_for(lambda: len(studio.comments(key)) > len(before), 20, "the first comment")
    os.kill(worker.pid, signal.SIGKILL)
    studio.start_worker()
    wait_for_status(page, DONE)
    made = studio.comments(key)[len(before) :]
    assert len(made) >= 2
    assert len(set(made)) == len(made)
    assert_converged(page)


def test_the_web_process_killed_in_the_middle(studio: Studio, new_page: NewPage) -> None:
    web = studio.start_web()
    studio.start_worker()
    key = studio.key_of(LAB_REPORT)
    page = studio.open(new_page(), "Mina", key)
    ask(page, REVIEW)
    expect(page.locator(".instruct-call").first).to_be_visible(timeout=20_000)
    web.stop(timeout=0)
    studio.start_web()
    LivePage(page).wait_connected()
    wait_for_status(page, DONE)
    assert_converged(page)


def test_redis_killed_in_the_middle_and_back_with_nothing(studio: Studio, new_page: NewPage) -> None:
    redis = RedisProcess(keeps=False)
    redis.start()
    try:
        studio.environment["INSTRUCT_REDIS_URL"] = redis.url
        studio.start_web()
        studio.start_worker()
        key = studio.key_of(LAB_REPORT)
        page = studio.open(new_page(), "Mina", key)
        ask(page, REVIEW)
        expect(page.locator(".instruct-call").first).to_be_visible(timeout=20_000)
        redis.kill()
        redis.start()
        LivePage(page).wait_connected()
        wait_for_status(page, DONE)
        ask(page, "What makes a rubric fair?")
        expect(page.locator(".instruct-prompt__text").last).to_have_text("What makes a rubric fair?")
        wait_for_status(page, DONE)
        assert_converged(page)
    finally:
        redis.stop()


def test_a_failed_run_says_why_and_goes_on_when_retried(studio: Studio, new_page: NewPage) -> None:
    studio.start_web(server="flask")
    studio.start_worker(INSTRUCT_RETRIES="0")
    page = studio.open(new_page(), "Mina", studio.key_of(LAB_REPORT))
    ask(page, "Show me an overloaded AI service")
    retry = page.get_by_role("button", name="Retry")
    expect(retry).to_be_visible(timeout=20_000)
    expect(page.locator(".instruct-run").last).to_contain_text("overloaded")
    assert_converged(page)

    def ended() -> str | None:
        status = studio.statuses()[-1]
        return status if status in ("succeeded", "failed") else None

    while wait_for(ended, 20, "the run to end") == "failed":
        # The service stays overloaded for a few seconds.
        retry.click()
        wait_for(lambda: studio.statuses()[-1] != "failed", message="the retry to be taken")
    wait_for_status(page, DONE)
    assert_converged(page)


def test_g9_a_failed_model_call_is_made_again_with_a_countdown_on_the_page(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    page = studio.open(new_page(), "Mina", studio.key_of(LAB_REPORT))
    ask(page, "Show me an overloaded AI service")
    run = page.locator(".instruct-run").last
    expect(run.locator(".instruct-status__text")).to_have_text("The AI service is overloaded. Trying again")
    expect(run.locator("time[data-instruct-until]")).to_have_text(re.compile(r"^in [0-9]+ s$"))
    # What was said before the failure is taken back, here and for whoever opens the page now.
    expect(run).not_to_contain_text("There are several things")
    wait_for_status(page, DONE)
    expect(run).to_contain_text("Now the service answers.")
    assert_converged(page)


def test_hostile_text_stays_text(studio: Studio, new_page: NewPage) -> None:
    studio.start_web()
    studio.start_worker()
    page = studio.open(new_page(), "Mina", studio.key_of(LAB_REPORT))
    dialogs: list[str] = []
    foreign: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: foreign.append(request.url) if not request.url.startswith(studio.url) else None)
    scripts = page.locator("script").count()
    ask(page, "Try to break this page")
    wait_for_status(page, DONE)
    page.reload()
    LivePage(page).wait_connected()
    assert (dialogs, page.locator("script").count()) == ([], scripts)
    assert [url for url in foreign if not url.startswith("data:")] == []
    assert_converged(page)
