"""What a person sees of a call that needs approval, and what becomes of what they press: two tabs, two people, forged,
late, changed, without a script.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.panel import words
from flask_instruct.panel.fields import PREFIX
from flask_instruct.panel.fields import fields_of
from flask_instruct.panel.fields import read_fields
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.approval import Decision
from flask_instruct.runs.models import CallStatus
from flask_instruct.runs.models import Run
from tests.support import wait_for

from .board import Card
from .board import db
from .pages import Open
from .pages import Work
from .pages import ask
from .pages import assert_equals_a_fresh_page
from .pages import status
from .rows import stored_approval as stored
from .test_views import BY_SCRIPT
from .test_views import field
from .test_views import post

Runs = Callable[[], list[Run]]


@pytest.fixture
def approval(app: Flask, client: FlaskClient, work: Work) -> Approval:
    """A run of Ada's that waits for a lead."""
    post(client, data={"prompt": "Publish it."})
    work()
    return stored(app)


def cards(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(sa.select(Card.text).order_by(Card.id)))


def path(approval: Approval, decision: str = "") -> str:
    return f"/instruct/approvals/{approval.id}" + (f"/{decision}" if decision else "")


def form_of(page: str, **values: str) -> dict[str, str]:
    """What a browser sends from an approval's page, with these arguments in place of those shown."""
    shown = {"title": "One", "copies": "2", "style": '"plain"'} | values
    arguments = {PREFIX + name: value for name, value in shown.items()}
    return {"token": field(page, "token"), "next": field(page, "next"), "edit": "1", **arguments}


def test_every_decision_and_state_has_words() -> None:
    assert set(words.DECISIONS) == set(Decision.__args__)  # type: ignore[attr-defined]
    assert set(words.CALL) == set(CallStatus.__args__)  # type: ignore[attr-defined]


def test_a_card_says_what_would_run_and_why(client: FlaskClient, approval: Approval) -> None:
    page = client.get("/boards/1").text
    assert "Waiting for approval" in page
    assert "Publishing needs a lead." in page
    assert path(approval, "approve") in page
    assert 'data-instruct-tools="publish" data-instruct-other' in page


def test_a_lead_has_the_buttons(lead: FlaskClient, approval: Approval) -> None:
    page = lead.get("/boards/1").text
    assert 'data-instruct-tools="publish"' in page
    assert "data-instruct-other" not in page


def test_the_buttons_of_the_card_decide(app: Flask, lead: FlaskClient, approval: Approval, work: Work) -> None:
    assert post(lead, path(approval, "approve"), headers=BY_SCRIPT).status_code == 204
    work()
    assert cards(app) == ["beside", "One 1 plain False", "One 2 plain False"]
    assert "Approved by Lead Lea" in lead.get("/boards/1").text


def test_a_browser_without_a_script_is_sent_back(lead: FlaskClient, approval: Approval) -> None:
    answer = post(lead, path(approval, "reject"))
    assert (answer.status_code, answer.location.startswith("/boards/1?view=all#")) == (303, True)


def test_changed_arguments_run(app: Flask, lead: FlaskClient, approval: Approval, work: Work) -> None:
    page = lead.get(path(approval)).text
    data = form_of(page, title="Better", copies="1", style='"fancy"') | {PREFIX + "secret": "true"}
    assert lead.post(path(approval, "approve"), data=data).location == path(approval)
    work()
    assert cards(app) == ["beside", "Better 1 fancy True"]
    shown = lead.get(path(approval)).text
    assert "Approved with changes by Lead Lea" in shown
    assert "The AI had asked for" in shown


def test_an_unchanged_form_is_no_change(app: Flask, lead: FlaskClient, approval: Approval) -> None:
    page = lead.get(path(approval)).text
    lead.post(path(approval, "approve"), data=form_of(page))
    assert (stored(app).status, stored(app).edited) == ("approved", None)


def test_arguments_that_do_not_fit_are_shown_again_with_what_is_wrong(
    app: Flask, lead: FlaskClient, approval: Approval
) -> None:
    page = lead.get(path(approval)).text
    answer = lead.post(path(approval, "approve"), data=form_of(page, title="x" * 40, copies="99"))
    assert answer.status_code == 422
    assert "x" * 40 in answer.text
    assert answer.text.count('aria-invalid="true"') == 2
    assert stored(app).status == "pending"


def test_a_reason_is_told_to_the_model_and_to_people(
    app: Flask, lead: FlaskClient, approval: Approval, work: Work, runs: Runs
) -> None:
    page = lead.get(path(approval)).text
    lead.post(path(approval, "reject"), data=form_of(page) | {"reason": "Not <b>yet</b>."})
    work()
    [call] = [call for call in runs()[0].calls if call.name == "publish"]
    assert (call.result or "").endswith("The reason: Not <b>yet</b>.")
    assert "Not &lt;b&gt;yet&lt;/b&gt;." in lead.get("/boards/1").text
    assert cards(app) == ["beside"]


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_who_may_not_decide_is_refused(app: Flask, client: FlaskClient, approval: Approval, decision: str) -> None:
    assert post(client, path(approval, decision)).status_code == 403
    assert stored(app).status == "pending"
    assert "Somebody else has to decide this." in client.get(path(approval)).text


def test_a_stranger_learns_nothing(app: Flask, approval: Approval) -> None:
    guest = app.test_client()
    guest.get("/as/guest")
    assert guest.get(path(approval)).status_code == 404
    assert guest.get(path(approval).replace(approval.id[-4:], "0000")).status_code == 404
    assert "Publish" not in guest.get("/instruct/approvals").text


@pytest.mark.parametrize(
    ("data", "expected"),
    [({"token": "forged"}, 403), ({"token": ""}, 403)],
)
def test_a_forged_form_is_refused(
    app: Flask, lead: FlaskClient, approval: Approval, data: dict[str, str], expected: int
) -> None:
    assert post(lead, path(approval, "approve"), data=data).status_code == expected
    assert stored(app).status == "pending"


def test_a_form_of_another_record_is_refused(app: Flask, lead: FlaskClient, approval: Approval) -> None:
    assert post(lead, path(approval, "approve"), board=2).status_code == 404
    assert stored(app).status == "pending"


def test_another_site_is_refused(app: Flask, lead: FlaskClient, approval: Approval) -> None:
    answer = post(lead, path(approval, "approve"), headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, stored(app).status) == (403, "pending")


def test_a_replayed_form_decides_nothing_more(app: Flask, lead: FlaskClient, approval: Approval, work: Work) -> None:
    for expected in (303, 409, 409):
        assert post(lead, path(approval, "approve")).status_code == expected
        work()
    assert len(cards(app)) == 3
    assert "Someone else was faster: Approved by Lead Lea." in post(lead, path(approval, "reject")).text


def test_the_inbox_has_what_waits_for_this_person(client: FlaskClient, lead: FlaskClient, approval: Approval) -> None:
    assert path(approval) in lead.get("/instruct/approvals").text
    assert "Nothing waits for you." in client.get("/instruct/approvals").text
    post(lead, path(approval, "approve"))
    assert "Nothing waits for you." in lead.get("/instruct/approvals").text


# -- in a browser ------------------------------------------------------------------------------------------------------


def test_t10_of_two_tabs_that_approve_at_the_same_moment_one_does_and_the_other_hears_who_did(
    enter: Open, work: Work, app: Flask
) -> None:
    author, first, second = enter("Ada"), enter("Lead Lea"), enter("Lead Leo")
    ask(author, "Publish it.")
    work()
    for page in (author, first, second):
        expect(status(page)).to_have_text("Waiting for approval")
    expect(author.get_by_role("button", name="Approve")).to_have_count(0)
    expect(author.locator(".instruct-ask__other")).to_be_visible()
    both = (first, second)
    for page in both:
        # Held back until the other one has been sent too.
        page.evaluate(
            """() => {
                const send = window.fetch;
                window.fetch = (...request) => new Promise((resolve) => {
                    window.letGo = () => resolve(send(...request));
                });
            }"""
        )
        page.get_by_role("button", name="Approve").click()
        page.wait_for_function("!!window.letGo")
    for page in both:
        page.evaluate("window.letGo()")
    decided = re.compile("Approved by Lead Le[ao]")
    for page in (author, *both):
        expect(page.locator(".instruct-decision:not(:empty)")).to_contain_text(decided)
    wait_for(lambda: sum(faster(page) for page in both) == 1, message="the slower one to be told")
    work()
    for page in (author, *both):
        expect(status(page)).to_have_text("Done")
        assert_equals_a_fresh_page(page)
    assert len(cards(app)) == 3


def faster(page: Page) -> bool:
    """Whether the page says that somebody else had decided."""
    return "Someone else was faster: Approved by Lead Le" in page.locator(".instruct-panel").inner_text()


def test_t10_the_slower_of_two_hears_who_was_faster(enter: Open, work: Work, app: Flask) -> None:
    first = enter("Lead Lea")
    ask(first, "Publish it.")
    work()
    # Without a script his page hears nothing of what others do.
    second = enter("Lead Leo", live=False, java_script_enabled=False)
    first.get_by_role("button", name="Approve").click()
    expect(first.locator(".instruct-decision:not(:empty)")).to_contain_text("Approved by Lead Lea")
    second.get_by_role("button", name="Approve").click()
    expect(second.locator("main")).to_contain_text("Someone else was faster: Approved by Lead Lea.")
    work()
    assert len(cards(app)) == 3


def test_t11_a_changed_argument_runs_and_both_show(enter: Open, work: Work, app: Flask) -> None:
    page = enter("Lead Lea")
    ask(page, "Publish it.")
    work()
    page.get_by_role("link", name=re.compile("Change it")).click()
    page.get_by_label("Title").fill("Better")
    page.get_by_label("Copies").fill("1")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("Approved with changes by Lead Lea")
    expect(page.locator("main")).to_contain_text("The AI had asked for")
    work()
    assert cards(app) == ["beside", "Better 1 plain False"]


# -- fields ------------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "count": {"type": "integer"},
        "share": {"type": "number", "default": 0.5},
        "open": {"type": "boolean", "default": False},
        "size": {"$ref": "#/$defs/Size"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "count", "size"],
    "$defs": {"Size": {"enum": ["small", 2], "title": "Size"}},
}


def test_fields_follow_the_schema() -> None:
    made = {
        one.name: one for one in fields_of(SCHEMA, {"name": "a\nb", "count": 3, "tags": ["x"]}, {"count": "is bad"})
    }
    kinds = {name: one.kind for name, one in made.items()}
    assert kinds == {
        "name": "text",
        "note": "line",
        "count": "number",
        "share": "number",
        "open": "switch",
        "size": "choice",
        "tags": "json",
    }
    assert (made["count"].value, made["count"].fault, made["share"].value, made["tags"].value) == (
        "3",
        "is bad",
        "0.5",
        '["x"]',
    )
    assert made["size"].options == (('"small"', "small"), ("2", "2"))


def test_what_is_written_into_fields_comes_back_as_json_values() -> None:
    written = {"name": "", "note": " ", "count": "7", "share": "", "size": "2", "tags": '["a", "b"]', "evil": "1"}
    given = {PREFIX + name: value for name, value in written.items()}
    assert read_fields(SCHEMA, given) == {"name": "", "count": 7, "open": False, "size": 2, "tags": ["a", "b"]}
    assert read_fields(SCHEMA, {PREFIX + "tags": "[broken", PREFIX + "open": "true"})["tags"] == "[broken"
