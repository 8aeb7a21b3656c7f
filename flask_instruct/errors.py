"""Every error of the package that a caller can act on differently, and nothing else.

Each message says what happened, to what, and what to do about it.
"""

from __future__ import annotations

from typing import Literal

ProviderErrorKind = Literal[
    "authentication",
    "permission",
    "not_found",
    "bad_request",
    "context_window",
    "rate_limited",
    "overloaded",
    "server",
    "timeout",
    "connection",
    "cut",
    "malformed",
    "empty",
    "unsupported",
]
"""What went wrong with one model call. ``cut``: the stream ended without its terminal signal; ``empty``: it ended
well and said nothing; ``unsupported``: the model cannot read what it was given, such as a PDF."""

RETRYABLE: frozenset[str] = frozenset({"rate_limited", "overloaded", "server", "timeout", "connection", "cut", "empty"})


class InstructError(Exception):
    """Base of all errors raised on purpose by this package."""


class ConfigurationError(InstructError):
    """Raise when a setting, key or package is missing; the message names it and how to set it."""


class DeclarationError(InstructError, TypeError):
    """Raise at class definition when a tool or handler is declared wrongly; names the class and the tool."""


class ToolError(InstructError):
    """Raise from a tool to tell the model, word for word, why its call did not succeed.

    The tool's database edits are rolled back. Any other exception reaches the model as a general
    sentence without internals.
    """


class Uncertain(ToolError):
    """Raise from what runs after the commit when nobody can tell whether it has happened, and say why in a few words.

    A server that hangs up in the middle of taking a mail may have it. The effect is then ``unknown``, for a person to
    decide about, and not ``failed``.
    """


class ToolTimeout(BaseException):
    """Raised inside a tool that passed its timeout.

    Not an :class:`Exception`: a tool's own broad ``except Exception`` must not swallow it.
    """


class Stopped(BaseException):
    """Raised to end a talk because a person has stopped it.

    Not an :class:`Exception`: neither a tool nor the loop may take it for an error of the model or the app.
    """


class AlreadyAnswered(InstructError):
    """Raise when a tool call request is answered a second time."""


class HandlerError(InstructError):
    """Raise when a handler cannot be named, found or built."""


class RecordGone(HandlerError):
    """Raise when the record that a handler was made for no longer exists."""


class ConversationBusy(InstructError):
    """Raise when a conversation has a run at work and the next one does not want to wait."""


class RunEnded(InstructError):
    """Raise when something is asked of a run that its status does not allow."""


class AlreadyDecided(InstructError):
    """Raise when a person decides about what was decided before, has expired or is no longer asked.

    :param status: how it stands: ``approved``, ``rejected``, ``expired`` or ``withdrawn``.
    :param decided_by: who was faster, where somebody was.
    """

    def __init__(self, status: str, decided_by: str | None = None) -> None:
        by = f" by {decided_by}" if decided_by is not None else ""
        super().__init__(f"This is no longer asked: it was {status}{by}.")
        self.status = status
        self.decided_by = decided_by


class NotAllowed(InstructError):
    """Raise when a person may not decide what they want to decide."""


class OutputError(InstructError):
    """Raise when a model's answer does not have the shape that was asked for, after it was asked again.

    :param problems: what is wrong with the last answer, one fault each.
    :param text: that answer.
    """

    def __init__(self, problems: tuple[str, ...], text: str) -> None:
        super().__init__(f"The answer does not have the wanted shape: {'; '.join(problems)}.")
        self.problems = problems
        self.text = text


class ProviderError(InstructError):
    """Raise when a model call failed, with what to tell a person and what to tell a developer.

    :param kind: what went wrong, one of :data:`ProviderErrorKind`.
    :param technical: the provider's own text, for developers.
    :param safe: plain words for the person who asked, without internals.
    :param status: the HTTP status, when there was one.
    :param retry_after: seconds the provider asked to wait, when it did.
    :param body: the provider's error as parsed, for adapters that know more about it.
    :param again: whether the provider itself says that a second try may help; unset: told by the kind.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        technical: str,
        *,
        safe: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        body: object = None,
        again: bool | None = None,
    ) -> None:
        super().__init__(technical)
        self.kind: ProviderErrorKind = kind
        self.technical = technical
        self.safe = safe or SAFE_TEXTS[kind]
        self.status = status
        self.retry_after = retry_after
        self.body = body
        self.again = again

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE if self.again is None else self.again


SAFE_TEXTS: dict[str, str] = {
    "authentication": "The AI service did not accept this site's key.",
    "permission": "The AI service does not allow this site to use that model.",
    "not_found": "The AI service does not know the chosen model.",
    "bad_request": "The AI service could not read this request.",
    "context_window": "This conversation has become too long for the model.",
    "rate_limited": "The AI service is receiving too many requests.",
    "overloaded": "The AI service is overloaded.",
    "server": "The AI service had an internal error.",
    "timeout": "The AI service did not answer in time.",
    "connection": "The AI service could not be reached.",
    "cut": "The answer was cut off by the AI service.",
    "malformed": "The AI service sent something that could not be understood.",
    "empty": "The AI service sent an empty answer.",
    "unsupported": "The chosen model cannot read what was attached.",
}
