"""All of one run in the order it happened: turns of the model, its tool calls with what they changed, who decided, and
every physical model call with what it cost. A fixed number of statements, whatever the run holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session
from sqlalchemy.orm import selectinload

from ..panel.answers import reasoning
from ..panel.differences import Difference
from ..panel.differences import differences
from ..panel.values import in_words
from ..panel.values import key_in_words
from ..panel.values import plain
from ..runs.approval import Approval
from ..runs.change import Change
from ..runs.change import Recorded
from ..runs.models import Message
from ..runs.models import ModelCall
from ..runs.models import Run
from ..runs.models import ToolCall
from ..runs.proposals import Proposal
from ..runs.spending import Spending
from ..runs.spending import spent_by_run

AnySession = Session | scoped_session[Any]
Veil = Callable[[str], str]
"""Takes secrets out of a text."""

SHOWN_CHANGES = 50
"""Changed rows of one call that are shown."""
SHOWN_IN_ALL = 1000
"""Changed rows of a run that are shown."""
SHOWN_UNDONE = 20


@dataclass(frozen=True, slots=True)
class Changed:
    """One row that a call changed, field by field."""

    action: str
    entity: str
    key: str
    fields: list[Difference]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person was asked about a call, and what they said.

    :param edited: what they made of the arguments.
    :param proposed: the first rows that were to be changed; ``hidden`` further ones are not shown.
    """

    approval: Approval
    edited: list[Difference]
    proposed: list[Changed]
    hidden: int


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with what came of it; ``hidden`` further rows were changed and are not shown."""

    row: ToolCall
    changes: list[Changed]
    hidden: int
    decision: Decision | None


@dataclass(slots=True)
class Step:
    """One step of a run: a turn of the model, or a model call of which no turn was kept."""

    at: datetime
    message: Message | None = None
    reasoning: str = ""
    model_calls: list[ModelCall] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sums:
    """What the model calls that are shown add up to."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost: Decimal | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Story:
    """A run and all that is known of it.

    :param spending: what the ledger adds up; equals ``sums``, which is added up from the rows shown.
    :param proposals: decisions about the whole run.
    :param undone_by: the runs in which people took back what this one did.
    """

    run: Run
    steps: list[Step]
    model_calls: Sequence[ModelCall]
    sums: Sums
    spending: Spending
    proposals: list[Decision]
    undone_by: Sequence[Run]
    changes: int


def story(session: AnySession, run: Run, veil: Veil) -> Story:
    """Read all of a run.

    :param veil: takes secrets out of the values of changed rows.
    """
    messages = session.scalars(
        sa.select(Message)
        .where(Message.run_id == run.id)
        .order_by(Message.seq)
        .options(selectinload(Message.calls).selectinload(ToolCall.effects))
    ).all()
    model_calls = session.scalars(
        sa.select(ModelCall).where(ModelCall.run_id == run.id).order_by(ModelCall.created_at, ModelCall.id)
    ).all()
    approvals = session.scalars(sa.select(Approval).where(Approval.run_id == run.id).order_by(Approval.asked_at)).all()
    decisions = {each.call_id: _decision(each, veil) for each in approvals}
    changes, counts = _changes(session, run.id), _counts(session, run.id)
    calls = {
        row.id: _call(row, changes[row.id], counts.get(row.id, 0), decisions.get(row.id), veil)
        for message in messages
        for row in message.calls
    }
    return Story(
        run=run,
        steps=_steps(messages, model_calls, calls),
        model_calls=model_calls,
        sums=_sums(model_calls),
        spending=spent_by_run(session, run.id),
        proposals=[_decision(each, veil) for each in approvals if each.call_id is None],
        undone_by=sorted(
            session.scalars(sa.select(Run).where(Run.undoes == run.id).limit(SHOWN_UNDONE)),
            key=lambda undo: undo.created_at,
        ),
        changes=sum(counts.values()),
    )


def _steps(messages: Iterable[Message], model_calls: Iterable[ModelCall], calls: Mapping[str, Call]) -> list[Step]:
    kept = {
        message.id: Step(
            message.created_at, message, reasoning(message), calls=[calls[row.id] for row in message.calls]
        )
        for message in messages
    }
    lost: list[Step] = []
    for each in model_calls:
        step = kept.get(each.message_id or "")
        if step is None:
            lost.append(Step(each.created_at, model_calls=[each]))
        else:
            step.model_calls.append(each)
    # The turns keep the order that they were told to the model in, whatever clocks say.
    steps = list(kept.values())
    for step in lost:
        later = next((place for place, other in enumerate(steps) if other.at > step.at), len(steps))
        steps.insert(later, step)
    return steps


def _call(row: ToolCall, changes: list[Change], many: int, decision: Decision | None, veil: Veil) -> Call:
    return Call(row, [_changed(change, veil) for change in changes], many - len(changes), decision)


def _changed(change: Change | Recorded, veil: Veil) -> Changed:
    def said(value: Any) -> str:
        return veil(in_words(value))

    before, after = _veiled(_plain(change.before), veil), _veiled(_plain(change.after), veil)
    fields = differences(before, after, said)
    return Changed(change.action, change.entity or change.table, veil(key_in_words(change.key)), fields)


def _plain(fields: dict[str, Any] | None) -> dict[str, Any]:
    return {name: plain(value) for name, value in (fields or {}).items()}


def _veiled(fields: dict[str, Any], veil: Veil) -> dict[str, Any]:
    return {name: veil(value) if isinstance(value, str) else value for name, value in fields.items()}


def _decision(approval: Approval, veil: Veil) -> Decision:
    changes = Proposal.from_json(approval.proposal).changes
    proposed = [_changed(change, veil) for change in changes[:SHOWN_CHANGES]]
    return Decision(approval, _edited(approval, veil), proposed, len(changes) - len(proposed))


def _edited(approval: Approval, veil: Veil) -> list[Difference]:
    if approval.edited is None:
        return []

    def said(value: Any) -> str:
        return veil(in_words(value))

    asked, edited = _object(approval.arguments), _object(approval.edited)
    return differences(_veiled(asked, veil), _veiled(edited, veil), said)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"": found}


def _sums(model_calls: Sequence[ModelCall]) -> Sums:
    def total(name: str) -> int:
        return sum(getattr(each, name) or 0 for each in model_calls)

    priced = [each.cost for each in model_calls if each.cost is not None]
    return Sums(
        input_tokens=total("input_tokens"),
        output_tokens=total("output_tokens"),
        cache_read_tokens=total("cache_read_tokens"),
        cache_write_tokens=total("cache_write_tokens"),
        reasoning_tokens=total("reasoning_tokens"),
        cost=sum(priced, Decimal()) if priced else None,
        seconds=sum(each.seconds or 0.0 for each in model_calls),
    )


def _changes(session: AnySession, run_id: str) -> dict[str, list[Change]]:
    """The first changes of each call, by its id."""
    place = sa.func.row_number().over(partition_by=Change.call_id, order_by=Change.seq).label("place")
    # By way of the calls, whose index the run is in.
    ranked = (
        sa.select(Change.id, place)
        .join(ToolCall, ToolCall.id == Change.call_id)
        .where(ToolCall.run_id == run_id)
        .subquery()
    )
    query = (
        sa.select(Change)
        .join(ranked, ranked.c.id == Change.id)
        .where(ranked.c.place <= SHOWN_CHANGES)
        .order_by(Change.call_id, Change.seq)
        .limit(SHOWN_IN_ALL)
    )
    found: dict[str, list[Change]] = defaultdict(list)
    for change in session.scalars(query):
        found[change.call_id].append(change)
    return found


def _counts(session: AnySession, run_id: str) -> dict[str, int]:
    query = (
        sa.select(Change.call_id, sa.func.count())
        .join(ToolCall, ToolCall.id == Change.call_id)
        .where(ToolCall.run_id == run_id)
        .group_by(Change.call_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}
