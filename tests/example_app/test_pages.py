"""What people do with forms alone, and what the pages show them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from example_app.database import db
from example_app.models import Assessment
from example_app.models import Criterion

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import POSTER
from .conftest import PROJECT
from .conftest import Visitor
from .conftest import find

Keys = Callable[[str], int]


def test_the_list_shows_each_assessment_with_what_is_wrong_with_it(lead: Visitor) -> None:
    page = lead.get("/").text
    for words in (LAB_REPORT, "Weights total 110, not 100", "3 criteria, weights total 100", "No rubric yet", "2 open"):
        assert words in page


def test_the_banner_says_that_the_scripted_model_answers(lead: Visitor) -> None:
    assert "A scripted model answers" in lead.get("/").text


def test_the_banner_names_a_real_model(make_app: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    app = make_app()
    visitor = Visitor(app.test_client())
    visitor.post("/login", user_id=1)
    page = visitor.get("/").text
    assert "A scripted model answers" not in page
    assert app.config["INSTRUCT_DEFAULT_MODEL"].startswith("openai:")
    assert f"<strong>{app.config['INSTRUCT_DEFAULT_MODEL'].partition(':')[2]}</strong>" in page


def test_the_page_of_an_assessment_has_every_part(lead: Visitor, key_of: Keys) -> None:
    page = lead.get(f"/assessments/{key_of(LAB_REPORT)}").text
    for words in (
        "Instructions",
        "Experimental design",
        "Raw numbers only.",
        "Discussion",
        "One PDF. Decided.",
        "<instruct-stream",
    ):
        assert words in page
    assert "Check the rubric and repair the weights" in page


def test_what_cannot_be_done_is_not_suggested(lead: Visitor, key_of: Keys) -> None:
    empty = lead.get(f"/assessments/{key_of(POSTER)}").text
    assert "Build a rubric from nothing" in empty
    assert "repair the weights" not in empty
    assert "Build a rubric from nothing" not in lead.get(f"/assessments/{key_of(ESSAY)}").text


def test_an_empty_assessment_says_what_to_do_first(lead: Visitor, key_of: Keys) -> None:
    page = lead.get(f"/assessments/{key_of(PROJECT)}").text
    assert "No instructions yet" in page
    assert "No criteria yet" in page


def test_a_new_assessment_belongs_to_who_made_it(author: Visitor, app: Flask) -> None:
    response = author.post(
        "/assessments/new", title="Quiz: Units", course="PHY 101", due_on="2030-05-31", status="draft"
    )
    page = author.get(response.location).text
    assert "Quiz: Units" in page
    assert "Due 31 May 2030" in page
    with app.app_context():
        assert find("Quiz: Units").owner.name == "Theo Lindqvist"


def test_a_refused_form_keeps_what_was_typed_and_says_why(author: Visitor) -> None:
    response = author.post("/assessments/new", title=" ", course="PHY 101", due_on="", status="draft")
    assert response.status_code == 422
    assert 'value="PHY 101"' in response.text
    assert "The title cannot be empty." in response.text
    assert 'aria-invalid="true"' in response.text


def test_details_are_changed(lead: Visitor, key_of: Keys, app: Flask) -> None:
    key = key_of(ESSAY)
    lead.post(f"/assessments/{key}/details", title="Essay: Rivers", course="GEO 204", due_on="", status="in_review")
    with app.app_context():
        assessment = db.session.get_one(Assessment, key)
        assert (assessment.title, assessment.status, assessment.due_on) == ("Essay: Rivers", "in_review", None)


def test_instructions_are_saved(author: Visitor, key_of: Keys, app: Flask) -> None:
    key = key_of(ESSAY)
    with app.app_context():
        version = find(ESSAY).version
    author.post(f"/assessments/{key}/instructions", instructions="Write **well**.", version=version)
    assert "<strong>well</strong>" in author.get(f"/assessments/{key}").text


def test_instructions_that_changed_meanwhile_are_not_overwritten_unseen(
    author: Visitor, key_of: Keys, app: Flask
) -> None:
    key = key_of(ESSAY)
    response = author.post(f"/assessments/{key}/instructions", instructions="Mine.", version="an older one")
    assert response.status_code == 409
    assert "were changed while you were writing" in response.text
    assert "Mine." in response.text
    assert "Who decides about its water today" in response.text
    with app.app_context():
        assert find(ESSAY).instructions != "Mine."


def test_a_criterion_is_added_edited_moved_and_removed(lead: Visitor, key_of: Keys, app: Flask) -> None:
    base = f"/assessments/{key_of(POSTER)}"
    for name in ("First", "Second"):
        lead.post(f"{base}/criteria/new", name=name, weight="50", description="", levels="Good: yes\nBad: no")
    with app.app_context():
        first, second = find(POSTER).criteria
        version, first_key, second_key = first.version, first.id, second.id
    lead.post(f"{base}/criteria/{second_key}/move", direction="up")
    lead.post(f"{base}/criteria/{first_key}", name="Renamed", weight="40", description="x", levels="", version=version)
    with app.app_context():
        assert [(each.name, each.weight, len(each.levels)) for each in find(POSTER).criteria] == [
            ("Second", 50, 2),
            ("Renamed", 40, 0),
        ]
    lead.post(f"{base}/criteria/{second_key}/remove")
    with app.app_context():
        assert [each.name for each in find(POSTER).criteria] == ["Renamed"]


def test_a_criterion_that_changed_meanwhile_is_shown_beside_the_form(lead: Visitor, key_of: Keys, app: Flask) -> None:
    with app.app_context():
        criterion = find(ESSAY).criteria[0].id
    response = lead.post(
        f"/assessments/{key_of(ESSAY)}/criteria/{criterion}", name="Mine", weight="1", levels="", version="older"
    )
    assert response.status_code == 409
    assert 'value="Mine"' in response.text
    assert "The rubric now" in response.text


def test_a_level_without_a_description_is_explained(lead: Visitor, key_of: Keys) -> None:
    response = lead.post(f"/assessments/{key_of(ESSAY)}/criteria/new", name="New", weight="10", levels="Good")
    assert response.status_code == 422
    assert "this line has no description: Good" in response.text


def test_weights_are_saved_together_or_not_at_all(lead: Visitor, key_of: Keys, app: Flask) -> None:
    with app.app_context():
        keys = [criterion.id for criterion in find(ESSAY).criteria]
    path = f"/assessments/{key_of(ESSAY)}/weights"
    refused = lead.post(path, **{f"weight_{key}": weight for key, weight in zip(keys, (50, 50, 10), strict=True)})
    assert refused.status_code == 422
    assert "add up to 110, not 100" in refused.text
    lead.post(path, **{f"weight_{key}": weight for key, weight in zip(keys, (50, 40, 10), strict=True)})
    with app.app_context():
        assert [criterion.weight for criterion in find(ESSAY).criteria] == [50, 40, 10]


def test_a_comment_and_a_reply_stand_in_the_thread(author: Visitor, key_of: Keys, app: Flask) -> None:
    key = key_of(ESSAY)
    response = author.post(f"/assessments/{key}/comments", body="What about dams?")
    assert response.location.startswith(f"/assessments/{key}#comment_")
    thread = response.location.rpartition("_")[2]
    author.post(f"/assessments/{key}/comments", body="They count.", reply_to=thread)
    author.post(f"/assessments/{key}/comments/{thread}/settle", settled="yes")
    with app.app_context():
        comment = find(ESSAY).threads[-1]
        assert (comment.body, comment.replies[0].body, comment.resolved) == ("What about dams?", "They count.", True)


def test_an_empty_comment_is_refused_in_place(author: Visitor, key_of: Keys) -> None:
    response = author.post(f"/assessments/{key_of(ESSAY)}/comments", body="  ")
    assert response.status_code == 422
    assert "The comment cannot be empty." in response.text


def test_markup_in_any_text_stays_text(author: Visitor, key_of: Keys) -> None:
    key = key_of(POSTER)
    evil = "<img src=x onerror=alert(1)>"
    author.post(f"/assessments/{key}/details", title=evil, course=evil, due_on="", status="draft")
    author.post(f"/assessments/{key}/criteria/new", name=evil, weight="10", description=evil, levels=f"A: {evil}\nB: x")
    author.post(f"/assessments/{key}/comments", body=evil)
    for path in ("/", f"/assessments/{key}", f"/assessments/{key}/weights"):
        assert "<img" not in author.get(path).text


def test_a_child_of_another_assessment_is_not_found(lead: Visitor, key_of: Keys, app: Flask) -> None:
    with app.app_context():
        foreign = find(ESSAY).criteria[0].id
        comment = find(ESSAY).comments[0].id
    base = f"/assessments/{key_of(LAB_REPORT)}"
    assert lead.get(f"{base}/criteria/{foreign}").status_code == 404
    assert lead.post(f"{base}/criteria/{foreign}/remove").status_code == 404
    assert lead.post(f"{base}/comments", body="Hi", reply_to=comment).status_code == 404
    with app.app_context():
        assert db.session.get(Criterion, foreign) is not None


def test_what_is_missing_or_breaks_has_a_page(lead: Visitor, app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    response = lead.get("/assessments/999")
    assert response.status_code == 404
    assert "There is nothing here" in response.text
    app.config["PROPAGATE_EXCEPTIONS"] = False
    monkeypatch.setattr("example_app.views.assessments.prompts_for", lambda *_, **__: 1 / 0)
    broken = lead.get("/assessments/1")
    assert broken.status_code == 500
    assert "Something broke on our side" in broken.text
    assert "ZeroDivisionError" not in broken.text


def test_the_page_about_the_studio_lists_the_stories(lead: Visitor) -> None:
    page = lead.get("/about").text
    assert "Show me an overloaded AI service" in page
    assert page.count("<dt>") >= 8
