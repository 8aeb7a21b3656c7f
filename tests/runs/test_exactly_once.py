"""G1: a tool's edits, its result and its broadcasts are committed together, whatever the tool does to the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from flask_instruct.adapters.scripted import Use
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run

from .conftest import notes
from .notebook import db

CarryOut = Callable[..., Run]


def result(run: Run) -> tuple[str, str | None]:
    [call] = run.calls
    return call.status, call.result


@pytest.mark.parametrize(
    ("tool", "status", "told", "kept"),
    [
        ("write", "done", "Wrote a.", ["a"]),
        ("write_and_commit", "done", "Committed.", ["a", "a again"]),
        ("roll_back", "done", "Rolled back.", []),
        ("nest", "done", "One of two kept.", ["a"]),
        ("flush_then_refuse", "failed", "No such chapter; choose 1 or 2.", ["error in flush_then_refuse: ToolError"]),
        ("commit_then_raise", "failed", None, ["error in commit_then_raise: RuntimeError"]),
        ("duplicate", "failed", None, ["error in duplicate: IntegrityError"]),
        ("remove_session", "failed", None, ["error in remove_session: SessionReplaced"]),
        ("dawdle", "failed", None, ["error in dawdle: ToolTimeout"]),
    ],
)
def test_g1_a_tool_keeps_all_or_nothing(
    carry_out: CarryOut, tool: str, status: str, told: str | None, kept: list[str]
) -> None:
    run = carry_out(Use(tool, text="a"))
    assert run.status == "succeeded", run.error_technical
    assert result(run)[0] == status
    if told is not None:
        assert result(run)[1] == told
    assert notes() == [*kept, "finished: stop"]


def test_an_unexpected_error_tells_the_model_no_internals(carry_out: CarryOut) -> None:
    run = carry_out(Use("commit_then_raise", text="a"))
    _, told = result(run)
    assert told is not None
    assert "secret" not in told
    assert run.calls[0].error_kind == "exception"


def test_a_failed_tool_broadcasts_nothing_and_a_good_one_does(carry_out: CarryOut) -> None:
    carry_out(Use("flush_then_refuse", text="never"), Use("write", text="shown"))
    fragments = list(db.session.scalars(sa.select(Outbox.html).where(Outbox.html.contains('target="notes_'))))
    assert ["shown" in html for html in fragments] == [True]


def test_every_committed_broadcast_was_published_and_is_noted_as_such(carry_out: CarryOut) -> None:
    carry_out(script="write_two")
    positions = list(db.session.scalars(sa.select(Outbox.position).where(Outbox.html.contains("notes"))))
    assert positions
    assert None not in positions


def test_a_timeout_names_the_limit(carry_out: CarryOut) -> None:
    run = carry_out(Use("dawdle", text="a"))
    assert "0.2" in (run.calls[0].result or "")
    assert run.calls[0].error_kind == "timeout"
