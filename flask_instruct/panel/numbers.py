"""Numbers, dollars and moments as a reader writes them: Flask-Babel's locale and time zone where an app uses it, else
English and UTC. Dollars keep every digit that they have.
"""

from __future__ import annotations

from datetime import UTC
from datetime import date
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

from flask import current_app

from .language import gettext as _
from .language import whole_duration

_CENT = Decimal("0.01")


def whole(number: int | None) -> str:
    """Write a count, or a dash where it is not known."""
    if number is None:
        return "–"
    locale = _locale()
    if locale is None:
        return f"{number:,}"
    return str(import_module("babel.numbers").format_decimal(number, locale=locale))


def dollars(amount: Decimal | None) -> str:
    """Write dollars to their last digit, and two digits at least; a dash where the price is not known."""
    if amount is None:
        return "–"
    exact = amount.normalize()
    if exact.as_tuple().exponent > -2:  # type: ignore[operator]  # an amount is a number
        exact = exact.quantize(_CENT)
    locale = _locale()
    if locale is None:
        return f"${exact:,f}"
    numbers = import_module("babel.numbers")
    return str(numbers.format_currency(exact, "USD", locale=locale, decimal_quantization=False))


def seconds(length: float | None) -> str:
    """Write how long something took; a dash where that is not known."""
    if length is None:
        return "–"
    if length >= 9.95:
        return whole_duration(round(length))
    return _("%(n)s s", n=_decimal(max(length, 0.0), 2 if length < 0.995 else 1))


def moment(when: datetime) -> str:
    """Write a moment to the second."""
    locale = _locale()
    if locale is None:
        return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return str(import_module("flask_babel").format_datetime(when.astimezone(UTC).replace(tzinfo=None), "medium"))


def hour(when: datetime) -> str:
    """Write an hour of a chart, which is one of UTC."""
    return f"{day(when.date())} {when:%H:%M}"


def day(when: date) -> str:
    """Write a day, which is one of UTC."""
    locale = _locale()
    if locale is None:
        return f"{when:%Y-%m-%d}"
    return str(import_module("babel.dates").format_date(when, "medium", locale=locale))


def _decimal(number: float, places: int) -> str:
    text = f"{number:.{places}f}"
    locale = _locale()
    if locale is None:
        return text
    numbers = import_module("babel.numbers")
    return str(numbers.format_decimal(Decimal(text), locale=locale, decimal_quantization=False))


def _locale() -> Any:
    return import_module("flask_babel").get_locale() if "babel" in current_app.extensions else None
