"""The seam between the loop and a model: one method that gives off the events of one model call.

Beside it stands what every protocol needs alike: a provider's settings, and rules for names, ids, texts and results.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Protocol

from ..arguments import InvalidArguments
from ..arguments import parse_arguments
from ..events import Event
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
from ..messages import ToolResult
from .profiles import STANDARD
from .profiles import NativeOutput
from .profiles import Quirks

EMPTY_RESULT = "(no output)"
"""Sent for a result without text: providers refuse or misread an empty one."""

DEFAULT_TIMEOUT = 120.0
DEFAULT_LONGEST = 900.0


class Adapter(Protocol):
    """One model call of one protocol.

    ``stream`` gives off ``TextDelta``, ``ReasoningDelta``, ``ToolCallDelta`` (each a piece) and ``UsageReported``
    (a later one replaces an earlier one), then exactly one ``Finish`` whose message is the whole turn; or it raises
    ``ProviderError``. Before it sends a refused request once more in another form it gives off ``RetryScheduled``,
    whose number the loop sets. Closing the generator closes the HTTP response.
    """

    @property
    def name(self) -> str:
        """The protocol's name."""
        ...

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        """Make the call and give off its events."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where a provider is and how it is spoken to.

    :param name: marks the provider's own message parts, which are replayed to the same name only.
    :param base_url: unset: the SDK's own address.
    :param timeout: seconds the provider may stay silent, and ``longest`` those that one answer may take in all.
    :param headers: sent with each request, as pairs.
    :param quirks: what this server does otherwise than its protocol says.
    :param client: a ready client of the SDK, or a function without arguments that gives one; used in place of a
        client made from the other settings.
    """

    name: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    longest: float = DEFAULT_LONGEST
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    quirks: Quirks = STANDARD
    client: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Model:
    """One model that can be called: what it is spoken to with, and what is known of it.

    :param name: as the provider knows it; ``label`` is ``provider:name``, as people write it.
    :param window: tokens that it takes, where that is known.
    :param native_output: whether the provider itself holds an answer to a JSON Schema.
    """

    adapter: Adapter
    name: str
    label: str
    provider: str = ""
    base_url: str | None = None
    window: int | None = None
    native_output: NativeOutput = "never"


def new_call_id() -> str:
    """Return an id for a tool call, of letters, digits and ``_`` as every provider accepts it."""
    return f"call_{uuid.uuid4().hex[:24]}"


def id_for_call(given: str, taken: set[str]) -> str:
    """Return the id that a server gave a call where it can be kept and is new, else one of ours; it is taken then."""
    call_id = given if given and given not in taken and clean(given) == given else new_call_id()
    taken.add(call_id)
    return call_id


def call_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids of all tool calls of a conversation."""
    return {call.id for message in messages for call in message.calls}


def parse_object(raw: str) -> JsonObject | None:
    """Return the clean JSON object that an argument text is, ``{}`` for blank, ``None`` when it is no usable one."""
    try:
        return parse_arguments(raw, limit=sys.maxsize)
    except InvalidArguments:
        return None


def replayed_arguments(raw: str) -> JsonObject:
    """Return arguments as an object for a history: providers that check refuse anything else (pydantic-ai#4431)."""
    value = parse_object(raw)
    return {"invalid_arguments": clean(raw)} if value is None else value


def replayed_argument_text(raw: str) -> str:
    """Return arguments as the text of a JSON object: word for word when they are one, else as replayed otherwise."""
    try:
        value = _STRICT.decode(raw)
    except (ValueError, RecursionError):
        value = None
    return raw if isinstance(value, dict) else json.dumps(replayed_arguments(raw), ensure_ascii=False)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: ``json.loads`` makes one for each call that has an option."""


def replayed_id(call_id: str, longest: int = 64) -> str:
    """Return a call id of at most so many letters, digits, ``_`` and ``-``, equal for equal ids."""
    if len(call_id) <= longest and re.fullmatch(r"[a-zA-Z0-9_-]+", call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def result_text(result: ToolResult) -> str:
    """Return the text of a result, never empty."""
    return clean(result.content) if result.content.strip() else EMPTY_RESULT


def system_text(messages: Sequence[Message]) -> str:
    """Return the instructions of all system messages, joined by a blank line."""
    texts = (clean(message.text) for message in messages if message.role == "system")
    return "\n\n".join(text for text in texts if text.strip())


def clean(text: str) -> str:
    """Return text that every database and provider takes: without NUL, and with lone surrogates replaced."""
    text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_data(value: Any) -> Any:
    """Return JSON data whose texts and names are all clean: what goes back verbatim must be possible to send."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean_data(item) for key, item in value.items()}
    return [clean_data(item) for item in value] if isinstance(value, list) else value


class TextPieces:
    """A streamed text: cleans each piece, and joins a surrogate pair that a server split over two pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""

    def add(self, piece: str) -> str:
        """Take a piece and return what of it can be shown now."""
        if not self._held and piece.isascii() and "\x00" not in piece:
            self._pieces.append(piece)
            return piece
        piece, self._held = self._held + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._held = piece[:-1], piece[-1]
        piece = clean(piece)
        self._pieces.append(piece)
        return piece

    def whole(self) -> str:
        """Return the text so far."""
        return "".join(self._pieces) + clean(self._held)
