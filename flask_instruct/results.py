"""Turn what a tool returned into the text that a model reads, or say why it cannot be told."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python

from .arguments import clean_text
from .errors import ToolError

NOTHING = "Done."
"""Told for an empty result: providers and models take an empty answer for a missing one (openai-agents#3312)."""

_TELLABLE = (ValueError, UnicodeDecodeError)
"""Errors of json and pydantic themselves: a circle, NaN, bytes that are no text. Others may carry internals."""

CUT_NOTE = "\n[The result was cut: it is longer than {limit} characters.]"


def render_result(value: object) -> str:
    """Return the text for a result: text as it is, nothing as "Done.", all else as JSON.

    JSON is made as pydantic makes it: models, dataclasses, dates, Decimal, UUID, Enum, sets and paths included.
    What no database and no provider accepts (NUL, lone surrogates) is taken out of text.

    :raises ToolError: when the value cannot be told, NaN and infinity included; names its type.
    """
    if value is None:
        return NOTHING
    text = str.__str__(value) if isinstance(value, str) else _as_json(value)
    return clean_text(text) if text.strip() else NOTHING


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, with a note where something was left out."""
    if len(text) <= limit:
        return text
    note = CUT_NOTE.format(limit=limit)
    return text[: max(limit - len(note), 0)] + note


def _as_json(value: object) -> str:
    told = f"A result of type {type(value).__name__} cannot be told to the model"
    unknown: list[str] = []

    def note(inner: object) -> None:
        unknown.append(type(inner).__name__)

    try:
        plain: Any = to_jsonable_python(value, fallback=note)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except Exception as error:
        reason = error if type(error) in _TELLABLE else "it cannot be made into JSON"
        raise ToolError(f"{told}: {reason}.") from error
    if unknown:
        raise ToolError(f"{told}: JSON has no form for the type {unknown[0]}.")
    return text
