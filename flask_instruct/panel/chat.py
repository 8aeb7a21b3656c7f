"""The panel as a chat: one thread of a record at a time, in which an earlier message can be written anew."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import current_app
from flask import request
from markupsafe import Markup

from ..runs.columns import uuid7
from .page import Suggestion
from .page import shown_panel
from .page import worker_for
from .threads import Thread
from .threads import branch_at
from .threads import chat_id_of
from .threads import runs_of
from .threads import thread_key
from .threads import threads_of

if TYPE_CHECKING:
    from ..state import State


@dataclass(frozen=True, slots=True)
class Chat:
    """One thread, as a page shows it.

    :param leaf: the id of the last run of the branch that is shown; empty where there is none.
    """

    id: str
    key: str
    title: str
    leaf: str
    threads: Sequence[Thread]


def instruct_chat(
    record: object,
    handler: str | None = None,
    *,
    title: str | None = None,
    prompts: Iterable[Suggestion] = (),
    placeholder: str | None = None,
) -> Markup:
    """Show the panel of a record as a chat: one thread, a list of the others, and messages that can be written anew.

    The thread is that of the address (``?chat=…``), else the newest; ``?chat=new`` begins one.

    :param record: the record, or a handler object; the others as of ``instruct_panel``.
    :raises HandlerError: for a name that is no handler, or a record without a key.
    """
    worker = worker_for(record, handler)
    state: State = current_app.extensions["instruct"]
    session, gid = state.db.session, worker.to_gid()
    threads = threads_of(session, gid)
    chat_id = _asked_for(threads)
    runs = runs_of(session, gid, chat_id)
    branch = branch_at(runs, request.args.get("at"))
    chat = Chat(
        chat_id,
        thread_key(gid, chat_id),
        next((thread.title for thread in threads if thread.id == chat_id), ""),
        branch[-1].id if branch else "",
        threads,
    )
    return shown_panel(worker, branch, chat=chat, title=title, prompts=prompts, placeholder=placeholder)


def _asked_for(threads: Sequence[Thread]) -> str:
    asked = request.args.get("chat")
    chat_id = chat_id_of(asked)
    if chat_id is not None:
        return chat_id
    return uuid7() if asked == "new" or not threads else threads[0].id
