"""The loop: model call, tools, model call, … until the model is done or a limit is met.

A generator without any effect of its own: who consumes it answers the tool calls, shows the text and keeps the ledger.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from .adapters.base import Adapter
from .adapters.base import Model
from .adapters.conversation import without_calls
from .adapters.registry import Credentials
from .adapters.registry import preferred
from .adapters.registry import resolve
from .ambient import surroundings
from .attempts import Ask
from .attempts import Candidates
from .attempts import Patience
from .attempts import answered
from .config import Config
from .errors import OutputError
from .events import ApprovalRequested
from .events import Event
from .events import Finish
from .events import LimitReached
from .events import RoundStarted
from .events import ToolCallRequest
from .events import UsageReported
from .generation import models_of
from .limits import NOT_CARRIED_OUT
from .limits import Allowance
from .limits import Meter
from .outputs import Output
from .outputs import Unfit
from .prompt import Gen
from .prompt import Message
from .prompt import ModelRequest
from .prompt import Text
from .prompt import ToolCall
from .prompt import ToolResult

UNANSWERED = "This call was not answered by the application; nothing was done."
ACCEPTED = "Accepted."
UNFIT = "Your answer does not have the wanted shape:"
AGAIN = "Give the whole answer again, corrected."
MOST_CALLS = 128
"""Calls of one turn that are carried out; providers' own limits for tools are of this size."""
TOO_MANY = f"{NOT_CARRIED_OUT} only the first {MOST_CALLS} calls of a turn are. Make fewer calls at once."
PAST_LIMIT = f"{NOT_CARRIED_OUT} with the calls of this turn the limit of tool calls would be passed"


def converse(
    messages: list[Message],
    gen: Gen,
    *,
    adapter: Adapter | None = None,
    config: Config | None = None,
    credentials: Credentials | None = None,
    patience: Patience | None = None,
    allowance: Allowance | None = None,
) -> Generator[Event, None, Any]:
    """Talk to a model until it is done, giving off events; ``messages`` grows by each turn.

    A :class:`~flask_instruct.events.ToolCallRequest` must be answered before the generator is resumed; left
    unanswered it is answered with an error. One that is deferred ends the talk once the turn's other calls are
    answered, with an :class:`~flask_instruct.events.ApprovalRequested` for each. Calls at the end of ``messages``
    without a result come first. When one of ``gen.limits`` is met, or one tool failed more than
    ``gen.max_tool_retries`` times in a row, the model is called once more with its tools forbidden, unless the limit
    is far behind; then :class:`~flask_instruct.events.LimitReached` ends the talk. Closing the generator closes the
    model's stream.

    :param patience: how failing model calls are put up with; default: as the settings say.
    :param allowance: tells of the limits that the messages do not tell; default: time and tokens of this talk.
    :returns: the value that ``gen.output`` asked for, else ``None``.
    :raises ProviderError: when a model call failed for good.
    :raises OutputError: when the answer has another shape than ``gen.output`` after it was asked for again.
    :raises ConfigurationError: when no model, key or package is there.
    """
    if config is None:
        found = surroundings()
        config, credentials = found.config, credentials or found.credentials
    candidates = _candidates(gen, adapter, config, credentials)
    patience = patience or Patience(config.retries, config.retry_wait)
    meter = Meter(gen.limits)
    # Counting looks at every event, so only where it decides something.
    counts = allowance is None and gen.limits.tokens is not None
    allowance = allowance or meter.met
    if (yield from _answer_calls(messages, gen)):
        return None
    asked_again = 0
    while True:
        limit, last_answer = _limit(messages, gen, allowance)
        if limit is not None and not last_answer:
            yield limit
            return None
        answer = answered(
            candidates,
            _asking(messages, gen, forbid_tools=limit is not None),
            patience,
            number=_turns(messages) + 1,
            may_be_empty=gen.output is None and _tool_rounds(messages) > 0,
        )
        finish = yield from (_counted(answer, meter) if counts else answer)
        finish = _judged(finish, messages, gen, forbid_tools=limit is not None)
        messages.append(finish.message)
        yield finish
        if (yield from _answer_calls(messages, gen)):
            return None
        if finish.output is not None:
            return finish.output
        if gen.output is not None and _is_unfit(finish, gen):
            asked_again += 1
            _ask_again(messages, gen, finish, last=asked_again > gen.output_retries)
        elif limit is not None:
            yield limit
            return None
        elif finish.reason != "tool_calls" and (finish.reason != "pause" or _turns(messages) > gen.rounds):
            return None


# -- what is asked -----------------------------------------------------------------------------------------------------


def _candidates(gen: Gen, adapter: Adapter | None, config: Config, credentials: Credentials | None) -> Candidates:
    names: tuple[str | None, ...] = gen.models or (None,)
    if adapter is not None:
        return Candidates(names[:1], lambda name: Model(adapter, name or "", name or ""))
    chosen = gen.models or models_of(preferred(config)) or (None,)
    return Candidates(chosen, lambda name: resolve(name, config, credentials))


def _asking(messages: list[Message], gen: Gen, *, forbid_tools: bool) -> Ask:
    def ask(model: Model) -> ModelRequest:
        request = ModelRequest(
            model=model.name,
            messages=tuple(messages),
            tools=gen.tools,
            tool_choice="none" if forbid_tools else gen.tool_choice,
            options=gen.options,
            effort=gen.effort,
        )
        if gen.output is None:
            return request
        if model.native_output == "always" or (model.native_output == "without_tools" and not gen.tools):
            return replace(request, output=gen.output.spec)
        tools = (*(gen.tools if request.tool_choice != "none" else ()), _final_tool(gen, gen.output))
        return replace(request, tools=tools, tool_choice="required")

    return ask


def _final_tool(gen: Gen, output: Output) -> Any:
    return output.tool({tool.name for tool in gen.tools})


# -- what was answered -------------------------------------------------------------------------------------------------


def _judged(finish: Finish, messages: list[Message], gen: Gen, *, forbid_tools: bool) -> Finish:
    """Drop calls that were forbidden, and find the value in an answer that has the wanted shape."""
    final = _final_name(gen)
    finish = _within_limit(_bounded(finish), messages, gen, final)
    if forbid_tools and any(call.name != final for call in finish.message.calls):
        # A server that ignores "none" must not get its calls run, nor leave them unanswered.
        finish = replace(finish, message=replace(finish.message, parts=_without(finish.message, keep=final)))
    if finish.reason == "tool_calls" and not finish.message.calls:
        finish = replace(finish, reason="stop")
    if gen.output is None or finish.reason not in ("stop", "tool_calls"):
        return finish
    calls = finish.message.calls
    for text in _answers(finish, final):
        try:
            value = gen.output.read(text)
        except Unfit:
            continue
        others = any(call.name != final for call in calls)
        return replace(finish, reason="tool_calls" if others else "stop", output=value, answer=text)
    return finish


def _bounded(finish: Finish) -> Finish:
    """Refuse the calls beyond what one turn may have: each is a transaction and a card on the page."""
    if len(finish.message.calls) <= MOST_CALLS:
        return finish
    return _refused(finish, {call.id for call in finish.message.calls[MOST_CALLS:]}, TOO_MANY)


def _within_limit(finish: Finish, messages: list[Message], gen: Gen, final: str | None) -> Finish:
    """Refuse a turn's calls, all of them, when the limit of tool calls would be passed with them."""
    limit = gen.limits.tool_calls
    if limit is None:
        return finish
    asked = _runnable(finish.message, final)
    before = sum(len(_runnable(message, final)) for message in _current(messages))
    if not asked or before + len(asked) <= limit:
        return finish
    refusal = f"{PAST_LIMIT}, which is {limit} for this request. None of them ran. Answer without tools."
    return _refused(finish, {call.id for call in asked}, refusal)


def _runnable(message: Message, final: str | None) -> list[ToolCall]:
    return [call for call in message.calls if not call.refusal and call.name != final]


def _refused(finish: Finish, ids: set[str], refusal: str) -> Finish:
    parts = tuple(
        replace(part, refusal=refusal) if isinstance(part, ToolCall) and part.id in ids else part
        for part in finish.message.parts
    )
    return replace(finish, message=replace(finish.message, parts=parts))


def _without(message: Message, keep: str | None) -> tuple[Any, ...]:
    kept = tuple(call for call in message.calls if call.name == keep)
    return (*without_calls(message.parts), *kept[:1])


def _final_name(gen: Gen) -> str | None:
    return None if gen.output is None else _final_tool(gen, gen.output).name


def _answers(finish: Finish, final: str | None) -> tuple[str, ...]:
    """The texts that may be the answer: calls of the final tool, else what was said at the end."""
    said = tuple(call.raw for call in finish.message.calls if call.name == final)
    return said or ((finish.message.text,) if finish.reason == "stop" else ())


def _is_unfit(finish: Finish, gen: Gen) -> bool:
    """Whether an answer was tried and does not fit; a refusal or a cut is no try (pydantic-ai#4315)."""
    return finish.reason in ("stop", "tool_calls") and bool(_answers(finish, _final_name(gen)))


def _ask_again(messages: list[Message], gen: Gen, finish: Finish, *, last: bool) -> None:
    text = _answers(finish, _final_name(gen))[-1]
    problems = _problems(gen, text)
    if last:
        raise OutputError(problems, text)
    if not finish.message.calls:
        messages.append(Message("user", (Text(_asked_again(problems)),)))


def _problems(gen: Gen, text: str) -> tuple[str, ...]:
    assert gen.output is not None
    try:
        gen.output.read(text)
    except Unfit as unfit:
        return unfit.problems
    return ()


def _asked_again(problems: tuple[str, ...]) -> str:
    return "\n- ".join([UNFIT, *problems]) + f"\n{AGAIN}"


# -- tool calls --------------------------------------------------------------------------------------------------------


def _answer_calls(messages: list[Message], gen: Gen) -> Generator[Event, None, bool]:
    """Have the open calls of the last turn answered; True where one waits for a person, so that the talk ends here."""
    position, results = _open_turn(messages)
    if position is None:
        return False
    calls = messages[position].calls
    waiting: list[ToolCallRequest] = []
    for call in calls:
        if call.id in results:
            continue
        known = _known_result(call, gen)
        if known is None:
            request = ToolCallRequest(call)
            yield request
            if request.deferred is not None:
                waiting.append(request)
                continue
            if request.result is None:
                request.respond_error(UNANSWERED)
            known = request.result
        assert known is not None
        results[call.id] = known
    # In call order, whatever order they were answered in: prefixes of the history stay equal (vercel/ai#16578).
    told = tuple(results[call.id] for call in calls if call.id in results)
    messages[position + 1 :] = [Message("tool", told)] if told else []
    for request in waiting:
        yield ApprovalRequested(request.id, request.tool_name, request.deferred or "")
    return bool(waiting)


def _known_result(call: ToolCall, gen: Gen) -> ToolResult | None:
    """The result of a call that nobody needs to run: one that the provider rejected, or the final answer."""
    if call.refusal:
        return ToolResult(call.id, call.name, call.refusal, error=True)
    if gen.output is None or call.name != _final_name(gen):
        return None
    problems = _problems(gen, call.raw)
    return ToolResult(call.id, call.name, _asked_again(problems) if problems else ACCEPTED, error=bool(problems))


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


# -- limits ------------------------------------------------------------------------------------------------------------


def limit_met(messages: list[Message], gen: Gen) -> LimitReached | None:
    """Return the limit that a talk has met, told from its messages alone: it counts the same after a resume."""
    if gen.limits.tool_calls is not None and _was_refused(messages):
        return LimitReached("tool_calls", gen.limits.tool_calls)
    if _tool_rounds(messages) >= gen.rounds:
        return LimitReached("rounds", gen.rounds)
    if any(count > gen.max_tool_retries for count in _failures(messages).values()):
        return LimitReached("tool_failures", gen.max_tool_retries)
    return None


def _limit(messages: list[Message], gen: Gen, allowance: Allowance) -> tuple[LimitReached | None, bool]:
    """Return the limit that a talk has met, and whether the model may still answer once."""
    told, reached = limit_met(messages, gen), allowance()
    if reached is None or (told is not None and reached.last_answer):
        return told, True
    return LimitReached(reached.limit, float(reached.bound)), reached.last_answer


def _counted(answer: Generator[Event, None, Finish], meter: Meter) -> Generator[Event, None, Finish]:
    """Let an answer through and count its tokens."""
    try:
        while True:
            event = next(answer)
            if isinstance(event, RoundStarted):
                meter.new_call()
            elif isinstance(event, UsageReported):
                meter.count(event.usage)
            yield event
    except StopIteration as end:
        finish: Finish = end.value
        return finish
    finally:
        answer.close()


def _was_refused(messages: list[Message]) -> bool:
    """Whether calls were refused because the limit would have been passed with them."""
    return any(call.refusal.startswith(PAST_LIMIT) for message in _current(messages) for call in message.calls)


def _failures(messages: list[Message]) -> dict[str, int]:
    """For each tool the rounds in a row in which it only failed; a success puts it back to none (pydantic-ai#6582)."""
    counts: dict[str, int] = {}
    for message in _current(messages):
        worked = {result.name for result in message.results if not result.error}
        failed = {result.name for result in message.results if result.error} - worked
        counts |= {name: counts.get(name, 0) + 1 for name in failed} | dict.fromkeys(worked, 0)
    return counts


def _current(messages: list[Message]) -> list[Message]:
    """The turns since the last word of the user."""
    start = max((index for index, message in enumerate(messages) if _is_the_users(message)), default=-1)
    return messages[start + 1 :]


def _is_the_users(message: Message) -> bool:
    """What the loop itself says in the user's place does not begin a new count."""
    return message.role == "user" and not message.text.startswith(UNFIT)


def _tool_rounds(messages: list[Message]) -> int:
    return sum(1 for message in _current(messages) if message.calls)


def _turns(messages: list[Message]) -> int:
    return sum(1 for message in _current(messages) if message.role == "assistant")
