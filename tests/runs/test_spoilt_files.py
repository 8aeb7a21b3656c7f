"""A file of an exported run that was spoilt, by hand or by hazard: it works, or a sentence says what is wrong where."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import Result
from flask import Flask
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from flask_instruct import Image
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.cli import instruct as commands
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run

from .conftest import reread
from .letters import Correspondent
from .notebook import Note
from .notebook import Notebook
from .notebook import db
from .notebook import instruct

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

Command = Callable[..., Result]
Way = tuple[str | int, ...]

EXAMPLES = 50

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


def carried_out(prompt: str, script: str, **options: Any) -> Run:
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(
        Correspondent(record), user_prompt=prompt, model=f"scripted:{script}", conversation="c", **options
    )
    generate(run.id)
    return reread(run)


@pytest.fixture
def command(app: Flask) -> Command:
    return lambda *arguments, **options: app.test_cli_runner().invoke(commands, arguments, **options)


@pytest.fixture
def exported(command: Command, tmp_path: Path) -> dict[str, Any]:
    """A run with all that a file can hold: a conversation, an attachment, limits, tools, an approval, an effect."""
    letters = Use("write_letters", folder=str(tmp_path), to=["reader"])
    register_script(
        "spoilt", [[Say("I will."), Use("write", text="a"), Use("publish", text="p"), letters], [Say("Done.")]]
    )
    carried_out("First.", "write_two")
    options = {"limits": {"tokens": 10_000, "cost": "0.25"}, "effort": "low", "context": {"page": 3}}
    run = carried_out("Go.", "spoilt", attachments=[Image.from_bytes(PNG)], **options)
    instruct.approve(run.approvals[0], actor="lead", arguments={"text": "q"})
    run = reread(run)
    generate(run.id)
    run = reread(run)
    result = command("export", run.id, "--table", "note")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert all(data[name] for name in data), "each part of the file has something in it"
    db.session.execute(sa.delete(Note))
    db.session.commit()
    return data


def replayed(command: Command, data: Any) -> Result:
    return command("replay", "-", input=json.dumps(data))


def assert_no_traceback(result: Result) -> None:
    """The replay came to its end, or one sentence says why not."""
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback" not in result.output, result.output
    if result.exit_code == 2:
        lines = [line for line in result.stderr.splitlines() if line]
        lines = [line for line in lines if not line.startswith("Note: ")]
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("Error: "), result.stderr
        assert lines[0].endswith((".", ")")), result.stderr
    else:
        assert result.exit_code in (0, 1), result.output


def places(data: Any, at: Way = ()) -> Iterator[Way]:
    """Every node of the file but its head."""
    if at:
        yield at
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in inner:
        if at or name not in ("format", "version"):
            yield from places(value, (*at, name))


def deep(levels: int) -> Any:
    found: Any = 0
    for _ in range(levels):
        found = [found]
    return found


HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**63, 2**200, 0.5, -0.5, 1e300, float("nan"), float("inf")),
    *("", " ", "x", "\0", "\ud800", "é" * 300, "x" * 5000, "1e999999999", "nan", "-1", "0001-01-01T00:00:00+14:00"),
    *("instruct://", "instruct://Nobody/1", "instruct://Correspondent/2", "instruct://Correspondent/x", "no:model"),
    *("http://", "http://[", "http://h:99999/", "http://a b/", "https://xn--/", "javascript:1", "/etc/passwd"),
    *("running", "succeeded", "failed", "cancelled", "limited", "complete", "cut", "tool_calls", "stop", "{", "[1]"),
    *([], {}, [[]], [None], [{}], {"": None}, {"type": []}, {"type": "image", "path": "/etc/passwd"}, deep(300)),
    *({"rounds": -1}, {"rounds": "1e999999999"}, {"cost": "nan"}, {"rounds": []}, {"role": "user", "parts": []}),
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "", "name": "", "raw": "["}]},
]


def spoil(data: Any, at: Way, how: str, value: Any) -> None:
    *way, last = at
    for name in way:
        try:
            data = data[name]
        except (KeyError, IndexError, TypeError):
            return  # An earlier change took it away.
    if not isinstance(data, dict if isinstance(last, str) else list):
        return
    if isinstance(last, int) and last >= len(data):
        return
    if how == "delete":
        data.pop(last, None) if isinstance(data, dict) else data.pop(last)
    elif how == "replace":
        data[last] = value
    elif isinstance(data, list):
        data.append(copy.deepcopy(data[last]))
    else:
        data[f"{last}x"] = data.get(last)


def test_whatever_is_changed_in_a_file_it_works_or_a_sentence_says_why_not(
    command: Command, exported: dict[str, Any]
) -> None:
    assert replayed(command, exported).exit_code in (0, 1)
    nodes = list(places(exported))
    ways = st.sampled_from(["delete", "replace", "replace", "twice"])
    changes = st.lists(st.tuples(st.sampled_from(nodes), ways, st.sampled_from(HOSTILE)), min_size=1, max_size=3)

    @bounds(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changes)
    def examine(changed: list[tuple[Way, str, Any]]) -> None:
        data = copy.deepcopy(exported)
        for at, how, value in changed:
            spoil(data, at, how, copy.deepcopy(value))
        assert_no_traceback(replayed(command, data))

    examine()


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (("rows", "note", 0), {"text": "a"}, "rows.note[0].id must be the row's key, a whole number."),
        (("run", "limits"), {"rooms": 1}, "run.limits cannot be read: No limit is named 'rooms'"),
        (("run", "limits"), {"rounds": "1e300"}, "run.limits cannot be read: The limit rounds may be"),
        (("settings", "max_rounds"), -1, "settings.max_rounds must be a whole number, from 0 to"),
        (("settings", "argument_bytes"), None, "settings.argument_bytes must be a whole number, from 1 to"),
        (("settings", "result_chars"), 0, "settings.result_chars must be a whole number, from 1 to"),
        (("run", "attachments"), [{"type": "image", "path": "/etc/passwd"}], "run.attachments[0] cannot be read:"),
        (("run", "effort"), "heroic", "run.effort must be one of off, low, medium, high, null."),
        (("run", "base_url"), "javascript:1", "run.base_url must be an address as https://example.com/, or null."),
        (("run", "handler"), "os.system", "run.handler must be a handler reference as instruct://Name/key."),
        (("messages", 0, "role"), "admin", "messages[0].role must be one of assistant."),
        (("calls", 0, "status"), "lost", "calls[0].status must be one of waiting, asked, running, done, failed."),
        (("calls", 1, "seq"), 1, "calls[1].seq must be unlike that of the other calls."),
        (("calls", 0, "message_id"), "9", "calls[0].message_id must be the id of a message."),
        (("earlier", 0, "status"), "running", "earlier[0].status must be one of succeeded, failed,"),
        (("model_calls", 0, "input_tokens"), "many", "model_calls[0].input_tokens must be a whole number or null"),
        (("run", "context"), deep(300), "more than 100 lists and objects are within each other"),
        (("rows", "\x1b[2J"), 1, "rows.\\x1b[2J must be a list of objects."),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(
    command: Command, exported: dict[str, Any], at: Way, value: Any, said: str
) -> None:
    spoil(exported, at, "replace", value)
    result = replayed(command, exported)
    assert result.exit_code == 2
    assert said in result.stderr
    assert_no_traceback(result)
