"""What language the panel speaks, and how it writes numbers and moments: as Flask-Babel has it where an app uses it,
else English and UTC.

The strings are in the gettext domain ``flask_instruct``. French comes with the package; an app adds a language, or puts
other words in the place of these, by ``translations/<locale>/LC_MESSAGES/flask_instruct.mo`` where Flask-Babel looks.
"""

from __future__ import annotations

import json
from datetime import UTC
from datetime import datetime
from decimal import Decimal
from importlib import import_module

from ..live.language import domain as _domain
from ..live.language import locale as _locale


def gettext(message: str, /, **values: object) -> str:
    """Translate a string; ``%(name)s`` in it is replaced by the value of that name."""
    text = _translated(message)
    return text % values if values else text


def ngettext(singular: str, plural: str, number: int, /) -> str:
    """Translate a string that counts; ``%(num)s`` in it is replaced by the number."""
    domain = _domain()
    if domain is not None:
        text: str = domain.ngettext(singular, plural, number)
        return text
    return (singular if number == 1 else plural) % {"num": number}


def marked(message: str, /) -> str:
    """Mark a string for extraction where it stands in a table; it is translated when it is shown."""
    return message


def duration(seconds: float) -> str:
    """Return a length of time in short words, such as ``0.4 s``, ``12 s`` or ``2 min 5 s``."""
    if seconds < 9.95:
        return gettext("%(n)s s", n=decimal(max(seconds, 0), 1))
    return whole_duration(round(seconds))


def whole_duration(seconds: int) -> str:
    """Return a length of time that still grows: as :func:`duration`, without fractions."""
    whole = max(seconds, 0)
    if whole < 60:
        return gettext("%(n)s s", n=whole)
    if whole < 3600:
        return gettext("%(m)s min %(s)s s", m=whole // 60, s=whole % 60)
    return gettext("%(h)s h %(m)s min", h=whole // 3600, m=whole % 3600 // 60)


def durations() -> str:
    """Return the patterns of :func:`whole_duration` for the script that counts, as a JSON list."""
    units = {"n": "{s}", "s": "{s}", "m": "{m}", "h": "{h}"}
    patterns = ("%(n)s s", "%(m)s min %(s)s s", "%(h)s h %(m)s min")
    return json.dumps([_translated(pattern) % units for pattern in patterns], ensure_ascii=False)


def decimal(number: float, places: int) -> str:
    """Write a number with so many digits after the point, which other languages write as a comma."""
    text = f"{number:.{places}f}"
    locale = _locale()
    if locale is None:
        return text
    pattern = f"#,##0.{'0' * places}"
    return str(import_module("babel.numbers").format_decimal(Decimal(text), pattern, locale=locale))


def whole(number: int) -> str:
    """Write a count."""
    locale = _locale()
    if locale is None:
        return f"{number:,}"
    return str(import_module("babel.numbers").format_decimal(number, locale=locale))


def moment(when: datetime) -> str:
    """Write day, hour and minute, in the reader's time zone."""
    if _locale() is None:
        return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    babel = import_module("flask_babel")
    naive = when.astimezone(UTC).replace(tzinfo=None)
    return f"{babel.format_date(_local(naive), 'medium', rebase=False)} {babel.format_time(naive, 'short')}"


def clock(when: datetime) -> str:
    """Write hour and minute, in the reader's time zone."""
    if _locale() is None:
        return f"{when.astimezone(UTC):%H:%M} UTC"
    return str(import_module("flask_babel").format_time(when.astimezone(UTC).replace(tzinfo=None), "short"))


def is_english() -> bool:
    """Tell whether the reader reads what the model was told as it is: the words for models are English."""
    locale = _locale()
    return locale is None or locale.language == "en"


def _translated(message: str) -> str:
    domain = _domain()
    return str(domain.gettext(message)) if domain is not None else message


def _local(naive: datetime) -> datetime:
    local: datetime = import_module("flask_babel").to_user_timezone(naive)
    return local
