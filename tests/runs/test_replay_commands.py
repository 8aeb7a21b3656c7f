"""``flask instruct export`` and ``flask instruct replay``, and the fixture of pytest, as real commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import Result
from flask import Flask

from flask_instruct.cli import instruct
from flask_instruct.runs.models import Run

from .conftest import ROOT
from .conftest import notes
from .notebook import Note
from .notebook import Notebook
from .notebook import db

CarryOut = Callable[..., Run]
Command = Callable[..., Result]

SEEDED = """
from tests.runs.notebook import Notebook
from tests.runs.notebook import db


def notebook():
    db.session.add(Notebook(title="Field notes"))


def nothing():
    pass


def wrong():
    raise KeyError("which")
"""


@pytest.fixture
def command(app: Flask) -> Command:
    """Run ``flask instruct …`` in this process."""
    return lambda *arguments, **options: app.test_cli_runner().invoke(instruct, arguments, **options)


@pytest.fixture
def exported(command: Command, carry_out: CarryOut, tmp_path: Path) -> Path:
    """The file of a run of two tools."""
    result = command("export", carry_out(script="write_two").id)
    assert result.exit_code == 0, result.output
    path = tmp_path / "run.json"
    path.write_text(result.stdout)
    return path


def typed(folder: Path, *arguments: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Type ``flask instruct …`` for the notebook app."""
    command = [sys.executable, "-m", "flask", "--app", "tests.runs.notebook", "instruct", *arguments]
    path = os.pathsep.join([str(ROOT), str(folder)])
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **env},
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_is_exported_and_replayed_from_the_command_line(
    settings: dict[str, str], app: Flask, carry_out: CarryOut, tmp_path: Path
) -> None:
    file, before = Path(str(db.engine.url.database)), tmp_path / "before.sqlite3"
    db.session.remove()
    shutil.copy(file, before)
    run_id = carry_out(script="write_two").id
    db.session.remove()
    exported = typed(tmp_path, "export", run_id[:13])
    assert exported.returncode == 0, exported.stderr
    (tmp_path / "run.json").write_text(exported.stdout)

    # No Redis is there, and none is needed.
    away = {"INSTRUCT_REDIS_URL": "redis://127.0.0.1:1"}
    same = typed(tmp_path, "replay", "-", "--database", f"sqlite:///{before}", stdin=exported.stdout, **away)
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.splitlines() == [
        f"Run {run_id} of instruct://NoteKeeper/1 (succeeded): 2 model turns, 2 calls.",
        "The replay is the same.",
    ]
    after = typed(tmp_path, "replay", str(tmp_path / "run.json"), "--json", **away)
    assert after.returncode == 1, after.stderr
    assert "has happened in the database that is copied" in after.stderr
    told = json.loads(after.stdout)
    assert (told["run"], told["same"]) == (run_id, False)
    assert "call 1 (write): status" in [one["where"] for one in told["differences"]]

    assert notes() == ["a", "b", "finished: stop"]
    assert list(db.session.scalars(sa.select(Run.id))) == [run_id]
    with sa.create_engine(f"sqlite:///{before}", poolclass=sa.NullPool).connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM note")) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_empty_tables_are_filled_by_a_function(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "seeds.py").write_text(SEEDED)
    assert typed(tmp_path, "replay", str(exported), "--seed", "seeds:notebook").returncode == 0
    gone = typed(tmp_path, "replay", str(exported), "--seed", "seeds:nothing")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "Add it as it was before the run, with the key 1" in gone.stderr
    wrong = typed(tmp_path, "replay", str(exported), "--seed", "seeds:wrong")
    assert wrong.returncode == 2
    assert "could not be filled, KeyError: 'which'" in wrong.stderr


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_begun_from_is_refused_with_status_2(command: Command, exported: Path) -> None:
    refused = {
        ("--database", "sqlite:////nowhere/at/all.sqlite3"): "There is no database in the file",
        ("--database", "mysql://localhost/x"): "--database must be",
        ("--database", "no url"): "--database must be",
        ("--seed", "seeds"): "MODULE:FUNCTION",
        ("--seed", "no_such_module:f"): "could not be found",
        ("--seed", "a:b", "--database", "c"): "exclude each other",
    }
    for arguments, words in refused.items():
        result = command("replay", str(exported), *arguments)
        assert (result.exit_code, words in result.output) == (2, True), result.output


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_file_that_is_no_run_has_status_2_and_a_run_under_way_is_not_exported(
    command: Command, ask: CarryOut, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text('{"format": "something else"}')
    result = command("replay", str(tmp_path / "run.json"))
    assert (result.exit_code, "This is no exported run" in result.output) == (2, True)
    result = command("export", ask("talk").id)
    assert (result.exit_code, "is queued" in result.output) == (1, True)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_app_whose_code_fails_is_no_difference(
    command: Command, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("flask_instruct.runs.replay._run_again", fail)
    assert command("replay", str(exported)).exit_code == 2


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_a_model_wrote_cannot_steer_the_terminal(command: Command, exported: Path) -> None:
    data = json.loads(exported.read_text())
    data["calls"][0]["result"] = "Wrote \x1b[2J\x9b2J"
    exported.write_text(json.dumps(data))
    output = command("replay", str(exported)).output
    assert "Wrote \\x1b[2J\\x9b2J" in output
    assert not [character for character in output if not character.isprintable() and character != "\n"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_postgresql_database_is_copied_when_it_is_named_and_nobody_is_connected(
    command: Command, exported: Path
) -> None:
    assert notes() == ["a", "b", "finished: stop"]
    db.session.execute(sa.delete(Note))
    db.session.commit()
    url = db.engine.url.render_as_string(hide_password=False)
    result = command("replay", str(exported))
    assert (result.exit_code, "--database URL" in result.output) == (2, True)
    with sa.create_engine(url, poolclass=sa.NullPool).connect():
        result = command("replay", str(exported), "--database", url)
        assert (result.exit_code, "somebody is connected" in result.output) == (2, True)
    db.session.remove()
    result = command("replay", str(exported), "--database", url)
    assert result.exit_code == 0, result.output
    assert notes() == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_run_of_postgresql_is_replayed_on_sqlite(command: Command, exported: Path, tmp_path: Path) -> None:
    fresh = sa.create_engine(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    # All of the app's, whichever other tests have added to it.
    own = [table for table in db.metadata.sorted_tables if not table.name.startswith("instruct_")]
    db.metadata.create_all(fresh, tables=own)
    with fresh.begin() as connection:
        connection.execute(sa.insert(Notebook).values(title="Field notes"))
    fresh.dispose()
    result = command("replay", str(exported), "--database", str(fresh.url))
    assert result.exit_code == 0, result.output


IN_MEMORY = """
import pytest
import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct
from flask_instruct import ai_tool

db = SQLAlchemy()
instruct = Instruct(db=db)
seen = []


class Notebook(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    title = db.Column(db.String(100))


class Note(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    notebook_id = db.Column(db.ForeignKey("notebook.id"))
    text = db.Column(db.String(100))


class NoteKeeper(AiResponseHandler, record=Notebook):
    @ai_tool
    def write(self, text: str) -> str:
        \"\"\"Write a note.\"\"\"
        seen.append(db.session.scalar(sa.text("PRAGMA foreign_keys")))
        db.session.add(Note(notebook_id=self.record.id, text=text + ENDING))
        self.broadcast_append("notes", html=text)
        return f"Wrote {text}."

    def handle_ai_finish(self, reason):
        db.session.add(Note(notebook_id=self.record.id, text="finished: stop"))


ENDING = ""


@pytest.fixture
def app():
    app = Flask(__name__)
    app.config.update(SECRET_KEY="only for tests", SQLALCHEMY_DATABASE_URI="sqlite://")
    db.init_app(app)
    instruct.init_app(app)
    with app.app_context():
        sa.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = on"))
        db.create_all()
        db.session.add(Notebook(title="Field notes"))
        db.session.commit()
    return app


def test_the_run_is_the_same(app, instruct_replay):
    instruct_replay(app, "run.json").assert_same()
    assert seen == [1, 1]
    with app.app_context():
        assert [note.text for note in db.session.scalars(sa.select(Note))] == ["a", "b", "finished: stop"]


def test_the_run_is_different(app, instruct_replay, monkeypatch):
    monkeypatch.setitem(globals(), "ENDING", "!")
    with app.app_context():
        instruct_replay(app, "run.json").assert_same()
"""


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_fixture_replays_in_an_app_with_a_database_in_memory(exported: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    shutil.copy(exported, suite)
    (suite / "conftest.py").write_text('pytest_plugins = ["flask_instruct.testing"]\n')
    (suite / "test_runs.py").write_text(IN_MEMORY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", "-p", "no:cacheprovider", "-W", "error", "."]
    env = {key: value for key, value in os.environ.items() if not key.startswith("INSTRUCT_")}
    tested = subprocess.run(command, capture_output=True, text=True, check=False, cwd=suite, env=env)
    assert "1 failed, 1 passed" in tested.stdout, tested.stdout + tested.stderr
    assert re.search(r"^E +row 1 of note: text\nE +expected  a\nE +got       a!$", tested.stdout, re.MULTILINE)
    # The failure is told where the test is, not somewhere in the package.
    assert "flask_instruct/runs/replay.py" not in tested.stdout
