"""What a tool was called with and what the model was told, cut for a card of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..runs.models import ToolCall
from ..runs.previews import NOTE
from .language import is_english
from .language import ngettext

SHOWN_CHARS = 4000
"""Characters of one argument or result that a card shows."""
HINT_CHARS = 72
REASON_CHARS = 300


def arguments_of(call: ToolCall) -> list[tuple[str, str]]:
    """Return a call's arguments as :func:`arguments`."""
    return arguments(call.arguments)


def arguments(text: str) -> list[tuple[str, str]]:
    """Return arguments as names and shortened texts; the raw text without a name when they are no object."""
    parsed = _parsed(text)
    if isinstance(parsed, dict):
        return [(str(name), shortened(_told(value))) for name, value in parsed.items()]
    return [("", shortened(text))] if text.strip() else []


def hint(call: ToolCall) -> str:
    """Return the first telling argument on one line, for the card's head."""
    parsed = _parsed(call.arguments)
    if not isinstance(parsed, dict):
        return ""
    texts: Sequence[str] = [value for value in parsed.values() if isinstance(value, str) and value.strip()]
    line = " ".join(texts[0].replace("**", "").lstrip("# ").split()) if texts else ""
    return line if len(line) <= HINT_CHARS else line[: HINT_CHARS - 1].rstrip() + "…"


def reason(call: ToolCall) -> str:
    """Return the beginning of what the model was told about a failure, unless the words for that are English only."""
    text = call.result or ""
    if is_quoted(call):
        return ""
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 1].rstrip() + "…"


def told_in_full(call: ToolCall) -> bool:
    """Tell whether the card's head already says all that the model was told."""
    return call.status == "failed" and len(call.result or "") <= REASON_CHARS and not is_quoted(call)


def shortened(text: str) -> str:
    """Cut a text at what a card shows, and say how much is left out."""
    if len(text) <= SHOWN_CHARS:
        return text
    left = len(text) - SHOWN_CHARS
    return text[:SHOWN_CHARS] + ngettext("… (%(num)s character more)", "… (%(num)s characters more)", left)


def is_quoted(call: ToolCall) -> bool:
    """Tell whether what the model was told are the package's own words, which are English, and the reader's are not."""
    own = call.name in ("undo", "redo") or call.error_kind not in (None, "tool_error")
    return own and not is_english()


def is_annotated(call: ToolCall) -> bool:
    """Tell whether a note of the package's is in what the model was told, in English, and the reader's is not."""
    return NOTE in (call.result or "") and not is_english()


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return None


def _told(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return repr(type(value).__name__)
