"""A run as a file: everything that was asked, said, called, answered and shown, as JSON that can be read again.

No setting but a few numbers and no key of a provider is in it; the prompt, the texts and the record's rows are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa

from ..errors import RunEnded
from .approval import Approval
from .file_format import FORMAT
from .file_format import VERSION
from .file_format import SettingsRow
from .file_format import read
from .history import runs_before
from .ledger import Ledger
from .models import Message
from .models import ModelCall
from .models import Outbox
from .models import Run
from .record_rows import rows_about

if TYPE_CHECKING:
    from ..state import State

Row = dict[str, Any]

SETTINGS = tuple(SettingsRow.model_fields)
"""Fields of the configuration that decide what becomes of the same words of a model."""

COLUMNS: dict[type[Ledger] | str, str] = {
    Run: "id handler handler_name kind preview actor tenant conversation status user_prompt system_prompt context "
    "attachments attached model effort attempt resumes cancel_requested error_class error_safe error_technical "
    "limit_reached limits base_url created_at started_at ended_at",
    Message: "id seq role state text parts finish_reason finish_raw",
    ModelCall: "message_id provider model attempt try_number input_tokens output_tokens cache_read_tokens "
    "cache_write_tokens reasoning_tokens cost seconds error_class",
    "calls": "id message_id seq provider_call_id name arguments status result error_kind attempt started_at ended_at",
    "effects": "id call_id seq owner method arguments timeout status error_class error_safe",
    "approvals": "call_id tool arguments reason status edited chosen decided_by decision_reason asked_at decided_at",
}
"""What of each table is in the file."""


@dataclass(frozen=True, slots=True)
class Recording:
    """An exported run, checked to be one; each row is a mapping of its columns.

    :param earlier: the ended runs of its conversation as it heard them, oldest first, each a run's row with its
        ``messages`` and ``calls``.
    :param broadcasts: ``stream`` and ``html`` of each, in the order they were committed.
    :param rows: by table, the rows about the record as they stood at the export; None where they were left out.
    :param tables: those of them that are there whole.
    """

    settings: Row
    run: Row
    earlier: list[Row]
    messages: list[Row]
    calls: list[Row]
    effects: list[Row]
    approvals: list[Row]
    model_calls: list[Row]
    broadcasts: list[Row]
    rows: dict[str, list[Row]] | None
    tables: list[str]

    def to_json(self) -> str:
        """Return the file's text: the same run gives the same text."""
        data = {name: getattr(self, name) for name in self.__slots__}
        head = {"format": FORMAT, "version": VERSION}
        return json.dumps({**head, **data}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Recording:
        """Read what :meth:`to_json` wrote.

        :raises CannotReplay: for any other text, or another version; names the place that is wrong.
        """
        data = read(text)
        return cls(**{name: data[name] for name in cls.__slots__})


def export(state: State, run: Run, *, tables: Iterable[str] | None = ()) -> Recording:
    """Record a run that has ended, with the rows about its record as they stand now.

    :param tables: further tables, of which all rows are kept; None keeps no rows at all.
    :raises RunEnded: when it has not ended.
    :raises NoSuchTable: for a table that the app does not have, or a very large one.
    """
    if not run.ended:
        raise RunEnded(f"Run {run.id} is {run.status}, so there is no whole run to export: wait for its end.")
    return record(state, run, tables=tables)


def record(state: State, run: Run, *, tables: Iterable[str] | None = ()) -> Recording:
    """Record a run as it stands; see :func:`export`."""
    whole = None if tables is None else sorted(set(tables))
    session = state.db.session()
    of_run = ModelCall.run_id == run.id
    model_calls = session.scalars(sa.select(ModelCall).where(of_run).order_by(ModelCall.created_at, ModelCall.id))
    shown = session.scalars(sa.select(Outbox).where(Outbox.run_id == run.id).order_by(Outbox.seq))
    return Recording(
        settings={name: getattr(state.config, name) for name in SETTINGS},
        run=_row(run, Run),
        earlier=[_with_turns(before) for before in runs_before(session, run)],
        messages=[_row(message, Message) for message in run.messages],
        calls=[_row(call, "calls") for call in run.calls],
        effects=[_row(effect, "effects") for call in run.calls for effect in call.effects],
        approvals=[_row(one, "approvals") for one in sorted(run.approvals, key=_when_decided)],
        model_calls=[_row(call, ModelCall) for call in model_calls],
        broadcasts=[{"stream": row.stream, "html": row.html} for row in shown],
        rows=None if whole is None else rows_about(state.db, run.handler, whole),
        tables=whole or [],
    )


def _when_decided(approval: Approval) -> datetime:
    return approval.decided_at or approval.asked_at


def plain(value: Any) -> Any:
    """Give a column's value as JSON has it; dollars and other decimals as text, which is exact."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _with_turns(run: Run) -> Row:
    return {
        **_row(run, Run),
        "messages": [_row(message, Message) for message in run.messages],
        "calls": [_row(call, "calls") for call in run.calls],
    }


def _row(row: Ledger, kind: type[Ledger] | str) -> Row:
    return {name: plain(getattr(row, name)) for name in COLUMNS[kind].split()}
