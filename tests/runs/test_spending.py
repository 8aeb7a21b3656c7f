"""What runs, conversations and days have cost: exact sums on both databases, with every physical call in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from decimal import Decimal
from decimal import localcontext

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_instruct.runs.columns import now
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.spending import Spending
from flask_instruct.runs.spending import spent_by_conversation
from flask_instruct.runs.spending import spent_by_run
from flask_instruct.runs.spending import spent_on_day

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    Ledger.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def statements(session: Session) -> Iterator[list[str]]:
    """Every statement that the database gets."""
    heard: list[str] = []

    def hear(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        heard.append(statement)

    engine = session.get_bind()
    sa.event.listen(engine, "before_cursor_execute", hear)
    yield heard
    sa.event.remove(engine, "before_cursor_execute", hear)


def run_of(session: Session, *calls: ModelCall, **fields: str) -> str:
    """Store a run with its model calls; returns its id."""
    run = Run(handler="instruct://Keeper/1", handler_name="Keeper", user_prompt="Go.", **fields)
    session.add(run)
    session.flush()
    for call in calls:
        call.run_id = run.id
        session.add(call)
    session.commit()
    return run.id


def call(dollars: str | None = None, **fields: object) -> ModelCall:
    cost = Decimal(dollars) if dollars is not None else None
    return ModelCall(**{"model": "m", "attempt": 1, "cost": cost, "created_at": NOON, **fields})


# -- money -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dollars", ["0", "0.000000000001", "0.1", "0.0025", "1234567.890123456789", "-3"])
def test_dollars_come_back_as_they_went_in(session: Session, dollars: str) -> None:
    run_of(session, call(dollars))
    assert session.scalars(sa.select(ModelCall.cost)).one() == Decimal(dollars)


def test_an_unknown_price_stays_unknown(session: Session) -> None:
    run_of(session, call(None))
    assert session.scalars(sa.select(ModelCall.cost)).one() is None


def test_less_than_a_millionth_of_a_millionth_is_rounded(session: Session) -> None:
    run_of(session, call("0.0000000000015"), call("0.0000000000025"))
    assert set(session.scalars(sa.select(ModelCall.cost))) == {Decimal("2E-12")}


def test_sums_are_exact_and_decimal(session: Session) -> None:
    """Three times 0.1 is 0.3, which no sum of floats is."""
    run_of(session, *(call("0.1") for _ in range(3)))
    total = session.scalar(sa.select(sa.func.sum(ModelCall.cost)))
    assert (total, type(total)) == (Decimal("0.3"), Decimal)


def test_sums_are_exact_whatever_precision_the_app_has_set(session: Session) -> None:
    with localcontext() as context:
        context.prec = 2
        run_of(session, call("12.345678"), call("0.000001"))
        assert session.scalar(sa.select(sa.func.sum(ModelCall.cost))) == Decimal("12.345679")


def test_costs_can_be_compared_with_dollars(session: Session) -> None:
    run_of(session, call("0.5"), call("2"))
    assert session.scalars(sa.select(ModelCall.cost).where(ModelCall.cost > Decimal(1))).all() == [Decimal(2)]


# -- sums --------------------------------------------------------------------------------------------------------------


def test_a_run_is_the_sum_of_its_calls(session: Session) -> None:
    counts = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 60, "reasoning_tokens": 5}
    run_id = run_of(session, call("0.25", **counts), call("0.5", **counts, cache_write_tokens=7))
    run_of(session, call("100", input_tokens=1))
    assert spent_by_run(session, run_id) == Spending(2, 200, 40, 120, 7, 10, Decimal("0.75"), 0)


def test_failed_and_cut_attempts_count(session: Session) -> None:
    run_id = run_of(
        session,
        call("0.1", input_tokens=10, error_class="ProviderError"),
        call(None, error_class="ProviderError", try_number=2),
        call("0.2", input_tokens=10, output_tokens=5, try_number=3),
    )
    assert spent_by_run(session, run_id) == Spending(3, 20, 5, cost=Decimal("0.3"), unpriced=1)


def test_where_no_price_is_known_there_is_no_cost_and_not_zero(session: Session) -> None:
    run_id = run_of(session, call(None, input_tokens=10), call(None))
    assert spent_by_run(session, run_id) == Spending(2, 10, cost=None, unpriced=2)


def test_free_is_zero(session: Session) -> None:
    assert spent_by_run(session, run_of(session, call("0"))).cost == 0


def test_what_made_no_call_has_spent_nothing(session: Session) -> None:
    assert spent_by_run(session, run_of(session)) == spent_by_run(session, "no-such-run") == Spending()


def test_a_conversation_is_the_sum_of_its_runs(session: Session) -> None:
    run_of(session, call("1"), conversation="a", tenant="north")
    run_of(session, call("2"), call("4"), conversation="a", tenant="south", actor="7")
    run_of(session, call("8"), conversation="b")
    run_of(session, call("16"))
    assert spent_by_conversation(session, "a").cost == 7
    assert spent_by_conversation(session, "a", tenant="south").cost == 6
    assert spent_by_conversation(session, "a", tenant="north", actor="7") == Spending()


def test_a_day_begins_and_ends_in_utc(session: Session) -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    run_of(
        session,
        call("1", created_at=midnight - timedelta(microseconds=1)),
        call("2", created_at=midnight),
        call("4", created_at=midnight + timedelta(hours=23, minutes=59, seconds=59)),
        call("8", created_at=midnight + timedelta(days=1)),
    )
    days = [spent_on_day(session, date(2026, month, day)).cost for month, day in ((2, 28), (3, 1), (3, 2))]
    assert days == [1, 6, 8]


def test_a_day_can_be_that_of_one_actor_or_tenant(session: Session) -> None:
    run_of(session, call("1"), actor="7", tenant="north")
    run_of(session, call("2"), actor="7", tenant="south")
    run_of(session, call("4"), actor="8", tenant="south")
    run_of(session, call("8"))
    day = NOON.date()
    assert spent_on_day(session, day).cost == 15
    assert spent_on_day(session, day, actor="7").cost == 3
    assert spent_on_day(session, day, tenant="south").cost == 6
    assert spent_on_day(session, day, actor="7", tenant="south").cost == 2
    assert spent_on_day(session, day, actor="") == Spending()


def test_each_sum_is_one_statement(session: Session, statements: list[str]) -> None:
    run_id = run_of(session, call("1"), conversation="a")
    statements.clear()
    spent_by_run(session, run_id)
    spent_by_conversation(session, "a")
    spent_on_day(session, now().date(), tenant="north")
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == len(statements) == 3
