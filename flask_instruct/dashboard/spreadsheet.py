"""The list of runs as CSV, a piece at a time, safe to be opened in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

from sqlalchemy.orm import Session

from . import listing
from .discreet import Discreet
from .filters import Filters
from .listing import Line

if TYPE_CHECKING:
    from ..state import State

PIECE = 500
"""Runs that are read at once; no transaction stays open between two reads."""

COLUMNS = (
    "run",
    "asked_at",
    "ended_at",
    "seconds",
    "status",
    "kind",
    "handler",
    "record",
    "actor",
    "tenant",
    "conversation",
    "model",
    "model_calls",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "calls_without_price",
    "tool_calls",
    "failed_tool_calls",
    "changes",
    "prompt",
    "error",
    "technical_error",
)

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the beginning of something to be carried out, or of another row; also as Japanese
keyboards write it."""


def rows(state: State, filters: Filters) -> Iterator[str]:
    """Give the whole list as text, the header first."""
    discreet = Discreet.of(state)
    yield _written([COLUMNS])
    before = None
    while True:
        # A session of its own: the request's is gone while the answer is still being sent.
        with Session(state.db.engine) as session:
            page = listing.page(session, filters, before=before, size=PIECE, whole_prompts=True)
        if page.lines:
            yield _written(_cells(line, discreet) for line in page.lines)
        if page.older is None:
            return
        before = page.older


def safe(value: object) -> str:
    """Return a cell's text; one that a spreadsheet would carry out begins with a quote."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _cells(line: Line, discreet: Discreet) -> tuple[object, ...]:
    return (
        line.id,
        line.created_at.isoformat(),
        line.ended_at.isoformat() if line.ended_at else None,
        None if line.seconds is None else f"{line.seconds:.3f}",
        "interrupted" if line.interrupted else line.status,
        line.kind,
        line.handler_name,
        line.handler,
        line.actor,
        line.tenant,
        line.conversation,
        line.model,
        line.model_calls,
        line.input_tokens,
        line.output_tokens,
        None if line.cost is None else f"{line.cost.normalize():f}",
        line.unpriced,
        line.calls,
        line.failed_calls,
        line.changes,
        discreet.text(line.prompt),
        discreet.technical(line.error or ""),
        discreet.technical(line.technical or ""),
    )


def _written(table: Any) -> str:
    file = io.StringIO()
    csv.writer(file).writerows([safe(cell) for cell in row] for row in table)
    return file.getvalue()
