"""Undo in the panel: a link on what can be taken back, a page of what that would do, and a form that does it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import render_template_string
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect
from werkzeug.test import TestResponse

from flask_instruct.panel.undoing import SHOWN_FIELDS
from flask_instruct.runs.change import Change
from flask_instruct.runs.change import Recorded
from flask_instruct.runs.change import keep
from flask_instruct.runs.models import Run

from .board import Board
from .board import Card
from .board import db
from .board import instruct
from .pages import Open
from .test_views import field
from .test_views import post

Runs = Callable[[], list[Run]]
Work = Callable[[], list[str]]


def cards(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(sa.select(Card.text).order_by(Card.id)))


@pytest.fixture
def arranged(client: FlaskClient, work: Work, runs: Runs) -> Run:
    """A run that has ended, and has added three cards."""
    post(client)
    work()
    [run] = runs()
    return run


def press(client: FlaskClient, page: str, path: str, **more: object) -> TestResponse:
    """Send the form of an undo page as it stands."""
    data: dict[str, object] = {"token": field(page, "token"), "next": field(page, "next")}
    for name in ("field", "shown"):
        data[name] = [html.unescape(found) for found in re.findall(rf'name="{name}" value="([^"]*)"', page)]
    return client.post(path, data=data | more)


def test_a_run_that_has_ended_and_each_of_its_calls_can_be_undone(client: FlaskClient, arranged: Run) -> None:
    page = client.get("/boards/1").text
    assert page.count(f'href="/instruct/runs/{arranged.id}/undo"') == 1
    changing = [call for call in arranged.calls if call.status == "done"]
    assert page.count(f'href="/instruct/runs/{arranged.id}/undo?call=') == len(changing) == 3


def test_the_page_shows_what_returns_and_does_it_only_when_it_is_sent(
    app: Flask, client: FlaskClient, arranged: Run, runs: Runs
) -> None:
    path = f"/instruct/runs/{arranged.id}/undo"
    page = client.get(path, headers={"Referer": "http://localhost/boards/1?view=all"}).text
    assert page.count("Delete it again") == 3
    assert cards(app) == ["one", "two", "three"]
    sent = press(client, page, path)
    assert sent.status_code == 303
    assert sent.location.startswith("/boards/1?view=all#instruct_panel_")
    assert cards(app) == []
    undone = runs()[-1]
    assert (undone.kind, undone.actor, undone.undoes) == ("undo", "Ada", arranged.id)
    shown = client.get("/boards/1").text
    assert "Undone" in shown
    assert "Redo…" in shown
    again = press(client, client.get(f"/instruct/runs/{undone.id}/undo").text, f"/instruct/runs/{undone.id}/undo")
    assert again.status_code == 303
    assert cards(app) == ["one", "two", "three"]


def test_one_call_is_undone_and_what_is_not_ticked_stays(app: Flask, client: FlaskClient, arranged: Run) -> None:
    path = f"/instruct/runs/{arranged.id}/undo"
    first = arranged.calls[0]
    assert press(client, client.get(f"{path}?call={first.id}").text, path, call=first.id).status_code == 303
    assert cards(app) == ["two", "three"]
    page = client.get(path).text
    [kept, _] = re.findall(r'name="field" value="([^"]*)"', page)
    press(client, page, path, field=[html.unescape(kept)])
    assert len(cards(app)) == 1


def test_what_somebody_changed_since_is_shown_and_only_put_back_when_it_is_ticked(
    app: Flask, client: FlaskClient, arranged: Run
) -> None:
    with app.app_context():
        db.session.execute(sa.update(Card).where(Card.text == "two").values(text="mine"))
        db.session.commit()
    path = f"/instruct/runs/{arranged.id}/undo"
    page = client.get(path).text
    assert "It was changed since: text." in page
    force = re.findall(r'name="force" value="([^"]*)"', page)
    press(client, page, path)
    assert cards(app) == ["mine"]
    assert len(force) == 1


def test_a_second_undo_is_told_that_the_first_was_faster(client: FlaskClient, arranged: Run) -> None:
    path = f"/instruct/runs/{arranged.id}/undo"
    page = client.get(path).text
    assert press(client, page, path).status_code == 303
    second = press(client, page, path)
    assert second.status_code == 409
    assert "It has been undone." in second.text
    assert "It has been undone." in client.get(path).text


def test_who_may_not_ask_may_neither_look_nor_undo(app: Flask, client: FlaskClient, arranged: Run) -> None:
    path = f"/instruct/runs/{arranged.id}/undo"
    page = client.get(path).text
    before = app.extensions["instruct"].hooks.authorize
    try:
        instruct.authorize(lambda actor, handler: False)
        assert client.get(path).status_code == 403
        assert press(client, page, path).status_code == 403
    finally:
        app.extensions["instruct"].hooks.authorize = before
    assert client.post(path, data={"token": "forged"}).status_code == 403
    assert press(client, client.get("/boards/2").text, path).status_code == 404
    assert cards(app) == ["one", "two", "three"]


def test_a_field_tells_where_it_came_from(app: Flask, arranged: Run) -> None:
    def shown(template: str) -> str:
        with app.test_request_context():
            card = db.session.scalars(sa.select(Card).where(Card.text.in_(["one", "mine"]))).one()
            return render_template_string(template, card=card)

    assert "asked by Ada" in shown("{{ instruct_history(card, 'text') }}")
    assert "AI" in shown("{{ instruct_badge(card, 'text') }}")
    assert "Add card" in shown("{{ instruct_activity() }}")
    with app.app_context():
        db.session.execute(sa.update(Card).where(Card.text == "one").values(text="mine"))
        db.session.commit()
    assert shown("{{ instruct_badge(card, 'text') }}") == ""


def test_a_record_that_the_ai_never_touched_has_an_empty_history(app: Flask) -> None:
    with app.test_request_context():
        board = db.session.get(Board, 1)
        shown = render_template_string("{{ instruct_history(board) }}{{ instruct_badge(board, 'title') }}", board=board)
    assert "The AI has changed nothing here so far." in shown


def test_an_open_page_follows_an_undo_in_another(enter: Open, work: Work, client: FlaskClient, runs: Runs) -> None:
    page: Page = enter()
    post(client)
    work()
    expect(page.locator(".instruct-status .instruct-undo")).to_have_count(1)
    path = f"/instruct/runs/{runs()[0].id}/undo"
    press(client, client.get(path).text, path)
    expect(page.locator(".instruct-run")).to_have_count(2)
    expect(page.locator(".instruct-call__state", has_text="Undone")).to_have_count(3)


def test_a_page_has_boxes_for_what_it_has_room_for_and_puts_back_the_rest_too(
    app: Flask, client: FlaskClient, arranged: Run
) -> None:
    numbers = range(100, 100 + SHOWN_FIELDS + 2)
    with app.app_context():
        db.session.execute(sa.delete(Change))
        db.session.execute(sa.insert(Card), [{"id": n, "board_id": 1, "text": f"new {n}"} for n in numbers])
        rows = [
            Recorded("update", "Card", "card", f"[{n}]", {"text": f"old {n}"}, {"text": f"new {n}"}) for n in numbers
        ]
        keep(db.session.connection(), arranged.id, arranged.calls[0].id, rows)
        db.session.commit()
    path = f"/instruct/runs/{arranged.id}/undo"
    page = client.get(path).text
    assert "2 more rows are not shown" in page
    assert press(client, page, path).status_code == 303
    assert cards(app)[3:] == [f"old {n}" for n in numbers]


@pytest.mark.parametrize("board_database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("call", ["%00", "x", "' OR 1=1"])
def test_a_call_that_is_none_of_the_run_s_is_not_found(client: FlaskClient, arranged: Run, call: str) -> None:
    assert client.get(f"/instruct/runs/{arranged.id}/undo?call={call}").status_code == 404


def test_where_the_record_is_gone_the_page_says_why_it_can_do_nothing(
    app: Flask, client: FlaskClient, arranged: Run
) -> None:
    with app.app_context():
        db.session.execute(sa.delete(Card))
        db.session.execute(sa.delete(Board))
        db.session.commit()
    answer = client.get(f"/instruct/runs/{arranged.id}/undo")
    assert answer.status_code == 404
    assert "nobody can be asked whether you may undo it" in answer.text
