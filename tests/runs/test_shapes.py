"""Whatever the shape of a table, what a tool did to it is taken back exactly and done again, or is said to be lost."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.models import Run

from . import shapes
from .shapes import Animal
from .shapes import ByBytes
from .shapes import ByColour
from .shapes import Cat
from .shapes import City
from .shapes import Colour
from .shapes import Country
from .shapes import Dog
from .shapes import Doubled
from .shapes import Kept
from .shapes import Label
from .shapes import Labelled
from .shapes import Manager
from .shapes import Named
from .shapes import Numbered
from .shapes import Person
from .shapes import Place
from .shapes import ai_does
from .shapes import contents
from .shapes import db
from .shapes import instruct

Work = Callable[[], Any]
Rows = Callable[[], list[Any]]


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with shapes.open_app() as app:
        yield app


def edit(model: Any, **values: Any) -> Work:
    def work() -> None:
        for record in db.session.scalars(sa.select(model)):
            for name, value in values.items():
                setattr(record, name, value)

    return work


def delete(*models: Any) -> Work:
    def work() -> None:
        for model in models:
            for record in db.session.scalars(sa.select(model)):
                db.session.delete(record)
            db.session.flush()

    return work


def run(*statements: Any) -> Work:
    return lambda: [db.session.execute(statement) for statement in statements]


def exchange(model: Any, name: str, between: Any) -> Work:
    def work() -> None:
        one, other = db.session.scalars(sa.select(model).order_by(model.id))
        first, second = getattr(one, name), getattr(other, name)
        for record, value in ((one, between), (other, first), (one, second)):
            setattr(record, name, value)
            db.session.flush()

    return work


def make_room() -> None:
    for place in db.session.scalars(sa.select(Place).order_by(Place.position.desc())):
        place.position += 1
        db.session.flush()
    db.session.add(Place(id=9, list_id=1, position=1))


def places() -> list[Any]:
    return [Place(id=number, list_id=1, position=number) for number in (1, 2)]


def country() -> list[Any]:
    return [Country(id=1, code="de"), City(id=1, code="de")]


RETURNS: dict[str, tuple[Rows, Work]] = {
    "names exchanged": (lambda: [Named(id=1, name="a"), Named(id=2, name="b")], exchange(Named, "name", "tmp")),
    "places exchanged": (places, exchange(Place, "position", 99)),
    "places moved": (places, make_room),
    "computed, edited": (lambda: [Doubled(id=1, half=1)], edit(Doubled, half=5)),
    "computed, deleted": (lambda: [Doubled(id=1, half=1)], delete(Doubled)),
    "enum as key, edited": (lambda: [ByColour(key=Colour.RED, text="x")], edit(ByColour, text="y")),
    "enum as key, deleted": (lambda: [ByColour(key=Colour.RED, text="x")], delete(ByColour)),
    "bytes as key, edited": (lambda: [ByBytes(key=b"\0\1" * 8, text="x")], edit(ByBytes, text="y")),
    "bytes as key, deleted": (lambda: [ByBytes(key=b"\0\1" * 8, text="x")], delete(ByBytes)),
    "one table, deleted by a statement": (lambda: [Dog(id=1, name="x", bark="w")], run(sa.delete(Animal))),
    "one table, edited by a statement": (lambda: [Dog(id=1, name="x")], run(sa.update(Animal).values(name="y"))),
    "one table, added by a statement": (list, run(sa.insert(Animal).values(id=1, kind="cat", name="x", purr="p"))),
    "two tables, added by statements": (
        list,
        run(
            sa.insert(Person.__table__).values(id=1, kind="manager", name="x"),
            sa.insert(Manager.__table__).values(id=1, level=2),
        ),
    ),
    "two tables, edited by statements": (
        lambda: [Manager(id=1, name="x", level=2)],
        run(sa.update(Manager.__table__).values(level=7), sa.update(Person.__table__).values(name="z")),
    ),
    "two tables, deleted by a statement": (lambda: [Manager(id=1, name="x", level=2)], run(sa.delete(Person))),
    "two tables, deleted by statements": (
        lambda: [Manager(id=1, name="x", level=2)],
        run(sa.delete(Manager.__table__), sa.delete(Person.__table__)),
    ),
    "marked as deleted": (lambda: [Kept(id=1, text="x")], edit(Kept, deleted=True)),
    "referred to by another column, deleted": (country, delete(Country)),
    "referred to by another column, renamed": (country, edit(Country, code="at")),
}


def test_what_was_done_returns_exactly_and_can_be_done_again(app: Flask) -> None:
    for name, (rows, work) in RETURNS.items():
        for row in rows():
            db.session.add(row)
            db.session.flush()
        db.session.commit()
        start = contents()
        run_id, problem = ai_does(app, work)
        end = contents()
        assert (name, problem, start == end) == (name, None, False)
        for wanted in (start, end, start):
            undone = instruct.undo(db.session.get_one(Run, run_id))
            assert (name, undone.conflicts) == (name, [])
            run_id = undone.run.id
            assert (name, contents()) == (name, wanted)
        shapes.clear()


def one_for_another() -> None:
    db.session.delete(db.session.get_one(Dog, 1))
    db.session.flush()
    db.session.add(Cat(id=1, name="x", purr="p"))


LOST: dict[str, tuple[Rows, Work, str]] = {
    "another class": (lambda: [Dog(id=1, name="x", bark="w")], one_for_another, "became one of another class"),
    "half a record": (
        lambda: [Manager(id=1, name="x", level=2)],
        run(sa.delete(Manager.__table__)),
        "columns that could not be seen",
    ),
    "a reference": (
        lambda: [Label(id=1, word="a"), Labelled(id=1, word="a")],
        edit(Label, word="b"),
        "Rows of other tables no longer refer to label",
    ),
}


def added_within(statement: Any) -> Work:
    made = sa.insert(Named).values(id=7, name="z").returning(Named.id).cte("made")
    return run(statement.add_cte(made))


LOST_ON_POSTGRESQL: dict[str, tuple[Rows, Work, str]] = {
    "a key of the database's": (lambda: [Numbered(text="x")], delete(Numbered), "the database alone makes its key"),
    "a statement within another": (
        places,
        added_within(sa.update(Place).values(touched=9)),
        "rows of place and of other tables",
    ),
    "text that explains": (list, run(sa.text("EXPLAIN ANALYZE DELETE FROM named")), "SQL text (EXPLAIN)"),
    "text behind a semicolon": (
        list,
        lambda: db.session.connection().exec_driver_sql("SELECT 1; DELETE FROM named"),
        "SQL text (SELECT)",
    ),
}
LOST_ON_SQLITE: dict[str, tuple[Rows, Work, str]] = {
    "a row in the way": (
        lambda: [Named(id=1, name="a"), Named(id=2, name="b")],
        run(sa.update(Named).prefix_with("OR REPLACE").where(Named.id == 1).values(name="b")),
        "by an upsert",
    ),
}


def test_what_could_not_be_taken_back_is_said(app: Flask) -> None:
    own = LOST_ON_SQLITE if db.engine.dialect.name == "sqlite" else LOST_ON_POSTGRESQL
    for name, (rows, work, words) in {**LOST, **own}.items():
        for row in rows():
            db.session.add(row)
            db.session.flush()
        db.session.commit()
        _, problem = ai_does(app, work)
        assert (name, words in (problem or "")) == (name, True), problem
        shapes.clear()


def test_what_a_person_ties_to_a_new_row_by_another_column_keeps_it(app: Flask) -> None:
    run_id, _ = ai_does(app, lambda: db.session.add(Country(id=1, code="de")))
    db.session.add(City(id=1, code="de"))
    db.session.commit()
    [conflict] = instruct.undo(db.session.get_one(Run, run_id)).conflicts
    assert conflict.conflict == "Rows of city refer to it by now."
    assert len(contents()["city"]) == 1
