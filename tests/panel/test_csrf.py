"""Beside Flask-WTF's CSRFProtect: the panel's forms carry its token too, and are refused without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_wtf import CSRFProtect
from playwright.sync_api import expect

from flask_instruct.runs.models import Run

from .pages import Open
from .pages import Work
from .pages import ask
from .pages import status
from .scenes import addresses
from .scenes import show
from .test_views import field
from .test_views import post

Runs = Callable[[], list[Run]]


@pytest.fixture(autouse=True)
def protected(app: Flask) -> None:
    CSRFProtect(app)
    show(app)


def test_a_post_without_its_token_is_refused(client: FlaskClient, runs: Runs) -> None:
    assert post(client).status_code == 400
    assert runs() == []


def test_a_post_with_both_tokens_starts_a_run(client: FlaskClient, runs: Runs) -> None:
    token = field(client.get("/boards/1").text, "csrf_token")
    assert post(client, data={"csrf_token": token}).status_code == 303
    assert len(runs()) == 1


def test_each_form_of_each_page_has_it(app: Flask, client: FlaskClient, work: Work) -> None:
    token = field(client.get("/boards/1").text, "csrf_token")
    for text in ("Publish it.", "Arrange again."):
        post(client, data={"csrf_token": token, "prompt": text})
    post(client, data={"csrf_token": token, "prompt": "Rewrite it.", "preview": "1"})
    work()
    lead = app.test_client()
    lead.get("/as/Lead Lea")
    for path in addresses(app).values():
        page = lead.get(path).text
        assert page.count('method="post"') == page.count('name="csrf_token"'), path


def test_a_browser_asks_and_approves(enter: Open, work: Work) -> None:
    page = enter("Lead Lea")
    ask(page, "Publish it.")
    work()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved by Lead Lea")).to_be_visible()
    work()
    expect(status(page)).to_have_text("Done")
