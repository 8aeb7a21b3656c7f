"""What a tool returned, in words for a model; or why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from markupsafe import Markup
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct.errors import ToolError
from flask_instruct.results import cut
from flask_instruct.results import render_result


class Colour(Enum):
    RED = "red"


@dataclass
class Weight:
    value: Decimal


class Criterion(BaseModel):
    title: str
    weights: list[Weight]


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "row"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_text_is_told_as_it_is() -> None:
    assert render_result("Done, twice.\n\tReally.") == "Done, twice.\n\tReally."


def test_text_of_a_subclass_is_plain_text_afterwards() -> None:
    told = render_result(Markup("<b>x</b>"))
    assert told == "<b>x</b>"
    assert type(told) is str


@pytest.mark.parametrize("nothing", [None, "", "  \n"])
def test_nothing_is_told_as_something(nothing: object) -> None:
    assert render_result(nothing) == "Done."


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "[]"),
        ({}, "{}"),
        (0, "0"),
        (False, "false"),
        ({"a": (1, 2), "ü": None}, '{"a": [1, 2], "ü": null}'),
        ({1: "x"}, '{"1": "x"}'),
        (
            Criterion(title="Depth", weights=[Weight(Decimal("1.50"))]),
            '{"title": "Depth", "weights": [{"value": "1.50"}]}',
        ),
        (Weight(Decimal(2)), '{"value": "2"}'),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), '"2026-03-01T12:00:00Z"'),
        ([date(2026, 3, 1), timedelta(hours=1)], '["2026-03-01", "PT1H"]'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, '"red"'),
        ({"x"}, '["x"]'),
        (Path("a/b"), '"a/b"'),
        (b"bytes", '"bytes"'),
    ],
)
def test_all_else_is_told_as_json(value: object, told: str) -> None:
    assert render_result(value) == told


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "object"),
        (Row(id=1), "Row"),
        ([Row(id=1)], "Row"),
        (float("nan"), "float"),
        ({"a": float("inf")}, "dict"),
        (b"\xff", "bytes"),
        (circle(), "list"),
        (lambda: None, "function"),
        (ValueError("x"), "ValueError"),
    ],
)
def test_what_cannot_be_told_is_an_error_that_names_the_type(value: object, name: str) -> None:
    with pytest.raises(ToolError, match=name) as refusal:
        render_result(value)
    assert "tests." not in str(refusal.value)


def test_what_no_database_takes_is_taken_out() -> None:
    assert render_result("a\x00b\ud800") == "ab�"
    assert json.loads(render_result({"a": "b\ud800"})) == {"a": "b�"}


def test_a_long_result_is_cut_with_a_note() -> None:
    told = cut("x" * 1000, 200)
    assert len(told) == 200
    assert told.endswith("longer than 200 characters.]")
    assert cut("x" * 200, 200) == "x" * 200
