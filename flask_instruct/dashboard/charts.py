"""Figures as drawings: columns and lines in a box that stretches to its place, with the numbers beside for a table.

Only shapes with classes and attributes come out, no style: a strict content security policy has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Literal

from ..panel import numbers
from ..panel.language import gettext as _
from . import words
from .figures import OUTCOMES
from .figures import Figures
from .span import Span

HEIGHT = 100
"""Units of a drawing's height; each hour or day is :data:`WIDTH` units wide."""
WIDTH = 10
GAP = 1.6

Number = float | Decimal | int


@dataclass(frozen=True, slots=True)
class Series:
    """One row of numbers; None where there is none.

    :param tone: names its colour; ``shape`` says how it is drawn: columns stand on those of the series before.
    """

    label: str
    tone: str
    values: Sequence[Number | None]
    shape: Literal["columns", "line", "dashed"] = "columns"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a drawing, in its units."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and what it says.

    :param told: puts a number in words; ``moments`` names each hour or day.
    """

    key: str
    title: str
    summary: str
    series: list[Series]
    moments: list[str]
    told: Callable[[Number | None], str]

    @property
    def width(self) -> int:
        return WIDTH * len(self.moments)

    @property
    def height(self) -> int:
        return HEIGHT

    @property
    def empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def top(self) -> float:
        """The number at the upper edge: a round one that nothing is above."""
        stacked = [series.values for series in self.series if series.shape == "columns"]
        sums = [sum(float(value or 0) for value in at) for at in zip(*stacked, strict=True)]
        lines = [float(value or 0) for series in self.series if series.shape != "columns" for value in series.values]
        return _round_up(max([*sums, *lines, 0.0]))

    @property
    def top_label(self) -> str:
        return self.told(_as_told(self.top))

    def columns(self, number: int) -> list[Column]:
        """Return the columns of a series, on top of those before it."""
        below = [series for series in self.series[:number] if series.shape == "columns"]
        found = []
        for place, value in enumerate(self.series[number].values):
            if value:
                base = sum(float(series.values[place] or 0) for series in below)
                height = float(value) / self.top * HEIGHT
                y = HEIGHT - base / self.top * HEIGHT - height
                found.append(Column(_short(place * WIDTH + GAP), _short(y), _short(WIDTH - 2 * GAP), _short(height)))
        return found

    def path(self, number: int) -> str:
        """Return the line of a series for an SVG path; where a number is missing it is broken."""
        values = enumerate(self.series[number].values)
        parts = []
        for missing, stretch in groupby(values, key=lambda pair: pair[1] is None):
            if not missing:
                points = [self._point(place, float(value or 0)) for place, value in stretch]
                parts.append(_line(points))
        return "".join(parts)

    def _point(self, place: int, value: float) -> tuple[float, float]:
        return _short((place + 0.5) * WIDTH), _short(HEIGHT - value / self.top * HEIGHT)

    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the table: a name and the numbers in words, for each hour or day."""
        values = zip(*(series.values for series in self.series), strict=True)
        return [(name, [self.told(value) for value in at]) for name, at in zip(self.moments, values, strict=True)]


def charts(figures: Figures, span: Span) -> list[Chart]:
    """Return the charts of the dashboard."""
    moments = [numbers.hour(at) if span.step == "hour" else numbers.day(at.date()) for at in span.moments()]
    at = figures.moments
    outcomes = [
        Series(_(words.OUTCOME[name][1]), words.OUTCOME[name][0], [each.runs[name] for each in at]) for name in OUTCOMES
    ]
    failures = [
        Series(_("Failed runs"), "failed", [each.runs["failed"] for each in at]),
        Series(_("Failed model calls"), "stopped", [each.failed_calls for each in at]),
    ]
    failed_calls = sum(each.failed_calls for each in at)
    return [
        Chart("runs", _("Runs"), numbers.whole(figures.runs()), outcomes, moments, _whole),
        Chart(
            "failures",
            _("Failures"),
            _("%(runs)s runs, %(calls)s model calls", runs=figures.runs("failed"), calls=failed_calls),
            failures,
            moments,
            _whole,
        ),
        Chart(
            "cost",
            _("Cost"),
            numbers.dollars(figures.cost),
            [Series(_("Dollars"), "working", [each.cost for each in at])],
            moments,
            _dollars,
        ),
        _latency("runs_took", _("Time to finish a run"), [each.run_seconds for each in at], moments),
        _latency("calls_took", _("Time of a model call"), [each.call_seconds for each in at], moments),
    ]


def _latency(key: str, title: str, pairs: Sequence[tuple[float, float] | None], moments: list[str]) -> Chart:
    half = Series(_("Half took at most (p50)"), "working", [pair and pair[0] for pair in pairs], "line")
    most = Series(_("95 of 100 took at most (p95)"), "stopped", [pair and pair[1] for pair in pairs], "dashed")
    longest = max((pair[1] for pair in pairs if pair), default=None)
    summary = "" if longest is None else _("p95 up to %(time)s", time=numbers.seconds(longest))
    return Chart(key, title, summary, [half, most], moments, _seconds)


def _whole(number: Number | None) -> str:
    return numbers.whole(None if number is None else int(number))


def _dollars(number: Number | None) -> str:
    return numbers.dollars(None if number is None else Decimal(number))


def _seconds(number: Number | None) -> str:
    return numbers.seconds(None if number is None else float(number))


def _line(points: list[tuple[float, float]]) -> str:
    if len(points) == 1:
        # A point alone would not be seen: it becomes a short level stroke.
        x, y = points[0]
        return f"M{_short(x - 2):g} {y:g}H{_short(x + 2):g}"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _round_up(number: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, … times a power of ten; 1 for nothing."""
    if number <= 0:
        return 1.0
    exponent = 0
    while 10.0**exponent < number:
        exponent += 1
    while 10.0 ** (exponent - 1) >= number:
        exponent -= 1
    for part in (0.2, 0.5, 1.0):
        if part * 10.0**exponent >= number * (1 - 1e-12):
            return float(f"{part * 10.0**exponent:.6g}")
    return 10.0**exponent


def _as_told(number: float) -> Decimal:
    """By way of its text, so that a tenth of a dollar is one."""
    return Decimal(f"{number:.6g}")


def _short(number: float) -> float:
    return round(number, 2)
