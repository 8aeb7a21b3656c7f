"""A run as a file: everything that was asked, said, called, answered and shown, as JSON that can be read again.

No setting but a few numbers and no key of a provider is in it; the prompt, the texts and the record's rows are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from typing import Any
from typing import get_args

import sqlalchemy as sa

from ..errors import InstructError
from ..errors import RunEnded
from ..events import FinishReason
from ..messages import Message as Turn
from .history import runs_before
from .ledger import Ledger
from .models import ENDED
from .models import EffectStatus
from .models import Message
from .models import ModelCall
from .models import Outbox
from .models import Run
from .record_rows import rows_about

if TYPE_CHECKING:
    from ..state import State

Row = dict[str, Any]

FORMAT = "flask-instruct run"
VERSION = 1

SETTINGS = ("max_rounds", "max_tool_calls", "max_tool_retries", "argument_bytes", "result_chars")
"""Fields of the configuration that decide what becomes of the same words of a model."""

COLUMNS: dict[type[Ledger] | str, str] = {
    Run: "id handler handler_name actor tenant conversation status user_prompt system_prompt context attachments "
    "attached model effort attempt resumes cancel_requested error_class error_safe error_technical limit_reached "
    "limits base_url created_at started_at ended_at",
    Message: "id seq role state text parts finish_reason finish_raw",
    ModelCall: "message_id provider model attempt try_number input_tokens output_tokens cache_read_tokens "
    "cache_write_tokens reasoning_tokens cost seconds error_class",
    "calls": "id message_id seq provider_call_id name arguments status result error_kind attempt started_at ended_at",
    "effects": "id call_id seq owner method arguments timeout status error_class error_safe",
}
"""What of each table is in the file."""


class CannotReplay(InstructError):
    """Raise when a file is no exported run, or what it says cannot be run again; says why."""


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

        :raises CannotReplay: when the text is nothing of the kind, or of another version; names the place.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CannotReplay(f"This is no exported run, it is no JSON: {error}.") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise CannotReplay(
                f'This is no exported run: "format" must be {FORMAT!r}. flask instruct export makes one.'
            )
        if data.get("version") != VERSION:
            raise CannotReplay(
                f"The run was exported in version {data.get('version')!r} of the format, and this package reads "
                f"version {VERSION}: export it again, or replay it with the version of the package that made it."
            )
        _check(data)
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
        model_calls=[_row(call, ModelCall) for call in model_calls],
        broadcasts=[{"stream": row.stream, "html": row.html} for row in shown],
        rows=None if whole is None else rows_about(state.db, run.handler, whole),
        tables=whole or [],
    )


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


# -- checking a file ---------------------------------------------------------------------------------------------------

_TEXT = (str,)
_MAYBE_TEXT = (str, type(None))
_MAYBE_OBJECT = (dict, type(None))
_NUMBER = (int,)
_FORMS: dict[str, dict[str, tuple[type, ...]]] = {
    "run": {
        **dict.fromkeys(("id", "handler", "handler_name", "status", "user_prompt"), _TEXT),
        **dict.fromkeys(
            ("actor", "tenant", "conversation", "system_prompt", "model", "effort", "error_class", "error_safe"),
            _MAYBE_TEXT,
        ),
        **dict.fromkeys(("error_technical", "limit_reached", "base_url", "started_at", "ended_at"), _MAYBE_TEXT),
        **dict.fromkeys(("context", "limits"), _MAYBE_OBJECT),
        **dict.fromkeys(("attachments", "attached"), (list, type(None))),
        "attempt": _NUMBER,
        "created_at": _TEXT,
    },
    "messages": {
        **dict.fromkeys(("id", "role", "state", "text"), _TEXT),
        **dict.fromkeys(("finish_reason", "finish_raw"), _MAYBE_TEXT),
        "parts": _MAYBE_OBJECT,
        "seq": _NUMBER,
    },
    "calls": {
        **dict.fromkeys(("id", "message_id", "provider_call_id", "name", "arguments", "status"), _TEXT),
        **dict.fromkeys(("result", "error_kind"), _MAYBE_TEXT),
        "seq": _NUMBER,
    },
    "effects": {
        **dict.fromkeys(("call_id", "owner", "method", "arguments", "status"), _TEXT),
        **dict.fromkeys(("error_class", "error_safe"), _MAYBE_TEXT),
        "seq": _NUMBER,
    },
    "model_calls": dict.fromkeys(("message_id", "error_class"), _MAYBE_TEXT),
    "broadcasts": dict.fromkeys(("stream", "html"), _TEXT),
}


def _check(data: Mapping[str, Any]) -> None:
    _check_row(data.get("settings"), dict.fromkeys(SETTINGS, (int, type(None))), "settings")
    _check_row(data.get("run"), _FORMS["run"], "run")
    _require(data["run"]["status"] in ENDED, "run.status", f"one of {', '.join(ENDED)}")
    for name in ("messages", "calls", "effects", "model_calls", "broadcasts"):
        _check_rows(data.get(name), name, name)
    earlier = data.get("earlier")
    _require(isinstance(earlier, list), "earlier", "a list")
    for number, run in enumerate(earlier or ()):
        place = f"earlier[{number}]"
        _check_row(run, _FORMS["run"], place)
        for name in ("messages", "calls"):
            _check_rows(run.get(name), name, f"{place}.{name}")
    _check_table_rows(data.get("rows", 0))
    tables = data.get("tables")
    _require(isinstance(tables, list) and all(isinstance(name, str) for name in tables), "tables", "a list of names")
    known = {call["id"] for call in data["calls"]}
    statuses = get_args(EffectStatus)
    for number, effect in enumerate(data["effects"]):
        _require(effect["call_id"] in known, f"effects[{number}].call_id", "the id of a call")
        _require(effect["status"] in statuses, f"effects[{number}].status", f"one of {', '.join(statuses)}")


def _check_rows(rows: Any, kind: str, place: str) -> None:
    _require(isinstance(rows, list), place, "a list")
    for number, row in enumerate(rows):
        _check_row(row, _FORMS[kind], f"{place}[{number}]")
        if kind == "messages" and row["parts"] is not None:
            reasons = get_args(FinishReason)
            _require(
                row["finish_reason"] in reasons, f"{place}[{number}].finish_reason", f"one of {', '.join(reasons)}"
            )
            try:
                Turn.from_json(row["parts"])
            except ValueError as error:
                raise CannotReplay(f"This is no exported run: {place}[{number}].parts: {error}") from None


def _check_row(row: Any, form: Mapping[str, tuple[type, ...]], place: str) -> None:
    _require(isinstance(row, dict), place, "an object")
    for name, types in form.items():
        right = name in row and isinstance(row[name], types) and not isinstance(row[name], bool)
        _require(right, f"{place}.{name}", " or ".join(_SAID[kind] for kind in types))
        if name.endswith("_at") and row[name] is not None:
            _require(_is_moment(row[name]), f"{place}.{name}", "a moment as 2026-03-01T12:00:00+00:00")


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _check_table_rows(rows: Any) -> None:
    if rows is None:
        return
    _require(isinstance(rows, dict), "rows", "an object or null")
    for table, found in rows.items():
        right = isinstance(found, list) and all(isinstance(row, dict) for row in found)
        _require(right, f"rows.{table}", "a list of objects")


def _require(right: bool, place: str, wanted: str) -> None:
    if not right:
        raise CannotReplay(f"This is no exported run: {place} must be {wanted}.")


_SAID: dict[type, str] = {str: "text", int: "a whole number", dict: "an object", list: "a list", type(None): "null"}
