"""People in control of the studio's AI: a lead decides what reaches students, and everybody sees what it changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import g

from example_app.database import db
from example_app.extensions import instruct
from example_app.handlers import LONG_MAIL
from example_app.handlers import AssessmentUpdater
from example_app.models import User
from example_app.seed_data import AUTHOR
from example_app.seed_data import LEAD
from example_app.stories import story
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.adapters.scripted import turn_number
from flask_instruct.errors import NotAllowed
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.proposals import Proposal

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import Visitor
from .conftest import find

Ask = Callable[..., Run]


@pytest.fixture(autouse=True)
def _forget_who_was_here(context: Flask) -> None:
    """The test's own context outlives its requests, and would keep who was signed in at the first."""
    context.before_request_funcs.setdefault(None, []).insert(0, lambda: g.pop("user", None) and None)


def person(name: str) -> User:
    return db.session.scalars(sa.select(User).where(User.name == name)).one()


@pytest.fixture
def ask(context: Flask) -> Ask:
    """Have a story carried out here as far as it goes: ``ask("publish", by=AUTHOR)``."""

    def ask(name: str, title: str = ESSAY, by: str = AUTHOR) -> Run:
        run = instruct.generate_for(AssessmentUpdater(find(title)), user_prompt=story(name).prompt, actor=person(by))
        return go_on(run)

    return ask


def go_on(run: Run) -> Run:
    run_id = sa.inspect(run).identity[0]
    generate(run_id)
    return db.session.get_one(Run, run_id, populate_existing=True)


def only() -> Approval:
    return db.session.scalars(sa.select(Approval)).one()


def test_publishing_waits_for_a_lead_and_shows_what_it_would_change(ask: Ask) -> None:
    run = ask("publish")
    assert (run.status, find(ESSAY).status, only().reason) == ("waiting_approval", "draft", "Publishing needs a lead.")
    with pytest.raises(NotAllowed):
        instruct.approve(only(), actor=person(AUTHOR))
    instruct.approve(only(), actor=person(LEAD))
    run = go_on(run)
    assert (run.status, find(ESSAY).status) == ("succeeded", "published")


def test_an_incomplete_rubric_is_not_published_by_anybody(ask: Ask, lead: Visitor) -> None:
    run = ask("publish", LAB_REPORT)
    assert "I did not ask to publish it." in run.messages[-1].text
    report = find(LAB_REPORT)
    form = {"title": report.title, "course": report.course, "due_on": "", "status": "published"}
    refused = lead.post(f"/assessments/{report.id}/details", **form)
    assert refused.status_code == 422
    assert "Only a complete rubric can be published." in refused.text


def test_an_author_cannot_publish_by_the_form(context: Flask, author: Visitor) -> None:
    essay = find(ESSAY)
    page = author.get(f"/assessments/{essay.id}/details").text
    assert "Published" not in page
    form = {"title": essay.title, "course": essay.course, "due_on": "", "status": "published"}
    assert author.post(f"/assessments/{essay.id}/details", **form).status_code == 422
    db.session.expire_all()
    assert find(ESSAY).status == "draft"


def test_of_a_revision_only_what_was_chosen_is_done(ask: Ask) -> None:
    run = ask("propose")
    proposal = only().proposal
    assert proposal is not None
    assert run.status == "waiting_approval"
    before = {each.id: each.weight for each in find(ESSAY).criteria}
    title = find(ESSAY).title
    changes = Proposal.from_json(proposal).changes
    of_criteria = [number for number, each in enumerate(changes, 1) if each.table == "criterion"]
    instruct.approve(only(), actor=person(AUTHOR), chosen=of_criteria[:1])
    go_on(run)
    after = {each.id: each.weight for each in find(ESSAY).criteria}
    assert find(ESSAY).title == title
    assert sum(before[key] != after[key] for key in before) == 1


def test_a_long_mail_waits_for_a_lead_whoever_asked(ask: Ask, context: Flask) -> None:
    def asked(text: str, by: str) -> str:
        turns: list[Turn] = [[Use("email_students", subject="Hello", text=text)], [Say("Done.")]]
        register_script("mail", lambda request: turns[turn_number(request.messages)])
        handler = AssessmentUpdater(find(ESSAY))
        run = instruct.generate_for(handler, user_prompt="Mail.", actor=person(by), model="scripted:mail")
        return go_on(run).status

    assert asked("Short.", LEAD) == "succeeded"
    assert asked("Long. " * LONG_MAIL, LEAD) == "waiting_approval"
    assert asked("Short.", AUTHOR) == "waiting_approval"


def test_the_top_bar_counts_what_waits_for_this_person(ask: Ask, lead: Visitor, author: Visitor) -> None:
    assert "top__count" not in lead.get("/").text
    ask("publish")
    assert 'top__count">1<' in lead.get("/").text
    assert "Publishing needs a lead." in lead.get(f"/assessments/{find(ESSAY).id}").text
    assert "top__count" not in author.get("/").text


def test_the_history_tells_who_asked_and_who_approved(ask: Ask, lead: Visitor) -> None:
    run = ask("publish")
    instruct.approve(only(), actor=person(LEAD))
    go_on(run)
    page = lead.get(f"/assessments/{find(ESSAY).id}/history").text
    assert f"asked by {AUTHOR}" in page
    assert f"approved by {LEAD}" in page
    assert "Publish" in lead.get("/activity").text
