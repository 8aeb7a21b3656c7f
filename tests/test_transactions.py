"""``on_commit`` runs after the outermost commit, and never for what was rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_instruct.transactions import on_commit


@pytest.fixture
def session() -> Iterator[Session]:
    engine = sa.create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def calls() -> list[str]:
    return []


def test_without_a_transaction_it_runs_at_once(session: Session, calls: list[str]) -> None:
    on_commit(session, lambda: calls.append("a"))
    assert calls == ["a"]


def test_it_waits_for_the_commit_and_runs_once(session: Session, calls: list[str]) -> None:
    session.begin()
    on_commit(session, lambda: calls.append("a"))
    on_commit(session, lambda: calls.append("b"))
    assert calls == []
    session.commit()
    session.execute(sa.text("select 1"))
    session.commit()
    assert calls == ["a", "b"]


def test_a_rollback_drops_it(session: Session, calls: list[str]) -> None:
    session.begin()
    on_commit(session, lambda: calls.append("a"))
    session.rollback()
    session.execute(sa.text("select 1"))
    session.commit()
    assert calls == []


def test_closing_without_a_commit_drops_it(session: Session, calls: list[str]) -> None:
    session.begin()
    on_commit(session, lambda: calls.append("a"))
    session.close()
    session.begin()
    session.commit()
    assert calls == []


def test_a_released_savepoint_waits_for_the_outer_commit(session: Session, calls: list[str]) -> None:
    session.begin()
    with session.begin_nested():
        on_commit(session, lambda: calls.append("a"))
    assert calls == []
    session.commit()
    assert calls == ["a"]


def test_a_rolled_back_savepoint_drops_only_its_own(session: Session, calls: list[str]) -> None:
    session.begin()
    on_commit(session, lambda: calls.append("outer"))
    inner = session.begin_nested()
    on_commit(session, lambda: calls.append("inner"))
    with session.begin_nested():
        on_commit(session, lambda: calls.append("innermost"))
    inner.rollback()
    session.commit()
    assert calls == ["outer"]


def test_the_function_may_use_the_session_again(session: Session, calls: list[str]) -> None:
    session.begin()

    def again() -> None:
        calls.append(str(session.scalar(sa.text("select 'used'"))))

    on_commit(session, again)
    session.commit()
    assert calls == ["used"]
