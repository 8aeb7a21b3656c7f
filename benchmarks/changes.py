"""``python -m benchmarks changes``: what it costs to record the rows that a tool changes.

The same tool is carried out with and without, in pairs: its flush alone, and its whole transaction with the rows of the
ledger that the record takes.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import Instruct
from flask_instruct.runs.capture import Capture
from flask_instruct.runs.change import Change
from flask_instruct.runs.change import keep
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from flask_instruct.runs.unit import joined_session
from flask_instruct.runs.unit import ledger_engine
from flask_instruct.runs.unit import unit_of_work

from .jobs import Line
from .jobs import Table

MOST = 1.1
"""Most that a tool's flush may take with the record, as a multiple of the same without."""


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Paragraph(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    number: Mapped[int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: pairs of tools, and rows that each changes."""

    repeats: int = 60
    rows: int = 100


QUICK = Sizes(repeats=2)


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of one tool."""

    flush: float
    whole: float


def report(sizes: Sizes, say: Callable[[str], object] = print) -> tuple[str, ...]:
    """Measure, tell the table, and return the aims that are missed."""
    say(f"SQLAlchemy {sa.__version__}, an SQLite file; {sizes.repeats} pairs, medians.\n")
    recorded: list[Cost] = []
    plain: list[Cost] = []
    with _desk(sizes.rows) as desk:
        for number in range(sizes.repeats + 3):
            for records, costs in ((True, recorded), (False, plain))[:: 1 if number % 2 else -1]:
                costs.append(desk.tool(2 * number + records, records=records))
    table = _table(sizes.rows, recorded[3:], plain[3:])
    say(str(table))
    return table.missed


def _table(rows: int, recorded: list[Cost], plain: list[Cost]) -> Table:
    lines = []
    for name, figure in (("flush", lambda cost: cost.flush), ("transaction, ledger rows too", lambda cost: cost.whole)):
        ratio = median(figure(a) / figure(b) for a, b in zip(recorded, plain, strict=True))
        text = f"{name:<30}{median(map(figure, plain)) * 1e3:>8.2f} ms   with the record {ratio:>5.3f} of it"
        # For the transaction there is none: it writes as many rows again, into the ledger.
        lines.append(Line(text, f"aim {MOST}", ratio / MOST) if name == "flush" else Line(text))
    return Table(f"CPU of a tool that changes {rows} rows", tuple(lines))


class _Desk:
    """A call of a run, whose tool changes the same rows over and over."""

    def __init__(self, app: Flask, rows: int) -> None:
        self._app = app
        self._engine = ledger_engine(db)
        db.session.add_all(Paragraph(text=f"Paragraph {number}.", number=0) for number in range(rows))
        run = Run(handler="instruct://Bench/1", handler_name="Bench", user_prompt="Go.")
        message = Message(run=run, seq=1)
        call = ToolCall(run=run, message=message, seq=1, provider_call_id="1", name="t", idempotency_key="1")
        db.session.add_all((run, message, call))
        db.session.commit()
        self._run_id, self._call_id = run.id, call.id
        db.session.remove()

    def tool(self, number: int, *, records: bool) -> Cost:
        """Carry the tool out, and take what it recorded away again."""
        gc.collect()
        start = time.process_time()
        with unit_of_work(self._engine) as unit, ExitStack() as stack:
            call = unit.ledger.get_one(ToolCall, self._call_id, with_for_update=True)
            capture = Capture(self._app.extensions["instruct"], unit.connection) if records else None
            if capture is not None:
                stack.enter_context(capture.listening())
            with joined_session(db, unit) as session:
                if capture is not None:
                    capture.follow(session)
                flush = self._work(number)
            stack.close()
            call.answer(f"Done {number}.")
            unit.flush()
            if capture is not None:
                keep(unit.connection, self._run_id, self._call_id, capture.changes)
        whole = time.process_time() - start
        self._clear(len(capture.changes) if capture is not None else None)
        return Cost(flush, whole)

    def _work(self, number: int) -> float:
        for paragraph in db.session.scalars(sa.select(Paragraph)).all():
            paragraph.text = f"Paragraph {paragraph.id}, version {number} {paragraph.text[-1]}"
        start = time.process_time()
        db.session.flush()
        return time.process_time() - start

    def _clear(self, recorded: int | None) -> None:
        with self._engine.begin() as connection:
            deleted = connection.execute(sa.delete(Change))
            rows = connection.scalar(sa.select(sa.func.count(Paragraph.id)))
        if recorded is not None and not recorded == deleted.rowcount == rows:
            raise RuntimeError(f"{recorded} changes of {rows} rows were recorded, {deleted.rowcount} were kept.")


@contextmanager
def _desk(rows: int) -> Iterator[_Desk]:
    with tempfile.TemporaryDirectory(prefix="instruct-bench-") as folder:
        app = Flask(__name__)
        url = f"sqlite:///{Path(folder) / 'changes.sqlite3'}"
        app.config.update(SECRET_KEY="a benchmark's", SQLALCHEMY_DATABASE_URI=url)
        db.init_app(app)
        Instruct(app, db)
        with app.app_context():
            db.create_all()
            gc.freeze()
            try:
                yield _Desk(app, rows)
            finally:
                gc.unfreeze()
                db.session.remove()
                ledger_engine(db).dispose()
                db.engine.dispose()
