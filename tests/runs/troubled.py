"""The notebook app with tools that meet a database in trouble, and a server that waits less long for a worker that
was stopped. A worker has it too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import sqlalchemy as sa

from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.adapters.scripted import turn_number
from flask_instruct.messages import ModelRequest
from flask_instruct.runs import bounds

from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import create_app
from .notebook import db

__all__ = ["Troubled", "create_app", "hang_up_on"]

if "INSTRUCT_TEST_MARGIN" in os.environ:
    bounds.MARGIN = float(os.environ["INSTRUCT_TEST_MARGIN"])


def hang_up_on(pid: int) -> None:
    """Have PostgreSQL close a connection, as a restart or an administrator does."""
    with db.engine.connect() as other:
        other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


class Troubled(NoteKeeper, record=Notebook):
    @ai_tool
    def lose_connection(self, flag: str, swallow: bool = False) -> str:
        """Write a note and lose the connection, the first time."""
        self._add("kept")
        db.session.commit()
        if not Path(flag).exists():
            Path(flag).touch()
            hang_up_on(db.session.scalar(sa.text("SELECT pg_backend_pid()")) or 0)
            try:
                db.session.execute(sa.text("SELECT 1"))
            except sa.exc.OperationalError:
                if not swallow:
                    raise
        return "Written."

    @ai_tool
    def fail_by_itself(self) -> str:
        """Write a note, and raise what a database raises when it cannot be asked."""
        self._add("never")
        raise sa.exc.OperationalError("SELECT 1", {}, Exception("made up"))

    @ai_tool(timeout=1)
    def be_stopped(self, folder: str) -> str:
        """Write a note; the first time the whole worker is stopped in the middle of it."""
        self._add("held")
        db.session.flush()
        begun = Path(folder) / "begun"
        if not begun.exists():
            begun.write_text(str(os.getpid()))
            while not (Path(folder) / "go on").exists():
                pass
        return "Held."


def _play(request: ModelRequest) -> Turn:
    tool, arguments = json.loads(request.messages[0].text)
    turns: list[Turn] = [[Use(tool, **arguments)], [Use("write", text="after")], [Say("Done.")]]
    return turns[turn_number(request.messages)]


register_script("troubled", _play)
