"""What a person is asked to decide before a tool's call may change anything: once, and for just this call."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from .columns import WireName
from .columns import WireText
from .columns import now
from .columns import uuid7
from .ledger import Ledger

if TYPE_CHECKING:
    from .models import Run
    from .models import ToolCall

Decision = Literal["gathering", "pending", "approved", "rejected", "expired", "withdrawn"]
"""``gathering``: its run is still at work, and may propose more; ``withdrawn``: its run ended before anyone decided."""


class Approval(Ledger):
    """A call that waits for a person, or a proposal of what would change; bound to the call's id, name and arguments.

    :ivar digest: SHA-256 of name and canonical arguments, as hexadecimal digits: what was asked is what may run.
    :ivar edited: the arguments that the person put in the place of the model's, as canonical JSON.
    :ivar proposal: what the call would change, where it was carried out and rolled back to show it, as
        ``proposals.Proposal.to_json`` writes it; ``chosen`` are the numbers of the changes that were accepted, from 1,
        and None is all of them.
    :ivar stale: how often it had to be made anew, because the rows had changed meanwhile.
    """

    __tablename__ = "instruct_approval"
    __table_args__ = (sa.Index("ix_instruct_approval_status", "status", "expires_at"),)

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    call_id: Mapped[str | None] = mapped_column(sa.ForeignKey("instruct_tool_call.id", ondelete="CASCADE"), unique=True)
    """None for the proposal of a whole run."""
    tool: Mapped[str] = mapped_column(WireName(200))
    arguments: Mapped[str] = mapped_column(WireText)
    digest: Mapped[str] = mapped_column(sa.String(64))
    reason: Mapped[str | None] = mapped_column(WireText)
    """Why a person is asked, where the tool's rule says."""
    status: Mapped[str] = mapped_column(sa.String(20), default="pending")
    edited: Mapped[str | None] = mapped_column(WireText)
    proposal: Mapped[dict[str, Any] | None]
    chosen: Mapped[list[Any] | None]
    stale: Mapped[int] = mapped_column(default=0)
    decided_by: Mapped[str | None] = mapped_column(sa.String(500))
    decision_reason: Mapped[str | None] = mapped_column(WireText)
    asked_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    reminded_at: Mapped[datetime | None]
    decided_at: Mapped[datetime | None]
    applied_at: Mapped[datetime | None]
    """When the accepted changes of a whole run were made."""

    run: Mapped[Run] = relationship(back_populates="approvals")
    call: Mapped[ToolCall | None] = relationship(back_populates="approval")
