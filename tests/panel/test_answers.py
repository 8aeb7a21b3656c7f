"""What stands beside an answer: reasoning, folded, and what it has used and cost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from flask import Flask

from flask_instruct.panel import answers
from flask_instruct.panel.rendering import render
from flask_instruct.runs.spending import Spending

from .rows import a_message
from .rows import a_run

THOUGHT = {"parts": [{"type": "reasoning", "text": "First **look**.<script>"}, {"type": "text", "text": "Done."}]}


def test_reasoning_is_folded_and_only_of_what_is_finished(app: Flask) -> None:
    message = a_message(a_run(), "Done.")
    with app.test_request_context():
        assert "<details" not in render("text.html", message=message)
        message.parts = THOUGHT
        shown = render("text.html", message=message)
        assert shown.index("<details") < shown.index("<strong>look</strong>") < shown.index("Done.")
        assert "&lt;script&gt;" in shown
        assert "<details open" not in shown
        message.state = "streaming"
        assert "<details" not in render("text.html", message=message)


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        (Spending(), ""),
        (Spending(calls=1, input_tokens=1200, output_tokens=34), "1,234 tokens"),
        (Spending(calls=1, input_tokens=1, cost=Decimal("0.0012345"), unpriced=0), "1 tokens · $0.0012345"),
        (Spending(calls=2, input_tokens=2, cost=Decimal("0.5"), unpriced=1), "2 tokens · at least $0.50"),
    ],
)
def test_tokens_and_what_they_cost_as_far_as_that_is_known(app: Flask, sums: Spending, said: str) -> None:
    run = a_run("succeeded")
    with app.app_context():
        assert answers.spent(run, {run.id: sums}) == said
        assert answers.spent(run, {}) == ""
