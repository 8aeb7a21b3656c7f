"""Tells the panels of a run what changes, fragment by fragment, from the same templates that a page is made of.

Each fragment is the whole of one element as its row has it, so that applying one twice changes nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from flask import current_app
from flask import has_request_context
from markupsafe import Markup
from sqlalchemy.orm import object_session

from ..live.broadcasts import broadcast
from ..live.broadcasts import broadcast_refresh_to
from ..runs.line import queued_beside
from ..runs.models import ENDED
from ..runs.models import Message
from ..runs.models import Run
from ..runs.models import Status
from ..runs.models import ToolCall
from ..runs.rounds import utf16_length
from . import answers
from . import words
from .growing import growth
from .keys import INBOX
from .keys import panel_key
from .keys import panel_stream
from .page import fallen_runs
from .page import spokesman_id
from .rendering import render
from .threads import chat_of
from .threads import thread_key
from .threads import threads_of
from .waiting import counting_once

PLACE_LEFT: tuple[Status, ...] = (*ENDED, "waiting_approval", "queued")
"""Statuses with which a run may have left its place in a line to the next."""


class PanelObserver:
    """Hears of every change of a run and broadcasts it to the panels of the run's handler."""

    def __init__(self) -> None:
        self._starts: WeakKeyDictionary[Message, int] = WeakKeyDictionary()
        """Where the end begins that is not Markdown yet, of answers that are being written."""

    def run_created(self, run: Run) -> None:
        with _addresses(run), counting_once():
            self._add(run, panel_key(run.handler))
            announce(run)

    def _add(self, run: Run, key: str) -> None:
        _send(run, "append", f"instruct_runs_{key}", "run.html")
        chat_id = chat_of(run)
        if chat_id is not None:
            _send(run, "append", f"instruct_runs_{thread_key(run.handler, chat_id)}", "run.html")
        self._put_lists_right(run)

    def run_changed(self, run: Run) -> None:
        announce(run)
        if run.ended:
            # Two runs that were asked for at one moment did not see each other in the lists that they sent.
            self._put_lists_right(run)
        if run.status in PLACE_LEFT:
            self._move_up(run)
        if run.preview:
            broadcast_refresh_to(INBOX)

    def message_started(self, run: Run, message: Message) -> None:
        _send(run, "append", f"instruct_run_{run.id}_messages", "message.html", message=message)

    def text_streamed(self, run: Run, message: Message, offset: int, text: str) -> None:
        before = message.text[: len(message.text) - len(text)]
        start = self._starts.get(message)
        if start is None:
            start = growth(before).start
        tail = f"instruct_message_{message.id}_tail_{start}"
        grown = growth(message.text, start) if "\n" in text or before[-1:] == "\n" else None
        if grown is not None and grown.blocks:
            start = grown.start
            _send(run, "replace", tail, "growing.html", message=message, text=grown)
        else:
            within = offset - utf16_length(before[:start])
            broadcast(panel_stream(run.handler), "text", target=tail, html=text, attributes={"offset": within})
        self._starts[message] = start

    def message_finished(self, run: Run, message: Message) -> None:
        target = f"instruct_message_{message.id}_text"
        if message.text or words.message_note(message) or answers.reasoning(message):
            _send(run, "replace", target, "text.html", message=message)
        else:
            _send(run, "remove", target)

    def message_discarded(self, run: Run, message: Message) -> None:
        _send(run, "remove", f"instruct_message_{message.id}")

    def call_asked(self, run: Run, call: ToolCall) -> None:
        _send(run, "append", f"instruct_message_{call.message_id}_calls", "call.html", call=call)

    def call_changed(self, run: Run, call: ToolCall) -> None:
        # Head and body apart: the card itself stays, open where a reader opened it, focused where the focus is.
        _send(run, "update", f"instruct_call_{call.id}_head", "call_head.html", call=call)
        _send(run, "update", f"instruct_call_{call.id}_body", "call_body.html", call=call)
        if call.asked_at is not None:
            _send(run, "update", f"instruct_call_{call.id}_decision", "decision.html", call=call)
            broadcast_refresh_to(INBOX)

    def all_told(self, run: Run) -> None:
        # The last of a transaction's fragments and rendered once, whatever else of the run has changed.
        _reread(run)
        _send(run, "replace", f"instruct_run_{run.id}_status", "status.html")

    def _move_up(self, left: Run) -> None:
        session = object_session(left)
        for run in queued_beside(session, left) if session is not None else ():
            tell_waiting(run)
            if run.handler != left.handler:
                announce(run)

    def _put_lists_right(self, run: Run) -> None:
        key = panel_key(run.handler)
        if chat_of(run) is not None and not run.continues:
            self._list_threads(run, key)
        self._let_go_of_the_oldest(run, key)

    def _list_threads(self, run: Run, key: str) -> None:
        session = object_session(run)
        if session is not None:
            threads = threads_of(session, run.handler)
            _send(run, "update", f"instruct_threads_{key}", "chat_list.html", threads=threads)

    def _let_go_of_the_oldest(self, run: Run, key: str) -> None:
        session = object_session(run)
        fallen = fallen_runs(session, run.handler) if session is not None else ()
        for old in fallen:
            _send(run, "remove", f"instruct_run_{old}")
        if fallen:
            _send(run, "update", f"instruct_earlier_{key}", "earlier.html", earlier=True)


def tell_waiting(run: Run) -> None:
    """Say anew how a run stands that waits: its place has changed, or a worker has come or gone."""
    with counting_once():
        _send(run, "replace", f"instruct_run_{run.id}_status", "status.html")


def announce(run: Run) -> None:
    """Say to screen readers how the run stands that a panel speaks of."""
    session = object_session(run)
    first = run.id if session is None else spokesman_id(session, run.handler)
    speaking = run if session is None or first in (None, run.id) else session.get_one(Run, first)
    # Morphed, so that words that are the same are no news to a screen reader.
    broadcast(
        panel_stream(run.handler),
        "update",
        target=f"instruct_announcement_{panel_key(run.handler)}",
        html=words.announcement(speaking),
        method="morph",
    )


def _send(run: Run, action: str, target: str, template: str | None = None, **context: Any) -> None:
    html = Markup("")
    if template is not None:
        with _addresses(run):
            html = render(template, run=run, key=panel_key(run.handler), **context).strip()
    broadcast(panel_stream(run.handler), action, target=target, html=html)


def _addresses(run: Run) -> AbstractContextManager[object]:
    """Let links and words come out as in the request that asked for the run, also outside of any request."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    return nullcontext() if has_request_context() else run.reader.looking(app)


def _reread(run: Run) -> None:
    """Forget the messages and calls that were read earlier in this transaction: some were added since."""
    session = object_session(run)
    if session is not None and run in session and run not in session.new:
        session.expire(run, ["messages", "calls"])
