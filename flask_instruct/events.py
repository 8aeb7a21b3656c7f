"""The closed set of events that a model call, a prompt or a run can give off, as frozen values.

A stream that stops without :class:`Finish` did not succeed: the adapter raises instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal

from .errors import AlreadyAnswered
from .prompt import Message
from .prompt import ToolCall
from .prompt import ToolResult

FinishReason = Literal[
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "refusal",
    "context_window",
    "pause",
    "malformed",
    "error",
    "other",
]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; ``input_tokens`` includes cached ones, ``output_tokens`` includes reasoning."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RunStarted:
    model: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A model call is about to leave; ``number`` counts rounds and ``attempt`` the tries of one, both from 1."""

    number: int
    model: str
    provider: str = ""
    attempt: int = 1
    base_url: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A growing call, for display only: never run a tool from it."""

    call_id: str
    name: str
    arguments: str


@dataclass(slots=True)
class _Answer:
    result: ToolResult | None = None
    deferred: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """A finished tool call that must be answered exactly once, with ``respond`` or ``respond_error``.

    One that has to wait for a person is put off with ``defer``: the talk ends after the turn's other calls.
    """

    call: ToolCall
    _answer: _Answer = field(default_factory=_Answer, repr=False, compare=False)

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def tool_name(self) -> str:
        return self.call.name

    @property
    def responded(self) -> bool:
        return self._answer.result is not None

    @property
    def result(self) -> ToolResult | None:
        return self._answer.result

    @property
    def deferred(self) -> str | None:
        """Why it waits for a person, which may be empty; None where it does not."""
        return self._answer.deferred

    def defer(self, reason: str = "") -> None:
        """Leave the call open until a person has decided.

        Its turn's other calls are answered, then the talk ends without another model call. It goes on where
        :func:`~flask_instruct.talk.converse` is given its messages again.

        :raises AlreadyAnswered: after an answer.
        """
        self._refuse_second()
        self._answer.deferred = reason

    def respond(self, result: object) -> None:
        """Answer with a result: text as it is, anything else as JSON.

        :raises AlreadyAnswered: on a second answer.
        :raises ToolError: when the value cannot be told to a model; names its type.
        """
        from .tools import render_result

        self._settle(render_result(result), error=False)

    def respond_error(self, message: str) -> None:
        """Answer with a sentence that tells the model what went wrong.

        :raises AlreadyAnswered: on a second answer.
        """
        self._settle(str(message), error=True)

    def _settle(self, content: str, *, error: bool) -> None:
        self._refuse_second()
        self._answer.result = ToolResult(self.id, self.tool_name, content, error)

    def _refuse_second(self) -> None:
        if self._answer.result is not None or self._answer.deferred is not None:
            raise AlreadyAnswered(
                f"Tool call {self.id!r} of {self.tool_name!r} was answered before; a call takes one answer."
            )


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    call_id: str
    name: str
    content: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call was put off until a person has decided; ``reason`` says why, where there is one."""

    call_id: str
    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UsageReported:
    usage: Usage


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """A model call failed and everything of its answer is void; another follows.

    :param attempt: the try that follows, from 2.
    :param delay: seconds until then.
    :param reason: the kind of failure, as ``ProviderError.kind``, or ``configuration`` for a model that is not set up;
        ``technical`` is the provider's own text.
    """

    attempt: int
    delay: float
    reason: str
    technical: str = ""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit of the run was met; ``limit`` is its name (``rounds``), ``value`` its size."""

    limit: str
    value: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The model's turn is over: why, in our closed words and the provider's, and the whole turn.

    :param output: the value, where the turn is the answer that ``gen(output=…)`` asked for; ``answer`` is its text.
    """

    reason: FinishReason
    raw: str
    message: Message
    output: Any = None
    answer: str = ""


@dataclass(frozen=True, slots=True)
class RunFailed:
    error_class: str
    message: str


Event = (
    RunStarted
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | ToolCallRequest
    | ToolStarted
    | ToolFinished
    | ApprovalRequested
    | UsageReported
    | RetryScheduled
    | LimitReached
    | Finish
    | RunFailed
)
