"""A tool's schema as each provider's dialect says it, strict where the dialect can.

What is checked here in Python stays the plain schema's; a dialect only changes what the model is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..messages import JsonObject
from .canonical import Canonical
from .canonical import canonical
from .google_form import google_form
from .strict import NotStrict
from .strict import strictly
from .vocabulary import STRICT
from .vocabulary import Dialect

__all__ = ["DIALECTS", "Dialect", "Told", "told"]

DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic", "google")
MAX_LEVELS = 100
"""Lists and objects inside each other in a schema that is brought into a dialect; a deeper one is sent as it is."""
MAX_NODES = 100_000
"""Lists, objects and values of such a schema."""

_CACHED_CHARS = 50_000
_CACHED_SCHEMAS = 512


@dataclass(frozen=True, slots=True)
class Told:
    """A schema in a dialect; ``reason`` says why it is not strict, and is empty where it is.

    :param changes: what is told otherwise than in the schema given, in words.
    """

    schema: JsonObject
    strict: bool
    reason: str = ""
    changes: tuple[str, ...] = ()


def told(schema: JsonObject, dialect: Dialect, *, strict: bool) -> Told:
    """Return a schema of type object as a provider is told it: a new one, to change at will.

    :param strict: try the strict form; where the dialect cannot say it, the plain form is returned with the reason.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except RecursionError:
        return Told(schema, False, _too_large(f"nested deeper than {MAX_LEVELS} levels"))
    # Asked for each tool on each model call; text is also what makes the answer nobody else's.
    make = _made if len(text) <= _CACHED_CHARS else _made.__wrapped__
    made, is_strict, reason, changes = make(text, dialect, strict)
    return Told(json.loads(made), is_strict, reason, changes)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _made(text: str, dialect: Dialect, strict: bool) -> tuple[str, bool, str, tuple[str, ...]]:
    schema = json.loads(text)
    if fault := _oversize(schema):
        return text, False, _too_large(fault), ()
    plain = canonical(schema)
    form, is_strict, reason, changes = _form(plain, dialect, strict)
    changes = dict.fromkeys([*plain.changes, *changes])
    return json.dumps(form, ensure_ascii=False), is_strict, reason, tuple(changes)


def _form(plain: Canonical, dialect: Dialect, strict: bool) -> tuple[JsonObject, bool, str, Iterable[str]]:
    reason = "" if strict else "strict was not asked for"
    if dialect == "google":
        # Gemini has no strict form of a schema: its mode VALIDATED holds arguments to this one.
        form, changes = google_form(plain.schema)
        return form, strict, reason, changes
    if strict:
        try:
            form, changes = strictly(plain.schema, STRICT[dialect], looser=plain.looser)
        except NotStrict as refusal:
            reason = str(refusal).rstrip(".")
        else:
            return form, True, "", changes
    return plain.schema, False, reason, ()


def _too_large(fault: str) -> str:
    return f"the schema is {fault}, so it is sent as it is"


def _oversize(schema: JsonObject) -> str:
    count = 0
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        node, level = waiting.pop()
        count += 1
        if level > MAX_LEVELS:
            return f"nested deeper than {MAX_LEVELS} levels"
        if count > MAX_NODES:
            return f"larger than {MAX_NODES} values"
        if isinstance(node, dict | list):
            inner = node.values() if isinstance(node, dict) else node
            waiting += [(part, level + 1) for part in inner]
    return ""
