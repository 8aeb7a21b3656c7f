"""What an app says of a column of its own: ``info={"instruct": "redact"}``, or several such words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from ..errors import DeclarationError

MARKS = ("bookkeeping", "exclude", "redact", "title")
TITLES = ("title", "name", "label", "subject")
"""Columns whose text is what people call a row, where none is marked so; the first that there is."""


def marks(column: sa.Column[Any]) -> frozenset[str]:
    """Return the words that a column is marked with.

    :raises DeclarationError: for one that means nothing: a misspelt ``redact`` would give a secret away.
    """
    given = column.info.get("instruct", ())
    words = frozenset((given,) if isinstance(given, str) else given)
    unknown = words - set(MARKS)
    if unknown:
        raise DeclarationError(
            f"info={{'instruct': {given!r}}} of {column.table.fullname}.{column.key}: "
            f"{', '.join(map(repr, sorted(map(str, unknown))))} means nothing; there are {', '.join(MARKS)}."
        )
    return words


def is_bookkeeping(column: sa.Column[Any]) -> bool:
    """Tell whether a column only follows what is done to others, as a moment of the last change does."""
    return "bookkeeping" in marks(column) or column.onupdate is not None or column.server_onupdate is not None


def title_of(columns: Iterable[tuple[str, sa.Column[Any]]]) -> str | None:
    """Return the name of the field that people call a row by; None where there is none."""
    known = dict(columns)
    marked = next((name for name, column in known.items() if "title" in marks(column)), None)
    usual = (name for name in TITLES if name in known and isinstance(known[name].type, sa.String))
    return marked or next(usual, None)
