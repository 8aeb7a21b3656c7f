"""The list of runs: what the address asks for, a page at a time, on both databases."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.datastructures import MultiDict

from flask_instruct.dashboard import listing
from flask_instruct.dashboard.filters import Filters
from flask_instruct.dashboard.listing import Place
from flask_instruct.dashboard.listing import count
from flask_instruct.dashboard.listing import page
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Run
from tests.panel.board import db

from .ledger import a_call
from .ledger import a_change
from .ledger import a_model_call
from .ledger import a_run
from .ledger import a_turn

both = pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)


def ids(found: listing.Page) -> list[str]:
    return [line.id for line in found.lines]


def asked(**given: str) -> Filters:
    return Filters.read(MultiDict(given))


@both
def test_pages_hold_each_run_once_though_new_ones_come_in_between(context: Flask) -> None:
    moment = now()
    # Some in the same moment: the id decides.
    stored = [a_run(at=moment - timedelta(minutes=number // 3)).id for number in range(23)]
    seen: list[str] = []
    before = None
    while True:
        found = page(db.session, Filters(), before=before, size=5)
        seen += ids(found)
        a_run(at=moment + timedelta(minutes=len(seen)))
        before = found.older
        if before is None:
            break
    assert sorted(seen) == sorted(stored)
    assert len(found.lines) == 3


@both
def test_the_way_back_leads_to_the_same_pages(context: Flask) -> None:
    moment = now()
    for number in range(14):
        a_run(at=moment - timedelta(minutes=number))
    first = page(db.session, Filters(), size=5)
    second = page(db.session, Filters(), before=first.older, size=5)
    third = page(db.session, Filters(), before=second.older, size=5)
    assert ids(page(db.session, Filters(), after=third.newer, size=5)) == ids(second)
    assert ids(page(db.session, Filters(), after=second.newer, size=5)) == ids(first)
    assert first.newer is None
    assert third.older is None


def test_the_top_of_the_list_is_a_full_page(context: Flask) -> None:
    moment = now()
    for number in range(7):
        a_run(at=moment - timedelta(minutes=number))
    second = page(db.session, Filters(), before=page(db.session, Filters(), size=2).older, size=5)
    assert len(page(db.session, Filters(), after=second.newer, size=5).lines) == 5


@both
def test_each_filter_finds_what_it_names_and_nothing_else(context: Flask) -> None:
    moment = now()
    wanted = a_run(
        "failed",
        at=moment - timedelta(days=3),
        handler="instruct://Writer/9",
        handler_name="Writer",
        actor="Bob",
        tenant="acme",
        conversation="talk-1",
        kind="undo",
        model="anthropic:claude",
    )
    other = a_run("succeeded", at=moment)
    a_model_call(other, provider="openai", model="gpt")
    day = (moment - timedelta(days=3)).date().isoformat()
    finds = [
        {"status": "failed"},
        {"handler": "Writer"},
        {"handler": "instruct://Writer/9"},
        {"actor": "Bob"},
        {"tenant": "acme"},
        {"conversation": "talk-1"},
        {"kind": "undo"},
        {"model": "anthropic:claude"},
        {"since": day, "until": day},
        {"until": day},
        {"status": "failed", "actor": "Bob", "q": wanted.id[:13]},
    ]
    for given in finds:
        assert ids(page(db.session, asked(**given))) == [wanted.id], given
        assert count(db.session, asked(**given)) in (1, None)
    for given in ({"model": "openai:gpt"}, {"model": "gpt"}, {"since": moment.date().isoformat()}, {"kind": "ai"}):
        assert ids(page(db.session, asked(**given))) == [other.id], given
    for given in ({"actor": "bob"}, {"actor": "Bo"}, {"handler": "%"}, {"tenant": "' OR 1=1 --"}, {"status": "active"}):
        assert ids(page(db.session, asked(**given))) == [], given


@both
def test_what_makes_no_sense_in_an_address_is_left_out(context: Flask, client: FlaskClient) -> None:
    run = a_run()
    for query in (
        "status=odd&kind=none&since=yesterday&until=2030-13-40",
        "before=nonsense",
        "before=9999-12-31T23:59:59.999999-23:59_00000000-0000-0000-0000-000000000000",
        "after=_",
        "until=9999-12-31",
        "since=0001-01-01",
        "q=%00%00",
        "q=%ED%A0%80",
        f"handler={'x' * 5000}",
        "range=forever",
    ):
        answer = client.get(f"/instruct/runs?{query}")
        assert answer.status_code == 200, query
    assert run.id in client.get("/instruct/runs?status=odd&kind=none&since=yesterday").text


@both
def test_a_search_finds_texts_and_ids_and_takes_wildcards_for_what_they_are(context: Flask) -> None:
    percent = a_run(prompt="Raise it by 100% please")
    plain = a_run(prompt="Raise it by 100 points")
    error = a_run("failed", error_safe="No answer", error_technical="Timeout_in read")
    assert ids(page(db.session, asked(q="100%"))) == [percent.id]
    assert ids(page(db.session, asked(q="%%%"))) == []
    assert ids(page(db.session, asked(q="t_in"))) == [error.id]
    assert ids(page(db.session, asked(q="s_t"))) == []
    assert ids(page(db.session, asked(q="RAISE IT"))) == [plain.id, percent.id]
    assert plain.id in ids(page(db.session, asked(q=plain.id[:20].upper())))


def test_too_short_a_text_is_not_searched_for_and_said_to_be(context: Flask, client: FlaskClient) -> None:
    run = a_run()
    answer = client.get("/instruct/runs?q=zz").text
    assert run.id in answer
    assert "3 characters at least" in answer


@both
def test_a_search_reads_no_more_than_so_many_texts_at_once(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SEARCHED", 10)
    moment = now()
    found = a_run(at=moment - timedelta(hours=30), prompt="The treasure is here")
    for number in range(25):
        a_run(at=moment - timedelta(hours=number))
    first = page(db.session, asked(q="treasure"))
    assert (ids(first), first.searched_all) == ([], False)
    second = page(db.session, asked(q="treasure"), before=first.older)
    third = page(db.session, asked(q="treasure"), before=second.older)
    assert ids(third) == [found.id]
    assert (third.older, third.searched_all) == (None, True)
    back = page(db.session, asked(q="treasure"), after=third.newer)
    assert (ids(back), back.searched_all) == ([], False)


@both
def test_a_line_has_the_sums_of_its_run(context: Flask) -> None:
    run = a_run(took=7)
    turn = a_turn(run)
    call = a_call(turn)
    a_call(turn, status="failed", error_kind="tool_error")
    a_change(call, 1)
    a_change(call, 2)
    a_model_call(run, turn, cost=Decimal("0.000000000001"))
    a_model_call(run, cost=Decimal("0.25"))
    a_model_call(run, cost=None, input_tokens=None, output_tokens=None)
    (line,) = page(db.session, Filters()).lines
    assert (line.calls, line.failed_calls, line.changes, line.model_calls) == (2, 1, 2, 3)
    assert (line.input_tokens, line.output_tokens, line.unpriced) == (200, 40, 1)
    assert line.cost == Decimal("0.250000000001")
    assert line.seconds == 7


def test_a_page_costs_the_same_statements_for_one_run_and_for_many(context: Flask, statements: list[str]) -> None:
    def cost() -> int:
        db.session.remove()
        statements.clear()
        page(db.session, Filters())
        return len(statements)

    a_model_call(a_run())
    one = cost()
    for _ in range(30):
        run = a_run()
        a_change(a_call(a_turn(run)))
        a_model_call(run)
    assert cost() == one <= 4


def test_runs_are_counted_up_to_a_number(context: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "COUNTED", 3)
    for _ in range(3):
        a_run()
    assert ">3 runs" in client.get("/instruct/runs").text.replace("\n", "").replace("  ", "")
    a_run()
    a_run()
    assert count(db.session, Filters()) == 4
    assert "More than 3 runs" in client.get("/instruct/runs").text


def test_filters_stand_in_the_address_and_come_back_from_it(client: FlaskClient) -> None:
    given = MultiDict(
        [("status", "failed"), ("status", "active"), ("handler", "A & B"), ("q", "100%"), ("since", "2030-05-01")]
    )
    filters = Filters.read(given)
    assert Filters.read(MultiDict(filters.address())) == filters
    page = client.get("/instruct/runs", query_string=given).text
    assert 'value="A &amp; B"' in page
    assert 'value="100%"' in page
    assert "runs.csv?handler=A+%26+B&amp;status=failed&amp;status=active&amp;q=100%25&amp;since=2030-05-01" in page


def test_a_place_in_the_list_is_read_as_it_was_written() -> None:
    place = Place(now(), "0190f3e2-7b1a-7c00-8000-000000000001")
    assert Place.read(str(place)) == place
    for text in ("", "_", "2030-05-01_x", "2030-05-01T10:00:00_0190f3e2-7b1a-7c00-8000-000000000001"):
        assert Place.read(text) is None


@both
def test_a_page_is_read_by_way_of_its_index(context: Flask) -> None:
    place = Place(now(), "0190f3e2-7b1a-7c00-8000-000000000001")
    newest = listing._columns(False).order_by(Run.created_at.desc(), Run.id.desc()).limit(51)
    undone = sa.select(Run.id).where(Run.undoes == place.id)
    assert "ix_instruct_run_created" in plan_of(newest)
    assert "ix_instruct_run_created" in plan_of(newest.where(place.is_before()))
    assert "ix_instruct_run_undoes" in plan_of(undone)


def plan_of(query: sa.Select[*tuple[Any, ...]]) -> str:
    """How the database would carry a query out; PostgreSQL as if its tables were large."""
    connection = db.session.connection()
    explain = "EXPLAIN QUERY PLAN"
    if db.engine.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN"
    written = query.compile(db.engine, compile_kwargs={"literal_binds": True})
    return str(connection.exec_driver_sql(f"{explain} {written}").all())
