"""One talk of a handler with a model: answers the model's calls with the handler's tools, and reports every step.

The loop itself is :func:`~flask_instruct.talk.converse`; a :class:`Recorder` hears of all that happens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

from .adapters.base import Adapter
from .adapters.registry import Credentials
from .ambient import surroundings
from .attempts import Patience
from .config import Config
from .effects import Promise
from .effects import fulfil_at_once
from .effects import told_with
from .errors import InstructError
from .errors import Stopped
from .events import ApprovalRequested
from .events import Event
from .events import Finish
from .events import LimitReached
from .events import RetryScheduled
from .events import RoundStarted
from .events import TextDelta
from .events import ToolCallRequest
from .events import UsageReported
from .limits import Allowance
from .prompt import Gen
from .prompt import Message
from .talk import converse
from .talk import limit_met
from .tools import ToolContext
from .tools import ToolOutcome
from .tools import run_tool
from .tools import settle

if TYPE_CHECKING:
    from .handlers import AiResponseHandler

logger = logging.getLogger("flask_instruct")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a talk ended: by the model (``finish``), by a limit, by an error, or because a person stopped it.

    :param waiting: it has not ended, but cannot go on before a person has decided about a call.
    """

    finish: Finish | None = None
    limit: LimitReached | None = None
    error: Exception | None = None
    stopped: bool = False
    waiting: bool = False


class Recorder:
    """What the orchestrator reports to, and where tools are executed. This one keeps nothing.

    The ledger's journal has the same methods and makes each of them durable.
    """

    def __init__(self, handler: AiResponseHandler) -> None:
        self._handler = handler
        self._seq = 0
        self._heard_text = False

    def checkpoint(self) -> None:
        """Nothing is under way: the place to raise :class:`~flask_instruct.errors.Stopped`."""

    def listening(self) -> AbstractContextManager[None]:
        """Surround a wait for the model, which may be broken off by ``Stopped`` at any moment."""
        return nullcontext()

    def allowance(self) -> Allowance | None:
        """Return who tells, before each model call, which limit is met; None: the talk measures itself."""
        return None

    def limit_noted(self) -> LimitReached | None:
        """Return the limit of that kind that was met before the last word of the messages."""
        return None

    def round_started(self, event: RoundStarted) -> None:
        """A model call is about to leave."""

    def streamed(self, event: Event) -> None:
        """A piece of the answer arrived."""
        if isinstance(event, TextDelta):
            self._heard_text = True
            call_back(lambda: self._handler.handle_ai_text_chunk(event.text))

    def may_discard(self) -> bool:
        """Whether an answer that was begun can be taken back, so that the model call may be tried again."""
        return not self._heard_text or takes_text_back(self._handler)

    def retry_scheduled(self, event: RetryScheduled) -> None:
        """A model call failed and what it said is void; another follows."""
        if self._heard_text:
            self._heard_text = False
            call_back(self._handler.handle_ai_text_discarded)

    def wait(self, seconds: float) -> None:
        """Wait before the next try of a model call."""
        time.sleep(seconds)

    def usage(self, event: UsageReported) -> None:
        """The provider counted tokens."""

    def round_finished(self, finish: Finish) -> None:
        """The model's turn is complete; none of its tool calls has started."""
        self._heard_text = False

    def execute(self, request: ToolCallRequest) -> ToolOutcome:
        """Run one tool call, and what it asked for after its commit; tell the handler of its failure.

        Without a ledger nothing can wait for a person: a call that needs an approval is refused.
        """
        self._seq += 1
        promises: list[Promise] = []
        context = ToolContext(
            id=request.id,
            run_id=None,
            name=request.tool_name,
            seq=self._seq,
            idempotency_key=request.id,
            actor=None,
            attempt=1,
            promise=promises.append,
        )
        outcome = run_tool(self._handler, request.call, context)
        call_back(lambda: settle(self._handler, request.call, outcome))
        if outcome.error or not promises:
            return outcome
        return replace(outcome, content=told_with(outcome.content, fulfil_at_once(self._handler, context, promises)))

    def ended(self, ending: Ending) -> None:
        """The talk is over."""
        call_back(lambda: tell_ending(self._handler, ending))


class Orchestrator:
    """Drive one talk of a handler with a model, with each callback called once.

    :param handler: whose tools the model may use.
    :param messages: the talk so far; grows in place.
    :param gen: the model, tools and options.
    """

    def __init__(
        self,
        handler: AiResponseHandler,
        messages: list[Message],
        gen: Gen,
        *,
        recorder: Recorder | None = None,
        config: Config | None = None,
        adapter: Adapter | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.messages = messages
        self._handler = handler
        self._gen = gen
        self._recorder = recorder or Recorder(handler)
        self._config = config or surroundings().config
        self._adapter = adapter
        self._credentials = credentials

    def start(self, last_word: Finish | None = None) -> Ending:
        """Run the talk to its end. An error of the model call is an ending, not an exception.

        :param last_word: the end of the last of the messages, where the talk was over before: nothing is asked again.
        """
        ending = self._talk() if last_word is None else Ending(last_word, self._limit_before())
        self._recorder.ended(ending)
        return ending

    def _limit_before(self) -> LimitReached | None:
        return limit_met(self.messages[:-1], self._gen) or self._recorder.limit_noted()

    def _talk(self) -> Ending:
        finish: Finish | None = None
        limit: LimitReached | None = None
        waiting = False
        stream = converse(
            self.messages,
            self._gen,
            adapter=self._adapter,
            config=self._config,
            credentials=self._credentials,
            patience=self._patience(),
            allowance=self._recorder.allowance(),
        )
        try:
            while (event := self._next(stream)) is not None:
                match event:
                    case RoundStarted():
                        self._recorder.round_started(event)
                    case UsageReported():
                        self._recorder.usage(event)
                    case RetryScheduled():
                        self._recorder.retry_scheduled(event)
                    case Finish():
                        finish = event
                        self._recorder.round_finished(event)
                    case ToolCallRequest():
                        self._answer(event)
                    case LimitReached():
                        limit = event
                    case ApprovalRequested():
                        waiting = True
                    case _:
                        self._recorder.streamed(event)
        except Stopped:
            return Ending(finish=finish, stopped=True)
        except Exception as error:
            if not isinstance(error, InstructError):
                logger.exception("The talk of %s broke off", type(self._handler).__name__)
            return Ending(finish=finish, error=error)
        finally:
            stream.close()
        return Ending(finish=finish, limit=limit, waiting=waiting)

    def _next(self, stream: Iterator[Event]) -> Event | None:
        self._recorder.checkpoint()
        with self._recorder.listening():
            return next(stream, None)

    def _patience(self) -> Patience:
        recorder, config = self._recorder, self._config
        return Patience(config.retries, config.retry_wait, wait=recorder.wait, may_discard=recorder.may_discard)

    def _answer(self, request: ToolCallRequest) -> None:
        outcome = self._recorder.execute(request)
        if outcome.waits:
            request.defer(outcome.asks or "")
        elif outcome.error:
            request.respond_error(outcome.content)
        else:
            request.respond(outcome.content)


def tell_ending(handler: AiResponseHandler, ending: Ending) -> None:
    """Call the one callback that fits how the talk ended; of a stop its own person knows."""
    if ending.stopped or ending.waiting:
        return
    if ending.error is not None:
        handler.handle_ai_error(ending.error)
    elif ending.limit is not None:
        handler.handle_limit(ending.limit.limit)
    elif ending.finish is not None:
        handler.handle_ai_finish(ending.finish.reason)


def takes_text_back(handler: AiResponseHandler) -> bool:
    """Whether a handler that hears text as it comes has said what to do when it is void."""
    from .handlers import AiResponseHandler

    kind = type(handler)
    hears = kind.handle_ai_text_chunk is not AiResponseHandler.handle_ai_text_chunk
    return not hears or kind.handle_ai_text_discarded is not AiResponseHandler.handle_ai_text_discarded


def call_back(function: Callable[[], object]) -> bool:
    """Call an app's callback; its exception is logged and does not end the talk."""
    try:
        function()
    except Exception:
        logger.exception("A callback of the handler failed")
        return False
    return True
