"""A recorded run, run again: its model's turns are played back, its tools, callbacks, ledger and broadcasts are real,
and what comes out is held against the recording.

Works on whatever database the app has at that moment: give it one from :mod:`~flask_instruct.runs.scratch`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime
from typing import TYPE_CHECKING
from typing import cast

from redis import Redis
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ..errors import HandlerError
from ..errors import RecordGone
from ..handlers import locate
from ..identity import read_gid
from ..live.broadcasts import EXTENSION
from .claim import claim
from .columns import uuid7
from .deciding import decide
from .differences import Comparison
from .differences import Difference
from .file_format import CannotReplay
from .file_format import wrong
from .interruption import Interrupted
from .job import carry_out
from .job import request_of
from .logs import naming
from .models import Message
from .models import Run
from .models import ToolCall
from .offline import NoPages
from .offline import NoRedis
from .offline import offline
from .playing import Playback
from .playing import PlayedJournal
from .playing import effects_as_told
from .playing import refuse_unplayable
from .record_rows import key_of
from .record_rows import rows_about
from .recording import SETTINGS
from .recording import Recording
from .recording import Row
from .recording import record
from .unit import ledger_engine
from .watch import Watch

if TYPE_CHECKING:
    from ..state import State


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    :param recorded: the run as it was; ``replayed`` as it came out this time.
    :param notes: what a reader should know of the comparison; they make no difference.
    """

    recorded: Recording
    replayed: Recording
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]

    def besides(self, ignore: Iterable[str]) -> tuple[Difference, ...]:
        """Return the differences whose place begins with none of these words, such as ``broadcast`` or ``row``."""
        beginnings = tuple(ignore)
        return tuple(one for one in self.differences if not one.where.startswith(beginnings))

    def assert_same(self, ignore: Iterable[str] = ()) -> None:
        """Fail, with all that differs, unless the replay came out like the recording.

        :param ignore: beginnings of places that may differ, such as ``broadcast`` or ``row``; see :meth:`besides`.
        :raises AssertionError: when anything else differs.
        """
        __tracebackhide__ = True
        if found := self.besides(ignore):
            raise AssertionError("\n".join(self.lines(found)))

    def lines(self, differences: Iterable[Difference] | None = None) -> Iterator[str]:
        """Give the outcome in words."""
        found = self.differences if differences is None else tuple(differences)
        run = self.recorded.run
        counts = f"{len(self.recorded.messages)} model turns, {len(self.recorded.calls)} calls"
        yield f"Run {run['id']} of {run['handler']} ({run['status']}): {counts}."
        yield from (f"Note: {note}" for note in self.notes)
        if not found:
            yield "The replay is the same."
            return
        yield f"The replay is different in {len(found)} {'place' if len(found) == 1 else 'places'}:"
        for difference in found:
            yield ""
            yield from difference.lines()


def replay(state: State, recording: Recording) -> Replayed:
    """Run a recording again in the app's database as it is now, without network, and compare.

    Needs an app context. What the run edits is committed there; no effect is performed.

    :raises CannotReplay: when it cannot be run again: its record is not there, its workers had died.
    """
    refuse_unplayable(recording)
    _require_keys(state, recording)
    _require_record(state, recording)
    with _apart(state, recording.settings), offline(state.db.engine.url.host) as tried:
        playback = Playback(recording)
        run_id = _stored(state, recording)
        try:
            _run_again(state, recording, run_id, playback)
            again = record(state, state.db.session.get_one(Run, run_id), tables=None)
            again = changed(again, rows=_rows_again(state, recording))
        except (Interrupted, SQLAlchemyError) as error:
            raise CannotReplay(f"The replay broke off, the database failed: {error}") from error
        finally:
            state.db.session.remove()
    found = _compared(state, recording, again)
    outside = [Difference("network", None, f"something wanted to reach {place}") for place in tried]
    return Replayed(recording, again, (*_asked_beyond(recording, playback), *outside, *found), tuple(_notes(recording)))


def _stored(state: State, recording: Recording) -> str:
    """Commit what the run begins with, and return its id."""
    try:
        run_id = _restored(state.db.session(), recording).id
        state.db.session.commit()
    except SQLAlchemyError as error:
        # Such as a name that PostgreSQL finds too long and SQLite did not.
        why = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise CannotReplay(f"The recorded run cannot be written to the database: {why}.") from error
    finally:
        state.db.session.remove()
    return run_id


def _run_again(state: State, recording: Recording, run_id: str, playback: Playback) -> None:
    engine = ledger_engine(state.db)
    going = True
    while going:
        with naming(run_id):
            claimed = claim(state, engine, run_id)
            if claimed is None:
                raise CannotReplay(f"Run {run_id} could not be begun.")
            run = claimed.run
            watch = Watch(state, engine, state.db.engine, run)
            with request_of(state.app, run):
                journal = PlayedJournal(state, engine, run, watch, recording)
                carry_out(state, engine, claimed, watch, journal=journal, adapter=playback)
        going = _decide_again(state, recording, run_id)


def _decide_again(state: State, recording: Recording, run_id: str) -> bool:
    """Decide for people as they did, where the run waits for them; False where it has come to its end."""
    state.db.session.remove()
    run = state.db.session.get_one(Run, run_id)
    if run.status != "waiting_approval":
        return False
    seqs = {None: None, **{call["id"]: call["seq"] for call in recording.calls}}
    then = {seqs[row["call_id"]]: row for row in recording.approvals}
    pending = [approval for approval in run.approvals if approval.status == "pending"]
    asked = {approval.call.seq if approval.call is not None else None: approval for approval in pending}
    for seq, row in then.items():
        if seq in asked and row["status"] in ("approved", "rejected", "expired"):
            told = {"edited": row["edited"], "reason": row["decision_reason"], "chosen": row["chosen"]}
            decide(state, asked[seq], row["status"], by=row["decided_by"], **told)
            return True
    # Nobody had decided, or the tool did not ask then.
    run.cancel()
    return False


@contextmanager
def _apart(state: State, settings: Row) -> Iterator[None]:
    """Part the app from Redis and the outside, and let it have the recorded run's settings."""
    config, redis, hold, live = state.config, state._redis, state.hold, state.live
    state.config = changed(
        config,
        **{name: settings[name] for name in SETTINGS},
        retries=0,
        # Each piece of text is stored as it comes: what is not may be lost in an error.
        text_interval=0.0,
        runs_per_actor=None,
        redis_url="redis://nowhere.invalid",
    )
    nowhere = cast(Redis, NoRedis())
    state._redis, state.hold = (os.getpid(), nowhere), None
    state.live = state.app.extensions[EXTENSION] = changed(live, bus=NoPages(lambda: nowhere, state.config))
    try:
        yield
    finally:
        state.config, state._redis, state.hold = config, redis, hold
        state.live = state.app.extensions[EXTENSION] = live


def _require_keys(state: State, recording: Recording) -> None:
    """Only the app knows which column of a row is its key."""
    for table, rows in (recording.rows or {}).items():
        key = key_of(state.db, table)
        for number, row in enumerate(rows):
            if key is not None and not isinstance(row.get(key), int):
                raise wrong(("rows", table, number, key), "must be the row's key, a whole number")


def _require_record(state: State, recording: Recording) -> None:
    run = recording.run
    if run["error_class"] in ("record_gone", "handler"):
        return
    try:
        locate(run["handler"])
    except RecordGone as error:
        _, key = read_gid(run["handler"])
        raise CannotReplay(
            f"The record that the run is about is not in this database: {error} Add it as it was before the run, with "
            f"the key {'/'.join(key)}, or begin from another database."
        ) from error
    except HandlerError as error:
        raise CannotReplay(f"This app has no such handler. {error}") from error
    finally:
        state.db.session.remove()


# -- the rows that the run begins with ---------------------------------------------------------------------------------


def _restored(session: Session, recording: Recording) -> Run:
    """Write the run as it was when it waited for a worker, and before it what was said in its conversation.

    Under ids and the name of a conversation of its own: those of the recording may be in this database.
    """
    ids = sorted(uuid7() for _ in range(len(recording.earlier) + 1))
    conversation = f"replay-{ids[-1]}" if recording.run["conversation"] is not None else None
    for run_id, before in zip(ids, recording.earlier, strict=False):
        told = _run(before, run_id, conversation)
        told.status, told.ended_at = before["status"], _moment(before["ended_at"])
        session.add(told)
        _add_turns(session, run_id, before)
    run = _run(recording.run, ids[-1], conversation)
    session.add(run)
    session.flush()
    return run


_ASKED = (
    "handler handler_name preview actor tenant user_prompt system_prompt context attachments attached model effort "
    "limits"
)


def _run(row: Row, run_id: str, conversation: str | None) -> Run:
    asked = {name: row[name] for name in _ASKED.split()}
    return Run(id=run_id, status="queued", conversation=conversation, base_url=row["base_url"], **asked)


def _add_turns(session: Session, run_id: str, before: Row) -> None:
    session.flush()
    ids: dict[str, str] = {}
    for row in before["messages"]:
        said = {name: row[name] for name in ("seq", "role", "state", "text", "parts", "finish_reason", "finish_raw")}
        message = Message(run_id=run_id, **said)
        session.add(message)
        session.flush()
        ids[row["id"]] = message.id
    for row in before["calls"]:
        if row["message_id"] not in ids:
            continue
        names = ("seq", "provider_call_id", "name", "arguments", "status", "result", "error_kind")
        called = {name: row[name] for name in names}
        key = f"{run_id}:{row['seq']}"
        session.add(ToolCall(run_id=run_id, message_id=ids[row["message_id"]], idempotency_key=key, **called))
    session.flush()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


# -- what came out -----------------------------------------------------------------------------------------------------


def _rows_again(state: State, recording: Recording) -> dict[str, list[Row]] | None:
    if recording.rows is None:
        return None
    found = rows_about(state.db, recording.run["handler"], recording.tables)
    return {table: rows for table, rows in found.items() if table in recording.rows}


def _compared(state: State, recording: Recording, again: Recording) -> list[Difference]:
    counted = {table: key for table in recording.rows or () if (key := key_of(state.db, table)) is not None}
    as_told = changed(recording, effects=effects_as_told(recording))
    comparison = Comparison(as_told, again, counted=counted)
    return comparison.differences()


def _asked_beyond(recording: Recording, playback: Playback) -> Iterator[Difference]:
    if playback.beyond:
        turns = f"{len(recording.messages)} turns"
        yield Difference("model", turns, f"{turns}, and then one more was asked for, which was never recorded")


def _notes(recording: Recording) -> Iterator[str]:
    run = recording.run
    failed = [call["error_class"] for call in recording.model_calls if call["error_class"] is not None]
    if failed:
        yield f"{len(failed)} failed calls of the model are not played back ({', '.join(sorted(set(failed)))})."
    if run["attempt"] > 1:
        yield f"The run was taken up {run['attempt']} times; only what came of it in the end is played back."
    if recording.effects:
        yield f"{len(recording.effects)} effects after a commit are not performed; what they wrote is missing."
