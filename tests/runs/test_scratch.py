"""A database to throw away: the app works on copies for a while, and has its own back afterwards, untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import Instruct
from flask_instruct.runs.file_format import CannotReplay
from flask_instruct.runs.scratch import scratch_copy
from flask_instruct.runs.scratch import scratch_tables
from flask_instruct.state import State


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Page(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


class Visit(db.Model):  # type: ignore[name-defined,misc]
    __bind_key__ = "visits"
    id: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[str]


@pytest.fixture
def state(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[State]:
    """An app with two databases; of the second the test may say which."""
    name = getattr(request, "param", None)
    visits = request.getfixturevalue(name) if name else f"sqlite:///{tmp_path / 'visits.sqlite3'}"
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY="only for tests",
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path / 'pages.sqlite3'}",
        SQLALCHEMY_BINDS={"visits": visits},
    )
    db.init_app(app)
    Instruct(app, db)
    with app.app_context():
        db.create_all()
        db.session.add_all([Page(text="first"), Visit(place="first")])
        db.session.commit()
        yield app.extensions["instruct"]
        db.session.remove()
        for engine in db.engines.values():
            engine.dispose()


def rows() -> list[str]:
    db.session.rollback()
    return [*db.session.scalars(sa.select(Page.text)), *db.session.scalars(sa.select(Visit.place))]


def test_both_databases_are_copied_while_they_are_in_use_and_given_back(state: State) -> None:
    with db.engine.connect() as reader, state.app.app_context():
        assert reader.scalar(sa.select(Page.text)) == "first"
        with scratch_copy(state):
            assert rows() == ["first", "first"]
            db.session.add_all([Page(text="second"), Visit(place="second")])
            db.session.commit()
            assert rows() == ["first", "second", "first", "second"]
            assert "second" not in list(reader.scalars(sa.select(Page.text)))
            copies = [Path(str(engine.url.database)) for engine in db.engines.values()]
            assert all(copy.exists() for copy in copies)
    assert rows() == ["first", "first"]
    assert not any(copy.exists() for copy in copies)


def test_what_was_not_committed_is_not_copied(state: State) -> None:
    db.session.add(Page(text="second"))
    db.session.flush()
    with scratch_copy(state):
        assert rows() == ["first", "first"]


def test_the_database_is_given_back_also_after_an_error(state: State) -> None:
    before = dict(db.engines)
    with pytest.raises(RuntimeError), scratch_copy(state):
        raise RuntimeError
    with pytest.raises(CannotReplay, match="KeyError"), scratch_tables(state, lambda: {}["which"]):
        pass
    with pytest.raises(CannotReplay), scratch_copy(state, "sqlite:////nowhere/at/all"):
        pass
    assert dict(db.engines) == before
    assert rows() == ["first", "first"]


def test_empty_tables_are_filled_by_the_function_alone(state: State) -> None:
    with scratch_tables(state, lambda: db.session.add(Page(text="seeded"))):
        assert rows() == ["seeded"]
    assert rows() == ["first", "first"]


@pytest.mark.parametrize("state", ["postgres_database"], indirect=True)
def test_a_second_database_on_postgresql_becomes_empty_tables(state: State) -> None:
    with scratch_copy(state):
        assert rows() == ["first"]
    assert rows() == ["first", "first"]


def test_a_database_from_before_the_first_run_gets_the_ledgers_tables(state: State, tmp_path: Path) -> None:
    old = sa.create_engine(f"sqlite:///{tmp_path / 'old.sqlite3'}")
    with old.begin() as connection:
        connection.execute(sa.text("CREATE TABLE page (id INTEGER PRIMARY KEY, text VARCHAR)"))
        connection.execute(sa.text("INSERT INTO page (text) VALUES ('old')"))
    with scratch_copy(state, str(old.url)):
        assert rows() == ["old", "first"]
        assert sa.inspect(db.engine).has_table("instruct_run")
    assert not sa.inspect(old).has_table("instruct_run")
    with old.begin() as connection:
        connection.execute(sa.text("CREATE TABLE instruct_outbox (seq INTEGER PRIMARY KEY, html TEXT)"))
    with pytest.raises(CannotReplay, match=r"instruct_outbox is older .* run_id"), scratch_copy(state, str(old.url)):
        pass
    old.dispose()
