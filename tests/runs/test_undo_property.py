"""Whatever tools and people do to related rows of every shape: undo leaves what it has not to touch, and redo after it
brings back exactly what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from flask_instruct import UndoRefused
from flask_instruct.runs.change import Change
from flask_instruct.runs.change import keep
from flask_instruct.runs.layouts import Layouts
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall

from . import workshop
from .workshop import Colour
from .workshop import Item
from .workshop import Mark
from .workshop import Shelf
from .workshop import captured
from .workshop import db
from .workshop import instruct

fresh = count(100)


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with workshop.open_app() as app:
        yield app


def pick(model: Any, number: int) -> Any:
    """Return some row of a model, or None where there is none."""
    rows = db.session.scalars(sa.select(model).order_by(model.id)).all()
    return rows[number % len(rows)] if rows else None


def rename(a: int, b: int) -> None:
    pick(Shelf, a).name = f"name {next(fresh)}"


def add_shelf(a: int, b: int) -> None:
    db.session.add(Shelf(name=f"name {next(fresh)}", parent=pick(Shelf, a), items=[Item(title="inside")]))


def delete_shelf(a: int, b: int) -> None:
    if db.session.scalar(sa.select(sa.func.count(Shelf.id))) > 1:
        db.session.delete(pick(Shelf, a))


def hang(a: int, b: int) -> None:
    shelf, parent = pick(Shelf, a), pick(Shelf, b)
    if parent.id < shelf.id:  # no shelf hangs below itself
        shelf.parent_id = parent.id


def swap_names(a: int, b: int) -> None:
    one, other = pick(Shelf, a), pick(Shelf, b)
    if one is not other:
        names = one.name, other.name
        one.name = "for a moment"
        db.session.flush()
        other.name, _ = names
        db.session.flush()
        one.name = names[1]


def take_name(a: int, b: int) -> None:
    one, other = pick(Shelf, a), pick(Shelf, b)
    if one is not other:
        name = one.name
        db.session.delete(one)
        db.session.flush()
        other.name = name


def add_item(a: int, b: int) -> None:
    facts = [None, {"n": b}, {"list": [a, {"json": b}]}][b % 3]
    shelf = pick(Shelf, a)
    shelf.items.append(Item(title=f"item {b}", price=Decimal(b) / 4, colour=[Colour.RED, None][b % 2], facts=facts))


def edit_item(a: int, b: int) -> None:
    item = pick(Item, a)
    if item is not None:
        item.title, item.price, item.colour = f"title {b}", Decimal(b) / 8, Colour.GREEN


def set_fact(a: int, b: int) -> None:
    item = pick(Item, a)
    if item is not None:
        if item.facts is None:
            item.facts = {}
        item.facts["n"] = b
        db.session.flush()
        if b % 3 == 0:
            item.facts = None
        if b % 3 == 1:
            db.session.execute(sa.update(Item).where(Item.id == item.id).values(facts=sa.null()))


def delete_item(a: int, b: int) -> None:
    item = pick(Item, a)
    if item is not None:
        db.session.delete(item)


def move_item(a: int, b: int) -> None:
    item = pick(Item, a)
    if item is not None:
        item.shelf = pick(Shelf, b)


def toggle_mark(a: int, b: int) -> None:
    item, mark = pick(Item, a), pick(Mark, b)
    if item is not None:
        if mark in item.marks:
            item.marks.remove(mark)
        else:
            item.marks.append(mark)


def raise_prices(a: int, b: int) -> None:
    db.session.execute(sa.update(Item).where(Item.id % 2 == a % 2).values(price=sa.func.coalesce(Item.price, 0) + b))


def clear_marks(a: int, b: int) -> None:
    db.session.execute(sa.delete(workshop.marks).where(workshop.marks.c.mark_id == pick(Mark, a).id))


def commit_between(a: int, b: int) -> None:
    edit_item(a, b)
    db.session.commit()
    set_fact(a, b + 1)
    delete_item(a + 1, b)


OPERATIONS: list[Callable[[int, int], None]] = [
    rename,
    add_shelf,
    delete_shelf,
    hang,
    swap_names,
    take_name,
    add_item,
    edit_item,
    set_fact,
    delete_item,
    move_item,
    toggle_mark,
    raise_prices,
    clear_marks,
    commit_between,
]
Step = tuple[Callable[[int, int], None], int, int]
steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=6)


def begin() -> None:
    """Start anew with two shelves, three items and two marks."""
    for table in reversed(db.metadata.sorted_tables):
        if table.name != "shelf":
            db.session.execute(table.delete())
    db.session.execute(sa.update(Shelf).values(parent_id=None))
    db.session.execute(sa.delete(Shelf))
    one, two = Mark(word="one"), Mark(word="two")
    items = [Item(title="a", facts={"n": 1}, marks=[one]), Item(title="b", price=Decimal("1.25"), marks=[one, two])]
    top = Shelf(name=f"name {next(fresh)}", items=items)
    db.session.add_all([top, Shelf(name=f"name {next(fresh)}", parent=top, items=[Item(title="c", colour=Colour.RED)])])
    db.session.commit()


def ai_does(app: Flask, wanted: Sequence[Step]) -> str:
    """Let a run do each step by a call of its own, as a worker does; give the run's id."""
    run = Run(handler="instruct://Carpenter/1", handler_name="Carpenter", user_prompt="Go.", status="succeeded")
    message = Message(run=run, seq=1, state="complete")
    db.session.add_all([run, message])
    db.session.commit()
    run_id, message_id = run.id, message.id
    for number, (operation, a, b) in enumerate(wanted, 1):
        with captured(app) as capture:
            operation(a, b)
        assert capture.problem is None
        call = ToolCall(run_id=run_id, message_id=message_id, seq=number, provider_call_id="", status="done", result="")
        call.name, call.idempotency_key = operation.__name__, str(number)
        db.session.add(call)
        db.session.flush()
        keep(db.session.connection(), run_id, call.id, capture.changes)
        db.session.commit()
    db.session.remove()
    return run_id


def person_does(wanted: Sequence[Step]) -> None:
    for operation, a, b in wanted:
        operation(a, b)
        db.session.commit()
    db.session.remove()


def undo(run_id: str) -> Any:
    try:
        return instruct.undo(db.session.get_one(Run, run_id))
    except UndoRefused:
        return None


def fields(layouts: Layouts) -> dict[tuple[str, str, str], str]:
    """Every field of every row, by table, key and name of its attribute."""
    found = {}
    for table in db.metadata.sorted_tables:
        layout = layouts.of_table(table)
        if layout is not None:
            for key, row in layout.select(db.session.execute).items():
                for name, value in row.items():
                    found[layout.table, layout.write_key(key), name] = repr(value)
    db.session.remove()
    return found


@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=steps)
def test_undo_of_a_run_returns_exactly_and_redo_too(app: Flask, before: list[Step]) -> None:
    begin()
    start = workshop.contents()
    run_id = ai_does(app, before)
    end = workshop.contents()
    undone = undo(run_id)
    if undone is None:
        assert start == end
        return
    assert undone.conflicts == []
    undo_id = undone.run.id
    assert workshop.contents() == start
    redone = undo(undo_id)
    assert workshop.contents() == end
    assert redone is None or redone.conflicts == []


@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=steps, between=steps, second=steps, after=steps)
def test_what_people_did_stays_and_redo_returns_exactly(
    app: Flask, first: list[Step], between: list[Step], second: list[Step], after: list[Step]
) -> None:
    layouts = app.extensions["instruct"].layouts(db.engine.dialect)
    begin()
    run_id = ai_does(app, first)
    person_does(between)
    other_id = ai_does(app, second)
    person_does(after)
    end, there = workshop.contents(), fields(layouts)
    for some in (run_id, other_id):
        touched = {
            (change.table, change.key) for change in db.session.scalars(sa.select(Change).filter_by(run_id=some))
        }
        names = {
            (change.table, change.key, name)
            for change in db.session.scalars(sa.select(Change).filter_by(run_id=some))
            for name in {**(change.before or {}), **(change.after or {})}
        }
        undone = undo(some)
        now = fields(layouts)
        changed = {place for place in {*there, *now} if there.get(place) != now.get(place)}
        assert {place[:2] for place in changed} <= touched
        assert changed <= names
        if undone is not None:
            undo(undone.run.id)
        assert workshop.contents() == end


def test_a_row_whose_key_was_taken_anew_keeps_what_a_person_has_tied_to_it(app: Flask) -> None:
    def make_anew(a: int, b: int) -> None:
        db.session.add(Shelf(id=9, name="anew"))

    begin()
    db.session.add(Shelf(id=9, name="old"))
    db.session.commit()
    run_id = ai_does(app, [(lambda a, b: db.session.delete(pick(Shelf, 2)), 0, 0), (make_anew, 0, 0)])
    db.session.add(Item(shelf_id=9, title="a person's"))
    db.session.commit()
    assert undo(run_id).conflicts == []
    shelf = db.session.get_one(Shelf, 9)
    assert (shelf.name, [item.title for item in shelf.items]) == ("old", ["a person's"])
