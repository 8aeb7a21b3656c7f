"""How the key of a row is written down as canonical JSON, and read again as the database has it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from .values import Lost
from .values import Read
from .values import read
from .values import write

Key = tuple[Any, ...]

MOST_KEY = 500
"""Characters of a key, as :attr:`Change.key` holds them."""

_KEPT = frozenset({int, str, UUID})
"""Classes of nearly all keys, which can be read again whatever they are."""


class KeyForm:
    """The form of the keys of one layout."""

    def __init__(self, columns: Iterable[sa.Column[Any]], dialect: sa.Dialect) -> None:
        self._readers = tuple(_reader(column.type) for column in columns)
        self._forgets_zones = dialect.name == "sqlite"

    def write(self, key: Key) -> str:
        return json.dumps([_write(value) for value in key], separators=(",", ":"), sort_keys=True)

    def read(self, written: str) -> Key:
        """Read what :meth:`write` wrote.

        :raises Lost: for a key that was not kept whole.
        """
        try:
            parts = json.loads(written)
            return tuple(one(part) for one, part in zip(self._readers, parts, strict=True))
        except (ValueError, LookupError, TypeError):
            raise Lost("The key was not kept whole.") from None

    def keeps(self, key: Key) -> bool:
        """Tell whether a row can be found again by what is written of its key."""
        if all(value.__class__ in _KEPT for value in key):
            return True
        if self._forgets_zones and any(isinstance(value, datetime) and value.tzinfo for value in key):
            return False
        try:
            return self.read(self.write(key)) == key
        except Lost:
            return False


def _write(value: Any) -> Any:
    # Not by digest as other bytes: the row has to be found by it.
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | bytearray | memoryview) else write(value)


def _reader(kind: sa.types.TypeEngine[Any]) -> Read:
    members: Any = getattr(kind, "enum_class", None)

    def read_part(written: Any) -> Any:
        if isinstance(written, dict):
            [(name, inner)] = written.items()
            if name == "hex":
                return bytes.fromhex(inner)
            if name == "enum" and members is not None:
                return members[inner]
        return read(written)

    return read_part
