"""The list of runs as CSV: the same runs, all of them, piece by piece, and nothing that a spreadsheet carries out."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_instruct.dashboard import spreadsheet
from flask_instruct.dashboard.spreadsheet import safe
from flask_instruct.runs.columns import now
from tests.panel.board import db

from .ledger import a_model_call
from .ledger import a_run


def read(client: FlaskClient, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/instruct/runs.csv{query}")
    assert answer.status_code == 200
    assert answer.mimetype == "text/csv"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="runs.csv"'
    return list(csv.DictReader(io.StringIO(answer.text)))


@pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)
def test_it_holds_what_the_filtered_list_holds_over_many_pieces(
    app: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreadsheet, "PIECE", 4)
    moment = now()
    with app.app_context():
        wanted = [a_run(at=moment - timedelta(minutes=number), actor="Bob").id for number in range(11)]
        a_run(actor="Ada")
    assert [row["run"] for row in read(client, "?actor=Bob")] == wanted
    assert len(read(client)) == 12


def test_numbers_are_exact(app: Flask, client: FlaskClient) -> None:
    with app.app_context():
        run = a_run(took=3.25)
        a_model_call(run, cost=Decimal("0.000000000007"))
        a_model_call(run, cost=Decimal(20))
        a_model_call(run, cost=None)
        a_run("queued")
    queued, row = read(client)
    assert (row["cost_usd"], row["calls_without_price"], row["seconds"]) == ("20.000000000007", "1", "3.250")
    assert (row["input_tokens"], row["output_tokens"], row["model_calls"]) == ("300", "60", "3")
    assert (queued["cost_usd"], queued["seconds"], queued["ended_at"]) == ("", "", "")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\uff1d"])
def test_what_a_spreadsheet_would_carry_out_is_quoted(app: Flask, client: FlaskClient, begin: str) -> None:
    attack = f'{begin}HYPERLINK("https://evil.example","a, b")'
    with app.app_context():
        a_run("failed", prompt=attack, actor=attack, tenant=attack, conversation=attack, model=attack,
              handler=attack, handler_name=attack, error_safe=attack, error_technical=attack)  # fmt: skip
    (row,) = read(client)
    cells = [cell for cell in row.values() if "HYPERLINK" in cell]
    assert len(cells) == 9
    assert all(cell == f"'{attack}" for cell in cells)


def test_other_cells_stay_as_they_are() -> None:
    assert [safe(value) for value in ("a=b", "", None, 0, "'x")] == ["a=b", "", "", "0", "'x"]


def test_it_is_sent_as_it_is_read(
    app: Flask, client: FlaskClient, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreadsheet, "PIECE", 2)
    with app.app_context():
        for _ in range(6):
            a_run()
        db.session.remove()
    statements.clear()
    answer = client.get("/instruct/runs.csv", buffered=False)
    pieces = answer.response
    next(iter(pieces))
    sent_first = len(statements)
    for _ in pieces:
        pass
    answer.close()
    assert sent_first < len(statements)


def test_secrets_are_not_in_it(app: Flask, client: FlaskClient) -> None:
    secret = app.config["SECRET_KEY"]
    with app.app_context():
        a_run("failed", prompt=f"Is {secret} safe?", error_technical="401: key sk-proj-abcdefghijklmnop is wrong")
    text = client.get("/instruct/runs.csv").text
    assert secret not in text
    assert "abcdefghijklmnop" not in text
