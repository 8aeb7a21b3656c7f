"""What comes before a run is written: the same request is the same run, and a conversation takes one at a time."""

from __future__ import annotations

import json
from typing import Any
from typing import Literal
from typing import get_args

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from ..errors import ConversationBusy
from .columns import storable
from .columns import uuid7
from .models import Run
from .stopping import ask_to_stop
from .turns import busy_in

WhenBusy = Literal["queue", "reject", "supersede"]


def named(what: str, given: Any, longest: int = 200) -> str | None:
    """Return a name under which a run is written down, or None for none, alike on every database.

    :param longest: characters that its column holds.
    :raises TypeError: when it is no text.
    :raises ValueError: when it is empty, too long, or holds what no database can.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(f"{what} must be text or None, not {type(given).__name__}.")
    if not given.strip():
        raise ValueError(f"{what} is empty: give it a name of its own, or None for none.")
    if len(given) > longest or storable(given) != given:
        raise ValueError(f"{what} may have {longest} characters, and no NUL or half surrogates: {given[:50]!r}.")
    return given


def followed(continues: Run | Literal[""] | None, conversation: str | None) -> str | None:
    """Return the id of the run that another one follows, as it is written down.

    :raises ValueError: when it is of another conversation.
    """
    if continues is None or isinstance(continues, str):
        return continues
    if conversation is None or continues.conversation != conversation:
        raise ValueError(f"Run {continues.id} is no part of the conversation {conversation!r}: it cannot be continued.")
    return continues.id


def refuse_unspeakable(context: dict[str, Any] | None) -> None:
    """Refuse data that cannot be told to a model.

    :raises ValueError: when JSON cannot hold it.
    """
    try:
        json.dumps(context, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"context must be data that JSON can hold: {error}.") from None


def make_room(session: Session, run: Run, when_busy: WhenBusy) -> list[tuple[Any, ...]]:
    """Do with the runs before it in a run's conversation what the request says; nothing is committed.

    :returns: the changes to announce.
    :raises ConversationBusy: with ``reject``, while one is at work or waits.
    """
    if when_busy not in get_args(WhenBusy):
        raise ValueError(f"when_busy must be one of {', '.join(get_args(WhenBusy))}, got {when_busy!r}.")
    if run.conversation is None or when_busy == "queue":
        return []
    busy = busy_in(session, run.conversation)
    if busy and when_busy == "reject":
        raise ConversationBusy(
            f"The conversation {run.conversation!r} has run {busy[0].id} at work: wait for its end, or stop it."
        )
    return [change for other in busy for change in ask_to_stop(session, other.id)]


def write(session: Session, run: Run) -> Run:
    """Write a run, or return the one that was written for the same request a moment ago.

    :raises ValueError: when its idempotency key was used for another request.
    """
    insert = _INSERTS.get(session.get_bind(Run).dialect.name)
    if run.idempotency_key is None or insert is None:
        session.add(run)
        session.flush()
        # It is shown at once: what it cannot have yet is not looked for.
        set_committed_value(run, "messages", [])
        set_committed_value(run, "calls", [])
        return run
    # Not by a savepoint: on SQLite, as its driver comes, the release of one may commit what the caller will roll back.
    values = {name: value for name, value in vars(run).items() if not name.startswith("_")}
    run_id = values.setdefault("id", uuid7())
    session.execute(insert(Run).values(values).on_conflict_do_nothing())
    return session.get(Run, run_id) or written_before(session, run) or _unwritten(run)


def _unwritten(run: Run) -> Run:
    raise RuntimeError(f"The run for {run.handler} could neither be written nor found: something else is in its way.")


_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def written_before(session: Session, run: Run) -> Run | None:
    """Return the run that was written for the same request before.

    :raises ValueError: when the idempotency key was used for another request.
    """
    if run.idempotency_key is None:
        return None
    query = sa.select(Run).where(Run.handler == run.handler, Run.idempotency_key == run.idempotency_key)
    known = session.scalars(query).first()
    if known is not None and known.user_prompt != run.user_prompt:
        raise ValueError(
            f"The idempotency key {run.idempotency_key!r} was used for another request, run {known.id}: give each "
            "request a key of its own."
        )
    return known
