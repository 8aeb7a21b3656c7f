"""An app with tables of odd shapes: unique columns, several classes in a table, computed columns, keys of all types."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import with_loader_criteria

from flask_instruct import Instruct
from flask_instruct.runs.capture import Capture
from flask_instruct.runs.change import keep
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from flask_instruct.runs.unit import joined_session
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.unit import unit_of_work


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)
instruct = Instruct()
Model: Any = db.Model


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"


class Named(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(8), unique=True)


class Place(Model):
    """One of a list, in which each has a place of its own."""

    id: Mapped[int] = mapped_column(primary_key=True)
    list_id: Mapped[int]
    position: Mapped[int]
    touched: Mapped[int] = mapped_column(default=0, onupdate=lambda: 5)
    __table_args__ = (sa.UniqueConstraint("list_id", "position"),)


class Doubled(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    half: Mapped[int]
    whole: Mapped[int] = mapped_column(sa.Computed("half * 2", persisted=True))


class Numbered(Model):
    id: Mapped[int] = mapped_column(sa.Identity(always=True), primary_key=True)
    text: Mapped[str]


class ByColour(Model):
    key: Mapped[Colour] = mapped_column(primary_key=True)
    text: Mapped[str]


class ByBytes(Model):
    key: Mapped[bytes] = mapped_column(sa.LargeBinary(16), primary_key=True)
    text: Mapped[str]


class Animal(Model):
    """Several classes in one table."""

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column()
    name: Mapped[str]
    __mapper_args__ = {"polymorphic_on": kind, "polymorphic_identity": "animal"}  # noqa: RUF012


class Dog(Animal):
    bark: Mapped[str | None]
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


class Cat(Animal):
    purr: Mapped[str | None]
    __mapper_args__ = {"polymorphic_identity": "cat"}  # noqa: RUF012


class Person(Model):
    """Several classes in a table each."""

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column()
    name: Mapped[str]
    __mapper_args__ = {"polymorphic_on": kind, "polymorphic_identity": "person"}  # noqa: RUF012


class Manager(Person):
    id: Mapped[int] = mapped_column(sa.ForeignKey("person.id", ondelete="CASCADE"), primary_key=True)
    level: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Kept(Model):
    """One that is marked as deleted, and that no session sees then."""

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    deleted: Mapped[bool] = mapped_column(default=False)


@sa.event.listens_for(db.session, "do_orm_execute")
def hide_deleted(execution: Any) -> None:
    if execution.is_select and not execution.is_column_load:
        seen = with_loader_criteria(Kept, Kept.deleted.is_(False))
        execution.statement = execution.statement.options(seen)


class Country(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(sa.String(5), unique=True)


class City(Model):
    """One that refers to another by something else than its key."""

    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(sa.ForeignKey("country.code", ondelete="CASCADE", onupdate="CASCADE"))


class Label(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(sa.String(8), unique=True)


class Labelled(Model):
    """One that forgets what it refers to where that changes."""

    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str | None] = mapped_column(sa.ForeignKey("label.word", onupdate="SET NULL"))


@contextmanager
def open_app() -> Iterator[Flask]:
    """Make the app and its tables, push its context, and let go of everything at the end."""
    app = Flask(__name__)
    app.config.update(SECRET_KEY="a long random text for tests", SQLALCHEMY_DATABASE_URI=os.environ["DATABASE_URL"])
    db.init_app(app)
    instruct.init_app(app, db)
    with app.app_context():
        if db.engine.dialect.name == "sqlite":
            sa.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
        db.create_all()
        try:
            yield app
        finally:
            db.session.remove()
            app.extensions["instruct"].live.close()
            ledger_engine(db).dispose()
            db.engine.dispose()


def contents() -> dict[str, list[str]]:
    """Every row of the app's own tables."""
    db.session.remove()
    with db.engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(sa.select(table))))
            for table in db.metadata.sorted_tables
            if table.name not in Ledger.metadata.tables
        }


def clear() -> None:
    with db.engine.begin() as connection:
        for table in reversed(db.metadata.sorted_tables):
            connection.execute(table.delete())


def ai_does(app: Flask, work: Any) -> tuple[str, str | None]:
    """Let a run do something in one call; give its id, and why it cannot be undone."""
    run = Run(handler="instruct://Nobody/1", handler_name="Nobody", user_prompt="Go.", status="succeeded")
    message = Message(run=run, seq=1, state="complete")
    db.session.add_all([run, message])
    db.session.commit()
    run_id, message_id = run.id, message.id
    db.session.remove()
    with unit_of_work(ledger_engine(db)) as unit:
        capture = Capture(app.extensions["instruct"], unit.connection)
        with capture.listening(), joined_session(db, unit) as session:
            capture.follow(session)
            work()
    call = ToolCall(run_id=run_id, message_id=message_id, seq=1, provider_call_id="", status="done", result="")
    call.name, call.idempotency_key, call.undo_problem = "work", run_id, capture.problem
    db.session.add(call)
    db.session.flush()
    keep(db.session.connection(), run_id, call.id, capture.changes)
    db.session.commit()
    return run_id, capture.problem
