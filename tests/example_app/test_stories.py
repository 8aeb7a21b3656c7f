"""The scripted stories, played with the real tools on the seeded records."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator

import pytest
from flask import Flask

from example_app import stories
from example_app.database import db
from example_app.handlers import AssessmentUpdater
from example_app.models import AI_NAME
from example_app.stories import trouble
from example_app.stories.scene import shares
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import Text
from flask_instruct.messages import ToolResult
from flask_instruct.orchestrator import Ending
from flask_instruct.orchestrator import Orchestrator
from flask_instruct.prompt import Gen

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import ORAL
from .conftest import POSTER
from .conftest import PROJECT
from .conftest import Visitor
from .conftest import find

ALL = [LAB_REPORT, ESSAY, POSTER, ORAL, PROJECT]


@pytest.fixture
def request_context(app: Flask) -> Iterator[None]:
    """Fragments have links, so they are rendered under an address, as in the worker."""
    with app.test_request_context("/"):
        yield


class Talk:
    """A prompt played to its end on one assessment, without waiting between the pieces of text."""

    def __init__(self, title: str, prompt: str) -> None:
        self.key = find(title).id
        self.messages = [Message("user", (Text(prompt),))]
        self.ending = self.go_on()

    def go_on(self) -> Ending:
        handler = AssessmentUpdater(db.session.get_one(stories.Assessment, self.key))
        gen = Gen(model="studio", tools=tuple(tool.spec() for tool in handler.ai_tools()))
        self.ending = Orchestrator(handler, self.messages, gen, adapter=Scripted(sleep=lambda seconds: None)).start()
        db.session.commit()
        return self.ending

    @property
    def results(self) -> list[ToolResult]:
        return [result for message in self.messages for result in message.results]

    @property
    def last_words(self) -> str:
        return self.messages[-1].text

    def errors_of(self, name: str) -> list[str]:
        return [result.content for result in self.results if result.name == name and result.error]


@pytest.fixture
def play(request_context: None) -> Callable[[str, str], Talk]:
    """Ask for a story by its name as ``play(name, title)``."""
    return lambda name, title: Talk(title, stories.story(name).prompt)


@pytest.mark.parametrize("story", stories.CATALOGUE, ids=lambda story: story.name)
def test_every_story_comes_to_a_proper_end_on_every_assessment(request_context: None, story: stories.Story) -> None:
    for title in ALL:
        talk = Talk(title, story.prompt)
        assert not [result.content for result in talk.results if "internal error" in result.content]
        if story.name == "overloaded":
            assert isinstance(talk.ending.error, ProviderError)
        elif story.name == "endless":
            assert talk.ending.limit is not None
        else:
            assert talk.ending.error is None
            assert len(talk.last_words) > 40
            assert "did not work" not in talk.last_words


@pytest.mark.parametrize("story", stories.CATALOGUE, ids=lambda story: story.name)
def test_a_suggestion_chooses_its_own_story(story: stories.Story) -> None:
    assert stories.choose(story.prompt) is story
    assert stories.choose(f"Please, {story.prompt.lower()}!") is story


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Can you fix the weights? They should add up.", "repair"),
        ("please cite more sources", "sources"),
        ("draft a rubric", "build"),
        ("Make the instructions clearer", "rewrite"),
        ("Summarise the discussion", "comments"),
        ("Do you know a nicer title?", "title"),
        ("rate limit, please", "overloaded"),
        ("What is the weather in Lisbon?", None),
    ],
)
def test_other_words_find_the_story_that_fits(prompt: str, name: str | None) -> None:
    chosen = stories.choose(prompt)
    assert (chosen.name if chosen else None) == name


def test_weights_of_110_are_found_and_repaired(play: Callable[[str, str], Talk]) -> None:
    talk = play("repair", LAB_REPORT)
    checks = [result.content for result in talk.results if result.name == "check_rubric"]
    assert "add up to 110" in checks[0]
    assert "add up to 110" not in checks[1]
    assert find(LAB_REPORT).total == 100


def test_a_new_criterion_makes_110_first_and_100_in_the_end(play: Callable[[str, str], Talk]) -> None:
    talk = play("sources", ESSAY)
    assert any("add up to 110" in result.content for result in talk.results if result.name == "check_rubric")
    essay = find(ESSAY)
    assert essay.total == 100
    assert [criterion.name for criterion in essay.criteria] == ["Argument", "Evidence", "Use of sources", "Style"]


def test_a_rubric_is_built_from_nothing(play: Callable[[str, str], Talk]) -> None:
    play("build", POSTER)
    poster = find(POSTER)
    assert (len(poster.criteria), poster.total) == (4, 100)
    assert all(len(criterion.levels) == 4 for criterion in poster.criteria)


def test_a_refused_tool_call_is_corrected(play: Callable[[str, str], Talk]) -> None:
    talk = play("levels", ORAL)
    assert talk.errors_of("set_levels") == ["A criterion has 2 to 6 levels, best first, or none; got 1."]
    assert all(len(criterion.levels) == 4 for criterion in find(ORAL).criteria)


def test_arguments_of_the_wrong_type_are_corrected(play: Callable[[str, str], Talk]) -> None:
    talk = play("half", ESSAY)
    assert "weight" in talk.errors_of("update_criterion")[0]
    assert find(ESSAY).criteria[0].weight == 50
    assert find(ESSAY).total == 100


def test_a_tool_that_does_not_exist_is_corrected(play: Callable[[str, str], Talk]) -> None:
    talk = play("title", LAB_REPORT)
    assert "rename" in talk.errors_of("set_title")[0]
    assert find("Enzyme kinetics (lab report)").id == talk.key


def test_instructions_are_rewritten_as_steps_and_keep_their_facts(play: Callable[[str, str], Talk]) -> None:
    play("rewrite", LAB_REPORT)
    text = find(LAB_REPORT).instructions
    assert text.startswith("**What you do**\n\n1. ")
    for fact in ("catalase", "Vmax and Km", "1,500 words", "one PDF file", "due on"):
        assert fact in text


def test_rewriting_twice_adds_nothing(play: Callable[[str, str], Talk]) -> None:
    play("rewrite", LAB_REPORT)
    once = find(LAB_REPORT).instructions
    play("rewrite", LAB_REPORT)
    assert find(LAB_REPORT).instructions == once


def test_open_comments_are_answered_once(play: Callable[[str, str], Talk]) -> None:
    play("comments", LAB_REPORT)
    answered = [thread for thread in find(LAB_REPORT).threads if any(reply.by_ai for reply in thread.replies)]
    assert [thread.resolved for thread in answered] == [False, False]
    assert "Nobody is waiting" in play("comments", LAB_REPORT).last_words


def test_a_review_changes_nearly_everything(play: Callable[[str, str], Talk]) -> None:
    talk = play("review", LAB_REPORT)
    report = find(LAB_REPORT)
    assert [criterion.name for criterion in report.criteria] == [
        "Data and analysis",
        "Experimental design",
        "Limits and uncertainty",
        "Discussion",
        "Writing",
    ]
    assert report.total == 100
    assert all(criterion.levels for criterion in report.criteria)
    assert report.comments[-1].author_name == AI_NAME
    assert len({result.call_id for result in talk.results}) >= 10


def test_a_conversation_changes_nothing(play: Callable[[str, str], Talk]) -> None:
    talk = play("fair", ESSAY)
    assert not talk.results
    assert "two markers" in talk.last_words


def test_the_long_answer_has_about_two_thousand_tokens(play: Callable[[str, str], Talk]) -> None:
    words = play("guide", LAB_REPORT).last_words
    assert 1_700 <= len(words) / 4 <= 2_600
    assert "{" not in words
    assert words.count("\n## ") == 7


def test_an_overloaded_service_answers_when_the_run_goes_on_later(
    play: Callable[[str, str], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = play("overloaded", ESSAY)
    assert isinstance(talk.ending.error, ProviderError)
    assert talk.ending.error.retryable
    monkeypatch.setattr(trouble, "OVERLOAD_SECONDS", 0.0)
    talk.go_on()
    assert talk.ending.error is None
    assert [result.name for result in talk.results] == ["read_assessment"]
    assert "3 criteria, weights that add up to 100" in talk.last_words


def test_the_endless_story_meets_the_limit_of_rounds(play: Callable[[str, str], Talk]) -> None:
    talk = play("endless", ESSAY)
    assert talk.ending.limit is not None
    assert talk.ending.limit.limit == "rounds"
    assert len(talk.results) == 8


def test_hostile_text_is_shown_and_never_run(app: Flask, lead: Visitor) -> None:
    with app.test_request_context("/"):
        key = Talk(ESSAY, stories.story("hostile").prompt).key
    page = lead.get(f"/assessments/{key}").text
    thread = page[page.index('id="discussion"') : page.index("comment-form")]
    assert "&lt;script&gt;" in thread
    assert not re.search(r"<script|<img|<turbo-stream|href=\"javascript:", thread)


def test_a_request_that_fits_nothing_gets_an_honest_list(request_context: None) -> None:
    talk = Talk(ESSAY, "What is the weather in Lisbon?")
    assert "scripted model" in talk.last_words
    for story in stories.CATALOGUE:
        assert story.prompt in talk.last_words


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        ({1: 25, 2: 35, 3: 30, 4: 15, 5: 5}, 100),
        ({1: 0, 2: 0}, 100),
        ({1: 1, 2: 99}, 50),
        (dict.fromkeys(range(12), 7), 50),
    ],
)
def test_shares_keep_the_total_and_leave_nobody_without(weights: dict[int, int], total: int) -> None:
    shared = shares(weights, total)
    assert sum(shared.values()) == total
    assert min(shared.values()) >= 1
