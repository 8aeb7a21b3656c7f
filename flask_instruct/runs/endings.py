"""How each ending of a talk reads in the run's row: status, closed error class, plain words, technical text."""

from __future__ import annotations

from ..errors import ConfigurationError
from ..errors import HandlerError
from ..errors import ProviderError
from ..errors import RecordGone
from ..orchestrator import Ending
from .models import Status

FINISH_TEXTS: dict[str, str] = {
    "length": "The answer was cut off because it became too long.",
    "content_filter": "The AI service blocked this answer.",
    "refusal": "The model declined to answer.",
    "context_window": "This conversation has become too long for the model.",
    "pause": "The model did not come to an end.",
    "malformed": "The model sent a call that could not be understood.",
    "error": "The AI service reported an error.",
    "other": "The model stopped for an unknown reason.",
}
"""What a person reads when the model ended its turn in any other way than being done."""

HINTS: dict[str, str] = {
    "length": "the answer met its limit of tokens and no call of it was run; raise max_tokens",
    "context_window": "the conversation fills the model's context window",
    "malformed": "the provider could not read the model's own call",
}
"""What a developer can do about such an end."""

INTERNAL = "Something went wrong on this site."

Description = tuple[Status, str | None, str | None, str | None]


def describe(ending: Ending) -> Description:
    """Return status, error class, words for the person and text for the developer."""
    if ending.stopped:
        return "cancelled", None, None, None
    if ending.error is not None:
        return ("failed", *_error(ending.error))
    if ending.limit is not None:
        return "limited", None, None, None
    if ending.finish is not None and ending.finish.reason in FINISH_TEXTS:
        reason = ending.finish.reason
        hint = f": {HINTS[reason]}" if reason in HINTS else ""
        return "failed", reason, FINISH_TEXTS[reason], f"finish reason {ending.finish.raw!r}{hint}"
    return "succeeded", None, None, None


def _error(error: Exception) -> tuple[str, str, str]:
    technical = f"{type(error).__name__}: {error}"
    if isinstance(error, ProviderError):
        return f"provider_{error.kind}", error.safe, error.technical
    if isinstance(error, RecordGone):
        return "record_gone", "The record this was about no longer exists.", technical
    if isinstance(error, HandlerError):
        return "handler", "This site no longer knows how to do this.", technical
    if isinstance(error, ConfigurationError):
        return "configuration", "The AI is not set up on this site.", technical
    if type(error).__name__ == "RunTimeout":
        return "timeout", "This took too long and was ended.", technical
    return "internal", INTERNAL, technical
