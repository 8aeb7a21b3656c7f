"""The studio's dashboard: the lead's, with names for people."""

from __future__ import annotations

from flask import Flask

from example_app.database import db
from flask_instruct.runs.models import Run

from .conftest import Visitor


def test_the_lead_finds_the_dashboard_and_the_author_does_not(lead: Visitor, author: Visitor) -> None:
    assert 'href="/instruct/"' in lead.get("/").text
    page = lead.get("/instruct/")
    assert page.status_code == 200
    assert "Latest runs" in page.text
    assert 'href="/instruct/"' not in author.get("/").text
    refused = author.get("/instruct/")
    assert refused.status_code == 403
    assert "You may not see this page" in refused.text


def test_a_stranger_is_sent_to_the_door_and_back_to_it(app: Flask) -> None:
    answer = app.test_client().get("/instruct/runs?status=failed")
    assert (answer.status_code, answer.location) == (302, "/login?next=/instruct/runs?status%3Dfailed")
    headers = {"Sec-Fetch-Site": "same-origin"}
    assert app.test_client().post("/instruct/runs", headers=headers).status_code == 401


def test_people_have_their_names(app: Flask, lead: Visitor) -> None:
    with app.app_context():
        handler = {"handler": "instruct://AssessmentUpdater/1", "handler_name": "AssessmentUpdater"}
        run = Run(**handler, actor="2", user_prompt="Shorten it.", status="succeeded")
        db.session.add(run)
        db.session.commit()
        run_id = run.id
    for path in ("/instruct/", "/instruct/runs", f"/instruct/runs/{run_id}"):
        page = lead.get(path).text
        assert "<bdi>Theo Lindqvist</bdi>" in page
        assert "(<bdi>2</bdi>)" in page
