"""Replay: an exported run is run again beside the app's data, and every difference is named."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import current_app

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import RunEnded
from flask_instruct.errors import Stopped
from flask_instruct.errors import ToolError
from flask_instruct.limits import Limits
from flask_instruct.messages import ModelRequest
from flask_instruct.runs import points
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.file_format import CannotReplay
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Run
from flask_instruct.runs.playing import Playback
from flask_instruct.runs.recording import Recording
from flask_instruct.runs.recording import export
from flask_instruct.runs.replay import Replayed
from flask_instruct.runs.replay import replay
from flask_instruct.runs.scratch import scratch_copy
from flask_instruct.runs.watch import RunTimeout
from flask_instruct.runs.watch import Watch
from flask_instruct.testing import InstructReplay

from .conftest import notes
from .conftest import reread
from .letters import Correspondent
from .letters import sent
from .notebook import ChiefKeeper
from .notebook import Note
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import Planner
from .notebook import db
from .notebook import instruct

CarryOut = Callable[..., Run]
Again = Callable[..., Replayed]


@pytest.fixture
def again(app: Flask, tmp_path: Path) -> Iterator[Again]:
    """Export a run, take back what it wrote, and replay it: ``again(run)``; another way: ``again(run, prepare=…)``."""
    replays = InstructReplay(tmp_path)

    def again(run: Run, prepare: Callable[[], object] = lambda: None, tables: tuple[str, ...] = ()) -> Replayed:
        recording = export(app.extensions["instruct"], reread(run), tables=tables)
        (tmp_path / "run.json").write_text(recording.to_json())
        db.session.execute(sa.delete(Note))
        prepare()
        db.session.commit()
        return replays(app, "run.json")

    yield again
    replays.close()


def where(replayed: Replayed) -> list[str]:
    return [difference.where for difference in replayed.differences]


# -- the same ----------------------------------------------------------------------------------------------------------


def test_a_run_of_two_tools_comes_out_the_same(
    carry_out: CarryOut, again: Again, caplog: pytest.LogCaptureFixture
) -> None:
    run = carry_out(script="write_two")
    caplog.clear()
    replayed = again(run)
    replayed.assert_same()
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert replayed.notes == ()
    assert [call["result"] for call in replayed.replayed.calls] == ["Wrote a.", "Wrote b."]
    own = [row["html"] for row in replayed.replayed.broadcasts if row["stream"] == "Notebook/1"]
    assert [html.partition("<template>")[2].partition("<")[0] for html in own] == ["a", "b"]
    assert [row["text"] for row in (replayed.replayed.rows or {})["note"]] == ["a", "b", "finished: stop"]


def test_a_replay_leaves_the_database_alone_and_the_test_sees_the_copy(
    app: Flask, carry_out: CarryOut, tmp_path: Path
) -> None:
    run = carry_out(script="write_two")
    run_id = run.id
    (tmp_path / "run.json").write_text(export(app.extensions["instruct"], run).to_json())
    db.session.execute(sa.delete(Note))
    db.session.commit()
    replays = InstructReplay(tmp_path)
    replays(app, "run.json").assert_same()
    assert notes() == [note.text for note in db.session.scalars(sa.select(Note))] == ["a", "b", "finished: stop"]
    replays(app, "run.json").assert_same()
    replays.close()
    assert notes() == []
    assert list(db.session.scalars(sa.select(Run.id))) == [run_id]


def test_a_database_that_was_copied_for_a_replay_is_thrown_away(app: Flask, carry_out: CarryOut, again: Again) -> None:
    again(carry_out(script="write_two"))
    copy = db.engine.url
    assert copy.database != app.config["SQLALCHEMY_DATABASE_URI"].rpartition("/")[2]
    there = _databases_like(copy)
    assert there
    again(carry_out(script="talk"))
    assert not _databases_like(copy)


def _databases_like(url: sa.URL) -> list[str]:
    if url.get_backend_name() == "sqlite":
        return [url.database] if url.database and Path(url.database).exists() else []
    server = sa.create_engine(url.set(database="postgres"))
    with server.connect() as connection:
        query = sa.text("SELECT datname FROM pg_database WHERE datname = :name")
        found = list(connection.scalars(query, {"name": url.database}))
    server.dispose()
    return found


ENDINGS: dict[str, tuple[list[list[Any]], str, str | None]] = {
    "a tool that fails": (
        [[Use("commit_then_raise", text="x"), Use("write", text="a")], [Say("Sorry.")]],
        "succeeded",
        None,
    ),
    "a tool that refuses": ([[Use("flush_then_refuse", text="x")], [Say("Sorry.")]], "succeeded", None),
    "wrong arguments": ([[Use("write", txt="a")], [Use("write", raw="no json")], [Say("Hm.")]], "succeeded", None),
    "a tool that is none": ([[Use("fly")], [Say("Hm.")]], "succeeded", None),
    "thoughts": (
        [[Think("Let me see."), Say("I "), Say("know."), Use("write", text="a")], [Say("Done.")]],
        "succeeded",
        None,
    ),
    "a provider that is busy": (
        [[Use("write", text="a")], [Say("Well, "), Fail("overloaded", "busy")]],
        "failed",
        "provider_overloaded",
    ),
    "a wrong request": ([[Fail("bad_request", "no")]], "failed", "provider_bad_request"),
    "an answer that is too long": ([[Say("Far too lo"), Stop("length")]], "failed", "length"),
    "a refusal of the model": ([[Say("No."), Stop("refusal")]], "failed", "refusal"),
    "a malformed answer": ([[Stop("malformed")]], "failed", "malformed"),
    "an empty answer": ([[]], "failed", "provider_empty"),
    "an empty end": ([[Use("write", text="a")], []], "succeeded", None),
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", ENDINGS)
def test_however_a_run_ended_it_comes_out_the_same(case: str, ask: CarryOut, again: Again) -> None:
    turns, status, error_class = ENDINGS[case]
    run = ask(turns=turns)
    generate(run.id)
    run = reread(run)
    assert (run.status, run.error_class) == (status, error_class)
    again(run).assert_same()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("script", "error_class"), [("missing", "configuration"), ("broken", "internal")])
def test_a_model_that_could_not_be_asked_ends_the_run_again(
    script: str, error_class: str, ask: CarryOut, again: Again
) -> None:
    register_script("broken", lambda request: [][0])
    run = ask(script)
    generate(run.id)
    assert (reread(run).status, reread(run).error_class) == ("failed", error_class)
    # The handler has noted the name of the exception, which only its text is left of.
    again(run).assert_same(ignore=["row 1 of note: text"] if script == "broken" else [])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(rounds=2), "rounds"),
        (Limits(tool_calls=1), "tool_calls"),
        (Limits(seconds=0), "seconds"),
        (Limits(tokens=1), "tokens"),
    ],
)
def test_a_limit_is_met_where_it_was(limits: Limits, name: str, ask: CarryOut, again: Again) -> None:
    run = ask(turns=[[Use("write", text="a"), Use("link")], [Use("link")], [Use("link")]], limits=limits)
    generate(run.id)
    assert (reread(run).status, reread(run).limit_reached) == ("limited", name)
    again(run).assert_same()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_limit_of_tokens_is_met_again_before_the_same_last_answer(
    ask: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.limits.OVERSHOOT", 10_000)
    run = ask(turns=[[Use("write", text="a")], [Say("So far.")]], limits=Limits(tokens=1))
    generate(run.id)
    assert [message.text for message in reread(run).messages] == ["", "So far."]
    again(run).assert_same()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_was_stopped_amid_a_word_stops_there_again(
    app: Flask, ask: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask(turns=[[Use("write", text="a")], [Say("One ", size=9), Wait(20), Say("two.")]])

    def stop(point: points.Point) -> None:
        if point == "text stored":
            with app.app_context():
                db.session.get_one(Run, run.id).cancel()

    with monkeypatch.context() as patch:
        patch.setattr(points, "_listeners", [stop])
        generate(run.id)
    assert (reread(run).status, reread(run).messages[-1].text) == ("cancelled", "One ")
    again(run).assert_same()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("error", [Stopped(), RunTimeout("too long")])
def test_a_call_that_was_never_begun_is_not_begun(
    error: BaseException, ask: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask(turns=[[Use("write", text="a"), Use("write", text="b")], [Say("Done.")]])
    with monkeypatch.context() as patch:
        _end_after_the_first_call(patch, error)
        generate(run.id)
    assert [call.error_kind for call in reread(run).calls] == [None, "interrupted"]
    again(run).assert_same()
    assert "b" not in notes()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_failed_and_was_started_again_is_played_as_it_came_out_in_the_end(
    ask: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask(turns=[[Use("write", text="a"), Use("write", text="b")], [Fail("bad_request", "no")]])
    with monkeypatch.context() as patch:
        _end_after_the_first_call(patch, RunTimeout("too long"))
        generate(run.id)
    instruct.retry(reread(run))
    generate(run.id)
    register_script("made", [[], [Say("Done.")]])
    instruct.retry(reread(run))
    generate(run.id)
    assert (reread(run).status, reread(run).attempt) == ("succeeded", 3)
    replayed = again(run)
    # What the handler heard of the failures in between wrote notes of its own.
    replayed.assert_same(ignore=["row"])
    assert any("taken up 3 times" in note for note in replayed.notes)
    assert any("provider_bad_request" in note for note in replayed.notes)


def _end_after_the_first_call(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    committed: list[str] = []
    look = Watch.checkpoint

    def checkpoint(watch: Watch) -> None:
        if committed:
            raise error
        look(watch)

    patch.setattr(points, "_listeners", [lambda point: committed.append(point) if point == "tool committed" else None])
    patch.setattr(Watch, "checkpoint", checkpoint)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_hears_what_was_said_before_in_its_conversation(
    app: Flask, carry_out: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[ModelRequest] = []

    def listen(request: ModelRequest) -> list[Any]:
        heard.append(request)
        return [Say("Heard.")]

    register_script("listener", listen)
    carry_out(Use("write", text="a"), Use("fly"), conversation="thread", context={"audience": "all"})
    run = carry_out(script="listener", conversation="thread", system_prompt="Be kind.")
    played = Playback.stream

    def overhear(playback: Playback, request: ModelRequest) -> Any:
        heard.append(request)
        return played(playback, request)

    monkeypatch.setattr(Playback, "stream", overhear)
    before = ["a", "finished: stop"]
    again(run, lambda: db.session.add_all(Note(notebook_id=1, text=text) for text in before)).assert_same()
    assert heard[0].messages == heard[1].messages
    assert len(heard[0].messages) > 4


# -- different ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_tool_that_was_changed_is_named(carry_out: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    run = carry_out(script="write_two")
    monkeypatch.setattr(NoteKeeper, "_add", lambda self, text: _add(self, text + "!" if text == "b" else text))
    replayed = again(run)
    assert where(replayed) == ["row 2 of note: text"]
    with pytest.raises(AssertionError, match=r"row 2 of note: text\n  expected  b\n  got       b!"):
        replayed.assert_same()
    replayed.assert_same(ignore=["row"])


def _add(handler: NoteKeeper, text: str) -> None:
    if text == "refuse":
        raise ToolError("Not today.")
    db.session.add(Note(notebook_id=handler.record.id, text=text))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_result_a_broadcast_and_a_row_that_differ_are_all_named(
    carry_out: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = carry_out(script="write_two")
    monkeypatch.setattr(NoteKeeper, "_add", lambda self, text: _add(self, "refuse" if text == "b" else text))
    assert where(again(run)) == [
        "call 2 (write): status",
        "call 2 (write): error_kind",
        "call 2 (write): result",
        "row 2 of note: text",
        "broadcast 2",
    ]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_tool_that_was_taken_away_is_named(
    carry_out: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = carry_out(script="write_two")
    tools = NoteKeeper.ai_tools
    monkeypatch.setattr(
        NoteKeeper, "ai_tools", lambda self: tuple(tool for tool in tools(self) if tool.identifier != "write")
    )
    replayed = again(run)
    assert "call 1 (write): error_kind" in where(replayed)
    text = "\n".join(replayed.lines())
    assert "unknown_tool" in text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_model_that_would_be_asked_once_more_is_a_difference(ask: CarryOut, again: Again) -> None:
    run = ask(turns=[[Use("write", text="a")], [Use("write", text="b")]], limits=Limits(rounds=2))
    generate(run.id)
    recording = export(_state(), reread(run))
    longer = json.loads(recording.to_json())
    longer["run"] |= {"limits": None, "limit_reached": None, "status": "succeeded"}
    longer["messages"] = longer["messages"][:1]
    longer["calls"] = longer["calls"][:1]
    replayed = _replayed(longer)
    assert where(replayed)[0] == "model"
    assert "one more was asked for" in replayed.differences[0].got


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_nothing_is_reached_over_a_network_and_an_attempt_is_named(
    carry_out: CarryOut, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*_: object) -> None:
        raise AssertionError("a socket was connected")

    run = carry_out(script="write_two")
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", connected)
        again(run).assert_same()
        assert socket.socket.connect is connected

    def reach_out(self: NoteKeeper, text: str) -> None:
        if text == "a":
            urllib.request.urlopen("http://127.0.0.1:9/a", timeout=5)
        else:
            socket.getaddrinfo("mail.example", 25)

    monkeypatch.setattr(NoteKeeper, "_add", reach_out)
    replayed = again(run)
    assert [one.got for one in replayed.differences if one.where == "network"] == [
        "something wanted to reach 127.0.0.1:9",
        "something wanted to reach mail.example:25",
    ]
    assert "call 1 (write): status" in where(replayed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


# -- effects -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def write(app: Flask, tmp_path: Path) -> CarryOut:
    """Carry out a run that writes letters to some."""

    def write(*to: str) -> Run:
        record = db.session.scalars(sa.select(Notebook)).one()
        asked = json.dumps([["write_letters", {"folder": str(tmp_path), "to": to}]])
        run = instruct.generate_for(Correspondent(record), user_prompt=asked, model="scripted:letters")
        generate(run.id)
        return reread(run)

    return write


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_effect_is_performed_and_each_ends_as_it_did(write: CarryOut, again: Again, tmp_path: Path) -> None:
    run = write("reader", "bouncer", "failure", "sleeper")
    before = sent(tmp_path)
    assert len(before) == 2
    replayed = again(run)
    replayed.assert_same()
    assert sent(tmp_path) == before
    assert [effect["status"] for effect in replayed.replayed.effects] == ["done", "failed", "failed", "unknown"]
    assert any("4 effects" in note for note in replayed.notes)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_a_person_decided_of_an_effect_later_was_not_told_to_the_model(write: CarryOut, again: Again) -> None:
    run = write("sleeper")
    db.session.execute(sa.update(Effect).values(status="done", error_class=None, error_safe=None))
    db.session.commit()
    replayed = again(run)
    replayed.assert_same()
    assert [effect["status"] for effect in replayed.recorded.effects] == ["done"]
    assert "unknown" in replayed.replayed.calls[0]["result"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_effect_that_is_new_is_a_difference_and_not_performed(
    write: CarryOut, again: Again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write("reader")
    before = sent(tmp_path)
    monkeypatch.setattr(Correspondent, "_add", lambda self, text: self.after_commit(self.send, str(tmp_path), "more"))
    replayed = again(run)
    assert "call 1, effect 2 (send)" in where(replayed)
    assert sent(tmp_path) == before


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_export_is_the_same_text_twice_and_holds_no_secret(
    app: Flask, carry_out: CarryOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    run = carry_out(script="write_two", attachments=[], actor="ada", tenant="acme")
    state = _state()
    text = export(state, run).to_json()
    assert text == export(state, reread(run)).to_json()
    assert not [secret for secret in ("sk-very-secret", app.config["SECRET_KEY"], state.redis_url()) if secret in text]
    assert json.loads(export(state, reread(run), tables=None).to_json())["rows"] is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_whole_tables_are_kept_and_compared_when_named(carry_out: CarryOut, again: Again) -> None:
    db.session.add(Notebook(title="Another"))
    db.session.commit()
    other = db.session.scalars(sa.select(Notebook).order_by(Notebook.id.desc())).first()
    assert other is not None
    db.session.add(Note(notebook_id=other.id, text="elsewhere"))
    db.session.commit()
    record = db.session.scalars(sa.select(Notebook)).first()
    assert record is not None
    run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="scripted:write_two")
    generate(run.id)
    replayed = again(run, tables=("note",))
    assert where(replayed) == ["row 1 of note"]
    assert replayed.differences[0].expected["text"] == "elsewhere"
    with pytest.raises(Exception, match="has no table 'nothing'"):
        export(_state(), reread(run), tables=["nothing"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_has_not_ended_is_not_exported(ask: CarryOut) -> None:
    with pytest.raises(RunEnded, match="is queued"):
        export(_state(), reread(ask("talk")))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"handler": "instruct://NoteKeeper/77"}, "with the key 77"),
        ({"handler": "instruct://Nobody/1"}, "no such handler"),
        ({"status": "failed", "error_class": "interrupted"}, "its workers died"),
    ],
)
def test_what_cannot_be_run_again_is_refused(change: dict[str, str], why: str, carry_out: CarryOut) -> None:
    data = json.loads(export(_state(), carry_out(script="talk")).to_json())
    data["run"] |= change
    with pytest.raises(CannotReplay, match=why):
        _replayed(data)


def _state() -> Any:
    return current_app.extensions["instruct"]


def _replayed(data: Any) -> Replayed:
    with scratch_copy(_state()):
        return replay(_state(), Recording.from_json(json.dumps(data)))


# -- what people had decided -------------------------------------------------------------------------------------------


def test_a_replay_decides_as_people_did(app: Flask, ask: Callable[..., Run], again: Again) -> None:
    turns = [
        [Use("publish", text="a"), Use("write", text="b"), Use("publish", text="c"), Use("announce", text="long one")],
        [Say("Done.")],
    ]
    run = ask(turns=turns, handler=ChiefKeeper)
    generate(run.id)
    first, second, third = [one.id for one in instruct.approvals()]
    instruct.reject(db.session.get_one(Approval, second), actor="lead", reason="No.")
    generate(run.id)
    instruct.approve(db.session.get_one(Approval, first), actor="chief", arguments={"text": "z", "copies": 2})
    instruct.approve(db.session.get_one(Approval, third), actor="lead")
    generate(run.id)
    assert reread(run).status == "succeeded"
    replayed = again(run)
    replayed.assert_same()
    assert [call["result"] for call in replayed.replayed.calls][1] == "Wrote b."
    assert {"z 1", "z 2", "b", "long one"} <= set(notes())


def test_a_replay_of_a_run_that_was_stopped_as_it_waited_waits_and_is_stopped(
    app: Flask, ask: Callable[..., Run], again: Again
) -> None:
    run = ask(turns=[[Use("publish", text="a"), Use("write", text="b")], []], handler=ChiefKeeper)
    generate(run.id)
    reread(run).cancel()
    again(run).assert_same()
    assert notes() == ["b"]


@pytest.mark.parametrize("preview", [False, True])
def test_a_replay_accepts_what_people_accepted(
    app: Flask, ask: Callable[..., Run], again: Again, preview: bool
) -> None:
    db.session.add_all([Note(notebook_id=1, text=text) for text in ("one", "two", "three")])
    db.session.commit()
    run = ask(turns=[[Use("rework", suffix="!")], [Say("Done.")]], handler=Planner, preview=preview)
    generate(run.id)
    instruct.approve(db.session.scalars(sa.select(Approval)).one(), actor="lead", chosen=[1, 2])
    generate(run.id)
    assert reread(run).status == "succeeded"

    def as_before() -> None:
        db.session.execute(sa.update(Notebook).values(title="Field notes"))
        db.session.add_all([Note(id=number, notebook_id=1, text=text) for number, text in NUMBERED.items()])

    again(run, prepare=as_before).assert_same()


NUMBERED = {1: "one", 2: "two", 3: "three"}


def test_an_undo_cannot_be_replayed(app: Flask, ask: Callable[..., Run], again: Again) -> None:
    run = ask(turns=[[Use("write", text="a")], []])
    generate(run.id)
    with pytest.raises(CannotReplay, match="is a person's undo"):
        again(instruct.undo(reread(run), actor="lead").run)
