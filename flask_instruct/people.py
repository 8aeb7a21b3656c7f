"""What the extension offers for people who look at an AI's edits: undo, redo, and where a value came from."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from typing import Any

from flask import current_app

from .errors import ConfigurationError
from .errors import UndoRefused
from .runs.provenance import MOST
from .runs.provenance import Entry
from .runs.provenance import history
from .runs.undo import Undone
from .runs.undo import UndoPlan
from .runs.undo import undo
from .runs.undo import undo_preview

if TYPE_CHECKING:
    from .runs.models import Run
    from .runs.models import ToolCall
    from .state import State

_CURRENT: Any = object()


class UndoMethods:
    """The methods of :class:`~flask_instruct.Instruct` that take an AI's edits back."""

    def undo_preview(self, target: Run | ToolCall) -> UndoPlan:
        """Return what undoing a run, or one call of it, would do now: by record and field, with the conflicts."""
        return undo_preview(_state(), target)

    def undo(
        self, target: Run | ToolCall, *, actor: Any = _CURRENT, force: Collection[str] = (), skip: Collection[str] = ()
    ) -> Undone:
        """Take back what a run, or one call of it, has changed: newest first, in one transaction. Commits the session.

        What somebody has changed since is left as it is. The undo is a run of its own, with its own changes.

        :param actor: who undoes it; default: the current user.
        :param force: ids of fields of :meth:`undo_preview` that are put back though they were changed since.
        :param skip: ids of fields that are left as they are.
        :raises UndoRefused: when there is nothing that can be undone, it is still at work, or somebody was faster.
        """
        from .state import actor_id

        state = _state()
        return undo(state, target, actor_id(state.actor() if actor is _CURRENT else actor), force=force, skip=skip)

    def redo(
        self, undone: Run, *, actor: Any = _CURRENT, force: Collection[str] = (), skip: Collection[str] = ()
    ) -> Undone:
        """Take an undo back; as :meth:`undo` of the run that the undo was.

        :raises UndoRefused: also for a run that is no undo.
        """
        if undone.kind != "undo":
            raise UndoRefused("This is no undo, so there is nothing to do again.")
        return self.undo(undone, actor=actor, force=force, skip=skip)

    def history(self, record: Any, field: str | None = None, *, limit: int = MOST) -> list[Entry]:
        """Return what the AI, and undos, changed of a record, newest first: by whom and when, what it was and became.

        :param field: the name of one attribute of the record.
        :raises DeclarationError: for what is no stored record, or a name that it has not.
        """
        state = _state()
        return history(state.db.session(), state.layouts(state.db.engine.dialect), record, field, limit)


def _state() -> State:
    state: State | None = current_app.extensions.get("instruct")
    if state is None:
        raise ConfigurationError("Call instruct.init_app(app) before using Flask-Instruct with this app.")
    return state
