"""The notebook app with a handler that does things outside: letters, which are lines of a file. A worker has it too.

The request is JSON of ``[tool, arguments]``; the model's last words are the result that it was told.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sqlalchemy as sa
from flask import current_app

from flask_instruct import Tool
from flask_instruct import ToolError
from flask_instruct import Uncertain
from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import register_script
from flask_instruct.messages import ModelRequest
from flask_instruct.runs.models import Run
from flask_instruct.transactions import on_commit
from tests.support import wait_for

from .notebook import ChiefKeeper
from .notebook import Note
from .notebook import Notebook
from .notebook import create_app
from .notebook import db

__all__ = ["Correspondent", "WorkerDied", "create_app", "sent"]


class WorkerDied(BaseException):
    """Leaves everything as a killed worker would."""


def sent(folder: Path) -> list[str]:
    """The letters that went out: who they are for, and the key they were given."""
    file = folder / "sent"
    return file.read_text().splitlines() if file.exists() else []


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Greet(Tool):
    """Greet somebody."""

    def call(self, folder: str) -> str:
        self.after_commit(self.wave, folder)
        self.after_commit(self.handler.send, folder, "reader")
        return "Greeted."

    def wave(self, folder: str) -> None:
        with (Path(folder) / "sent").open("a") as file:
            file.write(f"wave {self.tool_call.idempotency_key}\n")


class Correspondent(ChiefKeeper, record=Notebook):
    ai_tools = [Greet]  # noqa: RUF012
    letters_folder = ""

    @ai_tool(timeout=0.5)
    def write_letters(self, folder: str, to: list[str], then: str = "") -> str:
        """Write a note, and letters to some."""
        self._add("letters written")
        for name in to:
            self.after_commit(self.send, folder, to=name)
        ENDINGS.get(then, lambda handler: None)(self)
        return "Letters written."

    def send(self, folder: str, to: str) -> None:
        """Send a letter; what is special about some people happens before it goes out, or after."""
        self.letters_folder = folder
        BEFORE.get(to, lambda handler: None)(self)
        assert self.call is not None
        with (Path(folder) / "sent").open("a") as file:
            file.write(f"{to} {self.call.idempotency_key}\n")
        AFTER.get(to, lambda handler: None)(self)

    @ai_tool(timeout=20)
    def write_patiently(self, folder: str, to: str) -> str:
        """Write a note, and a letter that may take long."""
        self._add("letters written")
        self.after_commit(self.send, folder, to)
        return "Letters written."

    async def send_slowly(self, folder: str) -> None:
        self.send(folder, "async reader")

    @ai_tool
    def write_async(self, folder: str) -> str:
        """Write a letter that is sent by a coroutine."""
        self.after_commit(self.send_slowly, folder)
        return "Letters written."


def refuse(handler: Correspondent) -> None:
    raise ToolError("No letters today.")


def roll_back(handler: Correspondent) -> None:
    db.session.rollback()


def roll_back_inside(handler: Correspondent) -> None:
    with db.session.begin_nested() as savepoint:
        handler.after_commit(handler.send, "/nowhere", "nobody")
        savepoint.rollback()


def die_at_commit(handler: Correspondent) -> None:
    on_commit(db.session, kill)


def give_up_at_commit(handler: Correspondent) -> None:
    def give_up() -> None:
        raise WorkerDied

    on_commit(db.session, give_up)


def lose_at_commit(handler: Correspondent) -> None:
    assert handler.call is not None
    run_id = handler.call.run_id
    on_commit(db.session, lambda: take_over(run_id))


def take_over(run_id: str | None) -> None:
    """Become the worker that has the run, one that dies at once."""
    with db.engine.begin() as other:
        other.execute(sa.update(Run).where(Run.id == run_id).values(attempt=Run.attempt + 1))


def lose(handler: Correspondent) -> None:
    assert handler.call is not None
    take_over(handler.call.run_id)


def stop(handler: Correspondent) -> None:
    assert handler.call is not None
    assert db.session.get_one(Run, handler.call.run_id).cancel()


def look(handler: Correspondent) -> None:
    """The tool's edits are committed, and no transaction of ours is open: another can be."""
    with db.engine.begin() as other:
        assert list(other.scalars(sa.select(Note.text))) == ["letters written"]
        other.execute(sa.insert(Note).values(notebook_id=handler.record.id, text="looked"))


def leave(handler: Correspondent) -> None:
    raise SystemExit(3)


def fail(handler: Correspondent) -> None:
    raise RuntimeError("secret internals")


def bounce(handler: Correspondent) -> None:
    raise ToolError("Nobody lives there.")


def hang_up(handler: Correspondent) -> None:
    raise Uncertain("The post office hung up in the middle of it.")


def give_up(handler: Correspondent) -> None:
    raise WorkerDied


def delete(handler: Correspondent) -> None:
    db.session.execute(sa.delete(Note))
    db.session.delete(handler.record)


def promise_in_a_thread(handler: Correspondent) -> None:
    """Raise what is raised in the thread."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]

    def promise() -> None:
        with app.app_context():
            handler.after_commit(handler.send, "/nowhere", "nobody")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(promise).result()


def keep_book(handler: Correspondent) -> None:
    handler._add("sent")
    handler.broadcast_append("notes", html="sent")


def keep_book_twice(handler: Correspondent) -> None:
    handler._add("letters written")


def promise_more(handler: Correspondent) -> None:
    handler.after_commit(handler.send, "/nowhere", "nobody")


ENDINGS = {
    "refuse": refuse,
    "roll back": roll_back,
    "roll back inside": roll_back_inside,
    "die at commit": die_at_commit,
    "give up at commit": give_up_at_commit,
    "lose at commit": lose_at_commit,
    "delete": delete,
    "promise in a thread": promise_in_a_thread,
}


def wait(handler: Correspondent) -> None:
    """Say that it has begun, and wait for the test."""
    folder = Path(handler.letters_folder)
    (folder / "begun").touch()
    wait_for((folder / "go on").exists, timeout=20)


BEFORE = {
    "waiter": wait,
    "killer before": lambda handler: kill(),
    "looker": look,
    "stopper": stop,
    "taker": lose,
    "bookkeeper": keep_book,
    "bad bookkeeper": keep_book_twice,
    "leaver": leave,
    "failure": fail,
    "bouncer": bounce,
    "promiser": promise_more,
}
AFTER = {
    "killer after": lambda handler: kill(),
    "half taken": hang_up,
    "sleeper": lambda handler: time.sleep(30),
    "quitter": give_up,
}


def _play(request: ModelRequest) -> Turn:
    if "stopper" in request.messages[0].text and request.messages[-1].role == "tool":
        return [Wait(30), Say("Never said.")]
    if request.messages[-1].role == "tool":
        return [Say("\n".join(result.content for result in request.messages[-1].results))]
    calls: Sequence[tuple[str, dict[str, object]]] = json.loads(request.messages[-1].text)
    return [Use(tool, **arguments) for tool, arguments in calls]


register_script("letters", _play)
