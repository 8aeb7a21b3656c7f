"""What calls would change, found out by carrying them out and rolling all of it back; and doing just that later, when a
person has accepted it and the rows are still as they were. See docs/decisions/0016.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from ..effects import Promise
from ..live.turbo_stream import turbo_stream
from .applying import plan
from .belonging import torn_apart
from .capture import Capture
from .change import Recorded
from .unit import Unit
from .unit import joined_session
from .values import is_kept
from .writing import apply

if TYPE_CHECKING:
    from ..state import State
    from .notices import Notices


@dataclass(frozen=True, slots=True)
class Proposed:
    """What one call would do.

    :ivar result: what the tool returned.
    :ivar streams: the pages that it told something; they refresh once it is done.
    :ivar promises: what it asked for after the commit.
    :ivar problem: why not all that it would change could be seen; None where it could.
    """

    call_id: str
    name: str
    result: str
    changes: tuple[Recorded, ...] = ()
    streams: tuple[str, ...] = ()
    promises: tuple[Promise, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one call, or all calls of a run, would do, in their order; changes are numbered from 1 over all of them."""

    calls: tuple[Proposed, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Why an earlier one could not be done as it was accepted."""

    def to_json(self) -> dict[str, Any]:
        return {"calls": [asdict(call) for call in self.calls], "conflicts": list(self.conflicts)}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Proposal:
        """Return what :meth:`to_json` wrote; one of nothing for what was never found out."""
        if data is None:
            return cls()
        return cls(tuple(_proposed(call) for call in data["calls"]), tuple(data["conflicts"]))

    @property
    def changes(self) -> list[Recorded]:
        return [change for call in self.calls for change in call.changes]

    @property
    def problem(self) -> str | None:
        return next((call.problem for call in self.calls if call.problem is not None), None)

    def and_(self, call: Proposed) -> Proposal:
        """Return the proposal with one more call, or with another of the same in its place."""
        return replace(self, calls=(*(one for one in self.calls if one.call_id != call.call_id), call))

    def chosen(self, numbers: Collection[int] | None) -> Proposal:
        """Return what is left when only some changes are made: of a call that is not made whole, no promises."""
        if numbers is None:
            return self
        left, number = [], 0
        for call in self.calls:
            kept = []
            for change in call.changes:
                number += 1
                if number in numbers:
                    kept.append(change)
            whole = len(kept) == len(call.changes)
            left.append(replace(call, changes=tuple(kept), promises=call.promises if whole else ()))
        return replace(self, calls=tuple(left))


def _proposed(data: dict[str, Any]) -> Proposed:
    return Proposed(
        **data
        | {
            "changes": tuple(Recorded(**change) for change in data["changes"]),
            "streams": tuple(data["streams"]),
            "promises": tuple(Promise(**promise) for promise in data["promises"]),
        }
    )


def in_order(changes: Iterable[Recorded]) -> tuple[Recorded, ...]:
    """Return changes as people read them, and with the same numbers each time: by table and key."""
    return tuple(sorted(changes, key=lambda one: (one.table, len(one.key), one.key)))


def unseen(changes: Iterable[Recorded]) -> str | None:
    """Return why changes could not be made again as they are written down; None where they can."""
    for change in changes:
        lost = next((name for name, value in (change.after or {}).items() if not is_kept(value)), None)
        if lost is not None:
            return f"What {lost} of {change.table} would become is not kept."
    return None


@dataclass(slots=True)
class Accepted:
    """What became of a proposal that was accepted.

    :ivar captures: by the ids of the calls, what each has changed.
    :ivar conflicts: why it could not be made, in words; nothing of it is kept then.
    """

    captures: dict[str, Capture] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)


class Stage:
    """Carries proposals out inside a unit of work."""

    def __init__(self, state: State, notices: Notices) -> None:
        self._state = state
        self._notices = notices

    @contextmanager
    def rehearsing(self, unit: Unit, before: Proposal) -> Iterator[list[str]]:
        """Do what earlier calls proposed, let the block do its work, and roll all of it back.

        :returns: filled with the streams that the block broadcast to, once it has ended.
        """
        told, waiting = len(unit.broadcasts), unit.mark()
        streams: list[str] = []
        savepoint = unit.connection.begin_nested()
        try:
            for call in before.calls:
                self._apply(unit, call, Capture(self._state, unit.connection))
            told_before = len(unit.broadcasts)
            yield streams
            streams += dict.fromkeys(stream for stream, _ in unit.broadcasts[told_before:])
        finally:
            del unit.broadcasts[told:]
            unit.forget_since(waiting)
            if savepoint.is_active:
                savepoint.rollback()

    def accept(self, unit: Unit, proposal: Proposal, numbers: Collection[int] | None = None) -> Accepted:
        """Make the changes of a proposal, if each row is as it was when it was proposed; else none of them.

        :param numbers: of the changes that are accepted; None for all.
        """
        layouts = self._state.layouts(unit.connection.dialect)
        whole, proposal = proposal, proposal.chosen(numbers)
        accepted = Accepted(conflicts=[] if numbers is None else torn_apart(whole.changes, numbers, layouts))
        if accepted.conflicts:
            return accepted
        told, waiting = len(unit.broadcasts), unit.mark()
        savepoint = unit.connection.begin_nested()
        for call in proposal.calls:
            capture = accepted.captures[call.call_id] = Capture(self._state, unit.connection)
            accepted.conflicts += self._apply(unit, call, capture)
        if accepted.conflicts:
            del unit.broadcasts[told:]
            unit.forget_since(waiting)
            savepoint.rollback()
            return Accepted(conflicts=accepted.conflicts)
        savepoint.commit()
        refresh = str(turbo_stream("refresh"))
        # What the tool told then may be old by now.
        unit.broadcasts += [(stream, refresh) for call in proposal.calls if call.changes for stream in call.streams]
        return accepted

    def _apply(self, unit: Unit, call: Proposed, capture: Capture) -> list[str]:
        if not call.changes:
            return []
        layouts = self._state.layouts(unit.connection.dialect)
        with (
            self._notices.gathering_committed(unit),
            capture.listening(),
            joined_session(self._state.db, unit) as session,
        ):
            capture.follow(session)
            found = plan(session, layouts, [call.changes], "forwards", lock=True)
            refused = [] if found.conflicts else apply(session, found)
        return [f"{one.id}: {one.conflict}" for one in (*found.conflicts, *refused)]
