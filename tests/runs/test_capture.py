"""Every row that a tool changes is recorded with what it was and what it became; what cannot be seen is said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from flask import Flask

from . import workshop
from .workshop import Colour
from .workshop import Everything
from .workshop import Folder
from .workshop import Footnote
from .workshop import Guarded
from .workshop import Item
from .workshop import Link
from .workshop import Manager
from .workshop import Mark
from .workshop import Page
from .workshop import Point
from .workshop import Shelf
from .workshop import captured
from .workshop import db
from .workshop import told


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with workshop.open_app() as app:
        db.session.add(
            Shelf(
                name="top",
                items=[
                    Item(title="a", price=Decimal("1.50"), colour=Colour.RED, facts={"n": 1}),
                    Item(title="b", marks=[Mark(word="old")]),
                ],
            )
        )
        db.session.commit()
        db.session.remove()
        yield app


def test_an_update_of_a_record_keeps_the_fields_that_changed(app: Flask) -> None:
    with captured(app) as capture:
        item = db.session.get_one(Item, 1)
        item.title, item.price, item.colour = "A", Decimal("2.5"), Colour.RED
    before, after = {"title": "a", "price": {"decimal": "1.50"}}, {"title": "A", "price": {"decimal": "2.50"}}
    assert told(capture) == [("update", "item", "[1]", before, after)]
    assert capture.problem is None


def test_inserts_and_deletes_keep_whole_rows(app: Flask) -> None:
    with captured(app) as capture:
        db.session.add(Item(shelf_id=1, title="new", colour=Colour.GREEN))
        db.session.delete(db.session.get_one(Item, 1))
    whole = {"id": 1, "shelf_id": 1, "title": "a", "price": {"decimal": "1.50"}, "colour": {"enum": "RED"}}
    added = {"id": 3, "shelf_id": 1, "title": "new", "price": None, "colour": {"enum": "GREEN"}, "facts": None}
    found = {one[0]: one for one in told(capture)}
    assert found["delete"] == ("delete", "item", "[1]", {**whole, "facts": {"json": {"n": 1}}}, None)
    assert found["insert"][2:] == ("[3]", None, added)


def test_old_values_that_nobody_had_loaded_are_read(app: Flask) -> None:
    with captured(app) as capture:
        item = db.session.get_one(Item, 1)
        db.session.commit()
        item.title = "A"
        db.session.commit()
        other = db.session.scalars(sa.select(Item).options(sa.orm.load_only(Item.id)).where(Item.id == 2)).one()
        db.session.expire_all()
        other.title = "B"
    assert [one[3:] for one in told(capture)] == [({"title": "a"}, {"title": "A"}), ({"title": "b"}, {"title": "B"})]


def test_a_foreign_key_that_a_relationship_sets_is_seen_though_never_loaded(app: Flask) -> None:
    db.session.add(Shelf(id=52, name="low"))
    db.session.commit()
    with captured(app) as capture:
        item, low = db.session.get_one(Item, 1), db.session.get_one(Shelf, 52)
        db.session.commit()
        item.shelf = low
    assert told(capture) == [("update", "item", "[1]", {"shelf_id": 1}, {"shelf_id": 52})]


def test_several_changes_of_a_row_become_one(app: Flask) -> None:
    with captured(app) as capture:
        first, second = db.session.get_one(Item, 1), db.session.get_one(Item, 2)
        first.title = "A"
        db.session.flush()
        first.title, first.price = "AA", Decimal(3)
        second.title = "B"
        db.session.flush()
        second.title = "b"
        fleeting = Item(shelf_id=1, title="never")
        db.session.add(fleeting)
        db.session.flush()
        db.session.delete(fleeting)
        made = Item(id=9, shelf_id=1, title="made")
        db.session.add(made)
        db.session.flush()
        made.title = "made over"
    assert [one[0:3] for one in told(capture)] == [("update", "item", "[1]"), ("insert", "item", "[9]")]
    assert capture.changes[0].after == {"title": "AA", "price": {"decimal": "3.00"}}
    assert capture.changes[1].after is not None
    assert capture.changes[1].after["title"] == "made over"


@pytest.mark.parametrize("flushed", [True, False])
def test_a_row_that_is_deleted_and_made_anew_was_updated(app: Flask, flushed: bool) -> None:
    with captured(app) as capture:
        db.session.delete(db.session.get_one(Item, 1))
        if flushed:
            db.session.flush()
        db.session.add(Item(id=1, shelf_id=1, title="anew", price=Decimal("1.50"), facts={"n": 1}))
    before, after = {"title": "a", "colour": {"enum": "RED"}}, {"title": "anew", "colour": None}
    assert told(capture) == [("update", "item", "[1]", before, after)]


def test_what_a_rollback_undid_is_not_recorded(app: Flask) -> None:
    with captured(app) as capture:
        db.session.get_one(Item, 1).title = "kept"
        db.session.commit()
        db.session.get_one(Item, 2).title = "dropped"
        db.session.execute(sa.text("UPDATE item SET heading = 'dropped'"))
        db.session.rollback()
        with db.session.begin_nested():
            db.session.get_one(Item, 2).price = Decimal(4)
        try:
            with db.session.begin_nested():
                db.session.get_one(Item, 2).title = "dropped too"
                db.session.flush()
                raise KeyError
        except KeyError:
            pass
        direct = db.session.connection().begin_nested()
        db.session.execute(sa.update(Item).where(Item.id == 2).values(title="dropped as well"))
        direct.rollback()
        db.session.expire_all()
    assert told(capture) == [
        ("update", "item", "[1]", {"title": "a"}, {"title": "kept"}),
        ("update", "item", "[2]", {"price": None}, {"price": {"decimal": "4.00"}}),
    ]
    assert capture.problem is None


def test_a_failed_flush_leaves_nothing_and_the_next_is_seen(app: Flask) -> None:
    with captured(app) as capture:
        db.session.add(Shelf(name="top"))
        with pytest.raises(sa.exc.IntegrityError):
            db.session.commit()
        db.session.rollback()
        db.session.execute(sa.insert(Mark), [{"word": "x"}, {"word": "y"}])
    assert [one[0] for one in told(capture)] == ["insert", "insert"]


def test_statements_are_seen_row_by_row(app: Flask) -> None:
    with captured(app) as capture:
        db.session.execute(sa.update(Item).where(Item.title == "a").values(price=Item.price + 1, title="A"))
        db.session.execute(sa.update(Item), [{"id": 2, "title": "B"}])
        db.session.execute(sa.delete(Mark).where(Mark.id == 77))
        db.session.execute(sa.insert(Mark), [{"word": "one"}, {"word": "two"}])
        db.session.execute(sa.insert(Mark).values(word="three"))
        db.session.connection().execute(
            sa.update(Item.__table__)
            .where(Item.__table__.c.heading == sa.bindparam("was"))
            .values(price=sa.bindparam("new")),
            [{"was": "B", "new": Decimal(9)}],
        )
    rows = told(capture)
    assert rows[0][3:] == ({"title": "a", "price": {"decimal": "1.50"}}, {"title": "A", "price": {"decimal": "2.50"}})
    assert rows[1][3:] == ({"title": "b", "price": None}, {"title": "B", "price": {"decimal": "9.00"}})
    assert [(one[0], one[4]["word"]) for one in rows[2:]] == [("insert", "one"), ("insert", "two"), ("insert", "three")]
    assert capture.problem is None


def test_bulk_saving_and_deleting_are_seen(app: Flask) -> None:
    with captured(app) as capture:
        db.session.bulk_save_objects([Mark(word="x"), Mark(word="y")])
        db.session.bulk_update_mappings(sa.inspect(Item), [{"id": 1, "title": "A"}])
        db.session.execute(marks_of(2))
        db.session.query(Mark).filter_by(word="old").delete()
    assert [one[:3] for one in told(capture)] == [
        ("insert", "mark", "[2]"),
        ("insert", "mark", "[3]"),
        ("update", "item", "[1]"),
        ("delete", "marks", "[2,1]"),
        ("delete", "mark", "[1]"),
    ]
    assert capture.problem is None


def marks_of(item: int) -> Any:
    return sa.delete(workshop.marks).where(workshop.marks.c.item_id == item)


def test_a_relationship_over_a_table_of_its_own_is_seen(app: Flask) -> None:
    with captured(app) as capture:
        first, second = db.session.get_one(Item, 1), db.session.get_one(Item, 2)
        first.marks.append(second.marks.pop())
    assert sorted(told(capture)) == [
        ("delete", "marks", "[2,1]", {"item_id": 2, "mark_id": 1}, None),
        ("insert", "marks", "[1,1]", None, {"item_id": 1, "mark_id": 1}),
    ]


def test_a_document_changed_in_place_is_seen_as_it_was(app: Flask) -> None:
    with captured(app) as capture:
        item = db.session.get_one(Item, 1)
        assert item.facts is not None
        item.facts["n"] = 2
    assert told(capture)[0][3:] == ({"facts": {"json": {"n": 1}}}, {"facts": {"json": {"n": 2}}})


def test_children_that_the_database_deletes_or_lets_go_are_seen(app: Flask) -> None:
    for record in (
        Folder(id=1, name="f"),
        Link(id=1, folder_id=1),
        Page(id=1, text="p", folder_id=1),
        Footnote(id=1, page_id=1, text="n"),
    ):
        db.session.add(record)
        db.session.flush()
    db.session.commit()
    with captured(app) as capture:
        db.session.delete(db.session.get_one(Folder, 1))
    assert sorted(one[:4] for one in told(capture)) == [
        ("delete", "folder", "[1]", {"id": 1, "name": "f"}),
        ("delete", "footnote", "[1]", {"id": 1, "page_id": 1, "text": "n"}),
        ("delete", "page", "[1]", {"id": 1, "folder_id": 1, "text": "p"}),
        ("update", "link", "[1]", {"folder_id": 1}),
    ]
    assert capture.problem is None


def test_a_class_over_two_tables_is_one_row(app: Flask) -> None:
    with captured(app) as capture:
        db.session.add(Manager(id=5, name="M", level=1))
        db.session.flush()
        db.session.commit()
    assert told(capture) == [("insert", "person", "[5]", None, {"id": 5, "kind": "manager", "name": "M", "level": 1})]
    assert capture.changes[0].entity == "Manager"
    with captured(app) as capture:
        manager = db.session.get_one(Manager, 5)
        manager.name, manager.level = "N", 2
    assert told(capture)[0][3:] == ({"name": "M", "level": 1}, {"name": "N", "level": 2})
    with captured(app) as capture:
        db.session.delete(db.session.get_one(Manager, 5))
    assert told(capture)[0][:4] == ("delete", "person", "[5]", {"id": 5, "kind": "manager", "name": "N", "level": 2})
    assert capture.problem is None


def test_every_type_is_written_as_the_database_has_it(app: Flask) -> None:
    key = UUID(int=7)
    moment = datetime(2026, 3, 29, 1, 30, 0, 5)
    with captured(app) as capture:
        row = Everything(
            id=key,
            text="t",
            number=10**9,
            ratio=0.1,
            flag=True,
            amount=Decimal("1.23456"),
            day=date(2026, 3, 29),
            moment=moment,
            zoned=moment.replace(tzinfo=UTC),
            clock=time(1, 2, 3),
            span=timedelta(days=-1, microseconds=3),
            uid=UUID(int=9),
            colour=Colour.GREEN,
            word="two",
            document={"datetime": "2026"},
            secret="abc",
            at=Point(1, 2),
        )
        db.session.add(row)
    [(_, table, written, _, after)] = told(capture)
    assert (table, written) == ("everything", '[{"uuid":"00000000-0000-0000-0000-000000000007"}]')
    zoned = after.pop("zoned")["datetime"]
    assert datetime.fromisoformat(zoned).replace(tzinfo=UTC) in (moment.replace(tzinfo=UTC),)
    assert after == {
        "id": {"uuid": str(key)},
        "text": "t",
        "number": 10**9,
        "ratio": 0.1,
        "flag": True,
        "amount": {"decimal": "1.2346"},
        "day": {"date": "2026-03-29"},
        "moment": {"datetime": "2026-03-29T01:30:00.000005"},
        "clock": {"time": "01:02:03"},
        "span": {"interval": -86_399_999_997},
        "uid": {"uuid": str(UUID(int=9))},
        "colour": {"enum": "GREEN"},
        "word": "two",
        "document": {"json": {"datetime": "2026"}},
        "secret": {"stored": "cba"},
        "at_x": 1,
        "at_y": 2,
        "started": 7,
        "touched": 0,
    }
    with captured(app) as capture:
        row = db.session.get_one(Everything, key)
        row.text, row.document = None, sa.JSON.NULL
    assert told(capture)[0][3:] == (
        {"text": "t", "document": {"json": {"datetime": "2026"}}, "touched": 0},
        {"text": None, "document": {"json": None}, "touched": 5},
    )


def test_values_that_must_not_be_kept_are_noted_and_cannot_be_undone(app: Flask) -> None:
    with captured(app) as capture:
        db.session.add(Guarded(id=1, name="g", password="hush", token="t", seen=1, content=b"abc"))
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert capture.problem is None
    assert capture.changes[0].after == {
        "id": 1,
        "name": "g",
        "password": {"redacted": True},
        "token": {"redacted": True},
        "content": {"bytes": {"sha256": sha, "size": 3}},
    }
    with captured(app) as capture:
        db.session.get_one(Guarded, 1).seen = 2
    assert (capture.changes, capture.problem) == ([], None)
    with captured(app) as capture:
        db.session.get_one(Guarded, 1).password = "hush hush"
    assert told(capture)[0][3:] == ({"password": {"redacted": True}}, {"password": {"redacted": True}})
    assert capture.problem == "What password of guarded was before is not kept."


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (sa.text("UPDATE item SET heading = 'x'"), "SQL text (UPDATE)"),
        (sa.insert(Mark).from_select(["word"], sa.select(Item.title)), "INSERT from a SELECT"),
        (sa.insert(workshop.loose).values(text="x"), "loose, which has no key"),
        (sa.update(Mark).where(Mark.id == 53).values(id=54), "Keys of rows of mark"),
        (sa.text("CREATE TABLE more (id INTEGER)"), "SQL text (CREATE)"),
        (sa.insert(Mark).values([{"word": "a"}, {"word": "b"}]), "does not tell their keys"),
    ],
)
def test_what_cannot_be_seen_is_said_in_words(app: Flask, statement: Any, words: str) -> None:
    db.session.add(Mark(id=53, word="third"))
    db.session.commit()
    with captured(app) as capture:
        db.session.execute(statement)
    assert capture.problem is not None
    assert words in capture.problem


def test_a_changed_key_of_a_record_is_said(app: Flask) -> None:
    with captured(app) as capture:
        db.session.add(Mark(id=50, word="x"))
        db.session.flush()
        db.session.get_one(Mark, 50).id = 51
    assert capture.problem == "The key of a row of mark was changed."


def test_reading_and_locking_by_sql_text_are_no_changes(app: Flask) -> None:
    with captured(app) as capture:
        db.session.execute(sa.text("SELECT 1"))
        db.session.scalars(sa.select(Item).with_for_update()).all()
    assert (capture.changes, capture.problem) == ([], None)
