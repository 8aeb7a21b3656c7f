"""Running the app's own code inside a unit of work: a tool or a callback, each in a savepoint of its own, whose edits
and broadcasts are kept together or dropped together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import HandlerError
from ..errors import RecordGone
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..tools import ToolOutcome
from ..tools import failure
from .capture import Capture
from .interruption import PASSING
from .interruption import Interrupted
from .notices import Notices
from .strays import BESIDE
from .strays import Lookout
from .unit import Unit
from .unit import joined_session

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

FAILURES = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""What a tool may raise without ending its worker: left alone, the run would be resumed to meet the same again."""


class AppCode:
    """The handler of one run, located afresh for each piece of its code."""

    def __init__(self, state: State, notices: Notices, gid: str) -> None:
        self._state = state
        self._notices = notices
        self._gid = gid

    def run_tool(
        self, unit: Unit, name: str, work: Callable[[AiResponseHandler], ToolOutcome], capture: Capture
    ) -> ToolOutcome:
        """Run a tool with the session that is joined to the unit; an outcome that is an error leaves no edit behind.

        Some failures cost the unit as well, which then no longer stands.

        :param capture: has afterwards what the tool has changed, and nothing where nothing of it was kept.

        :raises HandlerError: when the handler or its record is gone.
        :raises Interrupted: when the database could not be asked for the record, or hung up in the middle of the tool:
            nothing of it was kept, so that it may run again.
        """
        outcome: ToolOutcome | None = None
        lookout = Lookout(unit.connection, name)
        try:
            with (
                self._notices.gathering_committed(unit),
                lookout.looking(),
                capture.listening(),
                joined_session(self._state.db, unit) as session,
            ):
                capture.follow(session)
                outcome = work(self._located())
                if outcome.error:
                    raise _Undo
        except _Undo:
            pass
        except HandlerError:
            raise
        except FAILURES as error:
            self._refuse_lost(unit, name, outcome, error)
            if outcome is not None and outcome.error:
                unit.spoiled = True
                logger.warning("What tool %s left could not be rolled back by itself: %r", name[:80], error)
            else:
                # The tool had returned and its flush or commit failed, or it raised what is no Exception.
                outcome = failure(name, error, outcome.arguments if outcome is not None else None)
        assert outcome is not None
        self._refuse_lost(unit, name, outcome, outcome.exception)
        if isinstance(outcome.exception, RecordGone):
            raise outcome.exception
        # A timeout strikes anywhere, also in the middle of the session's own work: nothing more is built upon it.
        unit.spoiled = unit.spoiled or outcome.kind == "timeout"
        if lookout.kept:
            capture.refuse(BESIDE)
        return lookout.told(outcome)

    def call_back(self, unit: Unit, callback: Callable[[AiResponseHandler], object]) -> None:
        """Call a callback with the joined session; its failure is logged and undone, and costs the unit nothing.

        :raises Interrupted: when the database could not be asked for the record.
        """
        try:
            with self._notices.gathering_committed(unit), joined_session(self._state.db, unit):
                callback(self._located())
        except RecordGone:
            pass
        except Exception:
            logger.exception("A callback of %s failed", self._gid)

    def _located(self) -> AiResponseHandler:
        try:
            return locate(self._gid)
        except PASSING as error:
            raise Interrupted(f"The database failed as {self._gid[:80]} was read.") from error

    def _refuse_lost(self, unit: Unit, name: str, outcome: ToolOutcome | None, error: BaseException | None) -> None:
        """A timeout gives a connection up as well, and what is no Exception may: neither is the database's fault."""
        is_other = (outcome is not None and outcome.kind == "timeout") or not isinstance(error, Exception | None)
        if unit.connection.invalidated and not is_other:
            raise Interrupted(f"The database hung up in tool {name[:80]}.") from error


class _Undo(Exception):
    """Leaves a tool's session so that nothing of it is kept."""
