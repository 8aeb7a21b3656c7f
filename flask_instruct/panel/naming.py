"""What rows are called on a page, and which of their fields are worth a person's look."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

from ..runs.layouts import Layout
from ..runs.row_keys import Key
from ..runs.values import Lost
from .language import gettext as _
from .values import Hidden
from .values import in_words
from .values import key_in_words
from .values import plain

if TYPE_CHECKING:
    from ..state import State

LONGEST = 60
"""Characters of a title."""

Values = Mapping[str, Any]
"""Fields of a row as typed JSON, see ``runs.values``."""


class Named(Protocol):
    """A change, or a plan for one, of a row."""

    @property
    def entity(self) -> str | None: ...
    @property
    def table(self) -> str: ...
    @property
    def key(self) -> str: ...


class Names:
    """The names of the rows of one page, which are read at once, as the rows are now."""

    def __init__(self, state: State, rows: Iterable[Named]) -> None:
        self._layouts = state.layouts(state.db.engine.dialect)
        self._titles: dict[tuple[str, str], Any] = {}
        wanted: dict[Layout, dict[Key, str]] = {}
        for row in rows:
            layout = self._layouts.of_change(row.entity, row.table)
            if layout is not None and layout.title is not None:
                try:
                    wanted.setdefault(layout, {})[layout.key_form.read(row.key)] = row.key
                except Lost:
                    continue
        for layout, keys in wanted.items():
            found = layout.read(state.db.session.execute, keys)
            self._titles |= {(layout.table, keys[key]): values[layout.title or ""] for key, values in found.items()}

    def of(self, row: Named, *values: Values | None) -> str:
        """Return what a row is called: its kind, and its title as it is or as ``values`` say, or its key."""
        kind = row.entity or row.table
        layout = self._layouts.of_change(row.entity, row.table)
        title = self._titles.get((row.table, row.key))
        for known in values:
            if not title and layout is not None and layout.title is not None and known is not None:
                title = plain(known.get(layout.title))
        if not title or isinstance(title, Hidden):
            return f"{kind} {key_in_words(row.key)}"
        text = " ".join(in_words(title).split())
        if len(text) > LONGEST:
            text = f"{text[: LONGEST - 1]}…"
        return _("%(kind)s “%(title)s”", kind=kind, title=text)

    def shown(self, row: Named, values: Values | None) -> dict[str, Any] | None:
        """Return the fields that say something: bookkeeping only where there is nothing else."""
        if values is None:
            return None
        layout = self._layouts.of_change(row.entity, row.table)
        fields = layout.fields if layout is not None else {}
        asked = {name: one for name, one in values.items() if name not in fields or not fields[name].bookkeeping}
        return asked or dict(values)
