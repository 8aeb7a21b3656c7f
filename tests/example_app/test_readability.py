"""What the measuring of instructions finds."""

from __future__ import annotations

from example_app.readability import missing
from example_app.readability import report
from example_app.readability import sentences


def test_list_items_and_headings_are_sentences() -> None:
    assert sentences("# Task\n\n1. Read it. Then write.\n- **Stop** early") == [
        "Task",
        "Read it.",
        "Then write.",
        "Stop early",
    ]


def test_a_long_sentence_is_quoted() -> None:
    assert "The longest sentence has 30 words" in report("word " * 29 + "end. Short one.")


def test_what_students_ask_for_is_named_when_it_is_absent() -> None:
    assert missing("Write 1,500 words, due Friday. Upload a PDF. The rubric says how it is marked.") == []
    assert missing("Write something nice.") == ["a length", "a deadline", "how to hand it in", "what is marked"]


def test_no_text_is_said_to_be_none() -> None:
    assert report(" \n") == "There are no instructions yet."
