"""What an app says of its columns: what only follows an edit is no conflict, and a misspelt word is an error."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from flask import current_app
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import AiResponseHandler
from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import DeclarationError
from flask_instruct.panel.naming import Names
from flask_instruct.runs.job import generate
from flask_instruct.runs.marks import marks
from flask_instruct.runs.marks import title_of
from flask_instruct.runs.models import Run

from . import workshop
from .workshop import Model
from .workshop import db
from .workshop import digest
from .workshop import instruct
from .workshop import reread

ASIDE = {"instruct": "bookkeeping"}


class Ticket(Model):
    """A row that keeps the books of itself."""

    id: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str]
    text: Mapped[str] = mapped_column(default="")
    changes: Mapped[int] = mapped_column(default=0, info=ASIDE)
    changed_by: Mapped[str] = mapped_column(default="", info=ASIDE)

    def edit(self, who: str, **values: str) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.changes += 1
        self.changed_by = who


class Clerk(AiResponseHandler, record=Ticket, guard=True):
    @ai_tool
    def rewrite(self, text: str) -> str:
        """Rewrite it."""
        self.record.edit("ai", text=text)
        return "Done."

    @ai_tool
    def open_another(self, label: str) -> str:
        """Open another."""
        db.session.add(Ticket(label=label, changed_by="ai"))
        return "Done."


Work = Callable[..., Run]


@pytest.fixture
def work(settings: dict[str, str]) -> Iterator[Work]:
    with workshop.open_app():
        db.session.add(Ticket(label="Broken lamp", text="old"))
        db.session.commit()

        def work(*turns: Any) -> Run:
            waiting = iter([*turns, None])

            def speak(_request: object) -> list[Any]:
                turn = next(waiting)
                return [turn() if callable(turn) else turn or Say("Done.")]

            register_script("made", speak)
            run = instruct.generate_for(Clerk(ticket()), user_prompt="Go.", model="scripted:made")
            db.session.refresh(run)
            db.session.expunge(run)
            generate(run.id)
            return reread(run)

        yield work


def ticket(key: int = 1) -> Ticket:
    return db.session.get_one(Ticket, key)


def by_a_person(key: int = 1, **values: str) -> None:
    ticket(key).edit("ann", **values)
    db.session.commit()
    db.session.remove()


def test_an_undo_takes_the_books_along(work: Work) -> None:
    before = digest()
    run = work(Use("rewrite", text="new"))
    [row] = instruct.undo_preview(run).rows
    assert [one.name for one in row.fields] == ["text"]
    after = digest()
    undone = instruct.undo(run)
    assert digest() == before
    instruct.redo(undone.run)
    assert digest() == after


def test_books_that_a_person_has_kept_since_are_theirs_and_no_conflict(work: Work) -> None:
    run = work(Use("rewrite", text="new"))
    by_a_person(label="Broken chair")
    assert instruct.undo_preview(run).conflicts == []
    assert instruct.undo(run).conflicts == []
    kept = ticket()
    assert (kept.text, kept.label, kept.changes, kept.changed_by) == ("old", "Broken chair", 2, "ann")


def test_a_row_of_which_all_that_was_asked_about_is_left_keeps_its_books(work: Work) -> None:
    run = work(Use("rewrite", text="new"))
    [row] = instruct.undo_preview(run).rows
    instruct.undo(run, skip=[row.fields[0].id])
    assert (ticket().text, ticket().changes, ticket().changed_by) == ("new", 1, "ai")


def test_a_row_goes_again_though_its_books_were_kept(work: Work) -> None:
    run = work(Use("open_another", label="Lost key"))
    [made] = db.session.scalars(sa.select(Ticket.id).where(Ticket.id != 1)).all()
    by_a_person(made)
    assert instruct.undo_preview(run).conflicts == []
    instruct.undo(run)
    assert db.session.get(Ticket, made) is None


def test_a_guard_minds_what_a_person_wrote_and_not_the_books_of_it(work: Work) -> None:
    def meanwhile() -> Use:
        with db.engine.begin() as connection:
            connection.execute(sa.update(Ticket).values(label="Broken chair", changes=7, changed_by="ann"))
        return Use("rewrite", text="newer")

    run = work(Use("rewrite", text="new"), meanwhile)
    assert [call.status for call in run.calls] == ["done", "done"]
    assert (ticket().text, ticket().label, ticket().changes) == ("newer", "Broken chair", 8)


def test_a_row_is_called_by_its_title_and_its_books_are_left_out(work: Work) -> None:
    run = work(Use("rewrite", text="new"), Use("open_another", label="Lost key"))
    changed, made = (change for call in run.calls for change in call.changes)
    state = current_app.extensions["instruct"]
    names = Names(state, [changed, made])
    assert [names.of(changed), names.of(made)] == ["Ticket “Broken lamp”", "Ticket “Lost key”"]
    assert names.shown(changed, changed.after) == {"text": "new"}
    entries = [(one.field, one.action) for one in instruct.history(ticket())]
    assert entries == [("text", "update")]
    assert [one.became for one in instruct.history(ticket(), "changed_by")] == ["ai"]
    db.session.delete(ticket(made.after["id"]))
    db.session.commit()
    gone = Names(state, [made])
    assert [gone.of(made, made.after), gone.of(made)] == ["Ticket “Lost key”", f"Ticket {made.after['id']}"]


def test_a_word_that_means_nothing_is_an_error_that_says_which_there_are() -> None:
    column = sa.Table("t", sa.MetaData(), sa.Column("secret", sa.Text, info={"instruct": "redcat"})).c.secret
    with pytest.raises(DeclarationError, match=r"of t\.secret: 'redcat' means nothing; there are bookkeeping, exclude"):
        marks(column)


def test_a_title_is_what_is_marked_else_what_is_usual() -> None:
    marked = sa.Column("body", sa.Text, info={"instruct": ("title", "redact")})
    usual, number = sa.Column("name", sa.String(80)), sa.Column("title", sa.Integer)
    assert title_of([("title", number), ("name", usual), ("body", marked)]) == "body"
    assert title_of([("title", number), ("name", usual)]) == "name"
    assert title_of([("title", number)]) is None
