"""The sums of the dashboard equal a count by hand, on both databases, and cost the same however much there is."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from decimal import Decimal

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_instruct.dashboard.figures import figures
from flask_instruct.dashboard.span import LONGEST
from flask_instruct.dashboard.span import Span
from tests.panel.board import db

from .ledger import a_model_call
from .ledger import a_run

both = pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)

NOW = datetime(2030, 5, 10, 14, 25, tzinfo=UTC)


def nearest_rank(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def told(seconds: float) -> object:
    """The same as far as a page tells it."""
    return pytest.approx(seconds, abs=0.0051 if seconds < 1 else 0.051 if seconds < 10 else 0.51)


@both
@pytest.mark.parametrize("name", ["24h", "7d"])
def test_they_equal_a_count_by_hand(context: Flask, name: str) -> None:
    chance = random.Random(7)
    span = Span.read({"range": name}, NOW)
    length = (span.end - span.begin).total_seconds()
    form = "%Y-%m-%d %H" if span.step == "hour" else "%Y-%m-%d"
    runs: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    took: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    cost: dict[str, Decimal] = defaultdict(Decimal)
    failed: dict[str, int] = defaultdict(int)
    for number in range(60):
        at = span.begin + timedelta(seconds=chance.random() * length)
        status = chance.choice(["succeeded", "succeeded", "failed", "cancelled", "limited", "running"])
        run = a_run(status, at=at, took=number / 4, handler_name=chance.choice(["Writer", "Sorter"]))
        runs[at.strftime(form)][status] += 1
        if status == "succeeded":
            took[at.strftime(form)].append(number / 4)
        price = Decimal(chance.randint(1, 10**9)) / 10**12
        broken = chance.random() < 0.2
        call_at = at + timedelta(seconds=2)
        a_model_call(run, cost=price, seconds=number / 8, error_class="Cut" if broken else None, created_at=call_at)
        if span.begin <= call_at < span.end:
            cost[call_at.strftime(form)] += price
            failed[call_at.strftime(form)] += broken
            if not broken:
                seconds[call_at.strftime(form)].append(number / 8)
    # Neither what is outside of the span counts, nor what people take back.
    for at in (span.begin - timedelta(seconds=1), span.end):
        a_model_call(a_run(at=at), created_at=at)
    a_run("failed", at=span.begin, kind="undo")
    found = figures(db.session, span)
    for bucket, moment in zip(span.names(), found.moments, strict=True):
        assert moment.runs == {
            "done": runs[bucket]["succeeded"],
            "failed": runs[bucket]["failed"],
            "stopped": runs[bucket]["cancelled"] + runs[bucket]["limited"],
            "active": runs[bucket]["running"],
        }
        assert (moment.cost or 0) == cost[bucket]
        assert moment.failed_calls == failed[bucket]
        for given, got in ((took[bucket], moment.run_seconds), (seconds[bucket], moment.call_seconds)):
            ranks = (nearest_rank(given, 50), nearest_rank(given, 95)) if given else None
            assert (got is None) == (ranks is None)
            for rank, shown in zip(ranks or (), got or (), strict=True):
                assert shown == told(rank)
    assert found.cost == sum(cost.values())
    assert found.runs() == 60
    assert sum(each.runs for each in found.handlers) == 60
    assert {each.name for each in found.handlers} == {"Writer", "Sorter"}
    (model,) = found.models
    assert (model.provider, model.model, model.cost) == ("scripted", "board", found.cost)
    every = [value for values in seconds.values() for value in values]
    assert model.seconds == (told(nearest_rank(every, 50)), told(nearest_rank(every, 95)))


@both
def test_without_any_run_there_is_nothing_and_nothing_breaks(context: Flask, client: FlaskClient) -> None:
    found = figures(db.session, Span.read({}, NOW))
    assert (found.cost, found.tokens, found.runs(), found.models, found.handlers) == (None, 0, 0, [], [])
    assert client.get("/instruct/").status_code == 200


def test_they_cost_the_same_statements_for_one_run_and_for_many(context: Flask, statements: list[str]) -> None:
    span = Span.read({"range": "7d"}, datetime.now(UTC))

    def cost() -> int:
        statements.clear()
        figures(db.session, span)
        return len(statements)

    a_model_call(a_run())
    one = cost()
    for number in range(25):
        a_model_call(a_run(handler_name=f"Handler{number % 5}"), model=f"model-{number % 7}")
    assert cost() == one <= 8


def test_the_whole_first_page_costs_few_statements(context: Flask, client: FlaskClient, statements: list[str]) -> None:
    for _ in range(20):
        a_model_call(a_run())
    db.session.remove()
    statements.clear()
    assert client.get("/instruct/").status_code == 200
    assert len(statements) <= 16


def test_a_call_without_a_price_is_told_apart_from_one_that_costs_nothing(context: Flask) -> None:
    run = a_run(at=NOW - timedelta(hours=1))
    a_model_call(run, cost=None)
    found = figures(db.session, Span.read({"range": "24h"}, NOW))
    assert (found.cost, found.unpriced) == (None, 1)
    a_model_call(run, cost=Decimal(0), model="free")
    found = figures(db.session, Span.read({"range": "24h"}, NOW))
    assert (found.cost, found.unpriced) == (Decimal(0), 1)


def test_a_span_is_one_of_the_usual_ones_or_the_days_that_are_named() -> None:
    hours = Span.read({"range": "24h"}, NOW)
    assert (hours.step, hours.end, len(hours.moments())) == ("hour", datetime(2030, 5, 10, 15, tzinfo=UTC), 24)
    week = Span.read({}, NOW)
    assert (week.name, week.step, week.days) == ("7d", "day", (date(2030, 5, 4), date(2030, 5, 10)))
    assert len(week.moments()) == 7
    named = Span.read({"since": "2030-05-01", "until": "2030-05-03"}, NOW)
    assert (named.days, named.step, len(named.moments())) == ((date(2030, 5, 1), date(2030, 5, 3)), "day", 3)
    assert Span.read({"since": "2030-05-09"}, NOW).step == "hour"
    assert Span.read({"since": "2031-01-01", "until": "2029-01-01"}, NOW).days == (date(2029, 1, 1), date(2029, 1, 1))
    long = Span.read({"since": "1990-01-01"}, NOW)
    assert long.end - long.begin == LONGEST
    assert Span.read({"range": "for ever", "since": "soon"}, NOW).name == "7d"
