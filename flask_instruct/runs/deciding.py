"""What a person decides about a call that waits: once, by whoever may, in whatever process; the run then goes on in a
worker. Also the end of patience: approvals that expire, and reminders of those that nobody has looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..arguments import InvalidArguments
from ..arguments import parse_arguments
from ..errors import AlreadyDecided
from ..errors import HandlerError
from ..errors import NotAllowed
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..live.audience import allows
from .approval import Approval
from .approval import Decision
from .asking import canonical
from .columns import now
from .models import Run
from .notices import announce
from .proposals import Proposal
from .queue import ring

if TYPE_CHECKING:
    from ..state import State
    from ..tools import Tool

logger = logging.getLogger("flask_instruct")

AT_ONCE = 100
"""Approvals that one sweep, or one page of the inbox, looks at."""


def decide(
    state: State,
    approval: Approval,
    status: Decision,
    *,
    by: str | None,
    edited: str | None = None,
    reason: str | None = None,
    chosen: Collection[int] | None = None,
) -> Approval:
    """Write a decision, have its run go on, and commit the session; the first one counts.

    :raises AlreadyDecided: when somebody was faster, it has expired, or its run has ended.
    """
    session = state.db.session()
    # The run's row first, as its worker does: a decision just as the run is put down is seen by one of the two.
    run = session.get_one(Run, approval.run_id, with_for_update=True, populate_existing=True)
    moment = now()
    values: dict[str, Any] = {"edited": edited, "chosen": None if chosen is None else sorted(set(chosen))}
    if status == "approved" and edited != approval.edited and approval.proposal is not None:
        # What was shown is of other arguments: it is shown again before anything is done.
        values["proposal"] = Proposal().to_json()
    in_time = sa.or_(Approval.expires_at.is_(None), Approval.expires_at > moment)
    written: sa.CursorResult[Any] = session.execute(  # type: ignore[assignment]
        sa.update(Approval)
        .where(Approval.id == approval.id, Approval.status == "pending", *(() if status == "expired" else (in_time,)))
        .values(status=status, decided_by=by, decided_at=moment, decision_reason=reason, **values)
        .execution_options(synchronize_session=False)
    )
    if written.rowcount != 1:
        session.rollback()
        found = session.get_one(Approval, approval.id, populate_existing=True)
        raise AlreadyDecided("expired" if found.status == "pending" else found.status, found.decided_by)
    _go_on(session, run)
    run = session.get_one(Run, run.id, populate_existing=True)
    decided = session.get_one(Approval, approval.id, populate_existing=True)
    rung = partial(ring, state, run.id, run.attempt) if run.status == "queued" else None
    changes: list[tuple[Any, ...]] = [("call_changed", run, decided.call)] if decided.call is not None else []
    announce(state, *changes, ("run_changed", run), then=rung)
    session.commit()
    return decided


def _go_on(session: Session, run: Run) -> None:
    """Let a run that waits be taken up again; the wait does not count as its time."""
    waited = now() - run.queued_at
    session.execute(
        sa.update(Run)
        .where(Run.id == run.id, Run.status == "waiting_approval")
        .values(
            status="queued",
            queued_at=now(),
            started_at=run.started_at + waited if run.started_at is not None else None,
        )
        .execution_options(synchronize_session=False)
    )


def may_decide(state: State, approval: Approval, actor: Any) -> bool:
    """Tell whether a person may decide, in the words of the app's rules; where the record is gone nobody may.

    A call that can no longer run, since its tool has changed or is gone, can be rejected by whoever may ask for one.
    """
    try:
        return _may_decide(state, approval, actor, rejects=True)
    except HandlerError:
        return False


def _may_decide(
    state: State, approval: Approval, actor: Any, arguments: str | None = None, *, rejects: bool = False
) -> bool:
    """Ask ``authorize``, and ``authorize_approval`` for each call that it is about.

    :raises InvalidArguments: naming each fault of the arguments, unless the call is to be rejected.
    :raises HandlerError: when the record or the handler is gone; the tool, unless the call is to be rejected.
    """
    handler = locate(approval.run.handler)
    authorize = state.hooks.authorize
    if authorize is not None and not allows(authorize, actor, handler):
        return False
    for name, given in _about(approval, arguments):
        try:
            tool, values = checked(handler, name, given)
        except (HandlerError, InvalidArguments):
            if rejects:
                continue
            raise
        # In the preview of a run, what needs no approval may be accepted by whoever may steer it.
        asks = approval.call_id is not None or tool.approval is not False
        if asks and not allows(handler.authorize_approval, tool, dict(values), actor):
            return False
    return True


def _about(approval: Approval, arguments: str | None) -> Iterator[tuple[str, str]]:
    """Give the name and the arguments of each call that an approval is about."""
    if approval.call_id is not None:
        yield approval.tool, arguments or approval.arguments
        return
    calls = {call.id: call for call in approval.run.calls}
    for proposed in Proposal.from_json(approval.proposal).calls:
        yield proposed.name, calls[proposed.call_id].arguments


def approve(
    state: State,
    approval: Approval,
    *,
    actor: Any,
    by: str | None,
    arguments: str | None = None,
    chosen: Collection[int] | None = None,
) -> Approval:
    """Let a call run, with other arguments where a person gives them as JSON, or only some of what it would change.

    :raises NotAllowed: when ``authorize_approval`` says no, also to the new arguments.
    :raises InvalidArguments: naming each fault of the new arguments.
    :raises AlreadyDecided: see :func:`decide`.
    :raises HandlerError: when the record, the handler or the tool is gone.
    """
    edited = canonical(arguments) if arguments is not None else approval.edited
    edited = None if edited == approval.arguments else edited
    for given in (None, *(() if edited is None else (edited,))):
        if not _may_decide(state, approval, actor, given):
            raise NotAllowed(f"You are not allowed to approve {approval.tool}.")
    if chosen is not None:
        every = Proposal.from_json(approval.proposal).changes
        chosen = {number for number in chosen if 0 < number <= len(every)}
        if not chosen:
            return decide(state, approval, "rejected", by=by)
    return decide(state, approval, "approved", by=by, edited=edited, chosen=chosen)


def reject(state: State, approval: Approval, *, actor: Any, by: str | None, reason: str | None = None) -> Approval:
    """Do not let a call run; the model is told the reason.

    :raises NotAllowed: when ``authorize_approval`` says no.
    :raises AlreadyDecided: see :func:`decide`.
    """
    if not may_decide(state, approval, actor):
        raise NotAllowed(f"You are not allowed to decide about {approval.tool}.")
    return decide(state, approval, "rejected", by=by, reason=(reason or "").strip() or None)


def checked(handler: AiResponseHandler, name: str, arguments: str) -> tuple[type[Tool], dict[str, Any]]:
    """Return the tool of that name, and arguments for it that passed.

    :raises InvalidArguments: naming each fault.
    :raises HandlerError: when the handler no longer offers the tool.
    """
    tool = next((tool for tool in handler.ai_tools() if tool.identifier == name), None)
    if tool is None:
        raise HandlerError(f"{type(handler).__name__} no longer offers {name}.")
    return tool, tool.check(parse_arguments(arguments)).arguments


def pending(session: Session, *conditions: sa.ColumnElement[bool]) -> list[Approval]:
    """Return what waits for a person, oldest first."""
    query = sa.select(Approval).join(Run).where(Approval.status == "pending", *conditions)
    return list(session.scalars(query.order_by(Approval.asked_at, Approval.id).limit(AT_ONCE)))


def end_patience(state: State) -> int:
    """Let approvals expire whose time is over, and remind of others; returns how many expired. Part of the sweep."""
    session = state.db.session()
    try:
        expired = pending(session, Approval.expires_at <= now())
        for approval in expired:
            _expire(state, approval)
        _remind(state, session)
        return len(expired)
    finally:
        state.db.session.remove()


def _expire(state: State, approval: Approval) -> None:
    try:
        decide(state, approval, "expired", by=None)
    except AlreadyDecided:
        logger.debug("Approval %s was decided in the moment that it expired", approval.id)


def _remind(state: State, session: Session) -> None:
    rule, after = state.hooks.remind_approval, state.config.approval_reminder
    if rule is None or not after:
        return
    due = (Approval.reminded_at.is_(None), Approval.asked_at < now() - timedelta(seconds=after))
    for approval in pending(session, *due):
        # Written first: of two sweeps one reminds, and a reminder that fails is not sent again and again.
        taken: sa.CursorResult[Any] = session.execute(  # type: ignore[assignment]
            sa.update(Approval).where(Approval.id == approval.id, *due).values(reminded_at=now())
        )
        session.commit()
        if taken.rowcount != 1:
            continue
        try:
            rule(approval)
        except Exception:
            logger.exception("The reminder of approval %s failed", approval.id)
            session.rollback()
