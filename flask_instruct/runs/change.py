"""One row that a tool inserted, updated or deleted: what it was and what it became."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from .columns import now
from .columns import uuid7
from .ledger import Ledger

Action = Literal["insert", "update", "delete"]


class Change(Ledger):
    """What a tool call did to one row. Values are typed JSON by column attribute; see ``runs.values``.

    ``before`` and ``after`` of an update hold the fields that changed; an insert has no ``before``, a delete no
    ``after``.
    """

    __tablename__ = "instruct_change"
    __table_args__ = (
        sa.UniqueConstraint("call_id", "seq"),
        sa.Index("ix_instruct_change_record", "table", "key"),
    )

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True, default=uuid7)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_run.id", ondelete="CASCADE"), index=True)
    call_id: Mapped[str] = mapped_column(sa.ForeignKey("instruct_tool_call.id", ondelete="CASCADE"))
    seq: Mapped[int]
    """The order in which the call's changes were made, from 1."""
    action: Mapped[str] = mapped_column(sa.String(10))
    entity: Mapped[str | None] = mapped_column(sa.String(200))
    """The mapped class's name; None for a table that no class is mapped to."""
    table: Mapped[str] = mapped_column(sa.String(200))
    """The table's full name; of a class that inherits, its root's."""
    key: Mapped[str] = mapped_column(sa.String(500))
    """The primary key as canonical JSON: a list of typed values."""
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
