"""One row that a tool inserted, updated or deleted: what it was and what it became."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from typing import Literal
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from .columns import now
from .columns import uuid7
from .ledger import Ledger

Action = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One row that was changed, before it is kept; values are typed JSON by the names of attributes."""

    action: Action
    entity: str | None
    table: str
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


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


def keep(connection: sa.Connection, run_id: str, call_id: str, changes: Sequence[Recorded]) -> None:
    """Add what a call changed to the ledger, in order."""
    if not changes:
        return
    # Hundreds of rows are common: what SQLAlchemy does for each value of each is done once for those that are the same.
    stored = {column.name: _storing(column.type, connection.dialect) for column in _TABLE.columns}
    document, first, moment = stored["before"], uuid7(), stored["created_at"](now())
    rows = [
        {
            # Of one moment, and one after the other: what a version 7 says with its last digits is chance.
            "id": f"{first[:-6]}{seq:06x}",
            "run_id": run_id,
            "call_id": call_id,
            "seq": seq,
            "action": change.action,
            "entity": change.entity,
            "table": change.table,
            "key": change.key,
            "before": None if change.before is None else document(change.before),
            "after": None if change.after is None else document(change.after),
            "created_at": moment,
        }
        for seq, change in enumerate(changes, 1)
    ]
    connection.execute(_ADD, rows)


_TABLE = cast(sa.Table, Change.__table__)
_ADD = sa.insert(sa.table(_TABLE.name, *(sa.column(column.name) for column in _TABLE.columns)))


def _storing(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> Callable[[Any], Any]:
    """Return what makes a value ready for the database's driver."""
    return kind.dialect_impl(dialect).bind_processor(dialect) or (lambda value: value)
