"""``on_commit`` runs after the outermost commit, and never for what was rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_instruct.transactions import follow
from flask_instruct.transactions import on_commit


class AppSession(Session):
    """The sessions of an app, which the extension follows from the app's start."""


@pytest.fixture
def session() -> Iterator[Session]:
    engine = sa.create_engine("sqlite://")
    follow(AppSession)
    with AppSession(engine) as session:
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


@pytest.mark.parametrize("waiting", [False, True], ids=["the first of its session", "behind another one"])
@pytest.mark.parametrize("hook", ["before_commit", "after_commit", "after_transaction_end"])
def test_what_a_listener_of_the_commit_asks_for_is_done_after_it_and_in_order(
    session: Session, calls: list[str], hook: str, waiting: bool
) -> None:
    """An app that broadcasts in its own ``after_commit`` got "deque mutated during iteration", or nothing at all."""
    done: list[str] = []

    def listener(session: Session, *about: object) -> None:
        if not done:
            done.append(hook)
            on_commit(session, lambda: calls.append(hook))

    sa.event.listen(session, hook, listener)
    session.begin()
    if waiting:
        on_commit(session, lambda: calls.append("before"))
    session.commit()
    assert calls == (["before", hook] if waiting else [hook])


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_a_listener_asks_for_as_a_savepoint_is_released_waits_for_the_rest(
    session: Session, calls: list[str], end: str
) -> None:
    sa.event.listen(session, "after_commit", lambda session: on_commit(session, lambda: calls.append("a")), once=True)
    session.begin()
    with session.begin_nested():
        pass
    assert calls == []
    getattr(session, end)()
    assert calls == (["a"] if end == "commit" else [])


def test_one_that_fails_costs_the_others_and_the_commit_nothing(
    session: Session, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    session.begin()
    on_commit(session, lambda: calls.append(str(1 / 0)))
    on_commit(session, lambda: calls.append("a"))
    session.commit()
    assert calls == ["a"]
    assert "division by zero" in caplog.text
