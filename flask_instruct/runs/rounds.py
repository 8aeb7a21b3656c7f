"""The model's turn in the ledger: its row grows while text streams in, is finished with its calls, or taken back when
the model call failed; each physical call has a row of its own from the moment it leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm.attributes import set_committed_value

from ..errors import RecordGone
from ..events import Event
from ..events import Finish
from ..events import RetryScheduled
from ..events import RoundStarted
from ..events import TextDelta
from ..events import ToolCallRequest
from ..events import Usage
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..limits import NOT_CARRIED_OUT
from ..orchestrator import takes_text_back
from ..prices import cost
from .columns import now
from .columns import storable
from .columns import uuid7
from .models import Message
from .models import ModelCall
from .models import Run
from .models import ToolCall
from .notices import Notices
from .points import reach
from .prepared import Prepared
from .prepared import into
from .rows import insert
from .rows import know
from .rows import update
from .steps import Steps
from .unit import Unit

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
LARGEST_COUNT = 2**31 - 1
"""What the columns hold; a provider that counts more has lost count."""

KEPT = frozenset({"stop", "tool_calls", "pause"})
"""Finish reasons after which the model's turn belongs to the history; any other is shown but not replayed."""


class Rounds:
    """The turns of one attempt at one run, one after the other."""

    def __init__(self, state: State, steps: Steps, notices: Notices, gid: str) -> None:
        self._state = state
        self._steps = steps
        self._notices = notices
        self._gid = gid
        self._usage: Usage | None = None
        self._provider = self._model = ""
        self._base_url: str | None = None
        self._began = 0.0
        self._model_call_id: str | None = None
        self._run: Run | None = None
        self._message: Message | None = None
        self._begun: ToolCall | None = None
        self._shown = 0
        self._buffer = ""
        self._flushed_at = 0.0
        self._hears_text = False
        self._takes_back = True
        self._retrying = False
        self._heard_text = False

    def attach(self, handler: AiResponseHandler) -> None:
        """Learn what the handler wants to hear; it is located afresh for every step that needs it."""
        self._hears_text = type(handler).handle_ai_text_chunk is not AiResponseHandler.handle_ai_text_chunk
        self._takes_back = takes_text_back(handler)

    def started(self, event: RoundStarted) -> None:
        """Write down that a model call leaves, before it does: one that dies with its worker was made too."""
        self._steps.watch.checkpoint()
        self._began = time.monotonic()
        self._provider, self._model, self._base_url = event.provider, event.model, event.base_url
        self._usage = None
        self._message = self._begun = None
        self._shown = 0
        self._buffer = ""
        with self._steps.brief_step() as unit:
            self._model_call_id = uuid7()
            _LEAVES.execute(
                unit.connection,
                {
                    "id": self._model_call_id,
                    "run_id": self._steps.run_id,
                    "provider": event.provider,
                    "model": event.model,
                    "attempt": self._steps.attempt,
                    "try_number": event.attempt,
                    "created_at": now(),
                },
            )
            if self._retrying:
                self._try_again(unit)
        self._retrying = False
        reach("call leaves")

    def _try_again(self, unit: Unit) -> None:
        run = self._steps.fence(unit)
        if run.status == "retrying":
            run.status, run.retry_at = "running", None
            unit.ledger.flush()
            self._notices.tell(unit, "run_changed", run)

    def streamed(self, event: Event) -> None:
        """Gather a piece of the answer, and send what has gathered when it is time."""
        if isinstance(event, TextDelta):
            self._buffer += event.text
        waited = time.monotonic() - self._flushed_at
        config = self._state.config
        if self._buffer and (waited >= config.text_interval or len(self._buffer) >= config.text_bytes):
            self._flush()
        elif waited >= config.lease / 3:
            self._steps.watch.checkpoint()

    def counted(self, usage: Usage) -> None:
        """Remember what the provider counted; the last word counts."""
        self._usage = usage

    def finished(self, finish: Finish) -> None:
        """Write the whole turn, the first of its calls begun and the others waiting.

        A call that was refused before it could run is answered at once.
        """
        if self._hears_text:
            self._flush()
        # The page gets the rest of the text with the whole of it.
        self._buffer = ""
        self._heard_text = False
        with self._steps.step() as (unit, run):
            message, is_new = self._finish_message(unit, finish)
            calls = self._add_calls(unit, message, finish)
            self._close_model_call(unit, None)
            run.is_doing(next((call for call in calls if call.status == "running"), None))
            if is_new:
                know(message, calls=calls)
                self._notices.tell(unit, "message_started", run, message)
            else:
                self._notices.tell(unit, "message_finished", run, message)
                for call in calls:
                    self._notices.tell(unit, "call_asked", run, call)
        self._model_call_id = self._message = None
        reach("turn written")

    def take_begun(self, request: ToolCallRequest) -> ToolCall | None:
        """Return the call where the turn was written with it begun already, which it is once."""
        begun, self._begun = self._begun, None
        return begun if begun is not None and begun.provider_call_id == request.id else None

    def may_discard(self) -> bool:
        """Whether what was shown of the answer can be taken back: the page can, a handler must have said so."""
        return not self._heard_text or self._takes_back

    def discarded(self, event: RetryScheduled) -> None:
        """Take the answer back and say when the next try comes.

        The handler hears of it first: after a crash in between it hears so again, and never not at all.
        """
        self._buffer = ""
        self.lost()
        with self._steps.step() as (unit, run):
            self._close_model_call(unit, f"provider_{event.reason}")
            self._discard_message(unit, run)
            if not run.cancel_requested:
                run.status = "retrying"
            run.retry_at = now() + timedelta(seconds=event.delay)
            run.retry_reason = event.reason
            unit.ledger.flush()
            self._notices.tell(unit, "run_changed", run)
        self._model_call_id = None
        self._retrying = True

    def lost(self, *, heard: bool = False) -> None:
        """Tell a handler that hears text that what it heard of the last answer is void.

        :param heard: it heard something in a process that has died since.
        """
        if self._heard_text or (heard and self._hears_text):
            self._heard_text = False
            self._call_back(lambda handler: handler.handle_ai_text_discarded())

    def cut_off(self, unit: Unit, run: Run, error_class: str | None) -> None:
        """Close what is open of a turn as the run ends in it: shown text stays, marked as cut."""
        self._buffer = ""
        self._close_model_call(unit, error_class)
        for message in run.messages:
            if message.state == "streaming":
                message.state = "cut"
                self._notices.tell(unit, "message_finished", run, message)

    def _close_model_call(self, unit: Unit, error: str | None) -> None:
        """Complete the row of the physical call that is under way, when one is."""
        if self._model_call_id is None:
            return
        usage = _storable(self._usage or Usage())
        _ENDS.execute(
            unit.connection,
            {
                "model_call": self._model_call_id,
                "message_id": None if error or self._message is None else self._message.id,
                **{name: getattr(usage, name) for name in COUNTS},
                "cost": cost(self._provider, self._model, usage, base_url=self._base_url),
                "seconds": time.monotonic() - self._began,
                "error_class": error,
            },
        )

    def _flush(self) -> None:
        piece, self._buffer = shown_text(self._buffer), ""
        self._flushed_at = time.monotonic()
        if not piece:
            return
        self._steps.watch.checkpoint()
        if self._message is None:
            with self._steps.step() as (unit, run):
                self._run, self._message = run, self._open_message(unit, state="streaming", text=piece)
                run.is_doing(writing=True)
                self._notices.tell(unit, "message_started", run, self._message)
            reach("text stored")
        else:
            self._add_text(self._message, piece)
        self._shown += utf16_length(piece)
        if self._hears_text:
            self._heard_text = True
            self._call_back(lambda handler: handler.handle_ai_text_chunk(piece))

    def _add_text(self, message: Message, piece: str) -> None:
        text = message.text + piece
        with self._steps.brief_step() as unit:
            _GROWS.execute(unit.connection, {"message": message.id, "grown": text})
        set_committed_value(message, "text", text)
        reach("text stored")
        self._notices.tell_now("text_streamed", self._run, message, self._shown, piece)

    def _open_message(self, unit: Unit, **values: Any) -> Message:
        """Write the row of the turn that is being received at its first sign of life, which may be all of it."""
        seq = self._steps.next_seq(unit, Message)
        message = Message(
            id=uuid7(),
            run_id=self._steps.run_id,
            seq=seq,
            role="assistant",
            created_at=now(),
            calls=[],
            **values,
        )
        insert(unit, message)
        return message

    def _finish_message(self, unit: Unit, finish: Finish) -> tuple[Message, bool]:
        """Write the whole turn; also tells whether nothing of it was there before."""
        values = {
            "state": "complete" if finish.reason in KEPT else "cut",
            "text": finish.message.text,
            "parts": finish.message.to_json(),
            "finish_reason": finish.reason,
            "finish_raw": finish.raw,
        }
        opened = self._message
        if opened is None:
            self._message = self._open_message(unit, **values)
            return self._message, True
        # As it was committed: nobody else writes to it under our lease, so it is not read again.
        unit.ledger.add(opened)
        update(unit, opened, **values)
        return opened, False

    def _discard_message(self, unit: Unit, run: Run) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        self._steps.forget_seq()
        unit.ledger.add(message)
        self._notices.tell(unit, "message_discarded", run, message)
        unit.ledger.delete(message)
        unit.ledger.flush()

    def _add_calls(self, unit: Unit, message: Message, finish: Finish) -> list[ToolCall]:
        if finish.reason != "tool_calls":
            return []
        parts = finish.message.calls
        calls: list[ToolCall] = []
        for seq, part in enumerate(parts, self._steps.next_seq(unit, ToolCall, len(parts))):
            row = ToolCall.from_function_request(part, run_id=self._steps.run_id, message_id=message.id, seq=seq)
            if part.refusal:
                row.answer(part.refusal, "limit" if part.refusal.startswith(NOT_CARRIED_OUT) else "refused")
            elif self._begun is None:
                # Nothing lies between the turn and its first call: one commit less, and the page shows it at once.
                row.begin(self._steps.attempt)
                self._begun = row
            insert(unit, row)
            calls.append(row)
        return calls

    def _call_back(self, callback: Callable[[AiResponseHandler], object]) -> None:
        """Call an app's callback outside any transaction of ours, and leave none of its open (G5)."""
        try:
            callback(locate(self._gid))
        except RecordGone:
            pass
        except Exception:
            logger.exception("A callback of %s failed", self._gid)
        finally:
            self._state.db.session.remove()


_MODEL_CALLS = cast(sa.Table, ModelCall.__table__)
_MESSAGES = cast(sa.Table, Message.__table__)
_LEAVES = into(_MODEL_CALLS, "id", "run_id", "provider", "model", "attempt", "try_number", "created_at")
_GROWS = Prepared(
    sa.update(_MESSAGES).where(_MESSAGES.c.id == sa.bindparam("message")).values(text=sa.bindparam("grown"))
)
_ENDS = Prepared(
    sa.update(_MODEL_CALLS).where(_MODEL_CALLS.c.id == sa.bindparam("model_call")),
    *("message_id", *COUNTS, "cost", "seconds", "error_class"),
)


def _storable(usage: Usage) -> Usage:
    counts = {name: getattr(usage, name) for name in COUNTS}
    return Usage(**{name: count for name, count in counts.items() if count is not None and 0 <= count <= LARGEST_COUNT})


def shown_text(text: str) -> str:
    """Return a piece of text as row and page both hold it; HTML parsers rewrite carriage returns."""
    return storable(text).replace("\r", "")


def utf16_length(text: str) -> int:
    """Return the length as a browser counts it: offsets are compared with a text node's length."""
    return len(text.encode("utf-16-le")) // 2
