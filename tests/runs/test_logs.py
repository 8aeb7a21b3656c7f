"""Each log line of a run names it, and none holds what people wrote."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.runs.job import generate
from flask_instruct.runs.logs import naming
from flask_instruct.runs.models import Run

from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

SECRET = "the treasure lies under the oak"
logger = logging.getLogger("flask_instruct")

TROUBLES: dict[str, list[list[object]]] = {
    "a tool that raises": [[Use("commit_then_raise", text="a")], [Say("Done.")]],
    "a tool that refuses": [[Use("flush_then_refuse", text="a")], [Say("Done.")]],
    "a tool that takes too long": [[Use("dawdle", text="a")], [Say("Done.")]],
    "a flush that fails": [[Use("duplicate", text=SECRET)], [Say("Done.")]],
    "an unknown tool": [[Use("wander", text="a")], [Say("Done.")]],
    "a session that is gone": [[Use("remove_session", text="a")], [Say("Done.")]],
    "a provider that fails": [[Fail("overloaded", f"refused: {SECRET}")], [Say("Done.")]],
    "a provider that says no": [[Fail("bad_request", f"refused: {SECRET}")]],
    "an answer that is cut": [[Say("Far too lo"), Stop("length")]],
    "an empty answer": [[], [], [], []],
}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """All lines at INFO and above so far, tracebacks included."""
    caplog.set_level(logging.INFO)
    formatter = logging.Formatter()
    return lambda: [formatter.format(record) for record in caplog.records]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_line_of_a_run_names_it_and_never_quotes_the_prompt(
    app: Flask,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lines: Callable[[], list[str]],
    trouble: str,
) -> None:
    state = app.extensions["instruct"]
    object.__setattr__(state.config, "retries", 1)
    monkeypatch.setattr("flask_instruct.attempts.FIRST_WAIT", {"overloaded": 0.0, "empty": 0.0})
    register_script("trouble", TROUBLES[trouble])
    keeper = NoteKeeper(db.session.scalars(sa.select(Notebook)).one())
    run = instruct.generate_for(
        keeper,
        user_prompt=f"Write that {SECRET}.",
        system_prompt=SECRET,
        context={"x": SECRET},
        model="scripted:trouble",
    )
    run_id = run.id
    generate(run_id)
    generate(run_id)  # It has ended, which is a line as well.
    ours = [record for record in caplog.records if record.name == "flask_instruct"]
    assert ours
    assert [record.getMessage() for record in ours if run_id not in record.getMessage()] == []
    assert {getattr(record, "run_id", None) for record in ours} == {run_id}
    assert [line for line in lines() if SECRET in line] == []


def test_a_failed_statement_of_the_ledger_is_logged_without_its_parameters(
    app: Flask, lines: Callable[[], list[str]]
) -> None:
    with naming("r-1"):
        fail_to_write()
    assert "parameters hidden" in lines()[-2]
    assert "parameters hidden" in lines()[-1]
    assert not [line for line in lines() if SECRET in line]


def test_at_level_debug_the_parameters_are_logged(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flask_instruct")
    with naming("r-1"):
        fail_to_write()
    assert SECRET in caplog.text


def fail_to_write() -> None:
    """Log a statement that failed and held a prompt: as an argument, and as the cause of what is logged."""
    with suppress(RuntimeError):
        try:
            values = {"id": None, "handler": "x", "handler_name": "x", "user_prompt": SECRET}
            with db.engine.begin() as connection:
                connection.execute(sa.insert(Run.__table__), values)
        except sa.exc.IntegrityError as error:
            logger.warning("It could not be written: %s", error)
            try:
                raise RuntimeError("A step failed") from error
            except RuntimeError:
                logger.exception("The run broke off")
                raise


def test_a_pattern_stays_one_and_lines_outside_of_a_run_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    with naming("r-1"):
        logger.warning("Tool %s failed", "write")
        logger.warning("100% sure")
        logger.warning("Run %s is named", "r-1")
        logger.warning("By %(name)s", {"name": "name"})
    logger.warning("Outside of %s", "it")
    assert [record.getMessage() for record in caplog.records] == [
        "Run r-1: Tool write failed",
        "Run r-1: 100% sure",
        "Run r-1 is named",
        "Run r-1: By name",
        "Outside of it",
    ]
    assert caplog.records[0].msg == "Run %s: Tool %s failed"
    assert [getattr(record, "run_id", None) for record in caplog.records] == ["r-1"] * 4 + ["-"]


def test_one_format_serves_lines_of_a_run_and_lines_outside_of_any(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logger.info("Swept: %d runs rung for", 2)
    logger.warning("Run %s waits", "r-2", extra={"run_id": "r-2"})
    with naming("r-3"):
        logger.info("Claimed")
    formatter = logging.Formatter("run=%(run_id)s %(message)s")
    assert [formatter.format(record) for record in caplog.records] == [
        "run=- Swept: 2 runs rung for",
        "run=r-2 Run r-2 waits",
        "run=r-3 Run r-3: Claimed",
    ]


def test_an_app_has_it_before_its_first_run() -> None:
    code = (
        "import logging, sys\n"
        "from flask import Flask\nfrom flask_sqlalchemy import SQLAlchemy\nfrom flask_instruct import Instruct\n"
        "logging.basicConfig(format='%(levelname)s run=%(run_id)s %(message)s', stream=sys.stdout)\n"
        "app = Flask('x')\n"
        "app.config.update(SECRET_KEY='x' * 30, SQLALCHEMY_DATABASE_URI='sqlite:///x.db')\n"
        "db = SQLAlchemy(app)\nInstruct(app, db)\n"
        "logging.getLogger('flask_instruct').warning('Ready')\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("WARNING run=- Ready\n", "")
