"""Prepared statements write and read what SQLAlchemy would: of every type of the ledger, on a connection as it is."""

from __future__ import annotations

from datetime import UTC
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.prepared import Prepared
from flask_instruct.runs.prepared import into

RUNS = cast(sa.Table, Run.__table__)
CALLS = cast(sa.Table, ModelCall.__table__)
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=UTC)


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    Ledger.metadata.create_all(engine)
    with Session(engine) as session:
        for name in ("first", "second"):
            session.add(Run(id=name, handler="h", handler_name="h", user_prompt="Go.", cancel_requested=False))
        session.commit()
    return engine


def test_values_of_every_type_come_back_as_they_were(engine: sa.Engine) -> None:
    change = Prepared(
        sa.update(RUNS).where(RUNS.c.id == sa.bindparam("which")), "context", "lease_until", "cancel_requested"
    )
    add = into(CALLS, "id", "run_id", "model", "attempt", "try_number", "cost", "created_at")
    call = {"run_id": "first", "model": "m\x00", "attempt": 1, "try_number": 1, "created_at": MOMENT}
    with engine.begin() as connection:
        values = {"context": {"a": [1, None]}, "lease_until": MOMENT, "cancel_requested": True}
        assert change.execute(connection, {"which": "first", **values}).rowcount == 1
        assert change.execute(connection, {"which": "nobody", **values}).rowcount == 0
        add.execute(connection, *({"id": name, "cost": Decimal("0.25"), **call} for name in "ab"))
    with Session(engine) as session:
        run, other = session.get_one(Run, "first"), session.get_one(Run, "second")
        assert (run.context, run.lease_until, run.cancel_requested) == ({"a": [1, None]}, MOMENT, True)
        assert (other.context, other.lease_until, other.cancel_requested) == (None, None, False)
        calls = session.scalars(sa.select(ModelCall).order_by(ModelCall.id)).all()
        assert [(one.id, one.model, one.cost, one.created_at) for one in calls] == [
            ("a", "m\ufffd", Decimal("0.25"), MOMENT),
            ("b", "m\ufffd", Decimal("0.25"), MOMENT),
        ]


def test_a_connection_on_which_the_tables_have_another_schema_is_heeded(engine: sa.Engine, tmp_path: Path) -> None:
    statement = Prepared(sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("which")))
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ATTACH '{tmp_path / 'other.db'}' AS other")
        there = connection.execution_options(schema_translate_map={None: "other"})
        Ledger.metadata.create_all(there)
        assert statement.execute(there, {"which": "first"}).first() is None
    with engine.connect() as connection:
        assert statement.execute(connection, {"which": "first"}).first() == ("first",)
