"""``instruct_run(run)``: one run's card alone on a page."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from flask import Flask
from flask import render_template_string
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.errors import HandlerError
from flask_instruct.panel.page import SHOWN_RUNS
from flask_instruct.runs.models import Run
from flask_instruct.testing import LivePage

from .pages import Open
from .pages import Work
from .pages import status
from .scenes import show
from .test_views import field
from .test_views import post

Runs = Callable[[], list[Run]]


@pytest.fixture(autouse=True)
def shown(app: Flask) -> None:
    show(app)


def look_at(page: Page, site: str, run: Run) -> None:
    page.goto(f"{site}/one/{run.id}")
    LivePage(page).wait_connected()


def test_a_run_is_followed_to_its_end(client: FlaskClient, enter: Open, site: str, work: Work, runs: Runs) -> None:
    post(client, data={"prompt": "Arrange it."})
    page = enter()
    look_at(page, site, runs()[0])
    expect(status(page)).to_have_text("Queued, waiting for a worker")
    work()
    expect(status(page)).to_have_text("Done")
    expect(page.locator(".instruct-call")).to_have_count(5)
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The AI has finished. 3 steps done, 2 failed.")
    LivePage(page).converges(".instruct-log", ".instruct-panel [role=status]", ignore_attributes=["open"])


def test_it_is_stopped_by_its_button(client: FlaskClient, enter: Open, site: str, runs: Runs) -> None:
    post(client, data={"prompt": "Chat."})
    page = enter()
    look_at(page, site, runs()[0])
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_have_text("Stopped")
    expect(page.locator(".instruct-panel [role=status]")).to_have_text("The AI was stopped.")


def test_what_waits_is_approved_on_it(client: FlaskClient, enter: Open, site: str, work: Work, runs: Runs) -> None:
    post(client, data={"prompt": "Publish it."})
    work()
    page = enter("Lead Lea")
    look_at(page, site, runs()[0])
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved by Lead Lea")).to_be_visible()
    work()
    expect(status(page)).to_have_text("Done")


def test_it_stays_when_newer_runs_push_it_off_the_panel(
    client: FlaskClient, enter: Open, site: str, work: Work, runs: Runs
) -> None:
    post(client, data={"prompt": "Chat."})
    work()
    page = enter()
    look_at(page, site, runs()[0])
    for _ in range(SHOWN_RUNS):
        post(client, data={"prompt": "Chat."})
    LivePage(page).converges(".instruct-log", ignore_attributes=["open"])
    expect(page.locator(".instruct-run")).to_have_count(1)


def test_without_a_script_its_forms_come_back_to_its_page(client: FlaskClient, work: Work, runs: Runs) -> None:
    post(client, data={"prompt": "Fail now."})
    work()
    run = runs()[0]
    text = client.get(f"/one/{run.id}").text
    assert re.search(rf'formaction="/instruct/runs/{run.id}/retry"', text)
    data = {"token": field(text, "token"), "next": field(text, "next")}
    answer = client.post(f"/instruct/runs/{run.id}/retry", data=data)
    assert answer.status_code == 303
    assert answer.location.startswith(f"/one/{run.id}#")
    assert runs()[0].status == "queued"


def test_who_may_not_ask_sees_it_without_its_forms(app: Flask, client: FlaskClient, work: Work, runs: Runs) -> None:
    post(client, data={"prompt": "Fail now."})
    work()
    guest = app.test_client()
    guest.get("/as/guest")
    text = guest.get(f"/one/{runs()[0].id}").text
    assert "Fail now." in text
    assert "instruct-panel--readonly" in text
    assert 'name="token"' not in text


def test_an_id_of_no_run_is_an_error_that_says_so(app: Flask) -> None:
    with app.test_request_context(), pytest.raises(HandlerError, match="there is no such run"):
        render_template_string("{{ instruct_run('0197a5f0-0000-7000-8000-000000000000') }}")
