"""The commands for operators, on both databases and a real Redis: what they print, what they do, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import Result
from flask import Flask

from flask_instruct.cli import instruct
from flask_instruct.live.position import Position
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import is_waiting

from .operating import PROMPT
from .operating import a_run
from .operating import notebook_site
from .runs.notebook import db
from .runs.notebook import instruct as instruct_of_site

Command = Callable[..., Result]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str, key_prefix: str) -> Iterator[Flask]:
    settings = {
        "DATABASE_URL": database_url,
        "INSTRUCT_REDIS_URL": redis_url,
        "INSTRUCT_KEY_PREFIX": key_prefix,
        "INSTRUCT_QUEUE": key_prefix,
    }
    with notebook_site(monkeypatch, **settings) as app:
        yield app


@pytest.fixture
def command(site: Flask) -> Command:
    """Run ``flask instruct …`` in this process."""
    return lambda *arguments: site.test_cli_runner().invoke(instruct, arguments)


def said(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def reread(run_id: str) -> Run:
    db.session.remove()
    return db.session.get_one(Run, run_id)


def test_runs_are_listed_newest_first_with_what_they_cost(command: Command) -> None:
    old = a_run("failed", age=timedelta(hours=3)).id
    new = a_run("succeeded", actor="ada").id
    lines = command("runs").output.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "AGE", "HANDLER", "ACTOR", "MODEL", "TOKENS", "COST"]
    assert lines[1].split() == [new, "succeeded", "0s", "NoteKeeper", "ada", "scripted:talk", "70+8", "$0.2500"]
    assert lines[2].split() == [old, "failed", "3h", "NoteKeeper", "-", "scripted:talk", "70+8", "$0.2500"]
    assert PROMPT not in command("runs", "--json").output


def test_a_list_without_a_run_says_so(command: Command) -> None:
    assert command("runs").output == "There is no such run.\n"
    assert said(command("runs", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--status", "failed"], {"failed"}),
        (["--status", "failed", "--status", "queued"], {"failed", "queued"}),
        (["--actor", "ada"], {"queued"}),
        (["--handler", "Other"], {"succeeded"}),
        (["--handler", "instruct://NoteKeeper/1"], {"failed", "queued"}),
        (["--limit", "1"], {"succeeded"}),
    ],
)
def test_runs_are_chosen_by_status_actor_handler_and_number(
    command: Command, arguments: list[str], wanted: set[str]
) -> None:
    a_run("failed")
    a_run("queued", actor="ada")
    a_run("succeeded", handler="instruct://Other/1", handler_name="Other")
    assert {run["status"] for run in said(command("runs", "--json", *arguments))} == wanted


def test_a_run_that_its_worker_has_left_is_told_from_one_at_work(command: Command) -> None:
    """A run whose workers are all dead does not look like one that runs (rq/rq#756)."""
    left = a_run("running", lease_until=now() - timedelta(minutes=1)).id
    at_work = a_run("running", lease_until=now() + timedelta(minutes=1)).id
    assert {run["id"]: run["interrupted"] for run in said(command("runs", "--json"))} == {left: True, at_work: False}
    listed = dict(line.split(maxsplit=1) for line in command("runs").output.splitlines())
    assert listed[left].startswith("running, interrupted  ")
    assert listed[at_work].startswith("running  ")
    assert [said(command("show", run_id, "--json"))["interrupted"] for run_id in (left, at_work)] == [True, False]
    assert "running, interrupted\n" in command("show", left).output
    assert "interrupted" not in command("show", at_work).output


def test_a_run_is_shown_with_all_its_rows_and_without_its_text(command: Command) -> None:
    run_id = a_run().id
    shown = said(command("show", run_id, "--json"))
    assert (shown["status"], len(shown["messages"]), shown["calls"][0]["name"]) == ("succeeded", 1, "write")
    assert shown["model_calls"][0]["input_tokens"] == 70
    assert (shown["effects"][0]["method"], shown["effects"][0]["status"]) == ("send", "done")
    assert shown["spending"]["cost"] == 0.25
    assert shown["broadcasts"] == {"published": 1, "waiting": 1}
    for result in (command("show", run_id, "--json"), command("show", run_id)):
        written = (PROMPT, "Under the oak", '{"text"', "Wrote oak", '["oak"]')
        assert not [text for text in written if text in result.output]


def test_the_text_of_a_run_is_shown_when_asked_for(command: Command) -> None:
    run_id = a_run().id
    shown = said(command("show", run_id, "--text", "--json"))
    assert shown["user_prompt"] == PROMPT
    assert shown["messages"][0]["text"] == "Under the oak it is."
    assert (shown["calls"][0]["arguments"], shown["calls"][0]["result"]) == ('{"text": "oak"}', "Wrote oak.")
    assert PROMPT in command("show", run_id, "--text").output


def test_what_somebody_wrote_cannot_steer_the_terminal(command: Command) -> None:
    run_id = a_run(actor="\x1b[2J ada", user_prompt="Gr\u00fc\u00dfe\n\x9b2J").id
    output = command("runs").output + command("show", run_id, "--text").output
    assert not [character for character in output if not character.isprintable() and character != "\n"]
    assert '"\\u001b[2J ada"' in output


def test_the_beginning_of_an_id_is_enough_where_it_means_one_run(command: Command) -> None:
    a_run(id="0197aaaa-0000-7000-8000-000000000001")
    a_run(id="0197aaab-0000-7000-8000-000000000002")
    assert said(command("show", "0197AAAB", "--json"))["id"].endswith("2")
    several = command("show", "0197")
    assert several.exit_code == 1
    assert "Error: More than one run has an id that begins with '0197'" in several.output
    for unknown in ("f00", "%", ""):
        nothing = command("show", unknown)
        assert (nothing.exit_code, "Error: No run has an id that begins with" in nothing.output) == (1, True)


def test_a_failed_run_is_started_again(site: Flask, command: Command) -> None:
    run_id = a_run("failed").id
    assert command("retry", run_id).output == f"Run {run_id} is queued again.\n"
    run = reread(run_id)
    assert run.status == "queued"
    assert is_waiting(site.extensions["instruct"], run)


def test_only_a_failed_run_is_started_again(command: Command) -> None:
    run_id = a_run("succeeded").id
    refused = command("retry", run_id)
    assert refused.exit_code == 1
    assert refused.output == f"Error: Run {run_id} has not failed, so there is nothing to retry.\n"


def test_a_run_that_waits_is_cancelled_at_once(command: Command) -> None:
    run_id = a_run("queued").id
    assert command("cancel", run_id).output == f"Run {run_id} is cancelled.\n"
    assert reread(run_id).status == "cancelled"


def test_a_run_in_hand_is_told_to_stop(command: Command) -> None:
    run_id = a_run("running", lease_until=now() + timedelta(minutes=1)).id
    assert f"Run {run_id} is told to stop" in command("cancel", run_id).output
    assert reread(run_id).status == "cancelling"


def test_a_run_that_has_ended_is_not_cancelled(command: Command) -> None:
    refused = command("cancel", a_run("succeeded").id)
    assert refused.exit_code == 1
    assert "has ended before (succeeded)" in refused.output


@pytest.mark.parametrize(
    ("status", "lease"), [("queued", None), ("running", timedelta(minutes=-1)), ("retrying", timedelta(minutes=-1))]
)
def test_a_run_that_waits_or_was_left_is_rung_for(
    site: Flask, command: Command, status: str, lease: timedelta | None
) -> None:
    run = a_run(status, lease_until=None if lease is None else now() + lease)
    run_id = run.id
    assert command("resume", run_id).output == f"A worker was called to run {run_id}.\n"
    assert is_waiting(site.extensions["instruct"], reread(run_id))
    assert "stands in the queue" in command("resume", run_id).output


@pytest.mark.parametrize(
    ("status", "lease", "reason"),
    [
        ("succeeded", None, "has ended (succeeded); only a failed one"),
        ("failed", None, "flask instruct retry"),
        ("running", timedelta(minutes=1), "a worker has renewed its lease"),
        ("waiting_approval", None, "waits for a person's approval"),
    ],
)
def test_a_run_that_needs_nobody_is_not_rung_for(
    command: Command, status: str, lease: timedelta | None, reason: str
) -> None:
    run = a_run(status, lease_until=None if lease is None else now() + lease)
    refused = command("resume", run.id)
    assert refused.exit_code == 1
    assert reason in refused.output


def test_a_sweep_says_what_it_found(site: Flask, command: Command) -> None:
    run_id = a_run("queued", age=timedelta(minutes=5)).id
    assert command("sweep").output == "Rang for 1 run, sent 1 refresh.\n"
    assert is_waiting(site.extensions["instruct"], reread(run_id))
    assert said(command("sweep", "--json")) == {"runs": 0, "broadcasts": 0}


def test_prune_says_how_many_and_first_only_counts(command: Command) -> None:
    a_run(age=timedelta(days=40))
    kept = a_run(age=timedelta(days=1)).id
    assert command("prune", "--older-than", "30d", "--dry-run").output == (
        "Would delete 1 run and 2 broadcasts older than 30d.\n"
    )
    assert said(command("prune", "--older-than", "30d", "--json")) == {"runs": 1, "broadcasts": 2, "dry_run": False}
    db.session.remove()
    assert list(db.session.scalars(sa.select(Run.id))) == [kept]
    assert command("prune", "--older-than", "soon").exit_code == 2


def test_a_shell_publishes_to_open_pages(site: Flask, command: Command) -> None:
    bus = instruct_of_site.bus
    since = Position.parse(bus.now())
    position = command("publish", "Note/1", "<turbo-stream>1</turbo-stream>").output.strip()
    piped = site.test_cli_runner().invoke(instruct, ["publish", "Note/1"], input="<turbo-stream>é</turbo-stream>\n")
    assert piped.exit_code == 0
    entries = bus.replay("Note/1", since).entries
    assert [entry.html.strip() for entry in entries] == [
        "<turbo-stream>1</turbo-stream>",
        "<turbo-stream>é</turbo-stream>",
    ]
    assert [str(entry.position) for entry in entries] == [position, piped.output.strip()]


def test_a_shell_is_told_what_is_too_large(command: Command) -> None:
    result = command("publish", "news", "x" * 1_048_577)
    assert result.exit_code == 1
    assert result.output.startswith("Error: The broadcast to news has 1048577 bytes")


def test_the_bus_of_the_app_sends_at_once_whatever_becomes_of_the_session(site: Flask) -> None:
    since = Position.parse(instruct_of_site.bus.now())
    position = instruct_of_site.bus.publish("news", "1")
    db.session.rollback()
    assert [str(entry.position) for entry in instruct_of_site.bus.replay("news", since).entries] == [position]


def test_without_redis_commands_say_so_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str, free_port: int
) -> None:
    address = f"redis://127.0.0.1:{free_port}/0"
    with notebook_site(monkeypatch, DATABASE_URL=sqlite_url, INSTRUCT_REDIS_URL=address) as app:
        run_id = a_run("queued").id
        for arguments in (["sweep"], ["resume", run_id], ["publish", "news", "1"]):
            result = app.test_cli_runner().invoke(instruct, arguments)
            assert result.exit_code == 1
            assert "Error: Redis could not be used (ConnectionError): flask instruct doctor" in result.output


def test_an_app_without_tables_is_told_so(site: Flask, command: Command) -> None:
    db.session.remove()
    Outbox.metadata.drop_all(db.engine)
    result = command("runs")
    assert result.exit_code == 1
    assert "Error: The database could not be used" in result.output


def test_an_app_that_does_not_use_the_package_is_told_so() -> None:
    result = Flask("bare").test_cli_runner().invoke(instruct, ["runs"])
    assert result.exit_code == 1
    assert "does not use Flask-Instruct: call instruct.init_app(app)." in result.output
