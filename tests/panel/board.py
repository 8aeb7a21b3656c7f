"""An app with a panel, as small as it can be: boards with cards, people by name, a strict content security policy.

The script follows the request's first word, so that a test says what the model will do by what it asks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from threading import Event
from typing import Annotated
from typing import Any
from typing import Literal

import sqlalchemy as sa
from flask import Flask
from flask import redirect
from flask import render_template_string
from flask import session
from flask.typing import ResponseReturnValue
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
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.adapters.scripted import turn_number
from flask_instruct.messages import ModelRequest

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'"
)

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Board</title>
<link rel="icon" href="{{ url_for('static', filename='none.svg') }}">
<main><h1>Board</h1>
{{ instruct_panel(board, handler="Arranger", prompts=["Arrange", ("Chat", "Chat with me")]) }}
</main>
</html>"""

HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    '<turbo-stream action="remove" targets=".instruct-run"></turbo-stream>'
    "![x](https://evil.example/?q=1) {{ 7 * 7 }} \u202etxt.exe [go](javascript:window.broken=3)"
)

released = Event()
"""Set by a test to let the tool ``hold`` go."""

NOVEL = " ".join(f"word{number}" for number in range(2000))

LONG = "The quick brown fox jumps over the lazy dog. " * 45


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)
instruct = Instruct()


class Board(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="Board")


class Card(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    board_id: Mapped[int] = mapped_column(sa.ForeignKey("board.id"))
    text: Mapped[str]


class WorkerDied(BaseException):
    """Leaves everything as a killed worker would."""


class Arranger(AiResponseHandler, record=Board):
    @ai_tool
    def add_card(self, text: str) -> str:
        """Add a card."""
        db.session.add(Card(board_id=self.record.id, text=text))
        return f"Added {text}."

    @ai_tool
    def crash_once(self) -> str:
        """Take the worker down the first time."""
        if self.call and self.call.attempt == 1:
            raise WorkerDied
        return "Alive."

    @ai_tool(approval=lambda handler, arguments: "Publishing needs a lead.")
    def publish(
        self,
        title: Annotated[str, Field(max_length=30, description="What stands above it.")],
        copies: Annotated[int, Field(ge=1, le=9)] = 1,
        style: Literal["plain", "fancy"] = "plain",
        secret: bool = False,
    ) -> str:
        """Publish the board as so many cards."""
        for number in range(copies):
            db.session.add(Card(board_id=self.record.id, text=f"{title} {number + 1} {style} {secret}"))
        return f"Published {copies}."

    @ai_tool(approval=True, preview=True)
    def rewrite(self, title: str) -> str:
        """Give the board a title and two cards."""
        self.record.title = title
        db.session.add_all([Card(board_id=self.record.id, text=f"{title} {number}") for number in (1, 2)])
        return "Rewritten."

    def authorize_approval(self, tool: object, arguments: object, actor: object) -> bool:
        return str(actor).startswith("Lead")

    @ai_tool
    def hold(self, why: str) -> str:
        """Do nothing until the test says so."""
        return "Held." if released.wait(20) else "Nobody came."

    @ai_tool
    def add_slowly(self, text: str) -> str:
        """Add a card, which takes half a second."""
        db.session.add(Card(board_id=self.record.id, text=text))
        db.session.flush()
        time.sleep(0.5)
        return f"Added {text}."

    @ai_tool
    def check(self) -> str:
        """Check the board."""
        raise ToolError("The weights total 110, not 100.")


STORIES: Mapping[str, list[Turn]] = {
    "Arrange": [
        [Say("First **two** cards.", every=0), Use("add_card", text="one"), Use("add_card", text="two"), Use("check")],
        [Use("add_card", text="three"), Use("check_all")],
        [Say("# Done\n\n- one\n- two\n", every=0)],
    ],
    "Publish": [
        [Say("I would publish.", every=0), Use("publish", title="One", copies=2), Use("add_card", text="beside")],
        [Say("Done.", every=0)],
    ],
    "Rewrite": [[Use("rewrite", title="Plan of *the* week")], [Say("Done.", every=0)]],
    "Chat": [[Say("Hello, 👋 *world*.\r\nAnd more.", every=0.01)]],
    "Hold": [[Say("I hold.", every=0), Use("hold", why="to be looked at"), Use("check")], [Say("Done.")]],
    "Long": [[Say(f"**Story**\n\n{LONG}", every=0.015, size=10)], [Say("Done.")]],
    "Novel": [[Say(NOVEL, every=0.002, size=10)]],
    "Many": [
        [Say(LONG, every=0.002, size=10), *(Use("add_card", text=str(number)) for number in range(5))],
        [Say("Done.")],
    ],
    "Endless": [[Say("word " * 4000, every=0.02, size=10)], [Say("Done.")]],
    "Five": [[Use("add_slowly", text=str(number)) for number in range(5)], [Say("Done.")]],
    "Hostile": [
        [Say(HOSTILE, every=0), Use("add_card", text=HOSTILE), Use("add_card", raw=HOSTILE), Use(HOSTILE[:40])],
        [Say(HOSTILE, every=0)],
    ],
    "Crash": [
        [Use("add_card", text="one"), Use("crash_once"), Use("add_card", text="two")],
        [Say("Done.")],
    ],
    "Cut": [[Say("Far too lo", every=0), Stop("length")]],
    "Forever": [[Use("check")] for _ in range(20)],
    "Fail": [[Say("Well, "), Fail("overloaded", "529 <b>busy</b>")]],
}


def _play(request: ModelRequest) -> Turn:
    asked = next(message.text for message in reversed(request.messages) if message.role == "user")
    story = STORIES[asked.split()[0]]
    number = turn_number(request.messages)
    return story[number] if number < len(story) else [Say("Done.")]


register_script("board", _play)


def from_environment() -> Flask:
    """Make the app as a worker's process does."""
    return create_app(**json.loads(os.environ["BOARD"]))


def create_app(database_url: str, redis_url: str, key_prefix: str, **settings: Any) -> Flask:
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY="a long random text for tests",
        SQLALCHEMY_DATABASE_URI=database_url,
        INSTRUCT_REDIS_URL=redis_url,
        INSTRUCT_KEY_PREFIX=key_prefix,
        INSTRUCT_QUEUE=key_prefix,
        INSTRUCT_DEFAULT_MODEL="scripted:board",
        INSTRUCT_RETRIES=0,
        INSTRUCT_MAX_TOOL_RETRIES=20,
        INSTRUCT_NO_WORKER_NOTICE=600,
    )
    app.config.update(settings)
    db.init_app(app)
    instruct.init_app(app, db)

    @instruct.actor
    def actor() -> str | None:
        return session.get("name")

    @instruct.authorize
    def authorize(actor: object, handler: object) -> bool:
        return actor != "guest"

    @app.get("/as/<name>")
    def sign_in(name: str) -> ResponseReturnValue:
        session["name"] = name
        return redirect("/boards/1")

    @app.get("/boards/<int:board_id>")
    def board(board_id: int) -> str:
        return render_template_string(PAGE, board=db.get_or_404(Board, board_id))

    @app.after_request
    def protect(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = POLICY
        return response

    return app
