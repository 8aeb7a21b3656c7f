"""The types of the ledger's columns: moments that keep their zone, ids in the order they were made, and text from
outside that any database can hold.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from datetime import UTC
from datetime import datetime

import sqlalchemy as sa


def now() -> datetime:
    return datetime.now(UTC)


def uuid7() -> str:
    """Return a new UUID of version 7 (RFC 9562): sortable by the millisecond it was made."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


class UTCDateTime(sa.TypeDecorator[datetime]):
    """An aware UTC datetime, also on databases that forget the zone (SQLite)."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class WireText(sa.TypeDecorator[str]):
    """Text from a model or a person: NUL, which PostgreSQL refuses, and half surrogates, which no database
    encodes, become U+FFFD."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return storable(value) if value is not None else None


class WireName(sa.TypeDecorator[str]):
    """A short text from a model or a provider: as :class:`WireText`, and cut at the column's length, which SQLite
    does not mind and PostgreSQL refuses."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        length: int | None = self.length
        return storable(value)[:length] if value is not None else None


def storable(text: str) -> str:
    """Return the text with what no database can hold replaced by U+FFFD, character for character."""
    return _UNSTORABLE.sub("\ufffd", text)


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
