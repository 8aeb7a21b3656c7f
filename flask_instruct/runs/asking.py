"""Asking a person about a call, and holding their decision against the call that is about to run: same call, same name,
same arguments, and once only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from datetime import timedelta
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..config import Config
from ..errors import ToolError
from ..prompt import ToolCall as CallPart
from ..tools import ToolOutcome
from .approval import Approval
from .columns import now
from .models import Run
from .models import ToolCall

EDITED = "A person approved this call with other arguments than yours, and it ran with these:"
REJECTED = "A person did not approve this call; it did not run."
EXPIRED = "Nobody approved this call in time; it did not run."
ALTERED = "The approval of this call was given for other arguments; it did not run."

_UNDECIDED = Approval.status.in_(("gathering", "pending"))


class Verdict(NamedTuple):
    """What was decided about a call that is about to run.

    :param part: the call as it may run, with the arguments of whoever approved it.
    :param by: who that is; None where it was not approved.
    :param refusal: what the model is told instead of running it.
    :param note: what the model is told before the result.
    :param pending: nobody has decided yet.
    :param approval: what they were asked; None outside of a run.
    """

    part: CallPart
    by: str | None = None
    refusal: str | None = None
    note: str = ""
    pending: bool = False
    approval: Approval | None = None


def canonical(arguments: str) -> str:
    """Return JSON text in its one form: keys sorted, no spaces. What is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def digest_of(name: str, arguments: str) -> str:
    """Return what an approval is bound to, as hexadecimal digits."""
    return hashlib.sha256(f"{name}\0{canonical(arguments)}".encode("utf-8", "backslashreplace")).hexdigest()


def ask(
    session: Session, call: ToolCall, reason: str, config: Config, proposal: dict[str, Any] | None = None
) -> Approval:
    """Write down that a person is asked about a call. The same call is asked about once."""
    call.ask()
    asked = Approval(
        run_id=call.run_id,
        call_id=call.id,
        tool=call.name,
        arguments=canonical(call.arguments),
        digest=digest_of(call.name, call.arguments),
        reason=reason or None,
        proposal=proposal,
        **asking_now(config),
    )
    session.add(asked)
    session.flush()
    return asked


def ask_again(approval: Approval, config: Config, proposal: dict[str, Any]) -> None:
    """Ask anew, with what would change by now: what was accepted can no longer be done."""
    approval.status, approval.proposal, approval.chosen = "pending", proposal, None
    approval.decided_by = approval.decided_at = approval.decision_reason = approval.reminded_at = None
    approval.stale += 1
    for name, value in asking_now(config).items():
        setattr(approval, name, value)


def asking_now(config: Config) -> dict[str, datetime | None]:
    """Return when a person is asked, and until when they may decide."""
    moment, expiry = now(), config.approval_expiry
    return {"asked_at": moment, "expires_at": moment + timedelta(seconds=expiry) if expiry else None}


def approval_of(session: Session, call: ToolCall) -> Approval | None:
    """Return what was asked about a call, as it stands now."""
    return session.scalars(sa.select(Approval).where(Approval.call_id == call.id)).one_or_none()


def verdict(approval: Approval, part: CallPart) -> Verdict:
    """Return what a decision makes of a call."""
    if approval.status == "pending":
        return Verdict(part, pending=True, approval=approval)
    if approval.status != "approved":
        return Verdict(part, refusal=_refused(approval))
    if approval.digest != digest_of(part.name, part.raw):
        return Verdict(part, refusal=ALTERED)
    by = approval.decided_by or ""
    if approval.edited is None:
        return Verdict(part, by, approval=approval)
    note = f"{EDITED} {approval.edited}"
    return Verdict(replace(part, raw=approval.edited), by, note=note, approval=approval)


def refused(decided: Verdict) -> ToolOutcome:
    """Return the outcome of a call that was not approved."""
    told = decided.refusal or REJECTED
    return ToolOutcome(told, "not_approved", ToolError(told))


def has_decision(session: Session, run: Run) -> bool:
    """Tell whether somebody has decided about a call of a run that still waits."""
    query = sa.select(Approval.id).outerjoin(ToolCall, ToolCall.id == Approval.call_id)
    waits = sa.or_(ToolCall.status == "asked", sa.and_(Approval.call_id.is_(None), Approval.applied_at.is_(None)))
    return session.scalar(query.where(Approval.run_id == run.id, ~_UNDECIDED, waits)) is not None


def withdraw(session: Session, run: Run) -> None:
    """Ask no longer: the run has ended."""
    session.execute(
        sa.update(Approval)
        .where(Approval.run_id == run.id, _UNDECIDED)
        .values(status="withdrawn", decided_at=now())
        .execution_options(synchronize_session=False)
    )


def _refused(approval: Approval) -> str:
    if approval.status == "expired":
        return EXPIRED
    return f"{REJECTED} The reason: {approval.decision_reason}" if approval.decision_reason else REJECTED
