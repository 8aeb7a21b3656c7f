"""A small site with a database, whose models the pages follow: assessments, their comments, and cards on a board."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from jinja2 import DictLoader
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct
from flask_instruct import ToolError
from flask_instruct import ai_tool

TEMPLATES = {
    "_comment.html": '<li id="{{ dom_id(comment) }}">{{ comment.text }} ({{ comment.assessment.title }})</li>',
    "_reply.html": '<li id="{{ dom_id(reply) }}">{{ reply.text }} in reply</li>',
    "_instructions.html": '<p id="{{ dom_id(assessment, "instructions") }}">{{ assessment.instructions }}</p>',
    "_broken.html": "{{ comment.text.no.such.thing }}",
    "_failing.html": "{{ fail() }}",
    "_link.html": '<a href="{{ url_for("show") }}">{{ comment.text }}</a>',
    "_personal.html": "{{ current_user.name }}",
    "_token.html": "{{ csrf_token() }}",
    "_session.html": "{{ session['name'] }}",
    "_careful.html": "{% if current_user is defined %}{{ current_user.name }}{% else %}nobody{% endif %}",
}


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Assessment(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
    instructions: Mapped[str] = mapped_column(default="")

    comments: Mapped[list[Comment]] = relationship(
        back_populates="assessment", order_by="Comment.id", cascade="all, delete-orphan"
    )


class Comment(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    assessment_id: Mapped[int] = mapped_column(sa.ForeignKey("assessment.id"))
    kind: Mapped[str] = mapped_column(default="comment")
    text: Mapped[str] = mapped_column(default="")
    place: Mapped[int] = mapped_column(default=0)
    seen: Mapped[int] = mapped_column(default=0)

    assessment: Mapped[Assessment] = relationship(back_populates="comments")

    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "comment"}  # noqa: RUF012


class Reply(Comment):
    __mapper_args__ = {"polymorphic_identity": "reply"}  # noqa: RUF012


class Membership(db.Model):  # type: ignore[name-defined,misc]
    """A row whose key are two columns."""

    group: Mapped[str] = mapped_column(primary_key=True)
    person: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(default="")


class Commenter(AiResponseHandler, record=Assessment):
    """Tools that only edit: what the pages are told follows from the models."""

    @ai_tool
    def add(self, text: str) -> str:
        """Add a comment."""
        db.session.add(Comment(assessment=self.record, text=text))
        return "Added."

    @ai_tool
    def add_twice(self, text: str) -> str:
        """Add two comments, each committed by itself."""
        for number in (1, 2):
            db.session.add(Comment(assessment=self.record, text=f"{text} {number}"))
            db.session.commit()
        return "Added."

    @ai_tool
    def add_and_refuse(self, text: str) -> str:
        """Add a comment, commit, and refuse."""
        db.session.add(Comment(assessment=self.record, text=text))
        db.session.commit()
        raise ToolError("No.")

    @ai_tool
    def add_and_roll_back(self, text: str) -> str:
        """Add a comment and roll back."""
        db.session.add(Comment(assessment=self.record, text=text))
        db.session.flush()
        db.session.rollback()
        return "Rolled back."

    @ai_tool
    def show_and_roll_back(self, text: str) -> str:
        """Broadcast by hand what is rolled back, and then what is kept."""
        comment = Comment(assessment=self.record, text=text)
        db.session.add(comment)
        self.broadcast_append_to(self.record, "comments", target="list", html=f"{text} in vain")
        db.session.rollback()
        with db.session.begin_nested() as savepoint:
            self.broadcast_append_to(self.record, "comments", target="list", html=f"{text} in vain too")
            savepoint.rollback()
        self.broadcast_append_to(self.record, "comments", target="list", html=f"{text} for good")
        return "Shown."


def make_blog(database_url: str, **settings: Any) -> tuple[Flask, Instruct]:
    """Make the app and its extension; the tables are made by the caller."""
    app = Flask(__name__)
    app.secret_key = "a secret of the tests"
    app.testing = True
    app.config.update(SQLALCHEMY_DATABASE_URI=database_url, **settings)
    app.jinja_loader = DictLoader(TEMPLATES)
    db.init_app(app)
    instruct = Instruct(app)

    @app.get("/show")
    def show() -> str:
        return "shown"

    return app, instruct


def thread(comment: Comment) -> tuple[Assessment, str]:
    """The stream and the list of a comment."""
    return (comment.assessment, "comments")


def make_tables() -> None:
    """Make the tables of the models above, without those of the ledger."""
    db.metadata.create_all(db.engine, tables=[model.__table__ for model in (Assessment, Comment, Membership)])
