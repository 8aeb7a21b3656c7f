"""The values of a change in words: the ledger keeps them as JSON, with a tag around what JSON has no form for."""

from __future__ import annotations

import json
from typing import Any

from ..panel.language import gettext as _

TAG = "$"
"""How the name of a tag begins: a value such as ``{"$decimal": "1.50"}``."""


def untagged(value: Any) -> Any:
    """Return what stands inside a tag, or the value itself."""
    if isinstance(value, dict) and len(value) == 1:
        name, inner = next(iter(value.items()))
        if isinstance(name, str) and name.startswith(TAG):
            return inner
    return value


def in_words(value: Any) -> str:
    """Write a value as a person reads it; nested ones as JSON."""
    plain = untagged(value)
    if plain is None:
        return _("nothing")
    if isinstance(plain, str):
        return plain
    if isinstance(plain, bool):
        return _("yes") if plain else _("no")
    try:
        return json.dumps(plain, ensure_ascii=False, indent=2 if isinstance(plain, dict | list) else None)
    except (TypeError, ValueError, RecursionError):
        return repr(type(plain).__name__)


def key_in_words(key: str) -> str:
    """Write a row's key, which the ledger keeps as a JSON list."""
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return key
    return ", ".join(in_words(part) for part in parts) if isinstance(parts, list) else key
