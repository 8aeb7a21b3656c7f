"""How the ledger tells pages: fragments are gathered while a step is written, kept in the outbox with it, and
published after its commit. For what is lost between commit and publish, the pages refresh themselves later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import cast

import sqlalchemy as sa
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from ..live.addressed import addressed
from ..live.addressed import opened
from ..live.broadcasts import outlet
from ..live.turbo_stream import turbo_stream
from ..transactions import on_commit
from ..transactions import on_own_commit
from .columns import now
from .columns import uuid7
from .logs import current_run
from .models import Message
from .models import Outbox
from .models import Run
from .models import ToolCall
from .points import reach
from .prepared import Prepared
from .prepared import into
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

_OUTBOX = cast(sa.Table, Outbox.__table__)
# Not through the mapper, which would write the rows one by one.
_ADD = sa.insert(_OUTBOX)
_ADD_AT_ONCE = into(_OUTBOX, "id", "run_id", "stream", "html", "created_at")
_SETTLE = sa.update(_OUTBOX).where(_OUTBOX.c.id == sa.bindparam("broadcast")).values(position=sa.bindparam("at"))
_SETTLE_AT_ONCE = Prepared(_SETTLE)

MANY = 50
"""Positions that are noted at the next step, whatever it is."""

SEEN = "seen"
"""Position of a broadcast that Redis had taken before."""


class RunObserver(Protocol):
    """What hears of each change of a run, inside the transaction that makes it; its broadcasts are committed too."""

    def run_created(self, run: Run) -> None: ...

    def run_changed(self, run: Run) -> None: ...

    def message_started(self, run: Run, message: Message) -> None:
        """A message of the model has begun, or is there as a whole, with its calls."""

    def text_streamed(self, run: Run, message: Message, offset: int, text: str) -> None:
        """Streamed text was committed; ``offset`` counts UTF-16 code units, as browsers do."""

    def message_finished(self, run: Run, message: Message) -> None:
        """A message that had begun is complete; its calls are told one by one."""

    def message_discarded(self, run: Run, message: Message) -> None: ...

    def call_asked(self, run: Run, call: ToolCall) -> None:
        """A call stands in a turn that was just completed; it may be about to run."""

    def call_changed(self, run: Run, call: ToolCall) -> None: ...

    def all_told(self, run: Run) -> None:
        """All other changes of a run in this transaction have been told, unless it was made in it."""


class Fragment(NamedTuple):
    """A committed broadcast: its id in the outbox, its stream and its HTML."""

    id: str
    stream: str
    html: str


@contextmanager
def gathering() -> Iterator[list[tuple[str, str]]]:
    """Collect the broadcasts made inside instead of sending them."""
    broadcasts: list[tuple[str, str]] = []
    token = outlet.set(lambda stream, html: broadcasts.append((stream, str(html))))
    try:
        yield broadcasts
    finally:
        outlet.reset(token)


class Notices:
    """The outbox of one process's writes to the ledger."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._positions: dict[str, str] = {}
        self._missed: list[Fragment] = []

    @contextmanager
    def gathering(self, unit: Unit) -> Iterator[None]:
        """Collect the broadcasts made inside; they join the unit when the block ends without an error."""
        with gathering() as broadcasts:
            yield
        unit.broadcasts += broadcasts

    @contextmanager
    def gathering_committed(self, unit: Unit) -> Iterator[None]:
        """Collect as :meth:`gathering`, but only what the session commits: a rollback in the app's code drops it."""
        with self.gathering(unit):
            deliver = outlet.get()
            assert deliver is not None

            def hold_back(stream: str, html: str) -> None:
                on_own_commit(self._state.db.session(), lambda: deliver(stream, html))

            token = outlet.set(hold_back)
            try:
                yield
            finally:
                outlet.reset(token)

    def tell(self, unit: Unit, change: str, *about: object) -> None:
        """Tell every observer of a change that is about to be committed."""
        with self.gathering(unit):
            tell(self._state, change, *about)
        if isinstance(about[0], Run):
            unit.told[about[0].id] = about[0]

    def tell_now(self, change: str, *about: object) -> None:
        """Tell every observer of a change that has been committed and is not worth keeping."""
        for observer in self._state.observers:
            try:
                getattr(observer, change)(*about)
            except Exception as error:
                logger.warning("A page could not be told of %s: %s", change, error)

    def store(self, unit: Unit) -> None:
        """Write the unit's broadcasts into its transaction, and what Redis answered to earlier ones."""
        for run in unit.told.values():
            with self.gathering(unit):
                tell(self._state, "all_told", run)
        unit.told.clear()
        unit.flush()
        # A step that tells nothing comes before each wait for a model; until then the notes gather.
        if not unit.broadcasts or len(self._positions) >= MANY:
            self._settle(unit.connection)
        rows = _fragments(unit.broadcasts)
        if rows:
            made = {"run_id": current_run(), "created_at": now()}
            _ADD_AT_ONCE.execute(unit.connection, *(row._asdict() | made for row in rows))
        unit.broadcasts.clear()
        unit.after_commit(lambda: self._publish(rows))

    def _publish(self, rows: list[Fragment]) -> None:
        reach("before publish")
        missed, self._missed = self._missed, []
        positions = publish_late(self._state, missed) | publish(self._state, rows)
        self._missed = [row for row in (*missed, *rows) if row.id not in positions]
        self._positions |= positions
        reach("after publish")

    def flush(self, engine: sa.Engine) -> None:
        """Write down what Redis answered to the last broadcasts."""
        if not self._positions:
            return
        with engine.begin() as connection:
            self._settle(connection)

    def _settle(self, connection: sa.Connection) -> None:
        if self._positions:
            _SETTLE_AT_ONCE.execute(connection, *_settled(self._positions))
            self._positions.clear()


def tell(state: State, change: str, *about: object) -> None:
    """Tell every observer of a change; one that fails is logged and costs the others nothing."""
    for observer in state.observers:
        try:
            getattr(observer, change)(*about)
        except Exception:
            logger.exception("A page could not be told of %s", change)


def announce(state: State, *changes: tuple[Any, ...], then: Callable[[], object] | None = None) -> None:
    """Write the fragments of changes in the app's own session, with the rows; publish them after its commit.

    :param changes: each the name of an observer's method and what it is about.
    :param then: called after that.
    """
    with gathering() as broadcasts:
        for change, *about in changes:
            tell(state, change, *about)
        for run in {about[0].id: about[0] for change, *about in changes if change != "run_created"}.values():
            tell(state, "all_told", run)
    session = state.db.session()
    session.flush()
    fragments = _fragments(broadcasts)
    if fragments:
        session.execute(_ADD, [each._asdict() for each in fragments], bind_arguments={"mapper": Outbox})

    def committed() -> None:
        publish(state, fragments)
        if then is not None:
            then()

    on_commit(session, committed)


def _fragments(broadcasts: list[tuple[str, str]]) -> list[Fragment]:
    return [Fragment(uuid7(), stream, html) for stream, html in broadcasts]


def publish(state: State, rows: list[Fragment]) -> dict[str, str]:
    """Publish broadcasts that were committed just now; return the position of each that Redis took.

    Stops at the first failure. What is left is not published later as it is: newer fragments may have gone out in
    between, and an old one after them would take the page back. See :func:`publish_late`.
    """
    positions: dict[str, str] = {}
    for stream, group in groupby(rows, lambda row: row.stream):
        some = list(group)
        try:
            found = state.live.bus.publish_all(stream, [(row.id, row.html) for row in some])
        except RedisError as error:
            logger.warning("Broadcast %s waits in the outbox, Redis could not be reached: %s", some[0].id, error)
            break
        positions |= {row.id: position or SEEN for row, position in zip(some, found, strict=True)}
    return positions


def publish_late(state: State, rows: list[Fragment]) -> dict[str, str]:
    """Let the pages that missed a broadcast refresh themselves: whatever went out since, they end up right.

    A broadcast that Redis has seen before is left alone, so that nothing happens when only its note was lost.
    """
    refresh = str(turbo_stream("refresh"))
    return publish(state, [row._replace(html=addressed(refresh, opened(row.html)[0])) for row in rows])


def settle(session: Session, positions: dict[str, str]) -> None:
    """Note the positions of published broadcasts."""
    if positions:
        session.execute(_SETTLE, _settled(positions))


def _settled(positions: dict[str, str]) -> list[dict[str, str]]:
    return [{"broadcast": identifier, "at": position} for identifier, position in positions.items()]


def unpublished(session: Session, before: datetime, limit: int = 500) -> list[Fragment]:
    """Return the broadcasts committed before a moment that no one has published yet, oldest first."""
    query = sa.select(Outbox).where(Outbox.position.is_(None), Outbox.created_at < before)
    rows = session.scalars(query.order_by(Outbox.seq).limit(limit))
    return [Fragment(row.id, row.stream, row.html) for row in rows]
