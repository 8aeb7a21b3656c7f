"""Taking back what a run or a call has changed, and doing it again: one transaction, which is a run of its own.

Whether a call is in effect stands in ``ToolCall.undone_by``, which changes hands by a conditional update: of two people
who undo the same, one is told that the other was faster.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..calls import ToolContext
from ..effects import Promise
from ..errors import HandlerError
from ..errors import UndoRefused
from ..handlers import locate
from ..live.reader import Reader
from .applying import plan
from .capture import Capture
from .change import Change
from .change import keep
from .columns import now
from .columns import uuid7
from .models import Effect
from .models import Message
from .models import Run
from .models import ToolCall
from .notices import Notices
from .plans import FieldPlan
from .plans import Plan
from .plans import RowPlan
from .queue import ring
from .unit import Unit
from .unit import joined_session
from .unit import ledger_engine
from .unit import unit_of_work
from .writing import apply

if TYPE_CHECKING:
    from ..state import State

NOTHING = "It changed nothing that could be taken back."
ACTIVE = "It is still at work: stop it, or wait for its end."
UNDONE = "It has been undone."
FASTER = "Someone else was faster: it has been undone meanwhile."


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What an undo would do now, before it is done.

    :ivar name: ``undo``, or ``redo`` for taking an undo back.
    :ivar rows: what becomes of each row, newest first; their fields have ids for ``force`` and ``skip``.
    :ivar left_out: the names of calls that cannot be undone, each with the reason in a sentence.
    :ivar problem: why nothing can be undone at all; None when something can.
    """

    name: str
    run_id: str
    rows: list[RowPlan] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    problem: str | None = None

    @property
    def conflicts(self) -> list[FieldPlan]:
        """The fields that somebody has changed since, with what the AI wrote and what is there now."""
        return [one for row in self.rows for one in row.fields if one.conflict is not None]


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo has done: its run, and the fields that it has left as they were."""

    run: Run
    conflicts: list[FieldPlan]


def undo_preview(state: State, target: Run | ToolCall) -> UndoPlan:
    """Look at what an undo would do, in the current session; nothing is written."""
    run_id, call_id = _ids(target)
    session = state.db.session()
    try:
        run, calls, left_out = _wanted(session, run_id, call_id)
    except UndoRefused as refusal:
        return UndoPlan("undo", run_id, problem=str(refusal))
    layouts = state.layouts(state.db.engine.dialect)
    found = plan(session, layouts, _groups(session, calls), "backwards")
    return UndoPlan(_name(run), run_id, found.rows, left_out)


def undo(
    state: State,
    target: Run | ToolCall,
    actor: str | None,
    *,
    force: Collection[str] = (),
    skip: Collection[str] = (),
) -> Undone:
    """Take a run's or a call's changes back, and commit the session.

    :raises UndoRefused: when there is nothing to undo, or somebody else did it.
    """
    ids = _ids(target)
    state.db.session.commit()
    undoing = _Undoing(state, actor, force, skip)
    with unit_of_work(ledger_engine(state.db)) as unit:
        run_id, conflicts = undoing.carry_out(unit, *ids)
    undoing.notices.flush(ledger_engine(state.db))
    made = state.db.session.get_one(Run, run_id)
    if undoing.promised:
        ring(state, run_id, made.attempt)
    return Undone(made, conflicts)


class _Undoing:
    """One undo, in its transaction."""

    def __init__(self, state: State, actor: str | None, force: Collection[str], skip: Collection[str]) -> None:
        self._state = state
        self._actor = actor
        self._force, self._skip = frozenset(force), frozenset(skip)
        self.notices = Notices(state)
        self.promised = 0
        """Effects that ``handle_undo`` has asked for."""

    def carry_out(self, unit: Unit, run_id: str, call_id: str | None) -> tuple[str, list[FieldPlan]]:
        unit.actor = self._actor
        run, calls, _ = _wanted(unit.ledger, run_id, call_id, lock=True)
        made, call = _written(run, calls, self._actor)
        unit.ledger.add(made)
        unit.ledger.flush()
        _claim(unit.ledger, calls, made.id)
        capture = Capture(self._state, unit.connection)
        conflicts = self._apply(unit, run, calls, call, capture)
        keep(unit.connection, made.id, call.id, capture.changes)
        call.changed, call.undo_problem = len(capture.changes), capture.problem
        call.result = _told(_name(run), calls, len(capture.changes), len(conflicts))
        touched = _settle(unit.ledger, calls)
        unit.ledger.flush()
        unit.ledger.expire(made, ["messages", "calls"])
        self.notices.tell(unit, "run_created", made)
        for other in (*calls, *touched):
            unit.ledger.refresh(other)
            self.notices.tell(unit, "call_changed", other.run, other)
        self.notices.store(unit)
        return made.id, conflicts

    def _apply(
        self, unit: Unit, run: Run, calls: Sequence[ToolCall], call: ToolCall, capture: Capture
    ) -> list[FieldPlan]:
        groups = _groups(unit.ledger, calls)
        layouts = self._state.layouts(unit.connection.dialect)
        with (
            self.notices.gathering_committed(unit),
            capture.listening(),
            joined_session(self._state.db, unit) as session,
        ):
            capture.follow(session)
            found: Plan = plan(session, layouts, groups, "backwards", force=self._force, skip=self._skip, lock=True)
            refused = apply(session, found)
            self._tell_handler(unit, run, calls, call)
        return [one for one in found.conflicts if one.id not in self._force] + refused

    def _tell_handler(self, unit: Unit, run: Run, calls: Sequence[ToolCall], call: ToolCall) -> None:
        try:
            handler = locate(run.handler)
        except HandlerError:
            return
        handler.call = ToolContext(
            call.id,
            call.run_id,
            call.name,
            call.seq,
            call.idempotency_key,
            self._actor,
            promise=lambda promise: self._keep(call, promise),
        )
        handler.handle_undo(list(calls))

    def _keep(self, call: ToolCall, promise: Promise) -> None:
        """Write an effect down; a worker carries it out, since this may be a request."""
        self.promised += 1
        self._state.db.session().execute(
            sa.insert(cast(sa.Table, Effect.__table__)).values(
                run_id=call.run_id,
                call_id=call.id,
                seq=self.promised,
                owner=promise.owner,
                method=promise.method,
                arguments=promise.arguments,
                timeout=promise.timeout,
                asked_at=now(),
            )
        )


def _ids(target: Run | ToolCall) -> tuple[str, str | None]:
    if isinstance(target, Run):
        # By its identity: after a commit, and without its session, its attributes could not be read.
        identity = sa.inspect(target).identity
        return (target.id if identity is None else identity[0]), None
    return target.run_id, target.id


def _name(run: Run) -> str:
    """An undo that is undone is a redo, and that again an undo."""
    return "redo" if run.kind == "undo" and any(call.name == "undo" for call in run.calls) else "undo"


def _wanted(
    session: Session, run_id: str, call_id: str | None, *, lock: bool = False
) -> tuple[Run, list[ToolCall], list[tuple[str, str]]]:
    """Return the run, the calls of it that can be undone, oldest first, and those that cannot, with the reason.

    :raises UndoRefused: when there are none.
    """
    run = session.get(Run, run_id, populate_existing=True, with_for_update=True if lock else None)
    if run is None:
        raise UndoRefused(NOTHING)
    if run.active:
        raise UndoRefused(ACTIVE)
    calls = session.scalars(
        sa.select(ToolCall)
        .where(ToolCall.run_id == run_id, *([ToolCall.id == call_id] if call_id else []))
        .order_by(ToolCall.seq)
        .execution_options(populate_existing=True)
    ).all()
    standing = [call for call in calls if call.undone_by is None]
    changing = set(session.scalars(sa.select(Change.call_id).where(Change.run_id == run_id).distinct()))
    left_out = [(call.name, call.undo_problem) for call in standing if call.undo_problem is not None]
    possible = [call for call in standing if call.undo_problem is None and call.id in changing]
    if not possible:
        undone = len(standing) < len(calls) and not left_out
        raise UndoRefused(UNDONE if undone else left_out[0][1] if left_out else NOTHING)
    return run, possible, left_out


def _groups(session: Session, calls: Sequence[ToolCall]) -> list[list[Change]]:
    groups: dict[str, list[Change]] = {call.id: [] for call in calls}
    query = sa.select(Change).where(Change.call_id.in_(groups)).order_by(Change.call_id, Change.seq)
    for change in session.scalars(query):
        groups[change.call_id].append(change)
    return list(groups.values())


def _claim(session: Session, calls: Sequence[ToolCall], by: str) -> None:
    claimed: Any = session.execute(
        sa.update(ToolCall)
        .where(ToolCall.id.in_([call.id for call in calls]), ToolCall.undone_by.is_(None))
        .values(undone_by=by)
        .execution_options(synchronize_session=False)
    )
    if claimed.rowcount != len(calls):
        raise UndoRefused(FASTER)


def _written(run: Run, calls: Sequence[ToolCall], actor: str | None) -> tuple[Run, ToolCall]:
    """Make the rows of the undo: a run that has succeeded, with one call."""
    name, moment, reader = _name(run), now(), Reader.current()
    made = Run(
        id=uuid7(),
        handler=run.handler,
        handler_name=run.handler_name,
        actor=actor,
        tenant=run.tenant,
        conversation=run.conversation,
        kind="undo",
        undoes=run.id,
        status="succeeded",
        user_prompt=name.capitalize(),
        base_url=reader.base_url,
        language=reader.language,
        timezone=reader.timezone,
        started_at=moment,
        ended_at=moment,
    )
    message = Message(id=uuid7(), run=made, seq=1, state="complete", finish_reason="stop")
    call = ToolCall(
        id=uuid7(),
        run=made,
        message=message,
        run_id=made.id,
        seq=1,
        provider_call_id=name,
        name=name,
        # Which calls it is about, so that it can itself be taken back.
        arguments=json.dumps({"calls": [one.id for one in calls]}),
        idempotency_key=f"{made.id}:1",
        status="done",
        result="",
        started_at=moment,
        ended_at=moment,
        effects=[],
    )
    return made, call


def _told(name: str, calls: Sequence[ToolCall], changed: int, left: int) -> str:
    what = ", ".join(dict.fromkeys(call.name for call in calls))
    if name == "redo":
        text = "A person took an undo back, so that what was undone is in effect again."
    else:
        text = f"A person has undone what these calls changed: {what}."
    text += f" {changed} {'row was' if changed == 1 else 'rows were'} written."
    return f"{text} {left} changed since and left as they were." if left else text


def _settle(session: Session, calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Let the calls that an undo was about stand again as it is undone itself, and fall as that is undone."""
    touched: list[ToolCall] = []
    waiting = [(call, False) for call in calls]
    while waiting:
        call, stands = waiting.pop()
        if call.run.kind != "undo":
            continue
        about = session.scalars(sa.select(ToolCall).where(ToolCall.id.in_(json.loads(call.arguments)["calls"]))).all()
        for other in about:
            if stands and other.undone_by is None:
                other.undone_by = call.run_id
            elif not stands and other.undone_by == call.run_id:
                other.undone_by = None
            else:
                continue
            touched.append(other)
            waiting.append((other, not stands))
    return touched
