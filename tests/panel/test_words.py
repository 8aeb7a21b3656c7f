"""What the panel says, from the row alone."""

from __future__ import annotations

import json
from datetime import UTC
from datetime import datetime
from datetime import timedelta
from typing import get_args

import pytest

from flask_instruct.attempts import SOFT
from flask_instruct.calls import OutcomeKind
from flask_instruct.errors import RETRYABLE
from flask_instruct.panel import showing
from flask_instruct.panel import words
from flask_instruct.panel.language import duration
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import HELD
from flask_instruct.runs.models import CallStatus
from flask_instruct.runs.models import Status

from .rows import MOMENT
from .rows import a_call
from .rows import a_message
from .rows import a_run


def test_every_status_of_the_ledger_has_words() -> None:
    assert set(words.RUN) == set(words.ANNOUNCED) == set(get_args(Status))
    assert set(words.CALL) == set(get_args(CallStatus))


def test_every_way_a_call_can_fail_has_words() -> None:
    assert set(words.OUTCOMES) == set(get_args(OutcomeKind)) - {"ok"}


def test_a_queued_run_says_what_it_waits_for() -> None:
    assert words.run_phrase(a_run("queued")).text == "Queued, waiting for a worker"


def test_a_run_thinks_until_its_first_word() -> None:
    run = a_run()
    assert words.run_phrase(run).text == "Thinking"
    a_message(run, "The", "streaming")
    assert words.run_phrase(run).text == "Writing"


def test_a_run_names_the_tool_it_is_using() -> None:
    run = a_run()
    a_call(run, "check_rubric", status="done")
    a_call(run, "update_criterion", status="running")
    assert words.run_phrase(run).text == "Using “Update criterion”"


@pytest.mark.parametrize("status", HELD)
def test_a_run_whose_worker_went_silent_is_not_said_to_be_at_work(status: str) -> None:
    """A status query shows the run as interrupted, not as running for ever (rq/rq#756)."""
    run = a_run(status, lease_until=now() + timedelta(minutes=1))
    a_call(run, "check_rubric", status="running")
    assert "nterrupted" not in words.run_phrase(run).text + words.announcement(run)
    run.lease_until = now() - timedelta(seconds=1)
    assert words.run_phrase(run).text == "Interrupted, waiting for a worker"
    assert words.run_phrase(run).tone == "waiting"
    assert words.announcement(run) == "The work on the request was interrupted. It waits for a worker."


@pytest.mark.parametrize("status", sorted(set(get_args(Status)) - set(HELD)))
def test_a_run_that_nobody_holds_is_never_interrupted(status: str) -> None:
    assert not a_run(status, lease_until=now() - timedelta(hours=1)).interrupted


def test_an_ended_run_counts_what_was_done_and_not_what_was_claimed() -> None:
    run = a_run("succeeded")
    a_message(run, "I did fifty things.")
    a_call(run, status="done")
    a_call(run, status="done")
    a_call(run, status="failed")
    assert words.run_phrase(run).detail == "12 s · 2 steps done, 1 failed"
    assert words.announcement(run) == "The AI has finished. 2 steps done, 1 failed."


def test_an_ended_run_without_tools_says_how_long_it_took() -> None:
    assert words.run_phrase(a_run("succeeded")).detail == "12 s"


def test_a_retried_run_counts_from_the_retry() -> None:
    run = a_run(queued_at=MOMENT + timedelta(days=2))
    assert words.since(run) == run.queued_at


def test_a_failed_run_says_why_in_plain_words() -> None:
    run = a_run("failed", error_class="provider_overloaded", error_safe="The AI service is overloaded.")
    assert words.failure(run) == "The AI service is overloaded."
    assert words.announcement(run) == "The AI could not finish the request. The AI service is overloaded."


def test_a_failed_run_without_a_reason_still_says_something() -> None:
    assert words.failure(a_run("failed")) == "Something went wrong on this site."


def test_a_limited_run_names_its_limit() -> None:
    assert "tools as many times" in words.limit(a_run("limited", limit_reached="rounds"))
    assert words.limit(a_run("limited", limit_reached="wishes")) == "The limit “wishes” was reached."


def test_a_run_that_lost_its_worker_says_that_it_was_resumed() -> None:
    assert words.resumed(a_run()) == ""
    assert words.resumed(a_run(resumes=1)) == "Resumed after an interruption"
    assert words.resumed(a_run(resumes=3)) == "Resumed after 3 interruptions"


def test_a_cut_answer_says_that_it_breaks_off() -> None:
    assert words.message_note(a_message(a_run(), "The", "cut")) == "The answer breaks off here."
    assert words.message_note(a_message(a_run(), "The", "complete")) == ""


@pytest.mark.parametrize("actor", ["Ada", "ada@example.org", "lead-1"])
def test_a_name_is_shown(actor: str) -> None:
    assert words.asked_by(a_run(actor=actor)) == actor


@pytest.mark.parametrize("actor", [None, "", "42", "0197a1b2-7c1d-7e55-8a3b-1234567890ab"])
def test_an_id_that_is_no_name_is_not_shown(actor: str | None) -> None:
    assert words.asked_by(a_run(actor=actor)) == ""


@pytest.mark.parametrize(
    ("name", "title"),
    [("update_instructions", "Update instructions"), ("check-rubric", "Check rubric"), ("x", "X"), ("__", "__")],
)
def test_a_tool_is_named_as_a_person_would(name: str, title: str) -> None:
    assert words.title_of(name) == title


def test_arguments_are_names_and_texts() -> None:
    call = a_call(a_run(), arguments='{"name": "Style", "weight": 20, "levels": ["a", "b"], "note": null}')
    assert words.arguments_of(call) == [
        ("name", "Style"),
        ("weight", "20"),
        ("levels", '[\n  "a",\n  "b"\n]'),
        ("note", "null"),
    ]


@pytest.mark.parametrize("arguments", ["[1]", "not json", '{"a": ', "1" * 5000, "[" * 100_000, '"\ud800"'])
def test_arguments_that_are_no_object_are_shown_as_they_came(arguments: str) -> None:
    [(name, text)] = words.arguments_of(a_call(a_run(), arguments=arguments))
    assert name == ""
    assert text.startswith(arguments[:100])


def test_no_arguments_are_none() -> None:
    assert words.arguments_of(a_call(a_run(), arguments="{}")) == []
    assert words.arguments_of(a_call(a_run(), arguments="")) == []


def test_a_deep_value_is_told_without_breaking() -> None:
    deep = "[" * 900 + "]" * 900
    assert words.arguments_of(a_call(a_run(), arguments=json.dumps({"a": 1})[:-1] + f', "b": {deep}}}'))


def test_a_long_value_is_cut_and_says_by_how_much() -> None:
    [(_, text)] = words.arguments_of(a_call(a_run(), arguments=json.dumps({"a": "x" * 4001})))
    assert text.endswith("x… (1 character more)")


def test_the_hint_is_the_first_text_on_one_line() -> None:
    call = a_call(a_run(), arguments='{"id": 4, "body": "Dear all,\\n\\nplease"}')
    assert words.hint(call) == "Dear all, please"
    assert len(words.hint(a_call(a_run(), arguments=json.dumps({"a": "x" * 500})))) == showing.HINT_CHARS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3700, "1 h 1 min"),
        (-3, "0.0 s"),
    ],
)
def test_a_duration_in_short_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_attachments_are_named_by_what_people_call_them() -> None:
    run = a_run(attached=["board.jpg", "document", "https://example.org/rules.pdf"])
    assert words.attached(run) == "Attached: board.jpg, a document, https://example.org/rules.pdf"


def test_a_retrying_run_says_why_and_counts_down() -> None:
    run = a_run(status="retrying", retry_reason="rate_limited")
    assert words.run_phrase(run).text == "The AI service is receiving too many requests. Trying again"
    run.retry_reason = "timeout"
    assert words.run_phrase(run).text == "The AI service did not answer. Trying again"
    assert words.until(datetime.now(UTC) + timedelta(seconds=61.5)) == "in 1 min 2 s"
    assert words.until(datetime.now(UTC) - timedelta(seconds=5)) == "in 0 s"


def test_every_kind_of_failure_that_is_tried_again_has_words() -> None:
    told = {*words.RETRYING, "timeout"}
    assert told >= RETRYABLE | {*SOFT}
