"""What happens to one call of a model: looked up, checked, allowed, run under a limit, and answered.

Nothing a model sends and nothing a tool does raises an ``Exception`` here: every end is a :class:`ToolOutcome`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable
from collections.abc import Coroutine
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

from .arguments import InvalidArguments
from .arguments import clean_text
from .arguments import parse_arguments
from .deadline import Deadline
from .deadline import deadline
from .errors import ToolError
from .errors import ToolTimeout
from .prompt import JsonObject
from .prompt import ToolCall
from .results import cut
from .results import render_result

if TYPE_CHECKING:
    from .effects import Promise
    from .handlers import AiResponseHandler
    from .schema import Checked
    from .tools import Tool

logger = logging.getLogger("flask_instruct")

OutcomeKind = Literal[
    "ok",
    "unknown_tool",
    "invalid_arguments",
    "not_allowed",
    "not_approved",
    "no_preview",
    "refused",
    "limit",
    "tool_error",
    "exception",
    "timeout",
    "unrenderable",
    "interrupted",
]
"""How a call ended. ``interrupted``: it was never run to its end, and nothing tells whether it will be. ``refused``:
the provider itself rejected it; ``limit``: a limit of ours would have been passed with it."""

_NAME_CHARS = 80
"""Characters of a name that a model made up which are repeated to anyone."""

KNOWN_FAILURES = {
    "flask_instruct.errors.RecordGone": "the record no longer exists",
    "sqlalchemy.exc.DataError": "the database refused a value that does not fit its column",
    "sqlalchemy.exc.IntegrityError": "the database refused the change, because a rule of its data would be broken",
}
"""Exceptions, by full name, that a model can act on when told in these words; their own text has internals."""


@dataclass(frozen=True)
class ToolContext:
    """The call that a tool serves, as ``self.call`` in a handler and ``self.tool_call`` in a tool class.

    :param id: our id of the call, unique for ever; the provider's may repeat.
    :param run_id: the run it belongs to, or ``None`` for a prompt without a run.
    :param seq: the call's place in its run, from 1.
    :param idempotency_key: the same at every attempt of this call, and of this effect of it; for what happens outside
        the database.
    :param actor: who asked for the run.
    :param attempt: which attempt of the run this is, from 1.
    :param approved: whether a person has approved the call; without that a tool that needs it does not run.
    :param rehearsal: whether all that it does is rolled back: it is carried out for a preview.
    :param timeout: seconds that the tool, or the effect, may take.
    :param promise: keeps what ``after_commit`` asks for; ``None`` where nothing waits for a commit.
    """

    id: str
    run_id: str | None
    name: str
    seq: int
    idempotency_key: str
    actor: object | None = None
    attempt: int = 1
    approved: bool = False
    rehearsal: bool = False
    timeout: float = 10.0
    promise: Callable[[Promise], object] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ToolOutcome:
    """How a call ended, and what the model is told; ``content`` is never empty.

    :param exception: what was raised or refused, for the handler's callback and the ledger.
    :param arguments: the checked arguments by name, or what could be read of refused ones.
    :param asks: why a person must be asked before the call runs, empty where the rule gives no reason; None: nobody is.
    :param previews: whether the call may be carried out and rolled back, to show the person what it would change.
    :param waits: a person was asked and has not decided, so that there is no end yet, and nothing for the model.
    """

    content: str
    kind: OutcomeKind
    exception: BaseException | None = None
    arguments: JsonObject | None = None
    asks: str | None = None
    previews: bool = False
    waits: bool = False

    @property
    def error(self) -> bool:
        return self.kind != "ok"


def run_tool(
    handler: AiResponseHandler,
    call: ToolCall,
    context: ToolContext,
    *,
    argument_bytes: int = 65536,
    result_chars: int = 65536,
) -> ToolOutcome:
    """Run the tool that a model called and return how that ended; calls no ``handle_*`` callback.

    The name is looked up among ``handler.ai_tools()`` only. All faults of the arguments are told at once.

    :param argument_bytes: longer argument texts are refused.
    :param result_chars: longer results are cut, with a note.
    :raises BaseException: what is no ``Exception`` passes (a worker's control flow), and so does whatever an
        alarm set outside raised: a job's timeout is not the tool's failure.
    """
    previous = handler.call
    handler.call = context
    try:
        admitted = _admit(handler, call, context, argument_bytes)
        outcome = admitted if isinstance(admitted, ToolOutcome) else _limited(handler, context, *admitted)
    finally:
        handler.call = previous
    return replace(outcome, content=cut(outcome.content, result_chars))


def under_limit(
    name: str,
    seconds: float,
    work: Callable[[], object],
    told: Callable[[object], ToolOutcome],
    arguments: JsonObject | None = None,
) -> ToolOutcome:
    """Do the app's work under a limit of seconds, and return how that ended.

    :param work: may return a coroutine, which is awaited.
    :param told: makes the outcome of what the work returned, under the same limit.
    :raises BaseException: as :func:`run_tool`.
    """
    limit = Deadline(seconds)
    try:
        with deadline(limit):
            outcome = told(_complete(work(), seconds))
    except ToolTimeout:
        limit.passed = True
    except Exception as exception:
        outcome = failure(name, exception, arguments)
    except BaseExceptionGroup:  # what a task group makes of the interruption of one of its tasks
        if not limit.passed:
            raise
    if limit.outer is not None:
        raise limit.outer
    if limit.passed:
        text = f"{name} did not finish within {seconds:g} seconds and was stopped."
        return ToolOutcome(text, "timeout", ToolTimeout(text), arguments)
    return outcome


def failure(name: str, exception: BaseException, arguments: JsonObject | None = None) -> ToolOutcome:
    """Return the outcome for what a tool, or the flush of its edits, raised.

    A :class:`ToolError` is told word for word. Of anything else the model learns no internals; it is logged.
    """
    name = clean_text(name[:_NAME_CHARS])
    if isinstance(exception, ToolError):
        return ToolOutcome(clean_text(str(exception)) or f"{name} failed.", "tool_error", exception, arguments)
    logger.error("Tool %s failed", name, exc_info=exception)
    for cls in type(exception).__mro__:
        if reason := KNOWN_FAILURES.get(f"{cls.__module__}.{cls.__qualname__}"):
            return ToolOutcome(f"{name} failed: {reason}.", "tool_error", exception, arguments)
    return ToolOutcome(f"{name} failed because of an internal error.", "exception", exception, arguments)


def settle(handler: AiResponseHandler, call: ToolCall, outcome: ToolOutcome) -> None:
    """Tell the handler of a call that did not succeed, once; what its callback raises passes to the caller."""
    if outcome.kind == "unknown_tool":
        handler.handle_unknown_tool(call.name)
    elif outcome.error and outcome.kind != "interrupted":
        exception = outcome.exception or ToolError(outcome.content)
        handler.handle_tool_error(call.name, exception, outcome.arguments or {})


def _admit(
    handler: AiResponseHandler, call: ToolCall, context: ToolContext, argument_bytes: int
) -> ToolOutcome | tuple[type[Tool], Checked]:
    given: JsonObject | None = None
    try:
        tools: dict[str, type[Tool]] = {tool.identifier: tool for tool in handler.ai_tools()}
        tool = tools.get(call.name)
        if tool is None:
            return _unknown(call.name, sorted(tools))
        given = parse_arguments(call.raw, limit=argument_bytes)
        checked = tool.check(given)
        if not _allowed(handler, tool, checked.arguments, context.actor):
            refusal = ToolError(f"{tool.identifier} is not allowed here for the person who asked.")
            return ToolOutcome(str(refusal), "not_allowed", refusal, checked.arguments)
        if context.rehearsal and not tool.preview:
            refusal = ToolError(f"{tool.identifier} cannot be shown in a preview, so it did not run.")
            return ToolOutcome(str(refusal), "no_preview", refusal, checked.arguments)
        if not context.approved and (asks := _asks(handler, tool, checked.arguments)) is not None:
            refusal = ToolError(f"{tool.identifier} needs a person's approval, which was not given; it did not run.")
            return ToolOutcome(str(refusal), "not_approved", refusal, checked.arguments, asks, tool.preview)
        return tool, checked
    except InvalidArguments as refusal:
        return ToolOutcome(str(refusal), "invalid_arguments", refusal, given)
    except Exception as exception:
        return failure(call.name, exception, given)


def _unknown(name: str, available: list[str]) -> ToolOutcome:
    told = f"Available tools: {', '.join(available)}." if available else "No tools are available."
    shown = json.dumps(clean_text(name[:_NAME_CHARS]), ensure_ascii=False)
    refusal = ToolError(f"Tool {shown} is not available. {told}")
    return ToolOutcome(str(refusal), "unknown_tool", refusal)


def _allowed(handler: AiResponseHandler, tool: type[Tool], arguments: JsonObject, actor: object) -> bool:
    answer = handler.authorize_tool(tool, dict(arguments), actor)
    if not isinstance(answer, bool):  # a forgotten await would be true
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"authorize_tool must return True or False, not {type(answer).__qualname__}")
    return answer


def _asks(handler: AiResponseHandler, tool: type[Tool], arguments: JsonObject) -> str | None:
    """Return why a person must approve the call, in the rule's words where it has any; None where nobody must.

    A rule that fails, or says neither yes nor no, cannot have said no, so it counts as yes (openai-agents#4545).
    """
    rule = tool.approval
    if not callable(rule):
        return "" if rule else None
    try:
        said = rule(handler, dict(arguments))
    except Exception:
        logger.exception("The approval rule of %s failed; the tool needs approval", tool.identifier)
        return ""
    if inspect.iscoroutine(said):  # a forgotten await
        said.close()
    return None if said is False else clean_text(said) if isinstance(said, str) else ""


def _limited(handler: AiResponseHandler, context: ToolContext, tool: type[Tool], checked: Checked) -> ToolOutcome:
    handler.call = context = replace(context, timeout=tool.timeout)

    def work() -> object:
        return tool(handler, context).call(**checked.keywords)

    def told(value: object) -> ToolOutcome:
        return _told(value, checked.arguments)

    return under_limit(tool.identifier, tool.timeout, work, told, checked.arguments)


def _told(value: object, arguments: JsonObject) -> ToolOutcome:
    try:
        return ToolOutcome(render_result(value), "ok", None, arguments)
    except ToolError as refusal:
        return ToolOutcome(str(refusal), "unrenderable", refusal, arguments)


def _complete(value: object, seconds: float) -> object:
    if not inspect.iscoroutine(value):
        return value
    limited = _awaited(value, seconds)
    try:
        return asyncio.run(limited)
    finally:  # where a loop is running already, neither was awaited
        limited.close()
        value.close()


async def _awaited(coroutine: Coroutine[Any, Any, object], seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await coroutine
    except TimeoutError:
        if limit.expired():
            raise ToolTimeout(f"the limit of {seconds:g} seconds was met") from None
        raise
    except asyncio.CancelledError as cancelled:
        raise RuntimeError("the tool cancelled itself") from cancelled
