"""The place of a run that waits: in its conversation, or among those about the same record."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.line import place_of
from flask_instruct.runs.line import queued_beside
from flask_instruct.runs.models import Run

from .conftest import reread
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]


def places(*runs: Run) -> list[int]:
    return [place_of(db.session, reread(run)) for run in runs]


def become(run: Run, status: str) -> None:
    db.session.execute(sa.update(Run).where(Run.id == run.id).values(status=status))
    db.session.commit()


def test_about_a_record_a_place_counts_those_that_came_before_and_have_not_ended(ask: Ask) -> None:
    first, second, third = ask("talk"), ask("talk"), ask("talk")
    assert places(first, second, third) == [1, 2, 3]
    become(first, "running")
    assert places(second, third) == [2, 3]
    assert [run.id for run in queued_beside(db.session, reread(first))] == [second.id, third.id]
    # One that waits for a person keeps no worker from the others.
    become(first, "waiting_approval")
    assert places(second, third) == [1, 2]
    # Where several workers are free a later one may begin before an earlier one, which loses nothing by it.
    become(third, "running")
    assert places(second) == [1]
    become(first, "succeeded")
    assert places(second) == [1]


def test_a_conversation_is_a_line_of_its_own_in_which_everyone_waits_for_those_before(ask: Ask) -> None:
    beside = ask("talk")
    first, second = ask("talk", conversation="c"), ask("talk", conversation="c")
    assert places(beside, first, second) == [1, 1, 2]
    become(first, "waiting_approval")
    assert places(beside, second) == [1, 2]
    assert [run.id for run in queued_beside(db.session, reread(first))] == [second.id]
    become(first, "cancelled")
    assert places(beside, second) == [1, 1]


def test_other_records_have_lines_of_their_own(ask: Ask, app: Flask) -> None:
    here = ask("talk")
    db.session.add(Notebook(title="Another"))
    db.session.commit()
    another = db.session.scalars(sa.select(Notebook).where(Notebook.title == "Another")).one()
    there = instruct.generate_for(NoteKeeper(another), user_prompt="Go.", model="scripted:talk")
    assert places(here, there) == [1, 1]
