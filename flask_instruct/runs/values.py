"""Values of columns as typed JSON, both ways: what a row held can be written down, read again and put back.

Text, whole numbers, booleans, floats and NULL stand for themselves. Everything else is an object with one name, such as
``{"decimal": "1.50"}``, so that nothing can be mistaken for anything else.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

REDACTED: dict[str, Any] = {"redacted": True}
"""In the place of a value that is not to be kept."""

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

PLAIN = frozenset({str, int, bool, type(None)})
"""Classes of values that are written as they are."""


class Lost(Exception):
    """Raised for written JSON that does not hold the value itself."""


def writer(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> Write:
    """Return what writes the values of a column's type as typed JSON."""
    kind = _of_dialect(kind, dialect)
    if _decorated(kind):
        return _decorated_writer(kind, dialect)
    if isinstance(kind, sa.JSON):
        return _write_json
    if isinstance(kind, sa.ARRAY):
        return _array_writer(writer(kind.item_type, dialect))
    return write


def reader(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> Read:
    """Return what reads typed JSON as a value that may be assigned to an attribute of the type.

    It raises :class:`Lost` for a value of which only a digest was kept, or nothing.
    """
    kind = _of_dialect(kind, dialect)
    if _decorated(kind):
        return _decorated_reader(kind, dialect)
    if isinstance(kind, sa.JSON):
        return _read_json
    items = reader(kind.item_type, dialect) if isinstance(kind, sa.ARRAY) else read
    return lambda written: _read(written, kind, items)


def write(value: Any) -> Any:
    """Write a value by its own class."""
    if value.__class__ in PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return {"enum": value.name}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        content = bytes(value)
        return {"bytes": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}}
    if isinstance(value, timedelta):
        return {"interval": value // timedelta(microseconds=1)}
    for name, kind, text in _TEXTS:
        if isinstance(value, kind):
            return {name: text(value)}
    if isinstance(value, bool | int):
        return int(value)
    return str(value) if isinstance(value, str) else {"unknown": str(value)[:1000]}


def read(written: Any) -> Any:
    """Read what :func:`write` wrote, where that needs no type.

    :raises Lost: when the value itself was not kept.
    """
    return _read(written, None, read)


def is_kept(written: Any) -> bool:
    """Tell whether typed JSON holds the value itself, and not only its digest or a note."""
    if not isinstance(written, dict):
        return True
    [(name, inner)] = written.items()
    if name == "stored":
        return is_kept(inner)
    if name == "array":
        return all(_items_kept(item) for item in inner)
    return name not in ("bytes", "redacted", "unknown")


def is_redacted(written: Any) -> bool:
    """Tell whether a value was left out on purpose."""
    return bool(written == REDACTED)


_TEXTS: tuple[tuple[str, Any, Callable[[Any], str]], ...] = (
    ("decimal", Decimal, str),
    ("datetime", datetime, datetime.isoformat),
    ("date", date, date.isoformat),
    ("time", time, time.isoformat),
    ("uuid", UUID, str),
)
_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
    "interval": lambda microseconds: timedelta(microseconds=microseconds),
    "json": lambda value: value,
}


def _read(written: Any, kind: Any, items: Read) -> Any:
    if not isinstance(written, dict):
        return written
    [(name, inner)] = written.items()
    if name == "enum":
        known = getattr(kind, "enum_class", None)
        return inner if known is None else known[inner]
    if name == "array":
        return [_read_items(item, items) for item in inner]
    if name not in _READERS:
        raise Lost(f"The value was not kept, only {name}.")
    return _READERS[name](inner)


def _of_dialect(kind: Any, dialect: sa.Dialect) -> Any:
    """Choose the variant of the database, and leave the type as the app has declared it otherwise."""
    variants = getattr(kind, "_variant_mapping", None) or {}
    return variants.get(dialect.name, kind)


# -- types of the app's own --------------------------------------------------------------------------------------------


def _decorated(kind: Any) -> bool:
    """Tell whether the app converts values itself. What it makes of them is written, as a column of it holds it:
    the text of an encrypted column stays as secret as it is in its table."""
    if not isinstance(kind, TypeDecorator):
        return False
    own = type(kind)
    ours = (TypeDecorator.process_bind_param, TypeDecorator.process_result_value)
    return (own.process_bind_param, own.process_result_value) != ours


def _decorated_writer(kind: Any, dialect: sa.Dialect) -> Write:
    inner = writer(kind.load_dialect_impl(dialect), dialect)
    own = type(kind).process_bind_param is not TypeDecorator.process_bind_param

    def write_stored(value: Any) -> Any:
        stored = kind.process_bind_param(value, dialect) if own else value
        return None if stored is None else {"stored": inner(stored)}

    return write_stored


def _decorated_reader(kind: Any, dialect: sa.Dialect) -> Read:
    inner = reader(kind.load_dialect_impl(dialect), dialect)
    own = type(kind).process_result_value is not TypeDecorator.process_result_value

    def read_stored(written: Any) -> Any:
        stored = inner(written["stored"]) if isinstance(written, dict) and "stored" in written else inner(written)
        return kind.process_result_value(stored, dialect) if own else stored

    return read_stored


# -- JSON and arrays ---------------------------------------------------------------------------------------------------


def _write_json(value: Any) -> Any:
    """The JSON ``null`` is not the NULL of the column."""
    if value is None:
        return None
    if value is sa.JSON.NULL:
        return {"json": None}
    return {"json": value} if _is_json(value) else {"unknown": str(value)[:1000]}


def _read_json(written: Any) -> Any:
    if written is None:
        return sa.null()
    if not isinstance(written, dict) or "json" not in written:
        raise Lost("The value was not kept.")
    return sa.JSON.NULL if written["json"] is None else written["json"]


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value))


def _array_writer(item: Write) -> Write:
    def write_items(value: Any) -> Any:
        return [write_items(one) for one in value] if isinstance(value, list | tuple) else item(value)

    return lambda value: None if value is None else {"array": write_items(value)}


def _read_items(written: Any, item: Read) -> Any:
    return [_read_items(one, item) for one in written] if isinstance(written, list) else item(written)


def _items_kept(written: Any) -> bool:
    return all(map(_items_kept, written)) if isinstance(written, list) else is_kept(written)
