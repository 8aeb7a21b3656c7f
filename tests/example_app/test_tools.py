"""The tools: what they change, what they tell the model, and what they send to the pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator

import pytest
from flask import Flask

from example_app.database import db
from example_app.handlers import AssessmentUpdater
from example_app.models import AI_NAME
from example_app.models import Assessment
from flask_instruct.calls import ToolContext
from flask_instruct.calls import ToolOutcome
from flask_instruct.calls import run_tool
from flask_instruct.live.captured import Captured
from flask_instruct.live.turbo_stream import dom_id
from flask_instruct.messages import ToolCall
from flask_instruct.testing import assert_broadcast
from flask_instruct.testing import captured_broadcasts

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import POSTER
from .conftest import find

RUN = "0190aaaa-0000-7000-8000-000000000001"


class Model:
    """Calls tools on one assessment, and commits as a run does; ``sent`` is what reached the pages."""

    def __init__(self, title: str, sent: Captured) -> None:
        self.key = find(title).id
        self.sent = sent

    @property
    def record(self) -> Assessment:
        return db.session.get_one(Assessment, self.key)

    def use(self, tool: str, **arguments: object) -> ToolOutcome:
        handler = AssessmentUpdater(self.record)
        call = ToolCall("call_1", tool, json.dumps(arguments))
        outcome = run_tool(handler, call, ToolContext("c1", RUN, tool, 1, "c1"))
        db.session.commit()
        return outcome

    def told(self, tool: str, **arguments: object) -> str:
        outcome = self.use(tool, **arguments)
        assert not outcome.error, outcome.content
        return outcome.content

    def refused(self, tool: str, **arguments: object) -> str:
        outcome = self.use(tool, **arguments)
        assert outcome.error
        return outcome.content


@pytest.fixture
def model(app: Flask) -> Iterator[Callable[[str], Model]]:
    with app.test_request_context("/"), captured_broadcasts() as captured:
        yield lambda title: Model(title, captured)


def test_only_the_declared_tools_can_be_called(model: Callable[[str], Model]) -> None:
    names = {tool.identifier for tool in AssessmentUpdater(find(ESSAY)).ai_tools()}
    assert names == {
        "read_assessment",
        "rename",
        "update_instructions",
        "check_instructions",
        "add_criterion",
        "update_criterion",
        "remove_criterion",
        "move_criterion",
        "set_weights",
        "set_levels",
        "check_rubric",
        "add_comment",
        "resolve_comment",
        "email_students",
        "propose_revision",
        "publish",
    }
    for name in ("send_mail", "_criterion", "record", "__class__"):
        assert model(ESSAY).use(name).kind == "unknown_tool"


def test_reading_gives_ids_for_everything_that_can_be_changed(model: Callable[[str], Model]) -> None:
    data = json.loads(model(LAB_REPORT).told("read_assessment"))
    report = find(LAB_REPORT)
    assert data["weights_total"] == 110
    assert [each["id"] for each in data["criteria"]] == [criterion.id for criterion in report.criteria]
    assert {each["id"] for each in data["comments"]} == {comment.id for comment in report.comments}


def test_new_instructions_reach_page_and_list(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    assert essay.told("update_instructions", new_instructions="Write **well**.") == (
        "Instructions replaced; they now have 2 words."
    )
    instructions = assert_broadcast(essay.sent, essay.record, target=f"instructions_assessment_{essay.key}")
    assert "<strong>well</strong>" in instructions.html
    assert f"#instruct_run_{RUN}" in instructions.html
    assert_broadcast(essay.sent, "assessments", action="refresh")
    assert find(ESSAY).changed_by == AI_NAME


def test_an_added_criterion_says_its_id_and_the_total(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    told = essay.told("add_criterion", name="Sources", weight=10, position=2, levels=[])
    added = find(ESSAY).criteria[1]
    assert told == f"Added criterion {added.id} “Sources”. The weights add up to 110; they must add up to 100."
    assert_broadcast(essay.sent, essay.record, action="refresh")
    assert added.changed_run == RUN


def test_a_removed_criterion_leaves_the_page(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    gone = find(ESSAY).criteria[0].id
    assert essay.told("remove_criterion", criterion_id=gone).startswith("Removed “Argument”.")
    assert_broadcast(essay.sent, essay.record, action="refresh")


def test_a_new_order_is_fetched_by_the_pages(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    last = find(ESSAY).criteria[-1].id
    assert essay.told("move_criterion", criterion_id=last, position=1) == "The order is now: Style, Argument, Evidence."
    assert [fragment.action for fragment in essay.sent.on(essay.record)] == ["refresh"]


def test_a_new_weight_reaches_its_criterion_and_the_total(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    first = find(ESSAY).criteria[0]
    essay.told("update_criterion", criterion_id=first.id, weight=1)
    assert_broadcast(essay.sent, essay.record, action="replace", target=dom_id(first), text="1%")
    summary = f"rubric_summary_assessment_{essay.key}"
    assert_broadcast(essay.sent, essay.record, action="replace", target=summary, text=f"total {find(ESSAY).total}")
    assert not [fragment for fragment in essay.sent.on(essay.record) if fragment.action == "refresh"]


def test_weights_that_do_not_add_up_are_refused_with_the_difference(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    weights = [{"criterion_id": criterion.id, "weight": 30} for criterion in find(ESSAY).criteria]
    assert essay.refused("set_weights", weights=weights) == "These weights add up to 90, not 100: 10 missing."
    assert not essay.sent


def test_an_unknown_criterion_is_answered_with_those_there_are(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    other = find(LAB_REPORT).criteria[0].id
    answer = essay.refused("remove_criterion", criterion_id=other)
    assert answer.startswith(f"This assessment has no criterion {other}. The criteria are ")
    assert "(Argument)" in answer


def test_changing_nothing_is_refused(model: Callable[[str], Model]) -> None:
    first = find(ESSAY).criteria[0].id
    assert "Nothing to change" in model(ESSAY).refused("update_criterion", criterion_id=first)


@pytest.mark.parametrize("weight", [-1, 101, "half", 1.5])
def test_a_weight_is_a_whole_number_to_100(model: Callable[[str], Model], weight: object) -> None:
    assert "weight" in model(POSTER).refused("add_criterion", name="New", weight=weight)


def test_a_comment_is_appended_to_the_thread(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    essay.told("add_comment", text="First.")
    thread = find(ESSAY).threads[-1]
    essay.told("add_comment", text="Second.", reply_to=thread.id)
    comments, replies = f"comments_assessment_{essay.key}", f"replies_comment_{thread.id}"
    first = assert_broadcast(essay.sent, essay.record, action="append", target=comments, text="First.")
    assert f'id="comment_{thread.id}"' in first.html
    assert_broadcast(essay.sent, essay.record, action="append", target=replies, text="Second.")
    assert (thread.author_name, thread.run_id) == (AI_NAME, RUN)


def test_settling_changes_only_the_state(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    thread = find(ESSAY).threads[0]
    essay.told("resolve_comment", comment_id=thread.id)
    assert_broadcast(essay.sent, essay.record, target=f"state_comment_{thread.id}", text="Settled")
    assert not [fragment for fragment in essay.sent if fragment.target == dom_id(thread)]
    assert thread.resolved


def test_a_fragment_holds_nothing_of_a_viewer(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    essay.told("add_comment", text="Hello.")
    essay.told("update_instructions", new_instructions="Write.")
    assert len(essay.sent) > 1
    assert not [fragment for fragment in essay.sent if "csrf" in fragment.html or "token" in fragment.html]
