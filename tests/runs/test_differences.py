"""What two recordings of a run may differ in without being different: ids, moments, and keys the database counts."""

from __future__ import annotations

import uuid
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from flask_instruct.runs.differences import Comparison
from flask_instruct.runs.differences import Difference
from flask_instruct.runs.record_rows import written
from flask_instruct.runs.recording import Recording

THEN = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)
LATER = datetime(2026, 11, 5, 8, 0, tzinfo=UTC)


def recording(
    moment: datetime,
    *results: str,
    rows: dict[str, list[dict[str, Any]]] | None = None,
    html: tuple[str, ...] = (),
) -> Recording:
    """A run of a minute with a call for each result."""
    run = {"id": str(uuid.uuid4()), "status": "succeeded", "created_at": moment.isoformat()}
    run |= {"started_at": moment.isoformat(), "ended_at": (moment + timedelta(minutes=1)).isoformat()}
    call = {"name": "look", "arguments": "{}", "status": "done", "error_kind": None}
    calls = [{**call, "id": str(uuid.uuid4()), "seq": seq, "result": text} for seq, text in enumerate(results, 1)]
    broadcasts = [{"stream": "notes", "html": text.replace("CALL", calls[0]["id"] if calls else "")} for text in html]
    return Recording({}, run, [], [], calls, [], [], [], broadcasts, rows, [])


def differences(one: Recording, other: Recording) -> list[Difference]:
    return Comparison(one, other, counted={"note": "id"}).differences()


@pytest.mark.parametrize(
    ("then", "later"),
    [
        ("Made 3f2b8c1e-0000-4000-8000-000000000001.", "Made 7f2b8c1e-0000-4000-8000-000000000002."),
        ("key 0123456789abcdef0123456789abcdef", "key fedcba9876543210fedcba9876543210"),
        ("At 2026-03-01T23:59:45+00:00.", "At 2026-11-05T08:00:10+00:00."),
        ("At 2026-03-01T23:59:45Z.", "At 2026-11-05T08:00:10Z."),
        ("At 2026-03-01 23:59:45.123456.", "At 2026-11-05 08:00:10.5."),
        ("At 2026-03-02T00:59:45+01:00.", "At 2026-11-05T10:00:10+02:00."),
        ("Today is 2026-03-01.", "Today is 2026-11-05."),
        ("Today is 2026-03-02, past midnight.", "Today is 2026-11-05, past midnight."),
        ("Due on 2026-03-01, as asked.", "Due on 2026-03-01, as asked."),
    ],
)
def test_ids_and_moments_of_the_run_are_no_difference(then: str, later: str) -> None:
    assert not differences(recording(THEN, then), recording(LATER, later))


@pytest.mark.parametrize(
    ("then", "later"),
    [
        ("At 2026-03-01T22:00:00+00:00.", "At 2026-11-05T08:00:10+00:00."),
        ("Due on 2026-04-01.", "Due on 2026-11-05."),
        ("Due on 2026-04-01.", "Due on 2026-04-02."),
        ("Made 3f2b8c1e-0000-4000-8000-000000000001.", "Made nothing."),
        ("Wrote 3.", "Wrote 4."),
    ],
)
def test_other_values_are_a_difference(then: str, later: str) -> None:
    assert [one.where for one in differences(recording(THEN, then), recording(LATER, later))] == [
        "call 1 (look): result"
    ]


def test_the_run_and_its_calls_are_told_apart_by_name_and_not_taken_for_one_another() -> None:
    mine, theirs = recording(THEN, "a", "b"), recording(LATER, "a", "b")
    mine.calls[1]["result"] = f"As in {mine.calls[0]['id']}"
    theirs.calls[1]["result"] = f"As in {theirs.calls[0]['id']}"
    assert not differences(mine, theirs)
    theirs.calls[1]["result"] = f"As in {theirs.run['id']}"
    assert len(differences(mine, theirs)) == 1


def test_a_key_that_the_database_counted_otherwise_is_no_difference_wherever_it_stands() -> None:
    mine = recording(
        THEN,
        "Created note 17.",
        rows={"note": [note(3, "old"), note(17, "new")], "tag": [{"note_id": 17, "name": "x"}]},
        html=('<div id="note_17">new</div>',),
    )
    theirs = recording(
        LATER,
        "Created note 4.",
        rows={"note": [note(3, "old"), note(4, "new")], "tag": [{"note_id": 4, "name": "x"}]},
        html=('<div id="note_4">new</div>',),
    )
    assert not differences(mine, theirs)
    theirs.rows["note"][1]["text"] = "newer"  # type: ignore[index]
    assert [one.where for one in differences(mine, theirs)] == ["row 2 of note: text"]


def test_a_row_that_is_missing_and_one_that_is_new_are_shown_whole() -> None:
    mine = recording(THEN, rows={"note": [note(1, "a"), note(2, "b"), note(3, "c")]})
    theirs = recording(LATER, rows={"note": [note(1, "b"), note(2, "c"), note(3, "d")]})
    assert [(one.where, one.expected, one.got) for one in differences(mine, theirs)] == [
        ("row 1 of note", note(1, "a"), None),
        ("row 4 of note", None, note(3, "d")),
    ]


def test_calls_that_are_missing_and_new_are_named() -> None:
    assert [one.where for one in differences(recording(THEN, "a", "b"), recording(LATER, "a"))] == ["call 2 (look)"]
    assert [one.where for one in differences(recording(THEN), recording(LATER, "a"))] == ["call 1 (look)"]


def test_fragments_of_the_panel_are_the_packages_own_affair() -> None:
    fragment = '<turbo-stream action="update" target="instruct_call_CALL_head"><template>{}</template></turbo-stream>'
    mine = recording(THEN, "a", html=(fragment.format("0.3 s"), "<p>own</p>"))
    theirs = recording(LATER, "a", html=("<p>own</p>", fragment.format("2 s"), fragment))
    assert not differences(mine, theirs)


def test_broadcasts_are_held_against_each_other_in_their_order() -> None:
    mine = recording(THEN, html=("<p>1</p>", "<p>2</p>", "<p>3</p>"))
    theirs = recording(LATER, html=("<p>2</p>", "<p>three</p>"))
    assert [(one.where, one.expected, one.got) for one in differences(mine, theirs)] == [
        ("broadcast 1", "to notes: <p>1</p>", None),
        ("broadcast 3", "to notes: <p>3</p>", "to notes: <p>three</p>"),
    ]


def test_a_difference_reads_well() -> None:
    assert list(Difference("call 1 (look): result", "a", None).lines()) == [
        "call 1 (look): result",
        "  expected  a",
        "  got       (nothing)",
    ]
    long = Difference("call 1 (look): result", "one\ntwo\nthree", "one\n2\nthree")
    assert list(long.lines())[1:] == [
        "  --- expected",
        "  +++ got",
        "  @@ -1,3 +1,3 @@",
        "   one",
        "  -two",
        "  +2",
        "   three",
    ]


class Colour(Enum):
    RED = "r"


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (Decimal("1.50"), "1.5"),
        (Decimal("100"), "100"),
        (Decimal("NaN"), "NaN"),
        (b"\x00\xff", "AP8="),
        (date(2026, 3, 1), "2026-03-01"),
        (datetime(2026, 3, 1, 12, 0), "2026-03-01T12:00:00"),
        (datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T10:00:00+00:00"),
        (timedelta(minutes=2), 120.0),
        (Colour.RED, "RED"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"a": [Decimal("1.0"), (1, 2)]}, {"a": ["1", [1, 2]]}),
        ({"b", "a"}, ["a", "b"]),
    ],
)
def test_values_of_columns_are_written_the_same_from_every_database(value: Any, as_json: Any) -> None:
    assert written(value) == as_json


def note(key: int, text: str) -> dict[str, Any]:
    return {"id": key, "text": text}
