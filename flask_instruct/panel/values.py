"""The values of a change in words. The ledger keeps them as typed JSON: what JSON has no form for is an object with one
name, such as ``{"decimal": "1.50"}``; see ``runs.values``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .language import gettext as _
from .numbers import whole

DIGEST_CHARS = 12
"""Characters of a digest that tell two contents apart for a person."""


class Hidden:
    """A value that was not kept; no two are equal, so that a change of one into another is still seen."""


def plain(written: Any) -> Any:
    """Return a value of a change without its type: text, number, truth, None, list, mapping or :class:`Hidden`."""
    if not isinstance(written, dict):
        return written
    if len(written) != 1:
        return written
    ((name, inner),) = written.items()
    return _TYPED[name](inner) if name in _TYPED else inner


def in_words(value: Any) -> str:
    """Write a plain value as a person reads it; what is nested as JSON."""
    if value is None:
        return _("nothing")
    if isinstance(value, Hidden):
        return _("not kept")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    try:
        return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value).__name__)


def key_in_words(key: str) -> str:
    """Write a row's key, which the ledger keeps as a JSON list."""
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return key
    return ", ".join(in_words(plain(part)) for part in parts) if isinstance(parts, list) else key


def _content(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    digest = str(kept.get("sha256", ""))[:DIGEST_CHARS]
    return _("%(n)s bytes, SHA-256 %(digest)s…", n=whole(int(kept.get("size") or 0)), digest=digest)


def _array(items: Any) -> Any:
    return [_array(item) if isinstance(item, list) else plain(item) for item in items]


_TYPED: dict[str, Callable[[Any], Any]] = {
    "redacted": lambda _: Hidden(),
    "bytes": _content,
    "array": _array,
    "stored": plain,
    "interval": lambda microseconds: str(timedelta(microseconds=microseconds)),
}
"""Types whose inside is not what a person reads."""
