"""An app with models of every shape, for tests of what tools change: children, tags, a tree, columns of all types."""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.ext.mutable import MutableDict
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import composite
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct
from flask_instruct import ai_tool
from flask_instruct.runs.capture import Capture
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import Run
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


class Point:
    """A composite of two columns."""

    def __init__(self, x: int | None, y: int | None) -> None:
        self.x, self.y = x, y

    def __composite_values__(self) -> tuple[int | None, int | None]:
        return self.x, self.y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self) -> int:
        return hash((self.x, self.y))


class Secret(sa.types.TypeDecorator[str]):
    """Text that its table holds backwards."""

    impl = sa.String(200)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else value[::-1]

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else value[::-1]


marks = sa.Table(
    "marks",
    db.metadata,
    sa.Column("item_id", sa.ForeignKey("item.id"), primary_key=True),
    sa.Column("mark_id", sa.ForeignKey("mark.id"), primary_key=True),
)
loose = sa.Table("loose", db.metadata, sa.Column("text", sa.String(50)))


class Shelf(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(50), unique=True)
    items: Mapped[list[Item]] = relationship(back_populates="shelf", cascade="all, delete-orphan", order_by="Item.id")
    parent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("shelf.id"))
    parent: Mapped[Shelf | None] = relationship(remote_side=id, back_populates="children")
    children: Mapped[list[Shelf]] = relationship(back_populates="parent")


class Item(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    shelf_id: Mapped[int] = mapped_column(sa.ForeignKey("shelf.id"))
    shelf: Mapped[Shelf] = relationship(back_populates="items")
    title: Mapped[str] = mapped_column("heading", sa.Text)
    price: Mapped[Decimal | None] = mapped_column(sa.Numeric(10, 2))
    colour: Mapped[Colour | None]
    facts: Mapped[dict[str, Any] | None] = mapped_column(MutableDict.as_mutable(sa.JSON()))
    marks: Mapped[list[Mark]] = relationship(secondary=marks, order_by="Mark.id")


class Mark(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(sa.String(50))


class Everything(Model):
    """A column of each type."""

    id: Mapped[UUID] = mapped_column(primary_key=True)
    text: Mapped[str | None]
    number: Mapped[int | None]
    ratio: Mapped[float | None]
    flag: Mapped[bool | None]
    amount: Mapped[Decimal | None] = mapped_column(sa.Numeric(12, 4))
    day: Mapped[date | None]
    moment: Mapped[datetime | None]
    zoned: Mapped[datetime | None] = mapped_column(sa.DateTime(timezone=True))
    clock: Mapped[time | None]
    span: Mapped[timedelta | None]
    uid: Mapped[UUID | None]
    colour: Mapped[Colour | None]
    word: Mapped[str | None] = mapped_column(sa.Enum("one", "two", name="word"))
    document: Mapped[Any] = mapped_column(sa.JSON, nullable=True)
    secret: Mapped[str | None] = mapped_column(Secret)
    at: Mapped[Point | None] = composite(
        mapped_column("at_x", sa.Integer, nullable=True), mapped_column("at_y", sa.Integer, nullable=True)
    )
    started: Mapped[int] = mapped_column(server_default="7")
    touched: Mapped[int] = mapped_column(default=0, onupdate=lambda: 5)


class Guarded(Model):
    """Columns that are kept out of the record, one of bytes, and a version."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    password: Mapped[str | None] = mapped_column(info={"instruct": "redact"})
    token: Mapped[str | None]
    seen: Mapped[int | None] = mapped_column(info={"instruct": "exclude"})
    content: Mapped[bytes | None]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


class Person(Model):
    """The root of a class that inherits over two tables."""

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column()
    name: Mapped[str]
    __mapper_args__ = {"polymorphic_on": kind, "polymorphic_identity": "person"}  # noqa: RUF012


class Manager(Person):
    id: Mapped[int] = mapped_column(sa.ForeignKey("person.id"), primary_key=True)
    level: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Folder(Model):
    """One whose children the database deletes, or lets go."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Page(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    folder_id: Mapped[int] = mapped_column(sa.ForeignKey("folder.id", ondelete="CASCADE"))
    text: Mapped[str]


class Footnote(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    page_id: Mapped[int] = mapped_column(sa.ForeignKey("page.id", ondelete="CASCADE"))
    text: Mapped[str]


class Link(Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    folder_id: Mapped[int | None] = mapped_column(sa.ForeignKey("folder.id", ondelete="SET NULL"))


class Carpenter(AiResponseHandler, record=Shelf):
    """Tools for runs on a shelf."""

    undone: list[list[str]] = []  # noqa: RUF012

    @ai_tool
    def rename(self, name: str) -> str:
        """Rename the shelf."""
        self.record.name = name
        return f"Renamed to {name}."

    @ai_tool
    def add(self, title: str) -> str:
        """Add an item."""
        self.record.items.append(Item(title=title, colour=Colour.RED))
        return f"Added {title}."

    @ai_tool
    def clear(self) -> str:
        """Take all items away."""
        self.record.items.clear()
        return "Cleared."

    @ai_tool
    def dismantle(self) -> str:
        """Delete every item by a statement."""
        db.session.execute(sa.delete(Item).where(Item.shelf_id == self.record.id))
        return "Dismantled."

    @ai_tool
    def run_sql(self, name: str) -> str:
        """Rename by SQL text."""
        db.session.execute(sa.text("UPDATE shelf SET name = :name"), {"name": name})
        return "Renamed."

    @ai_tool
    def refuse(self, name: str) -> str:
        """Rename and fail."""
        self.record.name = name
        db.session.flush()
        raise RuntimeError("no")

    def handle_undo(self, calls: Any) -> None:
        Carpenter.undone.append([call.name for call in calls])
        if any(call.name == "order" for call in calls):
            self.after_commit(self.call_off, "wood")

    def call_off(self, what: str) -> None:
        """Call an order off; stands for a mail."""
        assert self.call is not None
        Carpenter.undone.append([f"called {what} off", self.call.idempotency_key])

    @ai_tool
    def order(self) -> str:
        """Order wood."""
        self.record.name = "ordered"
        return "Ordered."


def create_app() -> Flask:
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY="a long random text for tests",
        SQLALCHEMY_DATABASE_URI=os.environ["DATABASE_URL"],
        INSTRUCT_REDACT=["guarded.token"],
    )
    db.init_app(app)
    instruct.init_app(app, db)
    with app.app_context():
        if db.engine.dialect.name == "sqlite":
            sa.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    return app


@contextmanager
def open_app() -> Iterator[Flask]:
    """Make the app and its tables, push its context, and let go of everything at the end."""
    app = create_app()
    with app.app_context():
        db.create_all()
        try:
            yield app
        finally:
            db.session.remove()
            state = app.extensions["instruct"]
            state.live.close()
            if state._redis is not None:
                state.redis.close()
            ledger_engine(db).dispose()
            for engine in db.engines.values():
                engine.dispose()


@contextmanager
def captured(app: Flask) -> Iterator[Capture]:
    """Do what is inside as a tool does it, and commit; the capture has its changes afterwards."""
    with unit_of_work(ledger_engine(db)) as unit:
        capture = Capture(app.extensions["instruct"], unit.connection)
        with capture.listening(), joined_session(db, unit) as session:
            capture.follow(session)
            yield capture
    db.session.remove()


def reread(run: Run) -> Run:
    """Return the run as it stands in the database now."""
    run_id = sa.inspect(run).identity
    db.session.remove()
    return db.session.get_one(Run, run_id)


def told(capture: Capture) -> list[tuple[str, str, str, Any, Any]]:
    """What was recorded, in short."""
    return [(one.action, one.table, one.key, one.before, one.after) for one in capture.changes]


def contents(left_out: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """Every row of the app's own tables, as its database has it."""
    db.session.remove()
    found: dict[str, list[Any]] = {}
    with db.engine.connect() as connection:
        for table in db.metadata.sorted_tables:
            if table.name not in Ledger.metadata.tables and table.name not in left_out:
                columns = [column for column in table.columns if column.name != "version"]
                nulls = [column.is_(None) for column in columns]
                rows = connection.execute(sa.select(*columns, *nulls))
                found[table.name] = sorted(map(repr, rows))
    return found


def digest() -> str:
    """A hash over every row of the app's own tables."""
    return hashlib.sha256(repr(contents()).encode()).hexdigest()
