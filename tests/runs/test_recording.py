"""The file of an exported run: what is refused as none, with the place that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flask_instruct.runs.file_format import FORMAT
from flask_instruct.runs.file_format import VERSION
from flask_instruct.runs.file_format import CannotReplay
from flask_instruct.runs.recording import SETTINGS
from flask_instruct.runs.recording import Recording

RUN: dict[str, Any] = {
    "id": "1",
    "handler": "instruct://NoteKeeper/1",
    "handler_name": "NoteKeeper",
    "status": "succeeded",
    "user_prompt": "Write.",
    "attempt": 1,
    "created_at": "2026-03-01T12:00:00+00:00",
    **dict.fromkeys(("actor", "tenant", "conversation", "system_prompt", "model", "effort", "error_class")),
    **dict.fromkeys(("error_safe", "error_technical", "limit_reached", "base_url", "started_at", "ended_at")),
    **dict.fromkeys(("context", "limits", "attachments", "attached")),
}
MESSAGE: dict[str, Any] = {
    "id": "2",
    "seq": 1,
    "role": "assistant",
    "state": "complete",
    "text": "Hm.",
    "parts": {"role": "assistant", "parts": [{"type": "text", "text": "Hm."}]},
    "finish_reason": "tool_calls",
    "finish_raw": "",
}
CALL: dict[str, Any] = {
    "id": "3",
    "message_id": "2",
    "seq": 1,
    "provider_call_id": "call_1",
    "name": "write",
    "arguments": "{}",
    "status": "done",
    "result": "Wrote.",
    "error_kind": None,
}
EFFECT: dict[str, Any] = {
    "call_id": "3",
    "seq": 1,
    "owner": "handler",
    "method": "send",
    "arguments": "{}",
    "status": "done",
    "error_class": None,
    "error_safe": None,
}


def a_file() -> dict[str, Any]:
    """The data of a file, all of it one's own to change."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        "settings": dict.fromkeys(SETTINGS, 8),
        "run": RUN,
        "earlier": [{**RUN, "messages": [MESSAGE], "calls": [CALL]}],
        "messages": [MESSAGE],
        "calls": [CALL],
        "effects": [EFFECT],
        "approvals": [],
        "model_calls": [{"message_id": "2", "error_class": None}],
        "broadcasts": [{"stream": "notes", "html": "<p>"}],
        "rows": {"note": [{"id": 1}]},
        "tables": ["note"],
    }
    copied: dict[str, Any] = json.loads(json.dumps(data))
    return copied


def test_a_file_is_read_and_written_word_for_word() -> None:
    text = Recording.from_json(json.dumps(a_file())).to_json()
    assert Recording.from_json(text).to_json() == text
    assert json.loads(text) == a_file()


@pytest.mark.parametrize(
    "text", ["", "nothing", "[]", "{}", "[" * 100_000, b"\xff", '{"format": "flask-instruct run"}']
)
def test_what_is_no_file_of_ours_is_refused(text: str | bytes) -> None:
    with pytest.raises(CannotReplay):
        Recording.from_json(text)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.update(format="other"), '"format" must be'),
        (lambda data: data.update(version=99), "version 99 of the format"),
        (lambda data: data.pop("run"), "run must be an object"),
        (lambda data: data["run"].update(status="running"), "run.status must be one of"),
        (lambda data: data["run"].pop("handler"), "run.handler must be text"),
        (lambda data: data["run"].update(started_at="soon"), "run.started_at must be a moment"),
        (lambda data: data["settings"].update(max_rounds="many"), "settings.max_rounds must be a whole number"),
        (lambda data: data["calls"][0].update(seq="two"), r"calls\[0\].seq must be a whole number"),
        (lambda data: data["calls"][0].update(seq=True), r"calls\[0\].seq must be a whole number"),
        (lambda data: data["calls"].append(None), r"calls\[1\] must be an object"),
        (lambda data: data["effects"][0].update(call_id="9"), r"effects\[0\].call_id must be the id of a call"),
        (lambda data: data["effects"][0].update(status="well"), r"effects\[0\].status must be one of"),
        (
            lambda data: data["messages"][0].update(parts={"role": "x"}),
            r"messages\[0\].parts cannot be read: A message's role",
        ),
        (lambda data: data["messages"][0].update(finish_reason="tired"), r"messages\[0\].finish_reason must be one of"),
        (lambda data: data.update(rows=[]), "rows must be an object or null"),
        (lambda data: data.update(rows={"note": {}}), "rows.note must be a list of objects"),
        (lambda data: data.update(tables=None), "tables must be a list of names"),
        (lambda data: data.update(earlier=[{}]), r"earlier\[0\].id must be text"),
        (lambda data: data["earlier"][0].pop("calls"), r"earlier\[0\].calls must be a list"),
    ],
)
def test_a_file_that_was_damaged_is_refused_with_the_place(change: Callable[[Any], object], why: str) -> None:
    data = a_file()
    change(data)
    with pytest.raises(CannotReplay, match=why):
        Recording.from_json(json.dumps(data))
