"""Figures as drawings: shapes that fit their box, and the same numbers in a table."""

from __future__ import annotations

import re
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_instruct.dashboard.charts import HEIGHT
from flask_instruct.dashboard.charts import Chart
from flask_instruct.dashboard.charts import Number
from flask_instruct.dashboard.charts import Series
from flask_instruct.dashboard.charts import _round_up

from .ledger import a_model_call
from .ledger import a_run


def a_chart(*series: Series) -> Chart:
    def told(number: Number | None) -> str:
        return str(number)

    return Chart("key", "Title", "", list(series), [str(n) for n in range(len(series[0].values))], told)


@pytest.mark.parametrize(
    ("number", "top"),
    [(0, 1), (1, 1), (3, 5), (5, 5), (11, 20), (0.3, 0.5), (0.02, 0.02), (99, 100), (0.00007, 0.0001), (1234, 2000)],
)
def test_the_upper_edge_is_a_round_number_that_nothing_is_above(number: float, top: float) -> None:
    assert _round_up(number) == top


def test_columns_stand_on_each_other_and_inside_the_box() -> None:
    chart = a_chart(Series("a", "done", [3, 0, None]), Series("b", "failed", [1, 2, 0]))
    (first,), (second, alone) = chart.columns(0), chart.columns(1)
    assert chart.top == 5
    assert (first.y, first.height) == (40, 60)
    assert (second.y + second.height, second.height) == (first.y, 20)
    assert (alone.y + alone.height, alone.height) == (HEIGHT, 40)
    assert all(each.x >= 0 and each.x + each.width <= chart.width for each in (first, second, alone))


def test_a_line_is_broken_where_a_number_is_missing() -> None:
    chart = a_chart(Series("a", "working", [None, 1.0, 2.0, None, 1.0], "line"))
    assert chart.path(0) == "M15 50L25 0M43 50H47"
    assert a_chart(Series("a", "working", [None, None], "line")).path(0) == ""


def test_the_table_has_a_row_for_each_moment() -> None:
    chart = a_chart(Series("a", "done", [Decimal("0.5"), None]), Series("b", "failed", [1, 2]))
    assert chart.rows() == [("0", ["0.5", "1"]), ("1", ["None", "2"])]


def test_the_page_draws_without_style_and_names_each_drawing(app: Flask, client: FlaskClient) -> None:
    with app.app_context():
        a_model_call(a_run(took=3), cost=Decimal("0.0123"))
        a_run("failed")
    page = client.get("/instruct/?range=24h").text
    drawings = re.findall(r"<svg class=\"instruct-dash-chart__plot\".*?</svg>", page, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        svg = ElementTree.fromstring(drawing)
        named = {each.get("id") for each in svg if each.tag in ("title", "desc")}
        assert svg.get("role") == "img"
        assert set((svg.get("aria-labelledby") or "").split()) == named
        assert all((each.text or "").strip() for each in svg if each.tag in ("title", "desc"))
        assert not [each for each in svg.iter() if each.get("style") or each.tag in ("style", "script")]
    assert page.count("<rect") >= 3
    assert "$0.0123" in page
    assert " style=" not in page
