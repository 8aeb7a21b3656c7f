"""What an AI changed can be taken back and done again, exactly; what somebody changed since is left and listed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Iterator
from decimal import Decimal

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import UndoRefused
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.runs.history import said_before
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run

from . import workshop
from .workshop import Carpenter
from .workshop import Colour
from .workshop import Item
from .workshop import Mark
from .workshop import Shelf
from .workshop import db
from .workshop import digest
from .workshop import instruct
from .workshop import reread

CarryOut = Callable[..., Run]


@pytest.fixture
def app(settings: dict[str, str]) -> Iterator[Flask]:
    with workshop.open_app() as app:
        first = Item(title="a", price=Decimal("1.50"), colour=Colour.RED, facts={"n": None}, marks=[Mark(word="old")])
        db.session.add(Shelf(name="top", items=[first, Item(title="b")]))
        db.session.commit()
        Carpenter.undone.clear()
        yield app


@pytest.fixture
def carry_out(app: Flask) -> CarryOut:
    """Let the AI use tools on the shelf, in this process, as a worker's job does."""

    def carry_out(*tools: Use, **options: object) -> Run:
        register_script("made", [list(tools), [Say("Done.")]] if tools else [[Say("Done.")]])
        shelf = db.session.scalars(sa.select(Shelf).order_by(Shelf.id)).first()
        assert shelf is not None
        options = {"actor": "ann", **options}
        run = instruct.generate_for(Carpenter(shelf), user_prompt="Go.", model="scripted:made", **options)
        db.session.refresh(run)
        db.session.expunge(run)
        generate(run.id)
        return reread(run)

    return carry_out


def name() -> str:
    db.session.remove()
    return db.session.scalars(sa.select(Shelf.name).order_by(Shelf.id)).first() or ""


def test_a_run_is_undone_and_redone_exactly(carry_out: CarryOut) -> None:
    before = digest()
    run = carry_out(Use("rename", name="low"), Use("add", title="c"), Use("clear"))
    assert [len(call.changes) for call in run.calls] == [1, 1, 4]
    after = digest()
    plan = instruct.undo_preview(run)
    assert (plan.name, plan.conflicts, plan.problem) == ("undo", [], None)
    assert digest() == after
    undone = instruct.undo(run, actor="bob")
    assert undone.conflicts == []
    assert digest() == before
    assert (undone.run.kind, undone.run.undoes, undone.run.actor) == ("undo", run.id, "bob")
    assert undone.run.status == "succeeded"
    assert Carpenter.undone == [["rename", "add", "clear"]]
    redone = instruct.redo(undone.run, actor="bob")
    assert digest() == after
    assert [call.name for call in reread(redone.run).calls] == ["redo"]
    assert instruct.undo(reread(redone.run)).run.calls[0].name == "undo"
    assert digest() == before


def test_one_call_is_undone_and_can_be_undone_again_after_a_redo(carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"), Use("add", title="c"))
    rename, add = run.calls
    undone = instruct.undo(rename).run
    assert name() == "top"
    rename, add = reread(run).calls
    assert (rename.undone_by, add.undone_by) == (undone.id, None)
    with pytest.raises(UndoRefused, match="has been undone"):
        instruct.undo(rename)
    instruct.redo(undone)
    assert (name(), reread(run).calls[0].undone_by) == ("low", None)
    instruct.undo(reread(run))
    assert name() == "top"
    assert db.session.scalar(sa.select(sa.func.count(Item.id))) == 2


def test_what_a_person_changed_since_is_left_alone_and_listed(carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"), Use("add", title="c"))
    db.session.scalars(sa.select(Shelf)).one().name = "mine"
    db.session.commit()
    [conflict] = instruct.undo_preview(run).conflicts
    assert (conflict.name, conflict.wrote, conflict.current, conflict.wanted) == ("name", "low", "mine", "top")
    undone = instruct.undo(run)
    assert [one.id for one in undone.conflicts] == [conflict.id]
    assert name() == "mine"
    assert db.session.scalar(sa.select(sa.func.count(Item.id))) == 2


def test_a_conflict_can_be_forced_and_anything_can_be_left_out(carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"), Use("add", title="c"))
    db.session.scalars(sa.select(Shelf)).one().name = "mine"
    db.session.commit()
    plan = instruct.undo_preview(run)
    [added] = [one.id for row in plan.rows for one in row.fields if one.name == "*"]
    undone = instruct.undo(run, force=[plan.conflicts[0].id], skip=[added])
    assert (undone.conflicts, name()) == ([], "top")
    assert db.session.scalar(sa.select(sa.func.count(Item.id))) == 3


def test_an_edit_of_a_person_between_two_of_the_ai_is_not_undone(carry_out: CarryOut) -> None:
    earlier = carry_out(Use("rename", name="one"))
    db.session.scalars(sa.select(Shelf)).one().name = "person"
    db.session.commit()
    later = carry_out(Use("rename", name="two"))
    instruct.undo(later)
    assert name() == "person"
    assert [one.current for one in instruct.undo_preview(reread(earlier)).conflicts] == ["person"]


def test_a_row_to_which_others_refer_by_now_stays(carry_out: CarryOut) -> None:
    run = carry_out(Use("add", title="c"))
    added = db.session.scalars(sa.select(Item).where(Item.title == "c")).one()
    added.marks.append(Mark(word="mine"))
    db.session.commit()
    [conflict] = instruct.undo(run).conflicts
    assert conflict.conflict == "Rows of marks refer to it by now."
    assert db.session.scalar(sa.select(sa.func.count(Item.id))) == 3


def test_what_the_database_refuses_is_a_conflict_in_words(carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"))
    db.session.add(Shelf(name="top"))
    db.session.commit()
    undone = instruct.undo(run)
    assert [one.conflict is not None and "unique" in one.conflict for one in undone.conflicts] == [True]
    assert name() == "low"


def test_a_row_that_is_gone_and_a_key_that_was_taken_are_conflicts(carry_out: CarryOut) -> None:
    run = carry_out(Use("add", title="c"), Use("dismantle"))
    assert [call.undo_problem for call in run.calls] == [None, None] or run.calls[1].status == "failed"
    added = carry_out(Use("add", title="d"))
    db.session.execute(sa.delete(Item).where(Item.title == "d"))
    db.session.commit()
    assert [one.conflict for one in instruct.undo(added).conflicts] == ["It is gone already."]


def test_what_was_not_seen_cannot_be_undone(carry_out: CarryOut) -> None:
    run = carry_out(Use("run_sql", name="x"), Use("refuse", name="y"))
    assert "SQL text" in (run.calls[0].undo_problem or "")
    assert run.calls[1].changes == []
    with pytest.raises(UndoRefused, match="SQL text"):
        instruct.undo(run)


def test_a_run_that_changed_nothing_or_is_at_work_is_refused_in_words(carry_out: CarryOut) -> None:
    idle = carry_out()
    assert instruct.undo_preview(idle).problem == "It changed nothing that could be taken back."
    db.session.execute(sa.update(Run).where(Run.id == idle.id).values(status="running"))
    db.session.commit()
    with pytest.raises(UndoRefused, match="still at work"):
        instruct.undo(reread(idle))


def test_of_two_undos_at_once_one_is_told_that_the_other_was_faster(app: Flask, carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"))
    told: list[str] = []
    start = threading.Barrier(2)

    def press() -> None:
        with app.app_context():
            mine = db.session.get_one(Run, run.id)
            start.wait()
            try:
                told.append(instruct.undo(mine).run.kind)
            except UndoRefused as refusal:
                told.append(str(refusal))
            db.session.remove()

    run = reread(run)
    db.session.remove()
    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told)[1] == "undo"
    assert "undone" in sorted(told)[0]
    assert db.session.scalar(sa.select(sa.func.count(Run.id)).where(Run.kind == "undo")) == 1


def test_what_an_undo_does_outside_waits_for_its_commit_and_a_worker(carry_out: CarryOut) -> None:
    run = carry_out(Use("order"))
    undone = instruct.undo(run).run
    undo_id = undone.id
    assert Carpenter.undone == [["order"]]
    generate(undo_id)
    assert Carpenter.undone[1:] == [["called wood off", f"{undo_id}:1:effect:1"]]
    [call] = reread(db.session.get_one(Run, undo_id)).calls
    assert [effect.status for effect in call.effects] == ["done"]


def test_a_rule_of_the_app_that_refuses_the_undo_leaves_everything(
    carry_out: CarryOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Carpenter, calls: object) -> None:
        raise RuntimeError("not now")

    run = carry_out(Use("rename", name="low"))
    run_id = run.id
    monkeypatch.setattr(Carpenter, "handle_undo", refuse)
    with pytest.raises(RuntimeError, match="not now"):
        instruct.undo(run)
    assert name() == "low"
    assert db.session.get_one(Run, run_id).calls[0].undone_by is None
    assert db.session.scalar(sa.select(sa.func.count(Run.id))) == 1


def test_the_pages_and_the_next_run_of_the_conversation_hear_of_it(carry_out: CarryOut) -> None:
    run = carry_out(Use("rename", name="low"), conversation="talk")
    sent = db.session.scalar(sa.select(sa.func.max(Outbox.seq)))
    undone = instruct.undo(run).run
    html = "".join(db.session.scalars(sa.select(Outbox.html).where(Outbox.seq > sent)))
    assert f"instruct_run_{undone.id}" in html
    assert f"instruct_call_{run.calls[0].id}" in html
    later = carry_out(conversation="talk")
    heard = [message.text for message in said_before(db.session(), later)]
    assert any("A person has undone what these calls changed: rename." in text for text in heard)
