"""A tool's schema as each provider's dialect says it, strict where the dialect can.

What is checked here in Python stays the plain schema's; a dialect only changes what the model is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .messages import JsonObject

Dialect = Literal["openai", "anthropic", "google"]


@dataclass(frozen=True, slots=True)
class Told:
    """A schema in a dialect; ``reason`` says why it is not strict, and is empty where it is."""

    schema: JsonObject
    strict: bool
    reason: str = ""


def told(schema: JsonObject, dialect: Dialect, *, strict: bool) -> Told:
    """Return a schema of type object as a provider is told it.

    :param strict: try the strict form; where the dialect cannot say it, the plain form is returned with the reason.
    """
    return Told(schema, False, "strict was not asked for" if not strict else "not implemented")
