"""Numbers, dollars and moments: exact, and as the reader's language writes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from datetime import datetime
from decimal import Decimal

import pytest
from flask import Flask
from flask_babel import Babel

from flask_instruct.panel import numbers

WHEN = datetime(2030, 5, 1, 14, 5, 9, tzinfo=UTC)


@pytest.fixture
def english() -> Iterator[None]:
    with Flask(__name__).app_context():
        yield


@pytest.fixture
def french() -> Iterator[None]:
    app = Flask(__name__)
    Babel(app, locale_selector=lambda: "fr", timezone_selector=lambda: "Europe/Paris")
    with app.test_request_context():
        yield


@pytest.mark.usefixtures("english")
def test_without_babel_they_are_english_and_utc() -> None:
    assert numbers.whole(1234567) == "1,234,567"
    assert numbers.moment(WHEN) == "2030-05-01 14:05:09 UTC"
    assert (numbers.day(WHEN.date()), numbers.hour(WHEN)) == ("2030-05-01", "2030-05-01 14:05")
    assert [numbers.seconds(length) for length in (0.04, 0.5, 3.21, 75)] == ["0.04 s", "0.50 s", "3.2 s", "1 min 15 s"]
    assert (numbers.whole(None), numbers.dollars(None), numbers.seconds(None)) == ("–", "–", "–")


@pytest.mark.usefixtures("english")
@pytest.mark.parametrize(
    ("amount", "written"),
    [
        ("0", "$0.00"),
        ("1200", "$1,200.00"),
        ("1E+3", "$1,000.00"),
        ("0.5", "$0.50"),
        ("0.000000000001", "$0.000000000001"),
        ("12345.678900", "$12,345.6789"),
    ],
)
def test_dollars_keep_every_digit(amount: str, written: str) -> None:
    assert numbers.dollars(Decimal(amount)) == written


@pytest.mark.usefixtures("french")
def test_with_babel_they_are_written_as_the_reader_does() -> None:
    assert numbers.whole(1234567) == "1\u202f234\u202f567"
    assert numbers.dollars(Decimal("1234.000000000001")) == "1\u202f234,000000000001\xa0$US"
    assert numbers.seconds(3.21) == "3,2\u202fs"
    assert numbers.moment(WHEN) == "1 mai 2030, 16:05:09"
    assert numbers.day(WHEN.date()) == "1 mai 2030"
