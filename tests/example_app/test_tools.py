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
from flask_instruct.calls import ToolContext
from flask_instruct.calls import ToolOutcome
from flask_instruct.calls import run_tool
from flask_instruct.live.broadcasts import outlet
from flask_instruct.messages import ToolCall

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import POSTER
from .conftest import find

RUN = "0190aaaa-0000-7000-8000-000000000001"


class Model:
    """Calls tools on one assessment and keeps what was sent to the pages, as ``(stream, fragment)``."""

    def __init__(self, title: str) -> None:
        self.key = find(title).id
        self.sent: list[tuple[str, str]] = []

    def use(self, tool: str, **arguments: object) -> ToolOutcome:
        from example_app.models import Assessment

        handler = AssessmentUpdater(db.session.get_one(Assessment, self.key))
        call = ToolCall("call_1", tool, json.dumps(arguments))
        token = outlet.set(lambda stream, html: self.sent.append((stream, html)))
        try:
            return run_tool(handler, call, ToolContext("c1", RUN, tool, 1, "c1"))
        finally:
            outlet.reset(token)

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
    with app.test_request_context("/"):
        yield Model


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
    }
    for name in ("show_rubric", "_criterion", "record", "__class__"):
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
    (page, fragment), (listing, card) = essay.sent
    assert page == f"Assessment/{essay.key}"
    assert f'target="instructions_assessment_{essay.key}"' in fragment
    assert "<strong>well</strong>" in fragment
    assert f"#instruct_run_{RUN}" in fragment
    assert listing == "assessments"
    assert AI_NAME in card


def test_an_added_criterion_says_its_id_and_the_total(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    told = essay.told("add_criterion", name="Sources", weight=10, position=2, levels=[])
    added = find(ESSAY).criteria[1]
    assert told == f"Added criterion {added.id} “Sources”. The weights add up to 110; they must add up to 100."
    assert f'target="rubric_assessment_{essay.key}"' in essay.sent[0][1]
    assert added.changed_run == RUN


def test_a_removed_criterion_leaves_the_page(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    gone = find(ESSAY).criteria[0].id
    assert essay.told("remove_criterion", criterion_id=gone).startswith("Removed “Argument”.")
    assert f'action="remove" target="criterion_{gone}"' in essay.sent[0][1]


def test_moving_sends_the_whole_order(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    last = find(ESSAY).criteria[-1].id
    assert essay.told("move_criterion", criterion_id=last, position=1) == "The order is now: Style, Argument, Evidence."
    fragment = essay.sent[0][1]
    assert fragment.index("Style") < fragment.index("Argument") < fragment.index("Evidence")


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
    first, _, second, _ = (fragment for _, fragment in essay.sent)
    assert f'action="append" target="comments_assessment_{essay.key}"' in first
    assert f'id="comment_{thread.id}"' in first
    assert f'action="append" target="replies_comment_{thread.id}"' in second
    assert (thread.author_name, thread.run_id) == (AI_NAME, RUN)


def test_settling_changes_only_the_state(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    thread = find(ESSAY).threads[0]
    essay.told("resolve_comment", comment_id=thread.id)
    assert f'target="state_comment_{thread.id}"' in essay.sent[0][1]
    assert thread.resolved


def test_a_fragment_holds_nothing_of_a_viewer(model: Callable[[str], Model]) -> None:
    essay = model(ESSAY)
    essay.told("add_comment", text="Hello.")
    essay.told("update_instructions", new_instructions="Write.")
    assert not [fragment for _, fragment in essay.sent if "csrf" in fragment or "token" in fragment]
