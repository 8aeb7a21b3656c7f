"""What tools and models do that they should not: it costs the call that did it, and neither the run nor the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import ai_tool
from flask_instruct.adapters.base import Model as Found
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Let = Callable[..., Run]

THINK = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT count(*) FROM n"


class Pin(db.Model):  # type: ignore[name-defined,misc]
    """A row whose foreign key is looked at only at the commit."""

    id: Mapped[int] = mapped_column(primary_key=True)
    notebook_id: Mapped[int] = mapped_column(sa.ForeignKey("notebook.id", deferrable=True, initially="DEFERRED"))


class Rogue(NoteKeeper, record=Notebook):
    """Tools that do what no tool should."""

    @ai_tool
    def end_transaction(self, how: str) -> str:
        """End the transaction of the connection, past the session."""
        self._add("never")
        db.session.flush()
        WAYS[how]()
        return "Ended."

    @ai_tool(timeout=0.3)
    def think(self) -> str:
        """Write a note, and keep the database busy."""
        self._add("never")
        db.session.flush()
        if db.engine.dialect.name == "postgresql":
            db.session.execute(sa.text("SELECT pg_sleep(60)"))
        for _ in range(100):
            db.session.execute(sa.text(THINK.format(100_000)))
        return "Thought."

    @ai_tool
    def pin(self) -> str:
        """Write a note, and a row that refers to nothing."""
        self._add("never")
        db.session.add(Pin(notebook_id=4711))
        return "Pinned."

    @ai_tool
    def leave(self, how: str) -> str:
        """Write a note and end the process, or so it seems."""
        self._add("never")
        db.session.commit()
        raise LEAVING[how]

    @ai_tool
    def write_half(self) -> str:
        """Write text that no database encodes."""
        self._add("half \ud83d")
        return "Wrote it."

    @ai_tool
    def call_out(self) -> str:
        """Write a note, and broadcast to a stream of a very long name."""
        self._add("called")
        self.broadcast_update_to("x" * 3000, target="list", html="called")
        return "Called."

    @ai_tool
    def lose_lease(self) -> str:
        """Write a note while another worker takes the run."""
        self._add("never")
        db.session.commit()
        assert self.call is not None
        with db.engine.begin() as other:
            other.execute(sa.update(Run).where(Run.id == self.call.run_id).values(attempt=Run.attempt + 1))
        return "Wrote it."

    @ai_tool
    def ask_for_more(self) -> str:
        """Start another run, and fail."""
        instruct.generate_for(self, user_prompt="More.", model="scripted:talk")
        raise ValueError


def swallow() -> None:
    try:
        db.session.connection().commit()
    except Exception:
        return


WAYS: dict[str, Callable[[], object]] = {
    "commit": lambda: db.session.connection().commit(),
    "roll back": lambda: db.session.connection().rollback(),
    "commit in SQL": lambda: db.session.execute(sa.text(" commit")),
    "roll back in SQL": lambda: db.session.execute(sa.text("ROLLBACK")),
    "swallow the refusal": swallow,
}
LEAVING = {"exit": SystemExit(1), "close": GeneratorExit(), "cancel": asyncio.CancelledError()}


class Model:
    """A model that makes the calls it is told, under ids of its own, and then ends."""

    name = "model"

    def __init__(self, *turns: list[ToolCall]) -> None:
        self.turns = turns
        self.heard: list[Message] = []
        self.raw = "stop"

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        number = sum(message.role == "assistant" for message in request.messages)
        self.heard = list(request.messages)
        calls = self.turns[number] if number < len(self.turns) else []
        yield Finish("tool_calls" if calls else "stop", self.raw, Message("assistant", (Text("So."), *calls)))


@pytest.fixture
def let(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Let:
    """Let a model, or one that calls one tool, work on the notebook; give the run as it stands then."""

    def let(model: Model | str, arguments: str = "{}") -> Run:
        if isinstance(model, str):
            model = Model([ToolCall("call_1", model, arguments), ToolCall("call_2", "write", '{"text": "after"}')])
        monkeypatch.setattr("flask_instruct.talk.resolve", lambda *_: Found(model, "model", "model"))
        run = instruct.generate_for(Rogue(db.session.scalars(sa.select(Notebook)).one()), user_prompt="Go.")
        db.session.refresh(run)
        db.session.expunge(run)
        generate(run.id)
        return reread(run)

    return let


def ended(run: Run) -> list[tuple[str, str | None]]:
    assert run.status == "succeeded", run.error_technical
    return [(call.status, call.error_kind) for call in run.calls]


def busy_with(statement: str) -> int:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = :query AND state = 'active'"
    with db.engine.connect() as connection:
        return len(connection.execute(sa.text(query), {"query": f"SELECT {statement}"}).all())


@pytest.mark.parametrize("how", WAYS)
def test_g1_a_tool_cannot_tear_its_edits_from_its_result(let: Let, how: str) -> None:
    run = let("end_transaction", f'{{"how": "{how}"}}')
    assert [status for status, _ in ended(run)] == ["failed", "done"]
    assert [text for text in notes() if "error in" not in text] == ["after", "finished: stop"]


def test_a_rollback_to_a_savepoint_is_not_the_end_of_the_transaction(let: Let, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested() -> None:
        for command in ("SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine", "ROLLBACK TRANSACTION TO mine", "RELEASE mine"):
            db.session.execute(sa.text(command))

    monkeypatch.setitem(WAYS, "nest", nested)
    assert ended(let("end_transaction", '{"how": "nest"}')) == [("done", None), ("done", None)]


def test_a_timeout_that_strikes_inside_a_statement_is_a_timeout(let: Let) -> None:
    run = let("think")
    assert ended(run) == [("failed", "timeout"), ("done", None)]
    assert notes() == ["error in think: ToolTimeout", "after", "finished: stop"]


def test_a_statement_that_took_too_long_is_stopped_and_holds_no_lock(let: Let) -> None:
    let("think")
    if db.engine.dialect.name == "postgresql":
        wait_for(lambda: not busy_with("pg_sleep(60)"), message="the server to stop the statement")
    with db.engine.begin() as connection:
        connection.execute(sa.update(Notebook).values(title="Free"))


def test_a_rule_that_the_database_checks_at_the_commit_fails_the_call_and_not_the_run(app: Flask, let: Let) -> None:
    if db.engine.dialect.name == "sqlite":
        sa.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    run = let("pin")
    assert ended(run) == [("failed", "tool_error"), ("done", None)]
    assert "a rule of its data would be broken" in (run.calls[0].result or "")
    assert notes() == ["error in pin: IntegrityError", "after", "finished: stop"]


@pytest.mark.parametrize("how", LEAVING)
def test_a_tool_that_would_end_its_worker_has_failed(let: Let, how: str) -> None:
    assert ended(let("leave", f'{{"how": "{how}"}}')) == [("failed", "exception"), ("done", None)]
    assert "never" not in notes()


def test_an_edit_that_the_driver_refuses_is_the_tools_failure(let: Let) -> None:
    assert ended(let("write_half")) == [("failed", "exception"), ("done", None)]


def test_a_stream_may_have_a_long_name(let: Let) -> None:
    assert ended(let("call_out")) == [("done", None), ("done", None)]
    assert db.session.scalar(sa.select(sa.func.max(sa.func.length(Outbox.stream)))) == 3000


def test_g4_a_tool_whose_run_was_taken_commits_nothing(let: Let) -> None:
    run = let("lose_lease")
    if db.engine.dialect.name == "sqlite":  # the tool holds the write lock: nobody can take the run
        assert ended(run) == [("failed", "exception"), ("done", None)]
        return
    assert (run.status, run.attempt) == ("running", 2)
    assert [call.status for call in run.calls] == ["running", "waiting"]
    assert notes() == []


def test_a_run_that_a_failing_tool_started_is_none(let: Let) -> None:
    assert ended(let("ask_for_more")) == [("failed", "exception"), ("done", None)]
    assert db.session.scalar(sa.select(sa.func.count()).select_from(Run)) == 1


@pytest.mark.parametrize("call_id", ["x" * 3000, "nul \x00", "half \ud83d", "line\nbreak"])
def test_a_providers_id_may_be_anything_and_comes_back_as_it_was(let: Let, call_id: str) -> None:
    model = Model([ToolCall(call_id, "write", '{"text": "a"}'), ToolCall("b", "write", '{"text": "b"}')])
    assert ended(let(model)) == [("done", None), ("done", None)]
    assert [result.call_id for message in model.heard for result in message.results] == [call_id, "b"]


def test_ids_that_come_again_in_a_later_round_pair_with_their_own_calls(let: Let) -> None:
    def calls(*texts: str) -> list[ToolCall]:
        return [ToolCall(f"call_{place}", "write", f'{{"text": "{text}"}}') for place, text in enumerate(texts)]

    model = Model(calls("a", "b"), list(reversed(calls("c", "d"))))
    run = let(model)
    assert [call.result for call in run.calls] == ["Wrote a.", "Wrote b.", "Wrote d.", "Wrote c."]
    told = [[result.content for result in message.results] for message in model.heard if message.role == "tool"]
    assert told == [["Wrote a.", "Wrote b."], ["Wrote d.", "Wrote c."]]


@pytest.mark.parametrize("name", ["x" * 3000, "nul \x00", "half \ud83d", "__class__"])
def test_a_made_up_tool_name_is_an_answer_whatever_is_in_it(let: Let, name: str) -> None:
    assert ended(let(Model([ToolCall("a", name)]))) == [("failed", "unknown_tool")]


def test_a_providers_own_words_may_be_anything(let: Let) -> None:
    model = Model()
    model.raw = "nul \x00 half \ud83d" + "x" * 3000
    run = let(model)
    assert ended(run) == []
    assert len(run.messages[0].finish_raw or "") == 200


def test_what_the_ledger_cannot_hold_ends_the_run_and_is_not_tried_again(let: Let) -> None:
    opaque: dict[str, Any] = {"signature": float("nan")}  # PostgreSQL's JSON has no such number
    run = let(Model([ToolCall("a", "write", '{"text": "a"}', opaque)]))
    assert run.status == ("succeeded" if db.engine.dialect.name == "sqlite" else "failed")
