"""An app with its own models, for tests of runs: a notebook whose notes are written by tools of every temperament.

Configured by the environment alone, so that a worker process has the same app: DATABASE_URL and INSTRUCT_*.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import psutil
import sqlalchemy as sa
from flask import Flask
from flask import url_for
from flask_sqlalchemy import SQLAlchemy
from pydantic import Field
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct
from flask_instruct import ToolError
from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import register_script
from flask_instruct.runs.points import Point
from flask_instruct.runs.points import listen
from tests.support import wait_for


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)
instruct = Instruct()


class Notebook(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]


class Note(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    notebook_id: Mapped[int] = mapped_column(sa.ForeignKey("notebook.id"))
    text: Mapped[str] = mapped_column(unique=True)


class NoteKeeper(AiResponseHandler, record=Notebook):
    """Tools that treat the session as app code does."""

    def _add(self, text: str) -> None:
        db.session.add(Note(notebook_id=self.record.id, text=text))

    @ai_tool
    def write(self, text: str) -> str:
        """Write a note."""
        self._add(text)
        self.broadcast_append("notes", html=text)
        return f"Wrote {text}."

    @ai_tool
    def write_and_commit(self, text: str) -> str:
        """Write a note and commit, twice."""
        self._add(text)
        db.session.commit()
        self._add(f"{text} again")
        db.session.commit()
        return "Committed."

    @ai_tool
    def commit_then_raise(self, text: str) -> str:
        """Commit a note, then raise."""
        self._add(text)
        db.session.commit()
        raise RuntimeError("secret internals")

    @ai_tool
    def flush_then_refuse(self, text: str) -> str:
        """Flush a note, then refuse."""
        self._add(text)
        db.session.flush()
        self.broadcast_append("notes", html=text)
        raise ToolError("No such chapter; choose 1 or 2.")

    @ai_tool
    def roll_back(self, text: str) -> str:
        """Write a note and roll back."""
        self._add(text)
        db.session.flush()
        db.session.rollback()
        return "Rolled back."

    @ai_tool
    def nest(self, text: str) -> str:
        """Write a note in a savepoint, and fail in another."""
        with db.session.begin_nested():
            self._add(text)
        try:
            with db.session.begin_nested():
                self._add(text)
        except sa.exc.IntegrityError:
            return "One of two kept."
        return "Both kept."

    @ai_tool
    def duplicate(self, text: str) -> str:
        """Write the same note twice, without a look at the error."""
        self._add(text)
        self._add(text)
        return "Wrote both."

    @ai_tool
    def remove_session(self, text: str) -> str:
        """Write a note and throw the session away."""
        self._add(text)
        db.session.commit()
        db.session.remove()
        return "Removed."

    @ai_tool
    def die_once(self, flag: str, text: str) -> str:
        """Write a note, and take the worker down the first time."""
        self._add(text)
        db.session.commit()
        path = Path(flag)
        if not path.exists():
            path.write_text("died")
            os.kill(os.getpid(), signal.SIGKILL)
        return f"Wrote {text}, alive."

    @ai_tool
    def die(self, text: str) -> str:
        """Take the worker down."""
        os.kill(os.getpid(), signal.SIGKILL)
        return text

    @ai_tool
    def delegate(self, give_up: bool = False) -> str:
        """Start another run, and perhaps give up."""
        instruct.generate_for(NoteKeeper(self.record), user_prompt="Go on.", model="scripted:talk")
        if give_up:
            raise ToolError("Changed my mind.")
        return "Delegated."

    @ai_tool
    def hold(self, begun: str, go_on: str, text: str) -> str:
        """Write a note, say so in a file, and wait for another file."""
        self._add(text)
        Path(begun).touch()
        wait_for(Path(go_on).exists)
        return "Held."

    @ai_tool
    def reckon(self, seconds: float, text: str) -> str:
        """Write a note, and let no other thread of the process run for some time."""
        self._add(text)
        before = sys.getswitchinterval()
        sys.setswitchinterval(seconds * 2)
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass
        finally:
            sys.setswitchinterval(before)
        return "Reckoned."

    @ai_tool
    def link(self) -> str:
        """Tell the address of the notebook."""
        return url_for("notebook", notebook_id=self.record.id)

    @ai_tool(timeout=0.2)
    def dawdle(self, text: str) -> str:
        """Write a note and never come to an end."""
        self._add(text)
        db.session.flush()
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    def handle_tool_error(self, tool_name: str, exception: BaseException, arguments: object) -> None:
        self._add(f"error in {tool_name}: {type(exception).__name__}")
        db.session.commit()

    def handle_ai_finish(self, reason: str) -> None:
        self._add(f"finished: {reason}")

    def handle_ai_error(self, exception: Exception) -> None:
        self._add(f"ai error: {type(exception).__name__}")


def _unless_short(handler: AiResponseHandler, arguments: dict[str, object]) -> bool | str:
    return f"“{arguments['text']}” is long" if len(str(arguments["text"])) > 5 else False


class ChiefKeeper(NoteKeeper):
    """Tools that a person must approve first."""

    @ai_tool(approval=True)
    def publish(self, text: str, copies: Annotated[int, Field(ge=1, le=9)] = 1) -> str:
        """Publish a note, so many times."""
        for number in range(copies):
            self._add(f"{text} {number + 1}")
        return f"Published {copies}."

    @ai_tool(approval=_unless_short)
    def announce(self, text: str) -> str:
        """Announce a note; a short one needs nobody."""
        self._add(text)
        return f"Announced by {self.call.actor if self.call else None}."

    @ai_tool(approval=True)
    def publish_by_mail(self, text: str) -> str:
        """Publish a note and mail it."""
        self._add(text)
        self.after_commit(self.mail, text)
        return "Published."

    def mail(self, text: str) -> None:
        self._add(f"mailed {text}")

    def authorize_approval(self, tool: object, arguments: dict[str, object], actor: object) -> bool:
        return actor in ("lead", "chief") and arguments.get("text") != "never"


class Planner(ChiefKeeper):
    """Tools that can show what they would change before they do."""

    @ai_tool(approval=True, preview=True)
    def rework(self, suffix: str) -> str:
        """Change two notes, delete the third, add one, rename the notebook, and tell somebody."""
        if suffix == "fail":
            raise ToolError("No such suffix.")
        first, second, third = db.session.scalars(sa.select(Note).order_by(Note.id).limit(3))
        first.text += suffix
        second.text += suffix
        db.session.delete(third)
        self._add(f"new{suffix}")
        self.record.title = f"Reworked{suffix}"
        self.broadcast_append("notes", html="…")
        self.after_commit(self.mail, suffix)
        return "Reworked."

    @ai_tool(approval=True, preview=True)
    def rework_by_text(self, suffix: str) -> str:
        """Change all notes by a statement of text."""
        db.session.execute(sa.text("UPDATE note SET text = text || :suffix"), {"suffix": suffix})
        return "Reworked."

    @ai_tool(preview=True)
    def jot(self, text: str) -> str:
        """Write a note."""
        self._add(text)
        return "Jotted."

    @ai_tool(preview=True)
    def count(self) -> str:
        """Count the notes."""
        return f"{len(list(db.session.scalars(sa.select(Note))))} notes."


register_script("write_two", [[Say("I will write."), Use("write", text="a"), Use("write", text="b")], [Say("Done.")]])
register_script("ask_chief", [[Use("write", text="a"), Use("publish", text="b")], [Say("Done.")]])
register_script("talk", [[Say("Hello, 👋 world. ")]])
register_script("fail", [[Say("Well, "), Fail("overloaded", "busy")]])
register_script("fail_later", [[Use("write", text="a")], [Say("Well, "), Fail("overloaded", "busy")]])
register_script("cut", [[Say("Far too lo"), Stop("length")]])
register_script("slow", [[Say("One "), Wait(1.5), Say("two.")]])
register_script(
    "die_between",
    [
        [
            Use("write", text="first"),
            Use("die_once", flag=os.environ.get("INSTRUCT_TEST_FLAG", ""), text="second"),
            Use("write", text="third"),
        ],
        [Say("Done.")],
    ],
)
register_script("pause_between", [[Use("write", text="first")], [Wait(4), Use("write", text="second")], [Say("Done.")]])
register_script("deadly", [[Use("die", text="x")]])
register_script("endless_text", [[Say("word " * 4000, size=5, every=0.005)]])
register_script("always_overloaded", [[Fail("overloaded", "busy")]])
register_script(
    "hold_and_write",
    [
        [Use("hold", **json.loads(os.environ.get("INSTRUCT_TEST_HOLD", "{}"))), Use("write", text="second")],
        [Say("Never said.")],
    ],
)
register_script("reckon", [[Use("reckon", seconds=3.0, text="reckoned")], [Say("Done.")]])
register_script("loop", lambda request: [Use("link")])


def measure_at_the_end(file: str) -> None:
    """Let each process that carries out a run write down, as the run ends, what it holds: a line of JSON."""

    def reached(point: Point) -> None:
        if point == "ended":
            with open(file, "a") as lines:
                lines.write(json.dumps(held_by(psutil.Process())) + "\n")

    listen(reached)


def held_by(process: psutil.Process) -> dict[str, int]:
    """What a process holds: kilobytes of memory, open files and sockets, threads."""
    kilobytes = process.memory_info().rss // 1024
    return {"kilobytes": kilobytes, "descriptors": process.num_fds(), "threads": process.num_threads()}


if "INSTRUCT_TEST_MEASURES" in os.environ:
    measure_at_the_end(os.environ["INSTRUCT_TEST_MEASURES"])


def create_app_that_asks_its_database() -> Flask:
    """An app whose process has an open connection before its worker forks."""
    app = create_app()
    with app.app_context():
        db.session.execute(sa.select(1))
        db.session.remove()
    return app


def create_app() -> Flask:
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY="a long random text for tests",
        SQLALCHEMY_DATABASE_URI=os.environ["DATABASE_URL"],
    )
    db.init_app(app)
    instruct.init_app(app, db)

    @app.get("/notebooks/<int:notebook_id>")
    def notebook(notebook_id: int) -> str:
        return str(db.session.get(Notebook, notebook_id))

    return app
