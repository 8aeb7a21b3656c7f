"""The loop: model call, tools, model call, … until the model is done or a limit is met.

:func:`converse` is the loop itself, a generator without any effect of its own; :class:`Orchestrator` answers
its tool calls with a handler's tools and tells a :class:`Recorder` everything that happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

from .adapters.base import Adapter
from .adapters.registry import resolve
from .config import Config
from .events import Event
from .events import Finish
from .events import LimitReached
from .events import RoundStarted
from .events import TextDelta
from .events import ToolCallRequest
from .events import UsageReported
from .prompt import Gen
from .prompt import Message
from .prompt import ModelRequest
from .prompt import ToolCall
from .prompt import ToolResult
from .tools import ToolContext
from .tools import ToolOutcome
from .tools import run_tool
from .tools import settle

if TYPE_CHECKING:
    from .handlers import AiResponseHandler

logger = logging.getLogger("flask_instruct")

UNANSWERED = "This call was not answered by the application; nothing was done."
LIMIT_REASON = "rounds"


def converse(
    messages: list[Message],
    gen: Gen,
    *,
    adapter: Adapter | None = None,
    config: Config | None = None,
) -> Generator[Event, None, None]:
    """Talk to a model until it is done, giving off events; ``messages`` grows by each turn.

    A :class:`~flask_instruct.events.ToolCallRequest` must be answered before the generator is resumed; left
    unanswered it is answered with an error. Calls at the end of ``messages`` without a result come first.
    After ``gen.max_rounds`` tool rounds the model is called once more with its tools forbidden, then
    :class:`~flask_instruct.events.LimitReached` ends the talk. Closing the generator closes the model's stream.

    :raises ProviderError: when a model call failed.
    :raises ConfigurationError: when the model, its key or its package is missing.
    """
    if adapter is None:
        found = resolve(gen.model, config)
        adapter, model = found.adapter, found.name
    else:
        model = gen.model or ""
    yield from _answer_calls(messages)
    while True:
        done = _tool_rounds(messages)
        last = bool(gen.tools) and done >= gen.max_rounds
        yield RoundStarted(number=_turns(messages) + 1, model=model)
        finish = yield from _one_turn(adapter, model, messages, gen, forbid_tools=last)
        messages.append(finish.message)
        yield finish
        if last:
            yield LimitReached(LIMIT_REASON, gen.max_rounds)
            return
        if finish.reason == "tool_calls":
            yield from _answer_calls(messages)
        elif finish.reason != "pause" or _turns(messages) > gen.max_rounds:
            return


def _one_turn(
    adapter: Adapter, model: str, messages: list[Message], gen: Gen, *, forbid_tools: bool
) -> Generator[Event, None, Finish]:
    request = ModelRequest(
        model=model,
        messages=tuple(messages),
        tools=gen.tools,
        tool_choice="none" if forbid_tools else gen.tool_choice,
        options=gen.options,
    )
    stream = adapter.stream(request)
    try:
        for event in stream:
            if not isinstance(event, Finish):
                yield event
                continue
            # A server that ignores "none" must not get its calls run, nor leave them unanswered.
            return _without_calls(event) if forbid_tools else event
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    raise AssertionError(f"Adapter {adapter.name!r} ended its stream without Finish and without an error.")


def _without_calls(finish: Finish) -> Finish:
    if finish.reason != "tool_calls":
        return finish
    parts = tuple(part for part in finish.message.parts if not isinstance(part, ToolCall))
    return replace(finish, reason="stop", message=replace(finish.message, parts=parts))


def _answer_calls(messages: list[Message]) -> Iterator[Event]:
    position, results = _open_turn(messages)
    if position is None:
        return
    calls = messages[position].calls
    for call in calls:
        if call.id in results:
            continue
        request = ToolCallRequest(call)
        yield request
        if request.result is None:
            request.respond_error(UNANSWERED)
        assert request.result is not None
        results[call.id] = request.result
    # In call order, whatever order they were answered in: prefixes of the history stay equal (vercel/ai#16578).
    messages[position + 1 :] = [Message("tool", tuple(results[call.id] for call in calls))]


def _open_turn(messages: list[Message]) -> tuple[int | None, dict[str, ToolResult]]:
    """Find the assistant turn at the end whose calls lack results, and the results it has already."""
    position = len(messages) - 1
    results: dict[str, ToolResult] = {}
    if position >= 0 and messages[position].role == "tool":
        results = {result.call_id: result for result in messages[position].results}
        position -= 1
    if position < 0 or messages[position].role != "assistant":
        return None, {}
    unanswered = [call for call in messages[position].calls if call.id not in results]
    return (position if unanswered else None), results


def _current(messages: list[Message]) -> list[Message]:
    """The turns since the last word of the user."""
    start = max((index for index, message in enumerate(messages) if message.role == "user"), default=-1)
    return messages[start + 1 :]


def _tool_rounds(messages: list[Message]) -> int:
    return sum(1 for message in _current(messages) if message.calls)


def _turns(messages: list[Message]) -> int:
    return sum(1 for message in _current(messages) if message.role == "assistant")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a talk ended: by the model (``finish``), by a limit, or by an error."""

    finish: Finish | None = None
    limit: LimitReached | None = None
    error: Exception | None = None


class Recorder:
    """What the orchestrator reports to, and where tools are executed. This one keeps nothing.

    The ledger's journal has the same methods and makes each of them durable.
    """

    def __init__(self, handler: AiResponseHandler) -> None:
        self._handler = handler
        self._seq = 0

    def round_started(self, event: RoundStarted) -> None:
        """A model call is about to leave."""

    def streamed(self, event: Event) -> None:
        """A piece of the answer arrived."""
        if isinstance(event, TextDelta):
            call_back(lambda: self._handler.handle_ai_text_chunk(event.text))

    def usage(self, event: UsageReported) -> None:
        """The provider counted tokens."""

    def round_finished(self, finish: Finish) -> None:
        """The model's turn is complete; none of its tool calls has started."""

    def execute(self, request: ToolCallRequest) -> ToolOutcome:
        """Run one tool call and tell the handler of its failure."""
        self._seq += 1
        context = ToolContext(
            id=request.id,
            run_id=None,
            name=request.tool_name,
            seq=self._seq,
            idempotency_key=request.id,
            actor=None,
            attempt=1,
        )
        outcome = run_tool(self._handler, request.call, context)
        call_back(lambda: settle(self._handler, request.call, outcome))
        return outcome

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
    ) -> None:
        self.messages = messages
        self._gen = gen
        self._recorder = recorder or Recorder(handler)
        self._config = config
        self._adapter = adapter

    def start(self) -> Ending:
        """Run the talk to its end. An error of the model call is an ending, not an exception."""
        ending = self._talk()
        self._recorder.ended(ending)
        return ending

    def _talk(self) -> Ending:
        finish: Finish | None = None
        limit: LimitReached | None = None
        stream = converse(self.messages, self._gen, adapter=self._adapter, config=self._config)
        try:
            for event in stream:
                match event:
                    case RoundStarted():
                        self._recorder.round_started(event)
                    case UsageReported():
                        self._recorder.usage(event)
                    case Finish():
                        finish = event
                        self._recorder.round_finished(event)
                    case ToolCallRequest():
                        self._answer(event)
                    case LimitReached():
                        limit = event
                    case _:
                        self._recorder.streamed(event)
        except Exception as error:
            return Ending(finish=finish, error=error)
        finally:
            stream.close()
        return Ending(finish=finish, limit=limit)

    def _answer(self, request: ToolCallRequest) -> None:
        outcome = self._recorder.execute(request)
        if outcome.error:
            request.respond_error(outcome.content)
        else:
            request.respond(outcome.content)


def tell_ending(handler: AiResponseHandler, ending: Ending) -> None:
    """Call the one callback that fits how the talk ended."""
    if ending.error is not None:
        handler.handle_ai_error(ending.error)
    elif ending.limit is not None:
        handler.handle_limit(ending.limit.limit)
    elif ending.finish is not None:
        handler.handle_ai_finish(ending.finish.reason)


def call_back(function: Callable[[], object]) -> bool:
    """Call an app's callback; its exception is logged and does not end the talk."""
    try:
        function()
    except Exception:
        logger.exception("A callback of the handler failed")
        return False
    return True
