"""The panel as a template function: what a page shows when it is loaded."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import render_template_string
from flask.testing import FlaskClient
from jinja2 import ChoiceLoader
from jinja2 import DictLoader
from redis.exceptions import ConnectionError as Unreachable

from flask_instruct.errors import HandlerError
from flask_instruct.panel import instruct_panel
from flask_instruct.panel.page import SHOWN_RUNS
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Run

from .board import Board
from .board import db
from .pages import Work
from .rows import a_run
from .test_views import BY_SCRIPT
from .test_views import GID
from .test_views import field
from .test_views import post


def test_a_page_shows_the_last_requests_and_says_that_there_are_more(app: Flask, client: FlaskClient) -> None:
    for number in range(SHOWN_RUNS + 1):
        assert "Earlier requests are kept" not in client.get("/boards/1").text
        post(client, data={"prompt": f"Arrange number {number}."})
    page = client.get("/boards/1").text
    assert "Earlier requests are kept" in page
    assert page.count('<article class="instruct-run"') == SHOWN_RUNS
    assert "number 0." not in page
    assert f"number {SHOWN_RUNS}." in page
    order = re.findall(r'data-instruct-order="([^"]+)"', page)
    assert len(order) == SHOWN_RUNS
    assert order == sorted(order)


def test_where_redis_does_not_say_it_is_not_said_that_nobody_works(
    app: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(state: object) -> int:
        raise Unreachable("down")

    post(client, data={"prompt": "Arrange it."})
    with app.app_context():
        db.session.execute(sa.update(Run).values(queued_at=now() - timedelta(hours=1)))
        db.session.commit()
    assert "No worker is running, so the request waits" in client.get("/boards/1").text
    monkeypatch.setattr("flask_instruct.panel.waiting.count_of_queue", down)
    assert "Queued, waiting for a worker" in client.get("/boards/1").text


def test_assets_are_loaded_once_on_a_page_with_two_panels(app: Flask) -> None:
    with app.test_request_context():
        template = "{{ instruct_panel(a, handler='Arranger') }}{{ instruct_panel(b, handler='Arranger') }}"
        page = render_template_string(template, a=db.session.get(Board, 1), b=db.session.get(Board, 2))
    assert page.count("instruct-panel.css") == page.count("instruct-panel.js") == 1
    assert page.count("<instruct-stream ") == 2
    identifiers = re.findall(r' id="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize(("count", "behind"), [(0, 0), (5, 0), (6, 2), (13, 9)])
def test_many_suggestions_wait_behind_a_button(app: Flask, count: int, behind: int) -> None:
    with app.test_request_context():
        board = db.session.get(Board, 1)
        page = str(instruct_panel(board, "Arranger", prompts=[f"Prompt {number}" for number in range(count)]))
    assert page.count('name="suggestion"') == count
    assert page.partition("<details")[2].count('name="suggestion"') == behind


def test_title_and_placeholder_are_the_pages_own(app: Flask) -> None:
    with app.test_request_context():
        board = db.session.get(Board, 1)
        page = str(instruct_panel(board, "Arranger", title="Ask <me>", placeholder="Go & on"))
    assert "<span>Ask &lt;me&gt;</span>" in page
    assert 'placeholder="Go &amp; on"' in page


def test_a_redefined_template_of_the_app_is_used_for_pages_and_fragments(app: Flask, client: FlaskClient) -> None:
    app.jinja_loader = ChoiceLoader([DictLoader({"instruct/actor.html": "By {{ run.actor|upper }}!"})])  # type: ignore[assignment]
    assert "By ADA!" in post(client, headers=BY_SCRIPT).text
    assert "By ADA!" in client.get("/boards/1").text


def test_an_unknown_handler_is_named_with_those_there_are(app: Flask) -> None:
    with app.test_request_context():
        board = db.session.get(Board, 1)
        with pytest.raises(HandlerError, match=r"no handler named 'Arrangeur'; there is .*Arranger"):
            instruct_panel(board, handler="Arrangeur")
        with pytest.raises(HandlerError, match=r'instruct_panel\(record, handler="'):
            instruct_panel(board)


def test_technical_text_shows_in_debug_mode_only(app: Flask, client: FlaskClient, work: Work) -> None:
    post(client, data={"prompt": "Fail"})
    work()
    assert "busy" not in client.get("/boards/1").text
    app.debug = True
    page = client.get("/boards/1").text
    assert "529 &lt;b&gt;busy&lt;/b&gt;" in page
    assert page.index("<summary>Technical details</summary>") < page.index("529 &lt;")


def test_forms_carry_the_token_of_flask_wtf_where_an_app_uses_it(app: Flask, client: FlaskClient) -> None:
    app.jinja_env.globals["csrf_token"] = lambda: "from-wtf"
    assert field(client.get("/boards/1").text, "csrf_token") == "from-wtf"


@pytest.mark.parametrize("status", ["running", "cancelling"])
def test_a_run_that_all_workers_have_left_says_so_and_can_be_stopped(
    app: Flask, client: FlaskClient, status: str
) -> None:
    """Also one that was told to stop, and whose worker died before it did (rq/rq#756)."""
    left = now() - timedelta(minutes=3)
    with app.app_context():
        run = a_run(status, handler=GID, lease_until=left, cancel_requested=status == "cancelling")
        db.session.add(run)
        db.session.commit()
        run_id = run.id
    page = client.get("/boards/1").text
    assert "Interrupted, waiting for a worker" in page
    assert f'<time class="instruct-quiet" datetime="{left.isoformat()}" data-instruct-since>3 min' in page
    assert f'formaction="/instruct/runs/{run_id}/stop"' in page
    assert post(client, f"/instruct/runs/{run_id}/stop").status_code == 303
    page = client.get("/boards/1").text
    assert "Stopped" in page
    assert "Interrupted" not in page


def test_a_rule_of_the_dashboard_that_fails_costs_a_panel_only_its_links(app: Flask, client: FlaskClient) -> None:
    hooks = app.extensions["instruct"].hooks
    before, hooks.authorize_dashboard = hooks.authorize_dashboard, lambda actor: actor.is_admin
    try:
        page = client.get("/boards/1")
    finally:
        hooks.authorize_dashboard = before
    assert page.status_code == 200
    assert "instruct-panel--opens" not in page.text
