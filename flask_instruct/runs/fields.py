"""One column of a row: how its values are written and read, and when two of them are the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field
from datetime import date
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from typing import cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from .marks import is_bookkeeping
from .marks import marks
from .values import Lost
from .values import Read
from .values import Write
from .values import is_redacted
from .values import reader
from .values import writer

_SAME = (sa.Integer, int), (sa.Boolean, bool), (sa.Date, date), (sa.LargeBinary, bytes)


@dataclass(slots=True, eq=False)
class Field:
    """One column of a row.

    :ivar exact: a value of just this class is stored as it is; any other may come back in another form.
    :ivar zoned: of a moment, whether it has to have a zone for that.
    :ivar steady: whether a value in memory cannot be changed in place.
    :ivar filled: whether the database may fill it in by itself.
    :ivar bookkeeping: whether it only follows other fields: no conflict, and nothing that people are asked about.
    """

    name: str
    column: sa.Column[Any]
    write: Write
    read: Read
    exact: type | None
    zoned: bool | None
    steady: bool
    filled: bool
    redacted: bool
    bookkeeping: bool
    is_json: bool
    plain: type | None = field(init=False)
    """The class that is stored as it is, whatever the value."""

    def __post_init__(self) -> None:
        self.plain = self.exact if self.zoned is None else None

    def is_settled(self, value: Any) -> bool:
        """Tell whether the database holds just this value when it was given it."""
        if value is None:
            return self.steady
        if value.__class__ is not self.exact:
            return False
        return self.zoned is None or (cast(datetime, value).tzinfo is not None) is self.zoned

    def holds(self, value: Any, written: Any) -> bool:
        """Tell whether a value is what typed JSON says; of what was not kept by its digest, or not at all."""
        if is_redacted(written) or self.write(value) == written:
            return True
        try:
            return self.same(value, self.read(written))
        except (Lost, LookupError, TypeError, ValueError):
            return False

    def same(self, one: Any, other: Any) -> bool:
        """Tell whether two values are the same to the column."""
        if one is other:
            return True
        if one is None or other is None or one is sa.JSON.NULL or other is sa.JSON.NULL:
            return False
        try:
            return bool(self.column.type.compare_values(one, other))
        except Exception:  # the app's own comparison, or moments with and without a zone
            return False


def field_of(column: sa.Column[Any], name: str, dialect: sa.Dialect, redact: Iterable[str]) -> Field:
    """Return how a column is written and read.

    :param redact: patterns of ``table.column``, whose values are not written.
    """
    kind = column.type
    full = f"{column.table.fullname}.{column.key}"
    exact, zoned = _exact(kind, dialect)
    return Field(
        name,
        column,
        writer(kind, dialect),
        reader(kind, dialect),
        exact,
        zoned,
        steady=not isinstance(kind, sa.JSON | sa.ARRAY | TypeDecorator | sa.PickleType)
        or isinstance(kind, sa.Interval),
        filled=any(
            (
                column.default is not None,
                column.server_default is not None,
                column.identity is not None,
                column.primary_key,
            )
        ),
        redacted="redact" in marks(column) or any(fnmatchcase(full, pattern) for pattern in redact),
        bookkeeping=is_bookkeeping(column),
        is_json=isinstance(kind, sa.JSON),
    )


def _exact(kind: Any, dialect: sa.Dialect) -> tuple[type | None, bool | None]:
    """Return of which class a value is stored as it is, and whether a moment then has a zone."""
    if isinstance(kind, sa.Interval):
        return None, None
    if isinstance(kind, TypeDecorator) or getattr(kind, "_variant_mapping", None):
        return None, None
    if isinstance(kind, sa.Enum):
        return kind.enum_class or str, None
    if isinstance(kind, sa.DateTime):
        return datetime, bool(kind.timezone) and dialect.name != "sqlite"
    if isinstance(kind, sa.Uuid):
        return (UUID if kind.as_uuid else None), None
    if isinstance(kind, sa.String):
        return (None if isinstance(kind, sa.CHAR | sa.NCHAR) else str), None
    if isinstance(kind, sa.Float) and not kind.asdecimal and kind.precision is None:
        return (None if isinstance(kind, sa.REAL) else float), None
    return next((python for known, python in _SAME if isinstance(kind, known)), None), None
