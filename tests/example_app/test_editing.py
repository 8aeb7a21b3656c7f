"""The rules of an assessment, which people's forms and the AI's tools share."""

from __future__ import annotations

import pytest
from flask import Flask

from example_app import editing
from example_app.database import db
from example_app.editing import EditError
from example_app.models import AI_NAME
from example_app.models import Editor

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import POSTER
from .conftest import find

AI = Editor(AI_NAME, run_id="0190aaaa-0000-7000-8000-000000000001")


def names(title: str) -> list[str]:
    db.session.expire_all()
    return [criterion.name for criterion in find(title).criteria]


def test_a_criterion_is_added_between_others(context: Flask) -> None:
    editing.add_criterion(find(ESSAY), AI, name="Sources", weight=10, position=2)
    db.session.commit()
    assert names(ESSAY) == ["Argument", "Sources", "Evidence", "Style"]


def test_positions_stay_without_gaps(context: Flask) -> None:
    essay = find(ESSAY)
    editing.move_criterion(essay.criteria[2], 1, AI)
    editing.remove_criterion(essay.criteria[1], AI)
    db.session.commit()
    assert names(ESSAY) == ["Style", "Evidence"]
    assert [criterion.position for criterion in find(ESSAY).criteria] == [1, 2]


@pytest.mark.parametrize(("position", "order"), [(1, "CAB"), (2, "ACB"), (99, "ABC"), (0, "CAB")])
def test_a_criterion_moves_to_a_place_and_never_beyond_the_ends(context: Flask, position: int, order: str) -> None:
    poster = find(POSTER)
    for name in "ABC":
        editing.add_criterion(poster, AI, name=name, weight=10)
    editing.move_criterion(poster.criteria[2], position, AI)
    db.session.commit()
    assert "".join(names(POSTER)) == order


def test_weights_are_set_only_when_they_add_up(context: Flask) -> None:
    essay = find(ESSAY)
    first, second, third = (criterion.id for criterion in essay.criteria)
    with pytest.raises(EditError, match=r"add up to 90, not 100: 10 missing"):
        editing.set_weights(essay, {first: 30, second: 30, third: 30}, AI)
    editing.set_weights(essay, {first: 30, second: 30, third: 40}, AI)
    assert essay.total == 100


def test_weights_must_name_every_criterion_and_no_other(context: Flask) -> None:
    essay, other = find(ESSAY), find(LAB_REPORT).criteria[0]
    first = essay.criteria[0]
    with pytest.raises(EditError, match="missing: "):
        editing.set_weights(essay, {first.id: 100}, AI)
    with pytest.raises(EditError, match=f"No criterion of this assessment has the id {other.id}"):
        editing.set_weights(essay, {other.id: 100}, AI)


def test_two_criteria_cannot_share_a_name(context: Flask) -> None:
    essay = find(ESSAY)
    with pytest.raises(EditError, match="already") as refused:
        editing.add_criterion(essay, AI, name="  argument ", weight=5)
    assert refused.value.field == "name"
    editing.change_criterion(essay.criteria[0], AI, name="ARGUMENT")
    assert essay.criteria[0].name == "ARGUMENT"


@pytest.mark.parametrize("levels", [[("Good", "x")], [("Good", "x")] * 2, [(str(n), "x") for n in range(7)]])
def test_levels_are_two_to_six_and_differ(context: Flask, levels: list[tuple[str, str]]) -> None:
    with pytest.raises(EditError) as refused:
        editing.set_levels(find(ESSAY).criteria[0], levels, AI)
    assert refused.value.field == "levels"


def test_a_reply_to_a_reply_joins_its_thread(context: Flask) -> None:
    report = find(LAB_REPORT)
    reply = report.threads[0].replies[0]
    answer = editing.add_comment(report, "Agreed.", AI, reply_to=reply)
    assert answer.reply_to is report.threads[0]


def test_settling_a_reply_settles_its_thread(context: Flask) -> None:
    thread = find(LAB_REPORT).threads[0]
    editing.resolve(thread.replies[0], AI)
    assert thread.resolved


def test_a_change_notes_who_made_it(context: Flask) -> None:
    essay = find(ESSAY)
    editing.rewrite_instructions(essay, "Write.", AI)
    assert (essay.changed_by, essay.instructions_by, essay.instructions_run) == (AI_NAME, AI_NAME, AI.run_id)
    editing.rewrite_instructions(essay, "Write well.", Editor("Mina", user_id=1))
    assert (essay.changed_by, essay.instructions_run) == ("Mina", None)


def test_a_rubric_that_cannot_be_used_says_everything_that_is_wrong(context: Flask) -> None:
    assert editing.problems(find(ESSAY)) == []
    assert editing.problems(find(POSTER)) == ["The rubric has no criteria yet."]
    assert editing.problems(find(LAB_REPORT)) == [
        "The weights add up to 110; they must add up to 100 (10 too many).",
        "“Writing” has no levels.",
        "“Formatting” has no levels.",
    ]
