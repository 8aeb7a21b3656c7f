"""The ledger's tables: runs, what was said and called in them, what they did outside, what they cost and broadcast.

Those of what people decide and can take back have files of their own: ``approval`` and ``change``.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from ..identity import MAX_LENGTH
from ..live.reader import Reader
from ..prompt import ToolCall as CallPart
from ..prompt import ToolResult
from .approval import Approval
from .change import Change
from .columns import WireName
from .columns import WireText
from .columns import now
from .columns import uuid7
from .ledger import Ledger
from .logs import current_run
from .money import Money

if TYPE_CHECKING:
    from rq.job import Job

Status = Literal[
    "queued",
    "running",
    "retrying",
    "waiting_approval",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
    "limited",
]
ACTIVE: tuple[Status, ...] = ("queued", "running", "retrying", "waiting_approval", "cancelling")
ENDED: tuple[Status, ...] = ("succeeded", "failed", "cancelled", "limited")
HELD: tuple[Status, ...] = ("running", "retrying", "cancelling")
"""Statuses in which a worker holds the run under a lease."""
BUSY: tuple[Status, ...] = (*HELD, "waiting_approval")
"""Statuses that one run of a conversation may have at a time."""

CallStatus = Literal["waiting", "asked", "running", "done", "failed"]
"""``asked``: a person has to decide about it, or has decided and no worker has come to it yet."""
EffectStatus = Literal["pending", "running", "done", "failed", "unknown"]


class Run(Ledger):
    """One ``generate_for``: what was asked, by whom, how it stands and how it ended."""

    __tablename__ = "instruct_run"
    __table_args__ = (
        sa.Index("ix_instruct_run_status_lease", "status", "lease_until"),
        sa.Index("ix_instruct_run_created", "created_at", "id"),
        # Of the few that have one: with all the others in it SQLite takes the index for useless.
        sa.Index(
            "ix_instruct_run_undoes",
            "undoes",
            sqlite_where=sa.column("undoes").is_not(None),
            postgresql_where=sa.column("undoes").is_not(None),
        ),
        sa.UniqueConstraint("handler", "idempotency_key"),
        # One at work in each conversation, whatever workers believe.
        sa.Index(
            "uq_instruct_run_conversation",
            "conversation",
            unique=True,
            sqlite_where=sa.column("status").in_(BUSY),
            postgresql_where=sa.column("status").in_(BUSY),
        ),
    )

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    handler: Mapped[str] = mapped_column(sa.String(MAX_LENGTH), index=True)
    handler_name: Mapped[str] = mapped_column(sa.String(200))
    actor: Mapped[str | None] = mapped_column(sa.String(500), index=True)
    tenant: Mapped[str | None] = mapped_column(sa.String(200))
    conversation: Mapped[str | None] = mapped_column(sa.String(200), index=True)
    idempotency_key: Mapped[str | None] = mapped_column(sa.String(200))
    kind: Mapped[str] = mapped_column(sa.String(10), default="ai")
    """``ai``, or ``undo`` for a person's taking back of another run's changes."""
    undoes: Mapped[str | None] = mapped_column(sa.String(36))
    """The run of which this one took changes back."""
    preview: Mapped[bool] = mapped_column(default=False)
    """Whether its tools only show what they would change, until a person accepts that."""
    continues: Mapped[str | None] = mapped_column(sa.String(36))
    """The run of its conversation that it follows, empty for none of them; None: whichever ended before it."""
    read: Mapped[dict[str, Any] | None]
    """Of a guarded handler, what the run has read of its record: a digest by field."""
    title: Mapped[str | None] = mapped_column(WireName(200))
    """What its conversation is called, on the first run of one."""
    status: Mapped[str] = mapped_column(sa.String(20), default="queued")
    user_prompt: Mapped[str] = mapped_column(WireText)
    system_prompt: Mapped[str | None] = mapped_column(WireText)
    context: Mapped[dict[str, Any] | None]
    attachments: Mapped[list[Any] | None] = mapped_column(deferred=True)
    """Images and documents of the request, each as a message part's JSON. Read only when a model is to see them."""
    attached: Mapped[list[Any] | None]
    """What they are called, for people."""
    model: Mapped[str | None] = mapped_column(sa.String(1000))
    """``provider:model``, or several with commas in the order they are tried."""
    effort: Mapped[str | None] = mapped_column(sa.String(10))
    attempt: Mapped[int] = mapped_column(default=0)
    resumes: Mapped[int] = mapped_column(default=0)
    lease_until: Mapped[datetime | None]
    retry_at: Mapped[datetime | None]
    """When a failed model call is made again, while the status is ``retrying``."""
    retry_reason: Mapped[str | None] = mapped_column(sa.String(30))
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error_class: Mapped[str | None] = mapped_column(sa.String(200))
    error_safe: Mapped[str | None] = mapped_column(WireText)
    error_technical: Mapped[str | None] = mapped_column(WireText)
    limit_reached: Mapped[str | None] = mapped_column(sa.String(50))
    limits: Mapped[dict[str, Any] | None]
    base_url: Mapped[str | None] = mapped_column(WireText)
    language: Mapped[str | None] = mapped_column(WireText)
    timezone: Mapped[str | None] = mapped_column(WireText)
    created_at: Mapped[datetime] = mapped_column(default=now)
    queued_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    messages: Mapped[list[Message]] = relationship(back_populates="run", order_by="Message.seq")
    calls: Mapped[list[ToolCall]] = relationship(back_populates="run", order_by="ToolCall.seq")
    approvals: Mapped[list[Approval]] = relationship(back_populates="run", order_by="Approval.asked_at")

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def reader(self) -> Reader:
        """What the request that asked for the run had: what is rendered for the run is rendered for it."""
        return Reader(self.base_url, self.language, self.timezone)

    @property
    def interrupted(self) -> bool:
        """Whether its worker went silent: the lease ran out, and no other worker has taken the run up so far."""
        return self.status in HELD and self.lease_until is not None and self.lease_until < now()

    _doing = cast("tuple[ToolCall | None, bool] | None", None)

    def is_doing(self, call: ToolCall | None = None, *, writing: bool = False) -> None:
        """Say what the run is at in this transaction, where its worker knows: it is not asked of the database then.

        :param call: the one call that is being carried out; ``writing``: a turn of the model is being received.
        """
        self._doing = call, writing

    def is_doing_something(self) -> None:
        """Say that it is not known what the run is at: the database is asked."""
        self._doing = None

    @property
    def running_call(self) -> ToolCall | None:
        """The call that is being carried out."""
        if self._doing is not None:
            return self._doing[0]
        return next((call for call in reversed(self.calls) if call.status == "running"), None)

    @property
    def writing(self) -> bool:
        """Whether a turn of the model is being received."""
        if self._doing is not None:
            return self._doing[1]
        return any(message.state == "streaming" for message in self.messages)

    def cancel(self) -> bool:
        """Stop the run, from any process; see ``Instruct.cancel``."""
        from .stopping import cancel

        return cancel(self)

    @property
    def job(self) -> Job | None:
        """The RQ job of the current attempt, or None where Redis no longer has it."""
        from .queue import fetch_job

        return fetch_job(self)


class Message(Ledger):
    """One turn of the model: growing while ``streaming``, then complete."""

    __tablename__ = "instruct_message"
    __table_args__ = (sa.UniqueConstraint("run_id", "seq"),)

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    seq: Mapped[int]
    role: Mapped[str] = mapped_column(sa.String(20), default="assistant")
    state: Mapped[str] = mapped_column(sa.String(20), default="streaming")
    text: Mapped[str] = mapped_column(WireText, default="")
    parts: Mapped[dict[str, Any] | None]
    """The whole turn as ``prompt.Message.to_json`` writes it; None while streaming."""
    finish_reason: Mapped[str | None] = mapped_column(sa.String(30))
    finish_raw: Mapped[str | None] = mapped_column(WireName(200))
    created_at: Mapped[datetime] = mapped_column(default=now)

    run: Mapped[Run] = relationship(back_populates="messages")
    calls: Mapped[list[ToolCall]] = relationship(back_populates="message", order_by="ToolCall.seq")


class ToolCall(Ledger):
    """One tool call of the model and its one result."""

    __tablename__ = "instruct_tool_call"
    __table_args__ = (sa.UniqueConstraint("run_id", "seq"),)

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    message_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_message.id", ondelete="CASCADE"), index=True)
    seq: Mapped[int]
    provider_call_id: Mapped[str] = mapped_column(WireText)
    name: Mapped[str] = mapped_column(WireName(200))
    arguments: Mapped[str] = mapped_column(WireText, default="{}")
    status: Mapped[str] = mapped_column(sa.String(20), default="waiting")
    result: Mapped[str | None] = mapped_column(WireText)
    error_kind: Mapped[str | None] = mapped_column(sa.String(30))
    idempotency_key: Mapped[str] = mapped_column(sa.String(100))
    attempt: Mapped[int] = mapped_column(default=0)
    asked_at: Mapped[datetime | None]
    """When a person was asked to approve it."""
    approver: Mapped[str | None] = mapped_column(sa.String(500))
    """Who approved it, of what needed an approval."""
    changed: Mapped[int] = mapped_column(default=0)
    """How many rows it changed."""
    undo_problem: Mapped[str | None] = mapped_column(WireText)
    """Why what it changed cannot be taken back, where that is so."""
    undone_by: Mapped[str | None] = mapped_column(sa.String(36))
    """The run that took its changes back."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    run: Mapped[Run] = relationship(back_populates="calls")
    message: Mapped[Message] = relationship(back_populates="calls")
    effects: Mapped[list[Effect]] = relationship(back_populates="call", order_by="Effect.seq")
    changes: Mapped[list[Change]] = relationship(order_by="Change.seq")
    approval: Mapped[Approval | None] = relationship(back_populates="call")

    @property
    def arguments_pretty(self) -> str:
        """The arguments as indented JSON, or as they came when they are none."""
        try:
            return json.dumps(json.loads(self.arguments or "{}"), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.arguments

    @classmethod
    def from_function_request(cls, part: CallPart, *, run_id: str, message_id: str, seq: int) -> ToolCall:
        """Make the row of a call that the model just asked for."""
        return cls(
            id=uuid7(),
            run_id=run_id,
            message_id=message_id,
            seq=seq,
            provider_call_id=part.id,
            name=part.name,
            arguments=part.raw,
            idempotency_key=f"{run_id}:{seq}",
            effects=[],
        )

    def begin(self, attempt: int) -> None:
        """Write down that an attempt at the run carries it out now."""
        for name, value in self.begun(attempt).items():
            setattr(self, name, value)

    def begun(self, attempt: int) -> dict[str, Any]:
        """Return the columns of a call that an attempt at the run carries out from now on."""
        return {"status": "running", "attempt": attempt, "started_at": now()}

    def ask(self) -> None:
        """Write down that it waits for a person's decision."""
        self.status, self.started_at, self.asked_at = "asked", None, now()

    def answer(self, content: str, error_kind: str | None = None) -> None:
        """Write down the call's one result; with a kind of error it has failed."""
        for name, value in self.answered(content, error_kind).items():
            setattr(self, name, value)

    def answered(self, content: str, error_kind: str | None = None) -> dict[str, Any]:
        """Return the columns of a call that has its result."""
        status = "failed" if error_kind else "done"
        return {"status": status, "result": content, "error_kind": error_kind, "ended_at": now()}

    def to_result(self) -> ToolResult | None:
        """The answer as told to the model, or None while there is none."""
        if self.result is None:
            return None
        return ToolResult(self.provider_call_id, self.name, self.result, self.status == "failed")

    def to_tool_call(self) -> CallPart:
        """The call as it stands in the model's turn."""
        return CallPart(self.provider_call_id, self.name, self.arguments)


class Effect(Ledger):
    """Something that a tool asked to be done outside the database after its commit, and what became of it."""

    __tablename__ = "instruct_effect"
    __table_args__ = (sa.UniqueConstraint("call_id", "seq"), sa.Index("ix_instruct_effect_status", "status"))

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    call_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_tool_call.id", ondelete="CASCADE"))
    seq: Mapped[int]
    owner: Mapped[str] = mapped_column(sa.String(10))
    """Whose method it is: the ``handler``'s, or that of the ``tool`` class."""
    method: Mapped[str] = mapped_column(sa.String(200))
    arguments: Mapped[str] = mapped_column(WireText)
    timeout: Mapped[float]
    status: Mapped[str] = mapped_column(sa.String(20), default="pending")
    error_class: Mapped[str | None] = mapped_column(WireName(200))
    error_safe: Mapped[str | None] = mapped_column(WireText)
    asked_at: Mapped[datetime | None]
    """When a person wanted it run again; from then on it belongs to no attempt at the run."""
    lease_until: Mapped[datetime | None]
    tries: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    call: Mapped[ToolCall] = relationship(back_populates="effects")

    @property
    def open(self) -> bool:
        """Whether a person may decide what becomes of it: it may have happened, or was never begun."""
        return self.status == "unknown" or (self.status == "failed" and self.error_class == NOT_STARTED)

    def end(self, status: EffectStatus, why: str | None = None, error_class: str | None = None) -> None:
        """Write down how it ended."""
        self.status, self.error_safe, self.error_class = status, why or None, error_class
        self.lease_until, self.ended_at = None, now()


NOT_STARTED = "not_started"
"""The error class of an effect whose run ended before it was begun."""


class ModelCall(Ledger):
    """One physical call of a model: tokens, dollars, latency and error."""

    __tablename__ = "instruct_model_call"

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    message_id: Mapped[str | None] = mapped_column(sa.String(36))
    provider: Mapped[str | None] = mapped_column(WireName(100))
    model: Mapped[str] = mapped_column(WireName(200))
    attempt: Mapped[int]
    try_number: Mapped[int] = mapped_column(default=1)
    """Which try of its round, from 1."""
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cache_read_tokens: Mapped[int | None]
    cache_write_tokens: Mapped[int | None]
    reasoning_tokens: Mapped[int | None]
    cost: Mapped[Decimal | None] = mapped_column(Money)
    """Dollars; ``None`` where the price is not known."""
    seconds: Mapped[float | None]
    error_class: Mapped[str | None] = mapped_column(sa.String(200))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)


class Outbox(Ledger):
    """One broadcast that was committed with what it shows; ``position`` is set once Redis has it."""

    __tablename__ = "instruct_outbox"

    seq: Mapped[int] = mapped_column(
        sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    id: Mapped[str] = mapped_column(sa.String(36), unique=True, default=uuid7)
    run_id: Mapped[str | None] = mapped_column(sa.String(36), default=current_run)
    """The run whose worker committed it; None for what the web server tells, of a run as well."""
    stream: Mapped[str] = mapped_column(WireText)
    html: Mapped[str] = mapped_column(WireText)
    position: Mapped[str | None] = mapped_column(sa.String(40), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
