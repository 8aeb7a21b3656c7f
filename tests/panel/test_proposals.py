"""What a person sees of what would change, and that only what they tick is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import expect

from flask_instruct.runs.models import Run

from .board import Board
from .board import Card
from .board import db
from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status
from .rows import stored_approval as stored
from .test_views import field
from .test_views import post

Runs = Callable[[], list[Run]]


def rows(app: Flask) -> list[str]:
    """The title of the board, then the texts of its cards."""
    with app.app_context():
        title = db.session.get_one(Board, 1).title
        return [title, *db.session.scalars(sa.select(Card.text).order_by(Card.id))]


def send(client: FlaskClient, app: Flask, *numbers: int, **data: str) -> int:
    """Approve from the page of the approval, with these boxes ticked."""
    path = f"/instruct/approvals/{stored(app).id}"
    page = client.get(path).text
    form = {name: field(page, name) for name in ("token", "next", "edit", "shown")}
    given = {**form, "argument-title": "Plan of *the* week", **data, "change": [str(number) for number in numbers]}
    return client.post(f"{path}/approve", data=given).status_code


@pytest.mark.parametrize("preview", [False, True])
def test_the_page_shows_what_would_change_and_does_what_is_ticked(
    app: Flask, lead: FlaskClient, work: Work, preview: bool
) -> None:
    post(lead, data={"prompt": "Rewrite it.", **({"preview": "1"} if preview else {})})
    work()
    page = lead.get("/boards/1").text
    assert "3 rows would change." in page
    shown = lead.get(f"/instruct/approvals/{stored(app).id}").text
    assert shown.count('type="checkbox" name="change"') == 3
    assert "Plan of *the* week" in shown
    assert "removed:" in shown
    assert rows(app) == ["Board"]
    numbers = [number for number in (1, 2, 3) if f'value="{number}"' in shown]
    titles = [part.split("</bdi>")[0] for part in shown.split('name="change"')[1:]]
    board = next(number for number, title in zip(numbers, titles, strict=True) if "Board" in title)
    assert send(lead, app, board) == 303
    work()
    assert rows(app) == ["Plan of *the* week"]


def test_all_ticked_is_all(app: Flask, lead: FlaskClient, work: Work) -> None:
    post(lead, data={"prompt": "Rewrite it."})
    work()
    send(lead, app, 1, 2, 3)
    assert stored(app).chosen is None
    work()
    assert rows(app) == ["Plan of *the* week", "Plan of *the* week 1", "Plan of *the* week 2"]


def test_none_ticked_is_a_rejection(app: Flask, lead: FlaskClient, work: Work) -> None:
    post(lead, data={"prompt": "Rewrite it."})
    work()
    send(lead, app)
    assert stored(app).status == "rejected"
    work()
    assert rows(app) == ["Board"]


def test_a_form_of_an_older_proposal_decides_nothing(app: Flask, lead: FlaskClient, work: Work) -> None:
    post(lead, data={"prompt": "Rewrite it."})
    work()
    assert send(lead, app, 1, shown="7.3") == 409
    assert stored(app).status == "pending"


def test_where_the_record_moved_on_the_page_says_so(app: Flask, lead: FlaskClient, work: Work) -> None:
    post(lead, data={"prompt": "Rewrite it."})
    work()
    with app.app_context():
        db.session.get_one(Board, 1).title = "Mine"
        db.session.commit()
    send(lead, app, 1, 2, 3)
    work()
    assert rows(app) == ["Mine"]
    page = lead.get(f"/instruct/approvals/{stored(app).id}").text
    assert "What you see is new" in page
    assert "Mine" in page


def test_the_box_of_the_panel_offers_a_preview(lead: FlaskClient) -> None:
    assert 'name="preview"' in lead.get("/boards/1").text


def test_t20_nothing_is_saved_before_it_is_accepted(enter: Open, work: Work, app: Flask) -> None:
    page = enter("Lead Lea")
    page.get_by_label("Only show what would change").check()
    ask(page, "Rewrite it.")
    work()
    expect(page.locator(".instruct-status .instruct-ask")).to_contain_text("3 rows would change.")
    expect(page.locator(".instruct-prompt__meta .instruct-badge")).to_have_text("Preview")
    assert rows(app) == ["Board"]
    assert_equals_a_fresh_page(page)
    page.get_by_role("link", name="See and choose").click()
    page.locator(".instruct-change", has_text="Card").first.get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("Approved by Lead Lea")
    work()
    page.goto(page.url.replace(f"/instruct/approvals/{stored(app).id}", "/boards/1"))
    expect(status(page)).to_have_text("Done")
    assert len(rows(app)) == 2
