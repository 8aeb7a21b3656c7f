"""The app of the crash matrix: a notebook with a page that people watch, and a handler that writes in it, posts a
letter outside and asks a person. Also the app of its workers, where an ambush may wait (see ``faults``).
"""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa
from flask import Flask
from flask import render_template_string
from markupsafe import Markup

from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.runs import sweep

from . import notebook
from .faults import Ambush
from .notebook import Note
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db

FIRST_WORDS = "I will"
STORY: list[Turn] = [
    [Say(f"{FIRST_WORDS} write.", every=0), Use("write", text="a"), Use("post", text="b")],
    [Use("publish", text="c")],
    [Say("Done.", every=0)],
]

PAGE = """<!doctype html><title>Chronicle</title><main>
{{ turbo_stream_from(book) }}
<ul id="{{ dom_id(book, 'notes') }}">
{%- for note in notes %}<li id="{{ dom_id(note) }}">{{ note.text }}</li>{% endfor -%}
</ul>
{{ instruct_panel(book, handler=handler) }}
</main>"""

# Seconds; a page that missed something because of a crash is told sooner, which is also the greater risk of telling
# it too often.
sweep.PUBLISH_AFTER = 1.0

ambush = Ambush.from_environment()


class Chronicler(NoteKeeper, record=Notebook):
    def _add(self, text: str) -> None:
        note = Note(notebook_id=self.record.id, text=text)
        db.session.add(note)
        db.session.flush()
        self.broadcast_append("notes", html=Markup('<li id="note_{}">{}</li>').format(note.id, text))

    @ai_tool
    def write(self, text: str) -> str:
        """Write a note."""
        self._add(text)
        ambush.visit("inside the tool")
        return f"Wrote {text}."

    @ai_tool
    def post(self, text: str) -> str:
        """Write a note, and post it as a letter."""
        self._add(text)
        self.after_commit(self.send)
        return f"Wrote {text}."

    @ai_tool(approval=True)
    def publish(self, text: str) -> str:
        """Write a note that a person has to approve."""
        self._add(text)
        return f"Published {text}."

    def send(self) -> None:
        assert self.call is not None
        with Path(os.environ["INSTRUCT_TEST_LETTERS"]).open("a") as letters:
            letters.write(f"{self.call.idempotency_key}\n")


def create_app(handler: str = "Chronicler") -> Flask:
    """Make the app, whose page shows the panel of that handler."""
    app = notebook.create_app()

    @app.get("/chronicle")
    def chronicle() -> str:
        book = db.session.scalars(sa.select(Notebook)).one()
        notes = db.session.scalars(sa.select(Note).order_by(Note.id)).all()
        return render_template_string(PAGE, book=book, notes=notes, handler=handler)

    return app
