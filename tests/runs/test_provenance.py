"""A record tells where its values came from, and a guarded one keeps what a person has just written."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import AiResponseHandler
from flask_instruct import DeclarationError
from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run

from . import workshop
from .workshop import Carpenter
from .workshop import Item
from .workshop import Shelf
from .workshop import db
from .workshop import instruct
from .workshop import reread

CarryOut = Callable[..., Run]


class Careful(AiResponseHandler, record=Shelf, guard=["name"]):
    """Tools that meet a person's edits."""

    @ai_tool
    def person_renames(self, name: str) -> str:
        """Let somebody else rename the shelf meanwhile; stands for another process."""
        return "Looked around."

    @ai_tool
    def rename(self, name: str) -> str:
        """Rename the shelf."""
        self.record.name = name
        return "Renamed."

    @ai_tool
    def tell(self) -> str:
        """Tell the name."""
        return f"It is called {self.record.name}."

    @ai_tool
    def mutter(self) -> str:
        """Say a word that has the name in it."""
        return f"That was {self.record.name}al."


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with workshop.open_app() as app:
        db.session.add(Shelf(name="top", items=[Item(title="a")]))
        db.session.commit()
        yield app


def shelf() -> Shelf:
    return db.session.scalars(sa.select(Shelf)).one()


@pytest.fixture
def carry_out(app: Flask) -> CarryOut:
    def carry_out(*turns: list[object], handler: type[AiResponseHandler] = Carpenter, **options: object) -> Run:
        register_script("made", [*turns, [Say("Done.")]])
        options = {"actor": "ann", "user_prompt": "Go.", "model": "scripted:made", **options}
        run = instruct.generate_for(handler(shelf()), **options)
        db.session.refresh(run)
        db.session.expunge(run)
        generate(run.id)
        return reread(run)

    return carry_out


def person_renames(name: str) -> Callable[[object], list[object]]:
    """A turn of the model in which a person renames the shelf, and the model looks around."""

    def turn(request: object) -> list[object]:
        with db.engine.begin() as connection:
            connection.execute(sa.update(Shelf).values(name=name))
        return [Use("person_renames", name=name)]

    return turn


def test_the_history_of_a_field_tells_who_changed_it_from_what_to_what(carry_out: CarryOut) -> None:
    first_id = carry_out([Use("rename", name="low")]).id
    second = carry_out([Use("rename", name="deep")], actor="bob")
    instruct.undo(second, actor="eve")
    newest, middle, oldest = instruct.history(shelf(), "name")
    assert [(one.was, one.became) for one in (newest, middle, oldest)] == [
        ("deep", "low"),
        ("low", "deep"),
        ("top", "low"),
    ]
    assert [(one.by, one.actor, one.tool) for one in (newest, middle, oldest)] == [
        ("undo", "eve", "undo"),
        ("ai", "bob", "rename"),
        ("ai", "ann", "rename"),
    ]
    assert (middle.undone_by, middle.undone_actor) == (newest.run_id, "eve")
    assert (oldest.run_id, oldest.model, oldest.undone_by) == (first_id, "scripted:made", None)


def test_a_record_that_was_made_by_the_ai_says_so(carry_out: CarryOut) -> None:
    carry_out([Use("add", title="new")])
    added = db.session.scalars(sa.select(Item).where(Item.title == "new")).one()
    [entry] = instruct.history(added)
    assert (entry.action, entry.field, entry.was) == ("insert", None, None)
    assert entry.became["title"] == "new"
    [title] = instruct.history(added, "title")
    assert (title.was, title.became) == (None, "new")


def test_the_history_of_what_is_no_record_or_no_field_is_an_error(app: Flask) -> None:
    with pytest.raises(DeclarationError, match="no field 'colour'"):
        instruct.history(shelf(), "colour")
    with pytest.raises(DeclarationError, match="stored record"):
        instruct.history(Shelf(name="x"))


def test_a_tool_does_not_write_over_what_a_person_changed_meanwhile(carry_out: CarryOut) -> None:
    register_script("meanwhile", meanwhile([Use("rename", name="ai")], [Use("rename", name="ai")]))
    run = carry_out(handler=Careful, model="scripted:meanwhile")
    looked, refused, again = run.calls
    assert (looked.status, refused.status, again.status) == ("done", "failed", "done")
    assert refused.result is not None
    assert 'name is now: "person"' in refused.result
    assert refused.changes == []
    assert [(one.before, one.after) for one in again.changes] == [({"name": "person"}, {"name": "ai"})]


def test_a_value_that_a_tool_has_told_the_model_counts_as_read(carry_out: CarryOut) -> None:
    register_script("meanwhile", meanwhile([Use("tell")], [Use("rename", name="ai")]))
    run = carry_out(handler=Careful, model="scripted:meanwhile")
    assert [call.status for call in run.calls] == ["done", "done", "done"]


def test_a_value_within_another_word_was_not_told(carry_out: CarryOut) -> None:
    register_script("meanwhile", meanwhile([Use("mutter")], [Use("rename", name="ai")]))
    run = carry_out(handler=Careful, model="scripted:meanwhile")
    assert [call.status for call in run.calls] == ["done", "done", "failed"]


def test_a_handler_without_a_guard_writes_over_it(carry_out: CarryOut) -> None:
    class Careless(Careful, guard=False):
        pass

    register_script("meanwhile", meanwhile([Use("rename", name="ai")]))
    run = carry_out(handler=Careless, model="scripted:meanwhile")
    assert [call.status for call in run.calls] == ["done", "done"]
    assert run.read is None


def meanwhile(*turns: list[object]) -> Callable[[object], list[object]]:
    """A model in whose first turn a person renames the shelf; its further turns as given."""
    waiting = [None, *turns, [Say("Done.")]]

    def speak(request: object) -> list[object]:
        turn = waiting.pop(0)
        return person_renames("person")(request) if turn is None else turn

    return speak


def test_a_wrong_guard_is_refused_as_the_class_is_defined() -> None:
    with pytest.raises(DeclarationError, match="guard names 'colour'"):
        type("Wrong", (AiResponseHandler,), {}, record=Shelf, guard=["colour"])
