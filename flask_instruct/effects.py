"""What a tool asks to be done outside the database once its edits are committed: checked, written as plain text, and
carried out later by method name.

A ledger keeps it in between; a prompt without one carries it out as soon as the tool has returned well.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

from .calls import ToolContext
from .calls import ToolOutcome
from .calls import failure
from .calls import under_limit
from .errors import InstructError
from .errors import Uncertain
from .results import cut

if TYPE_CHECKING:
    from .handlers import AiResponseHandler

Owner = Literal["handler", "tool"]
FateStatus = Literal["done", "failed", "unknown"]

LONGEST_REASON = 500
"""Characters of an effect's own words that are repeated to anyone."""

TOLD: Mapping[FateStatus, str] = {
    "done": "After the commit, {method}: done.",
    "failed": "After the commit, {method}: failed: {why}",
    "unknown": "After the commit, {method}: unknown: {why}; it may or may not have happened. "
    "Do not repeat it without asking.",
}
"""What the model is told of an effect, under the result of its tool."""

WORKER_DIED = "the worker died while it ran"


@dataclass(frozen=True, slots=True)
class Promise:
    """One call to be made after the commit.

    :param owner: whose method it is: the handler's, or that of the tool class.
    :param arguments: JSON of ``{"args": […], "kwargs": {…}}``.
    :param timeout: seconds it may take.
    """

    owner: Owner
    method: str
    arguments: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Fate:
    """How an effect ended; ``unknown`` where nobody can tell whether it happened."""

    status: FateStatus
    why: str = ""
    error_class: str | None = None

    def told(self, method: str) -> str:
        """Return the line for the model."""
        return TOLD[self.status].format(method=method, why=self.why)


def promise(
    context: ToolContext | None,
    owners: Mapping[Owner, object],
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Have a method called after the commit of the call that ``context`` is about.

    :raises InstructError: outside a tool.
    :raises TypeError: for what could not be found, or not be written, again in another process.
    """
    if context is None or context.promise is None:
        raise InstructError(
            "after_commit was called outside a tool, where nothing waits for a commit: call the function itself."
        )
    owner, name = _named(function, owners)
    inspect.signature(function).bind(*args, **kwargs)
    context.promise(Promise(owner, name, _written(name, args, kwargs), context.timeout))


def fulfil(handler: AiResponseHandler, context: ToolContext, kept: Promise) -> ToolOutcome:
    """Call the promised method under its limit of seconds; ``self.call`` in it is ``context``."""
    previous = handler.call
    handler.call = context

    def work() -> object:
        owner = handler if kept.owner == "handler" else _tool(handler, context)
        given = json.loads(kept.arguments)
        return getattr(owner, kept.method)(*given["args"], **given["kwargs"])

    try:
        return under_limit(kept.method, kept.timeout, work, lambda value: ToolOutcome("Done.", "ok"))
    finally:
        handler.call = previous


def fate_of(kept: Promise, outcome: ToolOutcome) -> Fate:
    """Tell from the outcome whether it happened.

    What raises has failed, unless it says itself that it cannot tell. What was stopped at its limit was in the middle
    of something, so that nobody can tell either.
    """
    if not outcome.error:
        return Fate("done")
    error_class = type(outcome.exception).__name__
    if outcome.kind == "timeout":
        why = f"it did not finish within {kept.timeout:g} seconds and was stopped"
        return Fate("unknown", why, error_class)
    if isinstance(outcome.exception, Uncertain):
        return Fate("unknown", cut(outcome.content.rstrip(".!? "), LONGEST_REASON), error_class)
    begun = f"{kept.method} failed"
    why = outcome.content.removeprefix(f"{begun} because of ").removeprefix(f"{begun}: ")
    return Fate("failed", cut(why, LONGEST_REASON), error_class)


def fulfil_at_once(handler: AiResponseHandler, context: ToolContext, promises: Iterable[Promise]) -> list[str]:
    """Carry out what a tool without a ledger asked for; return the lines for the model."""
    lines = []
    for number, kept in enumerate(promises, 1):
        key = f"{context.idempotency_key}:effect:{number}"
        during = replace(context, idempotency_key=key, timeout=kept.timeout, promise=None)
        try:
            outcome = fulfil(handler, during, kept)
        except Exception as error:
            outcome = failure(kept.method, error)
        lines.append(fate_of(kept, outcome).told(kept.method))
    return lines


def told_with(result: str, lines: Iterable[str]) -> str:
    """Return a tool's result with the lines about its effects under it."""
    return "\n".join([result, *lines])


def _named(function: Callable[..., object], owners: Mapping[Owner, object]) -> tuple[Owner, str]:
    name = getattr(function, "__name__", "")
    for owner, instance in owners.items():
        declared = inspect.getattr_static(type(instance), name, None)
        if declared is not None and not isinstance(declared, property) and getattr(instance, name, None) == function:
            return owner, name
    classes = " or ".join(type(instance).__name__ for instance in owners.values())
    raise TypeError(
        f"after_commit takes a method of {classes}, such as self.send_mail, not {function!r}: another process must "
        "find it again by its name if this one dies. Write a method that does it."
    )


def _written(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    given = {"args": list(args), "kwargs": dict(kwargs)}
    problem: object = "they come back changed"
    try:
        text = json.dumps(given, allow_nan=False)
        if json.loads(text) == given:
            return text
    except (TypeError, ValueError, RecursionError) as error:
        problem = error
    raise TypeError(
        f"The arguments for {name} must be plain JSON (text, numbers, true, false, None, lists, dicts with text as "
        f"keys), because they are kept until after the commit: {problem}. Pass an id instead of an object."
    )


def _tool(handler: AiResponseHandler, context: ToolContext) -> object:
    # First those of the class: a tool may have hidden itself by what it has just done.
    for tool in (*type(handler)._instruct_toolbox.tools, *handler.ai_tools()):
        if tool.identifier == context.name:
            return tool(handler, context)
    raise InstructError(f"{type(handler).__name__} no longer has the tool {context.name[:80]!r}.")
