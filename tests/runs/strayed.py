"""The notebook app with tools that write beside their transaction. A worker has it too.

The request is JSON of ``[way, then]``.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable

import sqlalchemy as sa
from flask import current_app
from sqlalchemy.orm import Session

from flask_instruct import ToolError
from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.messages import ModelRequest

from .notebook import Note
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import create_app
from .notebook import db

__all__ = ["WAYS", "Strayer", "create_app"]


def a_note(text: str) -> sa.Insert:
    return sa.insert(Note).values(notebook_id=1, text=text)


def by_engine() -> None:
    with db.engine.begin() as connection:
        connection.execute(a_note("stray"))


def by_text() -> None:
    with db.engine.begin() as connection:
        written = "WITH told AS (SELECT 'stray' AS text) INSERT INTO note (notebook_id, text) SELECT 1, text FROM told"
        connection.execute(sa.text(written))


def by_session() -> None:
    with Session(db.engine) as session:
        session.add(Note(notebook_id=1, text="stray"))
        session.commit()


def by_own_engine() -> None:
    engine = sa.create_engine(os.environ["DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(a_note("stray"))
    engine.dispose()


def by_thread() -> None:
    app = current_app._get_current_object()  # type: ignore[attr-defined]

    def write() -> None:
        with app.app_context():
            db.session.add(Note(notebook_id=1, text="stray"))
            db.session.commit()

    thread = threading.Thread(target=write, name="helper")
    thread.start()
    thread.join()


def by_reading() -> None:
    with db.engine.begin() as connection:
        connection.execute(sa.select(Note))
        connection.execute(sa.text("WITH n AS (SELECT 1) SELECT * FROM n"))


def by_giving_up() -> None:
    with db.engine.connect() as connection:
        connection.execute(a_note("stray"))
        connection.rollback()
        connection.execute(sa.select(Note))
        connection.commit()


WAYS: dict[str, Callable[[], None]] = {
    "engine": by_engine,
    "text": by_text,
    "session": by_session,
    "own engine": by_own_engine,
    "thread": by_thread,
    "reading": by_reading,
    "giving up": by_giving_up,
}


class Strayer(NoteKeeper, record=Notebook):
    @ai_tool
    def stray(self, way: str, refuse: bool) -> str:
        """Write a note beside the transaction, then one in it."""
        WAYS[way]()
        self._add("own")
        db.session.commit()
        if refuse:
            raise ToolError("Not today.")
        return "Written."


def _play(request: ModelRequest) -> Turn:
    if request.messages[-1].role == "tool":
        return [Say("Done.")]
    way, refuse = json.loads(request.messages[0].text)
    return [Use("stray", way=way, refuse=refuse)]


register_script("strayed", _play)
