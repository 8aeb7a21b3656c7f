"""Two recordings of the same run, held against each other: what differs, but for what can never be the same twice.

Ids, moments and keys that the database counts are put in words on both sides before they are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from difflib import SequenceMatcher
from difflib import unified_diff
from typing import Any

from .recording import Recording
from .recording import Row

NOTHING = "(nothing)"

PANEL = re.compile(r'<turbo-stream action="[a-z]+" target="instruct_')
"""A fragment of a panel. It is made of the ledger's rows, which are compared, of words such as "0.3 s", and as the
version of the package likes."""

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?")
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_NUMBER = re.compile(r"\d+")
SLACK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that came out otherwise, as text or JSON data; None where there is nothing on that side."""

    where: str
    expected: Any
    got: Any

    def lines(self) -> Iterator[str]:
        """Give it in words, long texts as a diff of their lines."""
        expected, got = _said(self.expected), _said(self.got)
        yield self.where
        if "\n" in expected and "\n" in got:
            diff = unified_diff(expected.splitlines(), got.splitlines(), "expected", "got", lineterm="")
            yield from (f"  {line}" for line in diff)
            return
        yield from _indented("expected", expected)
        yield from _indented("got     ", got)


@dataclass(slots=True)
class Side:
    """What is peculiar to one of the two: names for its ids, and when it was."""

    recording: Recording
    ids: dict[str, str] = field(init=False)
    began: datetime | None = field(init=False)
    ended: datetime | None = field(init=False)

    def __post_init__(self) -> None:
        recording = self.recording
        self.ids = {recording.run["id"]: "«run»"}
        self.ids |= {before["id"]: f"«earlier run {n}»" for n, before in enumerate(recording.earlier, 1)}
        self.ids |= {row["id"]: f"«message {n}»" for n, row in enumerate(recording.messages, 1)}
        self.ids |= {row["id"]: f"«call {n}»" for n, row in enumerate(recording.calls, 1)}
        self.began = _moment(recording.run["started_at"] or recording.run["created_at"])
        self.ended = _moment(recording.run["ended_at"])

    def plain(self, text: str) -> str:
        """Put ids and the run's own moments in words."""
        text = _UUID.sub(lambda found: self.ids.get(found[0], "«id»"), text)
        text = _MOMENT.sub(lambda found: "«then»" if self._is_then(found[0]) else found[0], text)
        return _DAY.sub(lambda found: "«that day»" if self._is_that_day(found[0]) else found[0], text)

    def _is_then(self, text: str) -> bool:
        moment = _moment(text)
        if moment is None or self.began is None or self.ended is None:
            return False
        # Without a zone it may be UTC or the time of the server.
        readings = (moment.replace(tzinfo=UTC), moment.astimezone()) if moment.tzinfo is None else (moment,)
        return any(self.began - SLACK <= reading <= self.ended + SLACK for reading in readings)

    def _is_that_day(self, text: str) -> bool:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            return False
        began, ended = self.began, self.ended
        days = {moment.date() for one in (began, ended) if one is not None for moment in (one, one.astimezone())}
        return day in days


class Comparison:
    """The recording of a run against that of its replay.

    :param counted: by table, the name of the key that the database counts.
    """

    def __init__(self, expected: Recording, got: Recording, *, counted: Mapping[str, str]) -> None:
        self._expected, self._got = Side(expected), Side(got)
        self._counted = counted
        self._new_keys: dict[str, str] = {}

    def differences(self) -> list[Difference]:
        """Return all that differs: of the run first, then of its calls, rows and broadcasts."""
        expected, got = self._expected.recording, self._got.recording
        # First: the keys of the rows that were made also stand in texts.
        rows = list(self._rows(expected.rows, got.rows or {})) if expected.rows is not None else []
        return [
            *self._fields("run", expected.run, got.run, ("status", "error_class", "error_safe", "limit_reached")),
            *self._each("model turn", expected.messages, got.messages, _TURN, name=lambda row: ""),
            *self._each("call", expected.calls, got.calls, _CALL, name=lambda row: f" ({row['name']})"),
            *self._effects(),
            *rows,
            *self._broadcasts(),
        ]

    # -- the ledger's rows -----------------------------------------------------------------------------------------

    def _each(self, noun: str, expected: list[Row], got: list[Row], names: Sequence[str], name: Any) -> Iterator[Any]:
        for number in range(max(len(expected), len(got))):
            one = expected[number] if number < len(expected) else None
            other = got[number] if number < len(got) else None
            where = f"{noun} {number + 1}{name(one or other)}"
            if one is None or other is None:
                yield Difference(where, one and _short(one, names), other and _short(other, names))
            else:
                yield from self._fields(where, one, other, names)

    def _fields(self, where: str, expected: Row, got: Row, names: Iterable[str]) -> Iterator[Difference]:
        for name in names:
            if not self._same(expected.get(name), got.get(name)):
                yield Difference(f"{where}: {name}", expected.get(name), got.get(name))

    def _effects(self) -> Iterator[Difference]:
        expected, got = _by_place(self._expected.recording), _by_place(self._got.recording)
        for place in sorted(set(expected) | set(got)):
            one, other = expected.get(place), got.get(place)
            where = f"call {place[0]}, effect {place[1]} ({(one or other or {})['method']})"
            if one is None or other is None:
                yield Difference(where, one and _short(one, _EFFECT), other and _short(other, _EFFECT))
            else:
                yield from self._fields(where, one, other, _EFFECT)

    # -- the app's rows --------------------------------------------------------------------------------------------

    def _rows(self, expected: Mapping[str, list[Row]], got: Mapping[str, list[Row]]) -> Iterator[Difference]:
        tables = [(table, expected.get(table, []), got.get(table, [])) for table in sorted({*expected, *got})]
        for table, mine, theirs in tables:
            self._learn_keys(table, mine, theirs)
        for table, mine, theirs in tables:
            key = self._counted.get(table)
            for number, one, other in self._unequal(*self._lines(table, mine, theirs), mine, theirs):
                where = f"row {number} of {table}"
                if one is None or other is None:
                    yield Difference(where, one, other)
                else:
                    yield from self._fields(where, one, other, sorted({*one, *other} - {key}))

    def _learn_keys(self, table: str, expected: list[Row], got: list[Row]) -> None:
        """Find out which row of the one is which of the other, where the database has counted their keys."""
        key = self._counted.get(table)
        if key is None:
            return
        for _, start, end, others, other_end in _aligned(*self._lines(table, expected, got)):
            if end - start != other_end - others:
                continue
            for one, other in zip(expected[start:end], got[others:other_end], strict=True):
                if one[key] != other[key]:
                    self._new_keys[str(one[key])] = str(other[key])

    def _lines(self, table: str, expected: list[Row], got: list[Row]) -> tuple[list[str], list[str]]:
        """Write each row as a line without the key that the database has counted."""
        key = self._counted.get(table)

        def line(row: Row) -> str:
            return _text({name: value for name, value in row.items() if name != key})

        mine = [self._expected.plain(self._renamed(line(row))) for row in expected]
        return mine, [self._got.plain(line(row)) for row in got]

    def _unequal(
        self, mine: list[str], theirs: list[str], expected: list[Row], got: list[Row]
    ) -> Iterator[tuple[int, Row | None, Row | None]]:
        """Give what of two lists differs, in pairs, each with its place in the first list, from 1."""
        for kind, start, end, others, other_end in _aligned(mine, theirs):
            if kind != "equal":
                for number, (one, other) in enumerate(_paired(expected[start:end], got[others:other_end]), start + 1):
                    yield number, one, other

    # -- broadcasts ------------------------------------------------------------------------------------------------

    def _broadcasts(self) -> Iterator[Difference]:
        mine, theirs = self._expected.recording.broadcasts, self._got.recording.broadcasts
        own, other_own = [row for row in mine if not _of_panel(row)], [row for row in theirs if not _of_panel(row)]
        before = [self._expected.plain(self._renamed(_sent(row))) for row in own]
        after = [self._got.plain(_sent(row)) for row in other_own]
        for number, one, other in self._unequal(before, after, own, other_own):
            if not self._same(one, other):
                yield Difference(f"broadcast {number}", one and _sent(one), other and _sent(other))

    # -- values ----------------------------------------------------------------------------------------------------

    def _same(self, expected: Any, got: Any) -> bool:
        if expected == got:
            return True
        if type(expected) is not type(got):
            return False
        one, other = _text(expected), _text(got)
        mine, theirs = self._expected.plain(one), self._got.plain(other)
        return mine == theirs or self._expected.plain(self._renamed(one)) == theirs

    def _renamed(self, text: str) -> str:
        """Put the keys of the new rows in the place of the old ones."""
        return _NUMBER.sub(lambda found: self._new_keys.get(found[0], found[0]), text) if self._new_keys else text


_TURN = ("role", "state", "text", "finish_reason", "parts")
_CALL = ("name", "arguments", "status", "error_kind", "result")
_EFFECT = ("owner", "method", "arguments", "status", "error_class")


def _by_place(recording: Recording) -> dict[tuple[int, int], Row]:
    places = {call["id"]: number for number, call in enumerate(recording.calls, 1)}
    return {(places[effect["call_id"]], effect["seq"]): effect for effect in recording.effects}


def _aligned(one: list[str], other: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _paired(one: Sequence[Row], other: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    for number in range(max(len(one), len(other))):
        yield (one[number] if number < len(one) else None, other[number] if number < len(other) else None)


def _of_panel(row: Row) -> bool:
    return PANEL.match(row["html"]) is not None


def _sent(row: Row) -> str:
    return f"to {row['stream']}: {row['html']}"


def _short(row: Row, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names if row.get(name) is not None and name != "parts"}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _said(value: Any) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _indented(label: str, text: str) -> Iterator[str]:
    first, *rest = text.splitlines() or [""]
    yield f"  {label}  {first}"
    yield from (f"  {' ' * len(label)}  {line}" for line in rest)


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text is not None else None
    except ValueError:
        return None
