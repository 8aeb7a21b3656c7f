"""The stretch of time that the charts show: one of a few usual ones, or the days that the address names; in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta

from .sql import STEPS
from .sql import Step

LONGEST = timedelta(days=366)
"""A longer stretch is cut at its beginning: a chart has no room for more days."""
BY_THE_HOUR = timedelta(days=2)
"""Up to this length a chart has a column for each hour."""

USUAL: dict[str, timedelta] = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
FIRST = "7d"


@dataclass(frozen=True, slots=True)
class Span:
    """From ``begin`` up to ``end``, which is not in it, both at the beginning of an hour or a day.

    :param name: the usual one that it is; empty for days that were named.
    """

    begin: datetime
    end: datetime
    step: Step
    name: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str], now: datetime) -> Span:
        """Read ``range=7d``, or ``since`` and ``until`` as days; what makes no sense is left out."""
        since, until = as_day(given.get("since", "")), as_day(given.get("until", ""))
        if since is not None or until is not None:
            return cls._of_days(since, until, now)
        name = given.get("range", FIRST)
        name = name if name in USUAL else FIRST
        length = USUAL[name]
        if length <= BY_THE_HOUR:
            end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
            return cls(end - length, end, "hour", name)
        end = _midnight(now.date()) + timedelta(days=1)
        return cls(end - length, end, "day", name)

    @classmethod
    def _of_days(cls, since: date | None, until: date | None, now: datetime) -> Span:
        last = min(until or now.date(), now.date())
        first = min(since or last - timedelta(days=6), last)
        begin, end = _midnight(first), _midnight(last) + timedelta(days=1)
        begin = max(begin, end - LONGEST)
        return cls(begin, end, "hour" if end - begin <= BY_THE_HOUR else "day")

    @property
    def days(self) -> tuple[date, date]:
        """The first and the last day that it touches."""
        return self.begin.date(), (self.end - timedelta(microseconds=1)).date()

    def moments(self) -> list[datetime]:
        """Return the beginning of each hour or day."""
        step = timedelta(hours=1) if self.step == "hour" else timedelta(days=1)
        return [self.begin + step * number for number in range((self.end - self.begin) // step)]

    def names(self) -> list[str]:
        """Return the same as :data:`~.sql.STEPS` names them in SQL."""
        return [moment.strftime(STEPS[self.step][1]) for moment in self.moments()]


def as_day(text: str) -> date | None:
    """Return the day that a text such as ``2030-05-01`` names, or None."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
