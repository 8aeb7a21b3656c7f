"""The only code that writes the ledger: claims a run, records each step of it, and fences every write.

A step is one transaction: the lease is checked and renewed, the rows are written, the page's fragments go into
the outbox, and after the commit they are published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import DataError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import SQLAlchemyError

from ..errors import InstructError
from ..errors import RecordGone
from ..events import Event
from ..events import Finish
from ..events import RoundStarted
from ..events import TextDelta
from ..events import ToolCallRequest
from ..events import Usage
from ..events import UsageReported
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..orchestrator import Ending
from ..orchestrator import Recorder
from ..orchestrator import tell_ending
from ..tools import ToolContext
from ..tools import ToolOutcome
from ..tools import failure
from ..tools import run_tool
from ..tools import settle
from .app_code import AppCode
from .claim import close_open_calls
from .claim import renew_lease
from .endings import describe
from .models import Message
from .models import ModelCall
from .models import Run
from .models import ToolCall
from .models import now
from .models import storable
from .notices import Notices
from .unit import Unit
from .unit import unit_of_work

if TYPE_CHECKING:
    from ..extension import State

logger = logging.getLogger("flask_instruct")


KEPT = frozenset({"stop", "tool_calls", "pause"})
"""Finish reasons after which the model's turn belongs to the history; any other is shown but not replayed."""

REFUSED = (DataError, IntegrityError)
"""Answers of the database that it would give to the same words again; any other error may be gone at a resume."""


class Interrupted(BaseException):
    """Raised to leave a run as it stands, for another worker to resume.

    Not an :class:`Exception`: neither a tool nor the loop may take it for an error of the model or the app.
    """


class UnitLost(Exception):
    """Raised when a tool has taken its unit of work down with it."""


class LostLease(Interrupted):
    """Raised when another worker has taken the run: nothing of this step is committed."""


class RunTimeout(InstructError):
    """Raise when a run has passed ``INSTRUCT_RUN_TIMEOUT`` seconds."""


class Journal(Recorder):
    """One worker's hold on one run."""

    def __init__(self, state: State, engine: sa.Engine, run: Run) -> None:
        self._state = state
        self._engine = engine
        self._run_id = run.id
        self._gid = run.handler
        self._attempt = run.attempt
        self._actor = run.actor
        self._notices = Notices(state)
        self._app_code = AppCode(state, self._notices, run.handler)
        self._deadline = time.monotonic() + state.config.run_timeout
        self._model = ""
        self._usage: Usage | None = None
        self._round_began = 0.0
        self._in_round = False
        self._message_id: str | None = None
        self._shown = 0
        self._buffer = ""
        self._flushed_at = 0.0
        self._hears_text = False

    def attach(self, handler: AiResponseHandler) -> None:
        """Learn what the handler wants to hear; it is located afresh for every step that needs it."""
        self._hears_text = type(handler).handle_ai_text_chunk is not AiResponseHandler.handle_ai_text_chunk

    # -- the model's turn ------------------------------------------------------------------------------------------

    def round_started(self, event: RoundStarted) -> None:
        self._check_deadline()
        self._model = event.model
        self._round_began = time.monotonic()
        self._in_round = True
        self._usage = None
        self._message_id = None
        self._shown = 0
        self._buffer = ""
        with self._step():
            pass

    def streamed(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._buffer += event.text
        waited = time.monotonic() - self._flushed_at
        config = self._state.config
        if self._buffer and (waited >= config.text_interval or len(self._buffer) >= config.text_bytes):
            self._flush()
        elif waited >= config.lease / 3:
            self._check_deadline()

    def usage(self, event: UsageReported) -> None:
        self._usage = event.usage

    def round_finished(self, finish: Finish) -> None:
        self._flush()
        self._in_round = False
        with self._step() as (unit, run):
            message = self._open_message(unit, run)
            message.state = "complete" if finish.reason in KEPT else "cut"
            message.text = finish.message.text
            message.parts = finish.message.to_json()
            message.finish_reason = finish.reason
            message.finish_raw = finish.raw
            self._add_calls(unit, message, finish)
            unit.ledger.add(self._model_call(message.id))
            unit.ledger.flush()
            self._notices.tell(unit, "message_finished", run, message)
            for call in message.calls:
                self._notices.tell(unit, "call_changed", run, call)

    def _flush(self) -> None:
        piece, self._buffer = shown_text(self._buffer), ""
        self._flushed_at = time.monotonic()
        if not piece:
            return
        self._check_deadline()
        offset = self._shown
        with self._step() as (unit, run):
            message = self._open_message(unit, run)
            message.text += piece
        self._shown += utf16_length(piece)
        self._notices.tell_now("text_streamed", run, message, offset, piece)
        if self._hears_text:
            self._call_back(lambda handler: handler.handle_ai_text_chunk(piece))

    def _open_message(self, unit: Unit, run: Run) -> Message:
        """Return the row of the turn that is being received, made at its first sign of life."""
        if self._message_id is not None:
            message = unit.ledger.get(Message, self._message_id)
            assert message is not None
            return message
        message = Message(run_id=run.id, seq=_next_seq(unit, Message, run.id), text="", state="streaming")
        unit.ledger.add(message)
        unit.ledger.flush()
        self._message_id = message.id
        self._notices.tell(unit, "message_started", run, message)
        return message

    def _add_calls(self, unit: Unit, message: Message, finish: Finish) -> None:
        if finish.reason != "tool_calls":
            return
        first = _next_seq(unit, ToolCall, self._run_id)
        for seq, part in enumerate(finish.message.calls, first):
            row = ToolCall.from_function_request(part, run_id=self._run_id, message_id=message.id, seq=seq)
            message.calls.append(row)

    def _model_call(self, message_id: str | None, error: str | None = None) -> ModelCall:
        usage = self._usage or Usage()
        return ModelCall(
            run_id=self._run_id,
            message_id=message_id,
            model=self._model,
            attempt=self._attempt,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            seconds=time.monotonic() - self._round_began,
            error_class=error,
        )

    # -- tools -----------------------------------------------------------------------------------------------------

    def execute(self, request: ToolCallRequest) -> ToolOutcome:
        """Run one tool call: its edits, result and broadcasts are committed together, or not at all.

        :raises LostLease: when another worker has the run.
        """
        self._check_deadline()
        call_id = self._begin_call(request)
        outcome: ToolOutcome | None = None
        try:
            with self._unit() as unit:
                call = unit.ledger.get(ToolCall, call_id, with_for_update=True)
                assert call is not None
                if call.status != "running" or call.attempt != self._attempt:
                    raise LostLease(f"Call {call.id} is no longer ours.")
                outcome = self._attempt_call(unit, request, call)
                if not unit.stands:
                    raise UnitLost
                call.answer(outcome.content, outcome.kind if outcome.error else None)
                unit.ledger.flush()
                # Last and not first: on PostgreSQL the run's row stays free for a person's stop while the tool runs.
                run = self._fence(unit)
                self._notices.tell(unit, "call_changed", run, call)
        except LostLease:
            raise
        except (UnitLost, Interrupted):
            if outcome is None or not outcome.error:
                raise
            return self._fail_call(request, call_id, outcome)
        except REFUSED as refusal:
            # Only at the commit: a deferred constraint.
            given = outcome.arguments if outcome is not None else None
            return self._fail_call(request, call_id, failure(request.tool_name, refusal, given))
        return outcome

    def _begin_call(self, request: ToolCallRequest) -> str:
        with self._step() as (unit, run):
            call = unit.ledger.scalars(
                sa.select(ToolCall)
                .where(
                    ToolCall.run_id == run.id,
                    ToolCall.provider_call_id == request.id,
                    ToolCall.result.is_(None),
                )
                .order_by(ToolCall.seq)
                .limit(1)
            ).first()
            if call is None:
                raise LostLease(f"Call {request.id!r} of run {run.id} has been answered elsewhere.")
            call.status = "running"
            call.attempt = self._attempt
            call.started_at = now()
            unit.ledger.flush()
            self._notices.tell(unit, "call_changed", run, call)
        return call.id

    def _attempt_call(self, unit: Unit, request: ToolCallRequest, call: ToolCall) -> ToolOutcome:
        context = ToolContext(
            id=call.id,
            run_id=self._run_id,
            name=call.name,
            seq=call.seq,
            idempotency_key=call.idempotency_key,
            actor=self._actor,
            attempt=self._attempt,
        )
        config = self._state.config

        def work(handler: AiResponseHandler) -> ToolOutcome:
            return run_tool(
                handler,
                request.call,
                context,
                argument_bytes=config.argument_bytes,
                result_chars=config.result_chars,
            )

        outcome = self._app_code.run_tool(unit, call.name, work)
        if outcome.error and unit.stands:
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
        return outcome

    def _fail_call(self, request: ToolCallRequest, call_id: str, outcome: ToolOutcome) -> ToolOutcome:
        """Write down the failure of a call whose own transaction is gone, and every edit of the tool with it."""
        with self._step() as (unit, run):
            call = unit.ledger.get(ToolCall, call_id)
            assert call is not None
            self._app_code.call_back(unit, lambda handler: settle(handler, request.call, outcome))
            call.answer(outcome.content, outcome.kind if outcome.error else None)
            unit.ledger.flush()
            self._notices.tell(unit, "call_changed", run, call)
        return outcome

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

    # -- the end ---------------------------------------------------------------------------------------------------

    def ended(self, ending: Ending) -> None:
        self._buffer = ""
        status, error_class, safe, technical = describe(ending)
        with self._step() as (unit, run):
            self._close_open_rows(unit, run)
            self._app_code.call_back(unit, lambda handler: tell_ending(handler, ending))
            if self._in_round:
                unit.ledger.add(self._model_call(None, error_class))
            run.status = status
            run.error_class, run.error_safe, run.error_technical = error_class, safe, technical
            run.limit_reached = ending.limit.limit if ending.limit is not None else None
            run.lease_until = None
            run.ended_at = now()
            unit.ledger.flush()
            self._notices.tell(unit, "run_changed", run)

    def _close_open_rows(self, unit: Unit, run: Run) -> None:
        for message in run.messages:
            if message.state == "streaming":
                message.state = "cut"
                self._notices.tell(unit, "message_finished", run, message)
        close_open_calls(unit, run, self._notices)

    def close(self) -> None:
        """Write down what Redis answered to the last broadcasts."""
        self._notices.flush(self._engine)

    # -- transactions and the fence --------------------------------------------------------------------------------

    @contextmanager
    def _unit(self) -> Iterator[Unit]:
        """A transaction of the ledger. A database that fails is not the model's fault: the run waits for a resume.

        What the database refuses for what it says is raised as it is: a resume would only bring it the same again.
        """
        try:
            with unit_of_work(self._engine) as unit:
                unit.actor = self._actor
                yield unit
                self._notices.store(unit)
        except REFUSED:
            raise
        except SQLAlchemyError as error:
            raise Interrupted(f"The ledger of run {self._run_id} could not be written.") from error

    @contextmanager
    def _step(self) -> Iterator[tuple[Unit, Run]]:
        """A transaction that begins with the fence and publishes its fragments after the commit."""
        with self._unit() as unit:
            yield unit, self._fence(unit)

    def _fence(self, unit: Unit) -> Run:
        """Renew the lease; fail when the run is no longer ours.

        :raises LostLease: when another worker has taken the run or it has ended.
        """
        if not renew_lease(unit.connection, self._run_id, self._attempt, self._lease_end()):
            raise LostLease(f"Run {self._run_id} was taken over; attempt {self._attempt} stops without a trace.")
        run = unit.ledger.get(Run, self._run_id, populate_existing=True)
        assert run is not None
        return run

    def _lease_end(self) -> datetime:
        return now() + timedelta(seconds=self._state.config.lease)

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise RunTimeout(f"The run took longer than INSTRUCT_RUN_TIMEOUT, {self._state.config.run_timeout:g} s.")


def _next_seq(unit: Unit, table: type[Message] | type[ToolCall], run_id: str) -> int:
    last = unit.ledger.scalar(sa.select(sa.func.max(table.seq)).where(table.run_id == run_id))
    return (last or 0) + 1


def shown_text(text: str) -> str:
    """Return a piece of text as row and page both hold it; HTML parsers rewrite carriage returns."""
    return storable(text).replace("\r", "")


def utf16_length(text: str) -> int:
    """Return the length as a browser counts it: offsets are compared with a text node's length."""
    return len(text.encode("utf-16-le")) // 2
