"""Keeps a tool from writing over what a person changed since its run has read it: the call fails with the new value,
and the next one may go on, since the model has read that now.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa

from ..calls import ToolOutcome
from ..errors import HandlerError
from ..errors import ToolError
from ..handlers import guarded_fields
from .layouts import Layout
from .layouts import Row
from .row_keys import Key

if TYPE_CHECKING:
    from ..handlers import AiResponseHandler
    from ..state import State

SHOWN_CHARS = 2000
"""Characters of a value that the model is told."""

Digests = dict[str, Any]


class Guard:
    """What one run has read of its record, field by field."""

    def __init__(self, layout: Layout, key: Key, names: tuple[str, ...], read: Digests | None) -> None:
        self._layout = layout
        self._key = key
        self._names = names
        self.read: Digests = dict(read or {})
        """Digests of the values that the model may know, by the names of the fields."""
        self._before: Row | None = None

    @classmethod
    def of(cls, state: State, handler: AiResponseHandler, read: Digests | None) -> Guard | None:
        """Return the guard of a handler's record; None where it wants none."""
        names = guarded_fields(type(handler))
        if names is None:
            return None
        record = handler.record
        inspected: Any = sa.inspect(record)
        layout = state.layouts(state.db.engine.dialect).of_class(inspected.mapper)
        if layout is None or inspected.identity is None:
            return None
        missing = [name for name in names if name not in layout.fields]
        if missing:
            raise HandlerError(f"guard of {type(handler).__name__}: its record has no column {', '.join(missing)}.")
        asked = (name for name, one in layout.fields.items() if not one.bookkeeping and name not in layout.key_names)
        known = names or tuple(asked)
        return cls(layout, tuple(inspected.identity), known, read)

    def look(self, connection: sa.Connection) -> Row | None:
        """Read the record as it is now, and keep others from changing it until the transaction's end."""
        self._layout.lock(connection.execute, [self._key])
        return self._layout.read(connection.execute, [self._key]).get(self._key)

    def begin(self, connection: sa.Connection) -> None:
        """Note what a tool finds; what was never read counts as read now."""
        self._before = self.look(connection)
        for name in self._names:
            if self._before is not None:
                self.read.setdefault(name, self._digest(name, self._before))

    def check(self, connection: sa.Connection, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome of a tool that has written its edits: an error where it wrote over a person's."""
        before, after = self._before, self.look(connection)
        if before is None or after is None:
            return outcome
        written = [name for name in self._names if not self._layout.fields[name].same(before[name], after[name])]
        lost = [name for name in written if self.read.get(name) != self._digest(name, before)]
        if lost:
            for name in lost:
                self.read[name] = self._digest(name, before)
            return _refusal(outcome, {name: before[name] for name in lost})
        for name in self._names:
            if name in written or _is_told(after[name], outcome.content):
                self.read[name] = self._digest(name, after)
        return outcome

    def _digest(self, name: str, row: Mapping[str, Any]) -> str:
        written = json.dumps(self._layout.fields[name].write(row[name]), sort_keys=True, default=str)
        return hashlib.sha256(written.encode()).hexdigest()[:32]


def _is_told(value: Any, content: str) -> bool:
    """Tell whether a tool's answer has a value in it, so that the model has read it."""
    text = "" if value is None else str(value)
    # Not as a part of other words: "open" stands in "reopened" as well, and "1" nearly everywhere.
    return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", content) is not None


def _refusal(outcome: ToolOutcome, values: Mapping[str, Any]) -> ToolOutcome:
    now = " ".join(f"{name} is now: {_shown(value)}." for name, value in values.items())
    text = (
        f"Somebody changed {', '.join(values)} since you have read it, so nothing of this call was kept. {now} "
        "Take that into account, then call the tool again."
    )
    return ToolOutcome(text, "tool_error", ToolError(text), outcome.arguments)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… (cut)"
