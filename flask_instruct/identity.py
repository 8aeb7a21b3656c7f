"""Write down who a handler is for, and read it back: ``instruct://AssessmentUpdater/42``.

Only a name and a key are in it. The name is looked up among registered handlers, the key is read as the type its
column has; nothing is imported or built from the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from urllib.parse import unquote
from uuid import UUID

from .errors import HandlerError

SCHEME = "instruct://"
MAX_LENGTH = 2000
"""Characters of a gid that is written or read at all; an index entry of PostgreSQL holds 2700 bytes."""

_TEXT = "str:"
"""Marks a text key that would otherwise be read as a number or UUID. A colon in a key itself is always escaped."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def write_gid(name: str, key: object, *, typed: bool) -> str:
    """Return the gid for a registered name and a key: int, str, UUID, or a tuple of them.

    :param typed: whether who reads it knows the key's types (columns do); otherwise the text tells them.
    :raises HandlerError: for a key of another type, or one that is too long to be read again.
    """
    parts = key if isinstance(key, tuple) and key else (key,)
    gid = f"{SCHEME}{quote(name, safe='')}/" + "/".join(_write(part, name, typed) for part in parts)
    if len(gid) > MAX_LENGTH:
        raise HandlerError(f"{gid[:80]!r}… has {len(gid)} characters; a {name} can be named by {MAX_LENGTH} at most.")
    return gid


def read_gid(gid: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the still encoded parts of the key.

    :raises HandlerError: for anything that is no gid.
    """
    name, slash, key = gid[len(SCHEME) :].partition("/")
    if not gid.startswith(SCHEME) or len(gid) > MAX_LENGTH or not (name and slash and key):
        raise HandlerError(f"{gid[:80]!r} is no handler reference: it must read {SCHEME}Name/key.")
    return unquote(name), tuple(key.split("/"))


def read_key(part: str, kind: type | None = None) -> Any:
    """Return one part of a key as what it was: of the ``kind`` of its column, or as the text tells.

    :raises HandlerError: when the text is not of that kind.
    """
    text = unquote(part)
    if kind is None:
        return _untyped(part)
    reader = _READERS.get(kind, str)
    try:
        return reader(text)
    except ValueError:
        raise HandlerError(f"The key {text[:80]!r} is not of type {kind.__name__}.") from None


def _write(part: object, name: str, typed: bool) -> str:
    if isinstance(part, bool) or not isinstance(part, int | str | UUID):
        raise HandlerError(
            f"A {name} cannot be named by a key of type {type(part).__name__}; keys are int, str or UUID, or several."
        )
    written = quote(str(part), safe="")
    if typed or not isinstance(part, str):
        return written
    return written if written and _untyped(written) == part else _TEXT + written


def _untyped(part: str) -> Any:
    if part.startswith(_TEXT):
        return unquote(part.removeprefix(_TEXT))
    if _INTEGER.fullmatch(part):
        return int(part)
    return UUID(part) if _UUID.fullmatch(part) else unquote(part)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(text)
    return int(text)


_READERS: dict[type, Callable[[str], Any]] = {int: _integer, UUID: UUID}
