"""A person keeps control in a browser: by keyboard alone, without motion, in a queue, with many viewers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect
from rq import Worker

from flask_instruct.live.bus import Bus
from flask_instruct.live.turbo_stream import stream_name
from flask_instruct.panel.keys import PANEL
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import run_queue
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.testing import LivePage
from tests.live.websocket import Client

from .board import Card
from .board import db
from .board import released
from .pages import Aside
from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status
from .pages import write
from .test_views import post

Runs = Callable[[], list[Run]]

BY_HAND = """async ({path, token}) => {
    const body = new URLSearchParams({token, next: "/boards/1"});
    return (await fetch(path, {method: "POST", body, redirect: "manual"})).status;
}"""


FOCUSED = """([name, within]) => {
    const here = document.activeElement;
    return here.matches("a, button") && here.textContent.trim() === name && here.closest(within) !== null;
}"""
RING = """(() => {
    const style = getComputedStyle(document.activeElement);
    return document.activeElement.matches(":focus-visible") && style.outlineStyle !== "none"
        && parseFloat(style.outlineWidth) >= 2;
})()"""


def cards(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(sa.select(Card.text).order_by(Card.id)))


def approval_id(app: Flask) -> str:
    with app.app_context():
        return db.session.scalars(sa.select(Approval.id)).one()


def token_on(page: Page) -> str:
    return page.locator(".instruct-panel input[name=token]").first.input_value()


def test_t12_a_decision_sent_by_hand_is_refused_and_changes_nothing(enter: Open, work: Work, app: Flask) -> None:
    author, lead = enter("Ada"), enter("Lead Lea")
    ask(author, "Publish it.")
    work()
    expect(status(author)).to_have_text("Waiting for approval")
    path = f"/instruct/approvals/{approval_id(app)}/approve"
    missing = f"/instruct/approvals/{approval_id(app)[:-4]}0000/approve"
    own, foreign = token_on(author), token_on(lead)
    answers = [
        author.evaluate(BY_HAND, {"path": where, "token": token})
        for where, token in ((path, own), (path, foreign), (path, own[:-3] + "AAA"), (path, ""), (missing, own))
    ]
    assert answers == [403, 403, 403, 403, 404]
    work()
    assert cards(app) == ["beside"]
    expect(status(author)).to_have_text("Waiting for approval")
    assert_equals_a_fresh_page(author)


def test_t16_a_second_request_waits_and_nothing_of_the_two_is_mixed(
    enter: Open, work: Work, work_aside: Aside, runs: Runs
) -> None:
    page = enter()
    ask(page, "Many things.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    ask(page, "Arrange it.")
    ask(page, "Arrange it once more.")
    waits = page.locator(".instruct-status__text")
    expect(waits).to_have_text([re.compile("Writing"), "Queued, place 2", "Queued, place 3"])
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The request is queued, at place 3.")
    assert_equals_a_fresh_page(page)
    expect(waits).to_have_text(["Done", "Queued, waiting for a worker", "Queued, place 2"], timeout=20_000)
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The request is queued, at place 2.")
    assert_equals_a_fresh_page(page)
    work()
    expect(status(page)).to_have_text("Done")
    for before, after in pairwise(runs()):
        assert before.ended_at is not None
        assert after.started_at is not None
        assert before.ended_at <= after.started_at
    steps = [page.locator(".instruct-run").nth(number).locator(".instruct-call__name") for number in (0, 1, 2)]
    arranged = ["Add card"] * 2 + ["Check", "Add card"] + ["Check all"]
    assert [each.all_inner_texts() for each in steps] == [["Add card"] * 5, arranged, arranged]
    assert_equals_a_fresh_page(page)


@pytest.mark.parametrize("settings", [{"INSTRUCT_NO_WORKER_NOTICE": 2}])
def test_t18_without_a_worker_the_page_says_so_in_time_and_starting_one_completes_the_run(
    enter: Open, app: Flask, work: Work, runs: Runs
) -> None:
    nobody = "No worker is running, so the request waits"
    page, other = enter(), enter("Bob")
    write(page, "Arrange it.")
    expect(status(other)).to_have_text("Queued, waiting for a worker", timeout=2_000)
    expect(status(other)).to_have_text(nobody, timeout=4_000)
    waited = (now() - runs()[0].queued_at).total_seconds()
    assert 2 <= waited < 4
    expect(status(page)).to_have_text(nobody)
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The request waits: no worker is running.")
    assert_equals_a_fresh_page(page)
    # One comes that has others to do: the request still waits, but not for want of one.
    worker = Worker([run_queue(app.extensions["instruct"])], connection=app.extensions["instruct"].redis)
    worker.register_birth()
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    assert_equals_a_fresh_page(page)
    work()
    expect(status(page)).to_have_text("Done")
    assert_equals_a_fresh_page(page)


def test_t19_undo_restores_what_nobody_changed_since_lists_the_rest_and_redo_brings_it_back(
    enter: Open, work: Work, app: Flask
) -> None:
    page = enter("Lead Lea")
    ask(page, "Rewrite it.")
    work()
    page.get_by_role("button", name="Approve").first.click()
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    work()
    ask(page, "Arrange it.")
    work()
    expect(status(page)).to_have_text("Done")
    written = cards(app)
    assert len(written) == 5
    with app.app_context():
        db.session.execute(sa.update(Card).where(Card.text == "two").values(text="mine"))
        db.session.commit()
    page.locator(".instruct-run").last.get_by_role("link", name="Undo…").first.click()
    expect(page.locator("[data-conflict]")).to_have_count(1)
    expect(page.locator("[data-conflict]")).to_contain_text("It was changed since: text.")
    page.get_by_role("button").click()
    expect(page.locator(".instruct-run").last).to_be_visible()
    assert cards(app) == [*written[:2], "mine"]
    page.locator(".instruct-run").last.get_by_role("link", name="Redo…").first.click()
    page.get_by_role("button").click()
    expect(page.locator(".instruct-run").last).to_be_visible()
    assert sorted(cards(app)) == sorted([*written[:2], "one", "mine", "three"])


def test_t25_a_whole_story_by_keyboard_keeps_the_focus_and_shows_it(
    enter: Open, work: Work, work_aside: Aside, app: Flask
) -> None:
    page = enter("Lead Lea")
    field = page.get_by_label("Your request")
    field.focus()

    def send(text: str) -> None:
        field.focus()
        page.keyboard.type(text)
        page.keyboard.press("Control+Enter")
        expect(field).to_have_value("")

    def press(name: str, within: str = "body") -> None:
        """Go to a button or link from wherever the focus is, key by key, and press it."""
        for _ in range(100):
            page.keyboard.press("Tab")
            if page.evaluate(FOCUSED, [name, within]):
                break
        else:
            pytest.fail(f"no key leads to {name}")
        assert page.evaluate(RING), name
        page.keyboard.press("Enter")

    send("Publish it.")
    work()
    expect(status(page)).to_have_text("Waiting for approval")
    press("Approve")
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    expect(page.locator(":focus")).to_have_count(1)
    work()
    expect(status(page)).to_have_text("Done")
    expect(page.locator(":focus")).to_have_count(1)
    send("Long story.")
    work_aside()
    expect(page.locator(".instruct-text--streaming")).to_contain_text("quick brown")
    press("Stop")
    expect(status(page)).to_have_text("Stopped", timeout=20_000)
    expect(page.locator(":focus")).to_have_count(1)
    press("Undo…", within=".instruct-run:first-child")
    expect(page.get_by_role("heading", level=1)).to_have_text("Undo")
    press("Undo")
    expect(page.locator(".instruct-run")).to_have_count(3)
    expect(page.locator(":focus")).to_have_count(1)
    assert cards(app) == []


def test_t26_with_reduced_motion_nothing_is_animated(enter: Open, work_aside: Aside) -> None:
    page, moving = enter(reduced_motion="reduce"), enter("Bob", reduced_motion="no-preference")
    released.clear()
    ask(page, "Hold on.")
    work_aside()
    running = "document.getAnimations().filter(each => each.playState === 'running').length"
    for each in (page, moving):
        expect(status(each)).to_have_text("Using “Hold”")
    assert (page.evaluate(running), moving.evaluate(running) > 0) == (0, True)
    released.set()
    expect(status(page)).to_have_text("Done")
    assert page.evaluate(running) == 0


# How often a stop is looked for, and how many words make a piece, is a matter of time, and so of chance.
@pytest.mark.parametrize("settings", [{"INSTRUCT_STOP_INTERVAL": 600, "INSTRUCT_TEXT_INTERVAL": 0}])
def test_t36_twenty_viewers_get_each_frame_once_and_cost_the_worker_nothing(
    app: Flask, enter: Open, client: FlaskClient, site: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str | None] = []
    done: Counter[str] = Counter()
    publish_all = Bus.publish_all

    def kept(bus: Bus, stream: str, broadcasts: Sequence[tuple[str | None, str]]) -> list[str | None]:
        positions = publish_all(bus, stream, broadcasts)
        published.extend(positions if stream == stream_name(PANEL, "instruct://Arranger/1") else [])
        done["asked of Redis"] += 1
        return positions

    def arrange() -> Counter[str]:
        """Have a worker do the same once more; return what it had to do for that."""
        done.clear()
        work()
        return +done

    monkeypatch.setattr(Bus, "publish_all", kept)
    with app.app_context():
        for engine in (db.engine, ledger_engine(db)):
            sa.event.listen(engine, "before_cursor_execute", lambda *_: done.update(["asked of the database"]))
    post(client, data={"prompt": "Arrange it."})
    arrange()
    post(client, data={"prompt": "Arrange it."})
    alone = arrange()
    with ExitStack() as stack:
        pages = [enter(name) for name in ("Ada", "Bob", "Cy")]
        heard_on = [frames_of(page) for page in pages]
        viewers = [stack.enter_context(follow(client, site)) for _ in range(17)]
        published.clear()
        post(client, data={"prompt": "Arrange it."})
        watched = arrange()
        heard = [[viewer.receive()["id"] for _ in published] for viewer in viewers]
        for page in pages:
            expect(status(page)).to_have_text("Done")
            assert_equals_a_fresh_page(page)
    assert len(published) > 10
    assert all(each == published for each in [*heard, *heard_on])
    assert watched == alone


def frames_of(page: Page) -> list[str]:
    """Reload a page; return the positions of the broadcasts that its socket is sent from then on."""
    positions: list[str] = []

    def note(message: str | bytes) -> None:
        told = json.loads(message)
        positions.extend(each["id"] for each in (told if isinstance(told, list) else [told]) if "html" in each)

    page.on("websocket", lambda socket: socket.on("framereceived", note))
    page.reload()
    LivePage(page).wait_connected()
    return positions


def follow(client: FlaskClient, site: str) -> Client:
    """Follow the board's panel as a page does, by a bare socket."""
    found = re.search(r'<instruct-stream[^>]*token="([^"]+)"[^>]*since="([^"]+)"', client.get("/boards/1").text)
    cookie = client.get_cookie("session")
    assert found is not None
    assert cookie is not None
    viewer = Client(site, headers={"Cookie": f"session={cookie.value}"})
    viewer.subscribe(*found.groups())
    viewer.until("ready")
    return viewer
