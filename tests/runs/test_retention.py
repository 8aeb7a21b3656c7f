"""Old runs are deleted with all that belongs to them, active ones never, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.orm import Session

from flask_instruct.runs.ages import read_age
from flask_instruct.runs.ages import write_age
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import ACTIVE
from flask_instruct.runs.models import ENDED
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.retention import Pruned
from flask_instruct.runs.retention import prune
from tests.operating import a_run

from .notebook import db

YEAR = timedelta(days=365)
MONTH = timedelta(days=30)


@pytest.fixture
def session(app: Flask) -> Iterator[Session]:
    yield db.session()
    db.session.remove()


def rows(session: Session) -> dict[str, int]:
    """How many rows each table of the ledger has, where it has any."""
    counts = {name: session.scalar(sa.select(sa.func.count()).select_from(table)) for name, table in tables().items()}
    return {name: count for name, count in counts.items() if count}


def tables() -> dict[str, sa.Table]:
    return dict(Ledger.metadata.tables)


@pytest.mark.parametrize("status", ENDED)
def test_an_old_run_goes_with_all_its_rows(session: Session, status: str) -> None:
    a_run(status, age=YEAR)
    session.execute(sa.delete(Outbox))
    assert set(rows(session)) == set(Ledger.metadata.tables) - {"instruct_outbox"}
    assert prune(session, MONTH) == Pruned(1, 0)
    assert rows(session) == {}


@pytest.mark.parametrize("status", ACTIVE)
def test_an_active_run_stays_however_old_it_is(session: Session, status: str) -> None:
    a_run(status, age=YEAR)
    assert prune(session, MONTH).runs == 0
    assert rows(session)["instruct_run"] == 1


@pytest.mark.parametrize(("effect", "runs"), [("pending", 0), ("running", 0), ("done", 1), ("unknown", 1)])
def test_a_run_with_an_effect_still_to_be_carried_out_stays(session: Session, effect: str, runs: int) -> None:
    a_run(age=YEAR, effect=effect)
    assert prune(session, MONTH, dry_run=True).runs == runs
    assert prune(session, MONTH).runs == runs
    assert rows(session).get("instruct_effect", 0) == 1 - runs


def test_a_run_counts_from_its_end(session: Session) -> None:
    run = a_run("succeeded", age=YEAR)
    run.ended_at = run.ended_at + YEAR - timedelta(days=1) if run.ended_at else None
    session.commit()
    assert prune(session, MONTH).runs == 0


def test_old_broadcasts_go_once_they_went_out(session: Session) -> None:
    a_run(age=YEAR)
    assert prune(session, MONTH).broadcasts == 2
    assert [row.position for row in session.scalars(sa.select(Outbox))] == [None]


def test_a_dry_run_counts_and_deletes_nothing(session: Session) -> None:
    a_run(age=YEAR)
    before = rows(session)
    assert prune(session, MONTH, dry_run=True) == Pruned(1, 2)
    assert rows(session) == before


@pytest.mark.parametrize("count", [4, 5])
def test_many_runs_go_in_batches(session: Session, count: int) -> None:
    for _ in range(count):
        a_run(age=YEAR)
    kept = a_run(age=timedelta(days=1)).id
    commits: list[object] = []
    sa.event.listen(session, "after_commit", commits.append)
    assert prune(session, MONTH, batch=2) == Pruned(count, 2 * count)
    assert len(commits) >= count // 2 + count
    assert list(session.scalars(sa.select(Run.id))) == [kept]
    # Those of the run that stays, and the broadcasts that did not go out.
    assert rows(session)["instruct_message"] == 1
    assert rows(session)["instruct_outbox"] == 3 + count


def test_a_run_that_is_started_again_in_that_moment_stays_whole(session: Session) -> None:
    run_id = a_run("failed", age=YEAR).id

    def retry(execution: sa.orm.ORMExecuteState) -> None:
        if execution.is_delete and not heard:
            heard.append(execution)
            with db.engine.begin() as connection:
                connection.execute(sa.update(Run).where(Run.id == run_id).values(status="queued", ended_at=None))

    heard: list[object] = []
    session.rollback()
    sa.event.listen(session, "do_orm_execute", retry)
    assert prune(session, MONTH).runs == 0
    assert heard
    assert rows(session)["instruct_message"] == 1


def test_foreign_keys_that_are_checked_are_no_obstacle(app: Flask, session: Session) -> None:
    if db.engine.dialect.name == "sqlite":
        session.connection().exec_driver_sql("PRAGMA foreign_keys = ON")
    a_run(age=YEAR)
    assert prune(session, MONTH) == Pruned(1, 2)
    assert set(rows(session)) == {"instruct_outbox"}


@pytest.mark.parametrize(
    ("text", "age"),
    [("30d", MONTH), ("12h", timedelta(hours=12)), ("2w", timedelta(weeks=2)), (" 90M ", timedelta(minutes=90))],
)
def test_an_age_is_a_number_and_a_unit(text: str, age: timedelta) -> None:
    assert read_age(text) == age


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5h", "30 d", "1y", "999999999d"])
def test_what_is_no_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="as in 12h, 30d or 2w"):
        read_age(text)


def test_an_age_is_said_in_its_largest_unit() -> None:
    assert [write_age(seconds) for seconds in (0, 59, 60, 7199, 86_399, 1_000_000)] == [
        "0s",
        "59s",
        "1m",
        "1h",
        "23h",
        "11d",
    ]
