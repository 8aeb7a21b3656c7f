"""Which runs make a thread of a record's chat, and which of them one branch; what it is called.

A thread is a conversation whose name is made of the record's own key, so that what a browser sends can only ever name
one of that record. A branch is told by the run that each run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import sqlalchemy as sa

from ..runs.history import FROM_THE_START
from ..runs.models import Run
from .keys import AnySession
from .keys import panel_key

LISTED = 30
"""Threads of a record that a chat lists, the newest first."""
MOST_RUNS = 300
"""Runs of a thread that a chat looks at."""
TITLE_CHARS = 80

_PREFIX = "chat-"


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as a list of them shows it."""

    id: str
    title: str


def conversation_of(gid: str, chat_id: str) -> str:
    """Return the name of a thread's conversation."""
    return f"{_PREFIX}{panel_key(gid)}-{chat_id}"


def chat_of(run: Run) -> str | None:
    """Return the id of the thread that a run belongs to, or None where it is no part of a chat."""
    prefix = f"{_PREFIX}{panel_key(run.handler)}-"
    name = run.conversation or ""
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def thread_key(gid: str, chat_id: str) -> str:
    """Return what tells the list of a thread's runs from others on a page."""
    return panel_key(f"{gid}#{chat_id}")


def chat_id_of(text: str | None) -> str | None:
    """Return the id of a thread as a browser sends it, in its one form; None for what is none."""
    try:
        return str(UUID(text))
    except (ValueError, TypeError, AttributeError):
        return None


def runs_of(session: AnySession, gid: str, chat_id: str) -> list[Run]:
    """Return the runs of a thread in all its branches, oldest first."""
    query = sa.select(Run).where(Run.handler == gid, Run.conversation == conversation_of(gid, chat_id))
    return list(session.scalars(query.order_by(Run.id.desc()).limit(MOST_RUNS)))[::-1]


def branch_at(runs: Sequence[Run], at: str | None = None) -> list[Run]:
    """Return the runs of one branch, oldest first: the newest, or the newest of those that a run is part of."""
    wanted = next((run for run in runs if run.id == at), None)
    leaf = _leaf(runs, wanted)
    by_id = {run.id: run for run in runs}
    path: list[Run] = []
    while leaf is not None:
        path.append(leaf)
        leaf = by_id.get(leaf.continues or "")
    return path[::-1]


def versions_of(session: AnySession, run: Run) -> list[str]:
    """Return the ids of the runs that continue the same one as a run of a thread, oldest first, with its own."""
    same = sa.func.coalesce(Run.continues, "") == (run.continues or "")
    query = sa.select(Run.id).where(Run.conversation == run.conversation, Run.handler == run.handler, same)
    return list(session.scalars(query.order_by(Run.id)))


def parent_for(runs: Sequence[Run], after: str | None) -> Run | Literal[""]:
    """Return what a new message continues: the end of the branch that the page shows."""
    branch = branch_at(runs, after)
    return branch[-1] if branch else FROM_THE_START


def threads_of(session: AnySession, gid: str) -> list[Thread]:
    """Return the threads of a record, the newest first."""
    prefix = conversation_of(gid, "")
    first = (
        sa.select(sa.func.min(Run.id))
        .where(Run.handler == gid, Run.conversation.startswith(prefix, autoescape=True))
        .group_by(Run.conversation)
    )
    query = sa.select(Run).where(Run.id.in_(first)).order_by(Run.id.desc()).limit(LISTED)
    return [Thread((run.conversation or "").removeprefix(prefix), title_of(run)) for run in session.scalars(query)]


def title_of(first: Run) -> str:
    """Return what a thread is called: as a person named it, else the beginning of its first message."""
    text = first.title or " ".join(first.user_prompt.split())
    return text if len(text) <= TITLE_CHARS else text[: TITLE_CHARS - 1].rstrip() + "…"


def rename(session: AnySession, gid: str, chat_id: str, title: str) -> Run | None:
    """Name a thread, empty for its own first words again; gives its first run, or None where there is none."""
    query = sa.select(Run).where(Run.handler == gid, Run.conversation == conversation_of(gid, chat_id))
    first = session.scalars(query.order_by(Run.id).limit(1)).one_or_none()
    if first is not None:
        first.title = " ".join(title.split())[:TITLE_CHARS] or None
    return first


def _leaf(runs: Sequence[Run], wanted: Run | None) -> Run | None:
    """Return the newest run that comes of another one, itself where none does; of none: the newest of all."""
    if wanted is None:
        return runs[-1] if runs else None
    family = {wanted.id}
    leaf = wanted
    for run in runs:
        if run.continues in family:
            family.add(run.id)
            leaf = run
    return leaf
