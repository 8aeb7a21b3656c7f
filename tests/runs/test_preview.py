"""What would change is shown first, by doing it and rolling it back; what a person accepts is done, no more."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.errors import NotAllowed
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.change import Change
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from flask_instruct.runs.proposals import Proposal
from flask_instruct.runs.strays import KEPT
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .notebook import Note
from .notebook import Notebook
from .notebook import Planner
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


@pytest.fixture
def shown(app: Flask, ask: Ask) -> Callable[..., Run]:
    """Start a run of the planner's with these calls in its first turn, and carry it out as far as it goes."""

    def shown(*tools: Use, **options: Any) -> Run:
        db.session.add_all([Note(notebook_id=1, text=text) for text in ("one", "two", "three")])
        db.session.commit()
        run = ask(turns=[[*tools], [Say("Done.")]], handler=Planner, actor="author", **options)
        generate(run.id)
        return reread(run)

    return shown


def go_on(run: Run) -> Run:
    generate(sa.inspect(run).identity[0])
    return reread(run)


def only() -> Approval:
    return db.session.scalars(sa.select(Approval)).one()


def proposed() -> Proposal:
    found = only().proposal
    assert found is not None
    return Proposal.from_json(found)


def texts() -> dict[str | None, str | None]:
    """What the proposal makes of the texts of notes."""
    of_notes = [one for one in proposed().changes if one.table == "note"]
    return {(one.before or {}).get("text"): (one.after or {}).get("text") for one in of_notes}


def numbers(*wanted: str) -> list[int]:
    """The numbers of the changes that make or unmake these texts."""
    found = enumerate(proposed().changes, 1)
    return [number for number, one in found if any(text in str((one.before, one.after)) for text in wanted)]


def digest() -> str:
    """A hash over all rows of the app's own tables."""
    seen = hashlib.sha256()
    with db.engine.connect() as connection:
        for table in db.metadata.sorted_tables:
            if not table.name.startswith("instruct_"):
                rows = connection.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
                seen.update(repr((table.name, rows)).encode())
    return seen.hexdigest()


# -- one call ----------------------------------------------------------------------------------------------------------


def test_a_call_that_needs_approval_shows_what_it_would_change(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    assert run.status == "waiting_approval"
    assert notes() == ["one", "two", "three"]
    assert texts() == {"one": "one!", "two": "two!", "three": None, None: "new!"}
    assert sorted(one.action for one in proposed().changes) == ["delete", "insert", "update", "update", "update"]


def test_until_it_is_accepted_nothing_in_the_database_differs(
    app: Flask, shown: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    from flask_instruct.runs.proposals import Stage

    original = Stage.rehearsing
    monkeypatch.setattr(
        Stage, "rehearsing", lambda self, unit, before: (seen.append(digest()), original(self, unit, before))[1]
    )
    shown(Use("rework", suffix="!"))
    assert seen == [digest()]


def test_all_of_it_is_done_as_it_was_shown(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    instruct.approve(only(), actor="lead")
    run = go_on(run)
    assert (run.status, notes()) == ("succeeded", ["one!", "two!", "new!", "mailed !", "finished: stop"])
    [call] = run.calls
    assert call.result is not None
    assert call.result.startswith("A person has seen what this call would change, and accepted all of it.\nReworked.")
    assert len(list(db.session.scalars(sa.select(Change)))) == 5


def test_of_five_changes_three_are_accepted(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    instruct.approve(only(), actor="lead", chosen=numbers("one!", "three", "Reworked"))
    run = go_on(run)
    assert notes() == ["one!", "two", "finished: stop"]
    assert db.session.scalars(sa.select(Notebook.title)).one() == "Reworked!"
    assert "accepted 3 of 5 changes" in (run.calls[0].result or "")


def test_to_accept_none_is_to_reject(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    before = digest()
    instruct.approve(only(), actor="lead", chosen=[])
    assert only().status == "rejected"
    go_on(run)
    assert notes()[:3] == ["one", "two", "three"]
    assert before != ""


def test_where_the_record_moved_on_it_is_shown_again(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    instruct.approve(only(), actor="lead")
    db.session.execute(sa.update(Note).where(Note.text == "two").values(text="zwei"))
    db.session.commit()
    run = go_on(run)
    assert run.status == "waiting_approval"
    assert notes() == ["one", "zwei", "three"]
    assert (only().status, only().stale, only().decided_by) == ("pending", 1, None)
    assert proposed().conflicts
    assert (texts()["one"], texts()["zwei"]) == ("one!", "zwei!")
    instruct.approve(only(), actor="lead")
    assert go_on(run).status == "succeeded"
    assert notes()[:2] == ["one!", "zwei!"]


def test_changed_arguments_are_shown_before_anything_is_done(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"))
    instruct.approve(only(), actor="lead", arguments={"suffix": "?"})
    run = go_on(run)
    assert (run.status, notes()) == ("waiting_approval", ["one", "two", "three"])
    assert texts()["one"] == "one?"
    instruct.approve(only(), actor="lead")
    go_on(run)
    assert notes()[0] == "one?"


def test_a_call_that_fails_asks_nobody(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="fail"))
    assert run.status == "succeeded"
    assert (run.calls[0].status, run.calls[0].result) == ("failed", "No such suffix.")
    assert list(db.session.scalars(sa.select(Approval))) == []


def test_what_cannot_be_seen_is_said_and_runs_as_it_is(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework_by_text", suffix="!"))
    assert proposed().problem is not None
    instruct.approve(only(), actor="lead")
    go_on(run)
    assert notes()[:3] == ["one!", "two!", "three!"]


# -- a whole run -------------------------------------------------------------------------------------------------------


def test_a_previewed_run_changes_nothing_until_it_is_accepted(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"), Use("jot", text="extra"), preview=True)
    assert (run.status, notes()) == ("waiting_approval", ["one", "two", "three"])
    assert [call.status for call in run.calls] == ["done", "done"]
    assert len(proposed().changes) == 6
    instruct.approve(only(), actor="lead")
    run = go_on(run)
    assert (run.status, notes()) == ("succeeded", ["one!", "two!", "new!", "extra", "mailed !", "finished: stop"])
    assert {change.call_id for change in db.session.scalars(sa.select(Change))} == {call.id for call in run.calls}
    generate(run.id)
    assert len(notes()) == 6


def test_a_later_call_sees_what_an_earlier_one_would_do(shown: Callable[..., Run]) -> None:
    shown(Use("jot", text="four"), Use("count"), preview=True)
    assert [call.result for call in only().run.calls][1] == "4 notes."


def test_some_of_a_runs_changes_are_accepted(shown: Callable[..., Run]) -> None:
    run = shown(Use("jot", text="four"), Use("jot", text="five"), preview=True)
    instruct.approve(only(), actor="lead", chosen=[2])
    go_on(run)
    assert notes() == ["one", "two", "three", "five", "finished: stop"]


def test_a_tool_that_is_not_declared_for_it_does_not_run_in_a_preview(shown: Callable[..., Run]) -> None:
    run = shown(Use("write", text="x"), Use("count"), preview=True)
    assert run.status == "succeeded"
    assert run.calls[0].error_kind == "no_preview"
    assert notes() == ["one", "two", "three", "finished: stop"]


def test_a_previewed_run_that_moved_on_is_shown_again(shown: Callable[..., Run]) -> None:
    run = shown(Use("rework", suffix="!"), preview=True)
    instruct.approve(only(), actor="lead")
    db.session.execute(sa.update(Note).where(Note.text == "one").values(text="eins"))
    db.session.commit()
    run = go_on(run)
    assert (run.status, notes()) == ("waiting_approval", ["eins", "two", "three"])
    assert texts()["eins"] == "eins!"
    instruct.approve(only(), actor="lead")
    assert go_on(run).status == "succeeded"
    assert notes()[0] == "eins!"


@pytest.mark.parametrize("end", ["reject", "stop", "expire"])
def test_a_previewed_run_that_is_not_accepted_leaves_nothing(app: Flask, shown: Callable[..., Run], end: str) -> None:
    run = shown(Use("rework", suffix="!"), preview=True)
    if end == "stop":
        run.cancel()
    elif end == "reject":
        instruct.reject(only(), actor="lead", reason="No.")
    else:
        from flask_instruct.runs.deciding import decide

        decide(app.extensions["instruct"], only(), "expired", by=None)
    run = go_on(run)
    assert run.status == ("cancelled" if end == "stop" else "succeeded")
    assert notes()[:3] == ["one", "two", "three"]
    assert "new!" not in notes()


def test_who_may_not_approve_the_tool_may_not_accept_the_preview_of_it(shown: Callable[..., Run]) -> None:
    shown(Use("rework", suffix="!"), preview=True)
    with pytest.raises(NotAllowed):
        instruct.approve(only(), actor="author")
    assert instruct.approvals(actor="author") == []


def test_what_needs_no_approval_may_be_accepted_by_who_asked(shown: Callable[..., Run]) -> None:
    run = shown(Use("jot", text="four"), preview=True)
    instruct.approve(only(), actor="author")
    go_on(run)
    assert "four" in notes()


# -- what belongs together ---------------------------------------------------------------------------------------------


class Builder(Planner):
    """Tools whose changes depend on each other, or on what is not there."""

    @ai_tool(approval=True, preview=True)
    def build(self) -> str:
        """Make a notebook and a note in it."""
        book = Notebook(title="new")
        db.session.add(book)
        db.session.flush()
        db.session.add(Note(notebook_id=book.id, text="child"))
        return "Built."

    @ai_tool(preview=True)
    def dangle(self) -> str:
        """Write a note into a notebook that is not there."""
        db.session.add(Note(notebook_id=999, text="dangling"))
        return "Written."

    @ai_tool(preview=True)
    def ahead(self) -> str:
        """Write a note before there is its notebook."""
        db.session.add(Note(notebook_id=500, text="ahead"))
        db.session.flush()
        db.session.add(Notebook(id=500, title="behind"))
        return "Written."

    @ai_tool(preview=True)
    def stray(self) -> str:
        """Rename the notebook through a connection of its own."""
        with db.engine.begin() as connection:
            connection.execute(sa.update(Notebook).values(title="strayed"))
        return "Renamed."


def test_a_new_row_is_not_made_without_the_one_that_it_refers_to(ask: Ask) -> None:
    run = ask(turns=[[Use("build")], [Say("Done.")]], handler=Builder)
    generate(run.id)
    [child] = numbers("child")
    instruct.approve(only(), actor="lead", chosen=[child])
    assert (go_on(run).status, notes()) == ("waiting_approval", [])
    assert proposed().conflicts == ("note [1] *: It refers to a new row of notebook that was not accepted.",)
    instruct.approve(only(), actor="lead")
    assert "child" in (go_on(run).status, *notes())


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_rule_of_the_database_that_waits_for_the_commit_is_asked_before_it(ask: Ask) -> None:
    with db.engine.begin() as connection:
        connection.execute(
            sa.text("ALTER TABLE note ALTER CONSTRAINT note_notebook_id_fkey DEFERRABLE INITIALLY DEFERRED")
        )
    uses = Use("jot", text="first"), Use("ahead"), Use("dangle")
    run = ask(turns=[[*uses], [Say("Done.")]], handler=Builder, preview=True)
    generate(run.id)
    assert [call.status for call in reread(run).calls] == ["done", "done", "done"]
    instruct.approve(only(), actor="lead")
    assert (go_on(run).status, only().status) == ("waiting_approval", "pending")
    assert "The database refused it" in proposed().conflicts[0]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_the_model_is_told_of_what_a_preview_could_not_take_back(ask: Ask) -> None:
    run = ask(turns=[[Use("stray")], [Say("Done.")]], handler=Builder, preview=True)
    generate(run.id)
    [call] = reread(run).calls
    assert KEPT in (call.result or "")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("way", ["accept", "undo"])
def test_what_a_person_is_writing_in_that_moment_is_not_written_over(
    app: Flask, shown: Callable[..., Run], way: str
) -> None:
    run_id = shown(Use("rework", suffix="!")).id
    instruct.approve(only(), actor="lead")
    if way == "undo":
        generate(run_id)
    db.session.remove()

    def act() -> None:
        with app.app_context():
            if way == "undo":
                instruct.undo(db.session.get_one(Run, run_id))
            else:
                generate(run_id)
            db.session.remove()

    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with db.engine.begin() as person:
        person.execute(sa.update(Notebook).values(title="a person's"))
        acting = threading.Thread(target=act)
        acting.start()
        with db.engine.connect() as onlooker:
            wait_for(lambda: onlooker.scalar(waiting), message="it to wait for the person")
    acting.join()
    assert db.session.scalars(sa.select(Notebook.title)).one() == "a person's"
