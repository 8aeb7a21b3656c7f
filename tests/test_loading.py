"""A database driver that is not installed: every command says so in a sentence with the line for pip."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result
from flask import Flask
from flask.cli import ScriptInfo
from flask_sqlalchemy import SQLAlchemy

from flask_instruct import Instruct
from flask_instruct.cli import instruct as commands
from flask_instruct.loading import lack_of_driver
from tests.runs.test_recording import a_file

ARGUMENTS = {
    "show": ["1"],
    "retry": ["1"],
    "cancel": ["1"],
    "resume": ["1"],
    "export": ["1"],
    "prune": ["--older-than", "1d"],
    "replay": ["-"],
}
"""What a command needs to begin at all."""

WITHOUT_DATABASE = {"publish"}

MODULE = """
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = "postgresql+psycopg://somebody@localhost/site"
SQLAlchemy().init_app(app)
"""


@pytest.fixture
def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without psycopg."""
    # The command dev sets it for its children; here it is set back.
    monkeypatch.setenv("INSTRUCT_EMBEDDED", "1")
    monkeypatch.setitem(sys.modules, "psycopg", None)


@pytest.fixture
def recorded() -> bytes:
    return json.dumps(a_file()).encode()


def app_on(url: str) -> Callable[[], Flask]:
    def create_app() -> Flask:
        app = Flask(__name__)
        app.config.update(SECRET_KEY="a long random text for tests", SQLALCHEMY_DATABASE_URI=url)
        db = SQLAlchemy()
        db.init_app(app)
        Instruct().init_app(app, db)
        return app

    return create_app


def typed(command: str, script: ScriptInfo, *arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(commands, [command, *ARGUMENTS.get(command, ()), *arguments], obj=script, input=stdin)


@pytest.mark.parametrize("command", sorted(set(commands.commands) - WITHOUT_DATABASE))
def test_each_command_says_what_to_install(command: str, without_driver: None, recorded: bytes) -> None:
    script = ScriptInfo(create_app=app_on("postgresql+psycopg://somebody:secret@localhost/site"))
    result = typed(command, script, stdin=recorded)
    assert result.exit_code == (2 if command == "replay" else 1)
    assert "The database driver psycopg cannot be loaded" in result.output
    assert "pip install 'psycopg[binary]'" in result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert "secret" not in result.output


@pytest.mark.parametrize("command", ["runs", "worker", "doctor", "tools"])
def test_an_app_that_is_made_as_its_module_is_imported_says_so_too(
    command: str, without_driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_at_import.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = typed(command, ScriptInfo("made_at_import"))
    assert result.exit_code == 1
    assert "pip install 'psycopg[binary]'" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql+pymysql://localhost/site", "pip install pymysql"),
        ("oracle://localhost", "pip install oracledb"),
        ("postgres://localhost/site", "it must begin as sqlite:/// or postgresql+psycopg:// do"),
    ],
)
def test_other_databases_are_told_apart(url: str, said: str) -> None:
    result = typed("runs", ScriptInfo(create_app=app_on(url)))
    assert (result.exit_code, said in result.output, "Traceback" in result.output) == (1, True, False)


def test_a_database_to_begin_a_replay_from_may_need_a_driver_as_well(
    without_driver: None, recorded: bytes, tmp_path: Path
) -> None:
    script = ScriptInfo(create_app=app_on(f"sqlite:///{tmp_path / 'site.sqlite3'}"))
    result = typed("replay", script, "--database", "postgresql+psycopg://localhost/site", stdin=recorded)
    assert (result.exit_code, "pip install 'psycopg[binary]'" in result.output) == (2, True)


def test_another_package_that_is_missing_is_not_taken_for_a_driver() -> None:
    def create_app() -> Flask:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    with pytest.raises(ModuleNotFoundError) as raised:
        ScriptInfo(create_app=create_app).load_app()
    assert lack_of_driver(raised.value) is None
    assert isinstance(typed("runs", ScriptInfo(create_app=create_app)).exception, ModuleNotFoundError)
