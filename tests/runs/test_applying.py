"""Changes that were rolled back, as a proposal's are, can be put into effect later: all of them, or some."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.applying import plan
from flask_instruct.runs.capture import Capture
from flask_instruct.runs.change import Recorded
from flask_instruct.runs.plans import Plan
from flask_instruct.runs.unit import joined_session
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.unit import unit_of_work
from flask_instruct.runs.writing import apply

from . import workshop
from .workshop import Colour
from .workshop import Item
from .workshop import Mark
from .workshop import Shelf
from .workshop import db


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with workshop.open_app() as app:
        first = Item(title="a", price=Decimal("1.50"), facts={"n": 1}, marks=[Mark(word="old")])
        db.session.add(Shelf(name="top", items=[first, Item(title="b")]))
        db.session.commit()
        yield app


class _RolledBack(Exception):
    pass


def proposed(app: Flask) -> list[Recorded]:
    """Let a tool work, and take it all back."""
    try:
        with unit_of_work(ledger_engine(db)) as unit:
            capture = Capture(app.extensions["instruct"], unit.connection)
            with capture.listening(), joined_session(db, unit) as session:
                capture.follow(session)
                _work()
            raise _RolledBack
    except _RolledBack:
        db.session.remove()
    return capture.changes


def _work() -> None:
    shelf = db.session.scalars(sa.select(Shelf)).one()
    first, second = shelf.items
    shelf.name, first.facts = "new", None
    db.session.delete(second)
    shelf.items.append(Item(title="c", colour=Colour.GREEN, marks=[*first.marks]))
    first.marks.clear()
    shelf.children.append(Shelf(name="below", items=[Item(title="d")]))


def accept(app: Flask, changes: list[Recorded], skip: tuple[str, ...] = ()) -> Plan:
    with unit_of_work(ledger_engine(db)) as unit, joined_session(db, unit) as session:
        layouts = app.extensions["instruct"].layouts(unit.connection.dialect)
        found = plan(session, layouts, [changes], "forwards", skip=skip)
        assert apply(session, found) == []
    db.session.remove()
    return found


def test_what_was_rolled_back_changed_nothing_and_takes_effect_exactly_when_it_is_accepted(app: Flask) -> None:
    before = workshop.digest()
    changes = proposed(app)
    assert workshop.digest() == before
    assert accept(app, changes).conflicts == []
    accepted = workshop.contents()
    for kept in ("'c'", "'d'"):
        assert any(kept in row for row in accepted["item"])
    assert not any("'b'" in row for row in accepted["item"])
    assert len(accepted["marks"]) == 1
    assert sorted(db.session.scalars(sa.select(Shelf.name))) == ["below", "new"]


def test_some_of_a_proposal_is_accepted(app: Flask) -> None:
    changes = proposed(app)
    accept(app, changes, skip=(f"shelf {changes_key(changes)} name",))
    assert sorted(db.session.scalars(sa.select(Shelf.name))) == ["below", "top"]


def test_a_record_that_moved_on_is_a_conflict(app: Flask) -> None:
    changes = proposed(app)
    db.session.scalars(sa.select(Shelf)).one().name = "mine"
    db.session.commit()
    [conflict] = accept(app, changes).conflicts
    assert (conflict.name, conflict.current, conflict.wanted) == ("name", "mine", "new")
    assert "mine" in db.session.scalars(sa.select(Shelf.name)).all()


def changes_key(changes: list[Recorded]) -> str:
    return next(change.key for change in changes if change.table == "shelf" and change.action == "update")
