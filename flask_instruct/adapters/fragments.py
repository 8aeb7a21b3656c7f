"""Tool calls that arrive in fragments: which fragment belongs to which call, and an id for each that is unique."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field

from ..events import ToolCallDelta
from ..messages import JsonObject
from ..messages import ToolCall
from .base import clean
from .base import clean_data
from .base import id_for_call
from .base import parse_object

LONGEST_ID = 64
"""An id longer than this carries more than itself: LiteLLM hangs Gemini's signature on it (openai-agents)."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one delta says about one call; an empty ``id`` or ``name`` and an index ``None`` mean not said."""

    id: str = ""
    index: int | None = None
    name: str = ""
    arguments: str = ""
    opaque: JsonObject | None = None


@dataclass(slots=True)
class _Call:
    id: str
    provider_id: str
    index: int | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    unseen: str = ""
    opaque: JsonObject = field(default_factory=dict)

    @property
    def raw(self) -> str:
        return "".join(self.arguments)


class GrowingCalls:
    """The calls of one turn while they stream in.

    A fragment belongs to the call of its id, else of its index, else to the latest call. A repeated id or name is
    set, not appended; a late name waits for nothing but is shown only then.

    :param taken: ids used before in the conversation; servers that count from ``call_0`` in each turn repeat them.
    :param provider: marks the finished calls.
    """

    def __init__(self, taken: Iterable[str], provider: str = "") -> None:
        self._taken = set(taken)
        self._provider = provider
        self._calls: list[_Call] = []

    def add(self, fragment: Fragment) -> ToolCallDelta | None:
        """Take a fragment; return what to show of its call, or ``None`` while the name is not known."""
        call = self._find(fragment)
        if call is None or _begins_another(call, fragment):
            call = self._begin(fragment)
        call.name = fragment.name or call.name
        call.provider_id = fragment.id or call.provider_id
        call.index = call.index if fragment.index is None else fragment.index
        if fragment.opaque:
            call.opaque.update(fragment.opaque)
        if fragment.arguments:
            call.arguments.append(fragment.arguments)
        call.unseen += fragment.arguments
        if not call.name:
            return None
        piece, call.unseen = clean(call.unseen), ""
        return ToolCallDelta(call.id, call.name, piece)

    def finished(self) -> tuple[ToolCall, ...]:
        """Return the calls in the order they began. A call whose id is ours keeps the server's as ``provider_id``."""
        said = (call for call in self._calls if call.name or call.arguments or call.provider_id)
        return tuple(_finished(call, self._provider) for call in said)

    def _find(self, fragment: Fragment) -> _Call | None:
        latest = self._calls[-1] if self._calls else None
        if latest is not None and not fragment.id and fragment.index in (None, latest.index):
            return latest
        latest_first = self._calls[::-1]
        if fragment.id:
            known = (call for call in latest_first if call.provider_id == fragment.id)
            unnamed = (call for call in latest_first if not call.provider_id and call.index == fragment.index)
            return next(known, None) or (next(unnamed, None) if fragment.index is not None else None)
        if fragment.index is not None:
            return next((call for call in latest_first if call.index == fragment.index), None)
        return latest

    def _begin(self, fragment: Fragment) -> _Call:
        kept = fragment.id if len(fragment.id) <= LONGEST_ID else ""
        call = _Call(id_for_call(kept, self._taken), fragment.id, fragment.index)
        self._calls.append(call)
        return call


def _begins_another(call: _Call, fragment: Fragment) -> bool:
    """Tell two calls apart that a server gave one id or one index (or neither): the first must be complete."""
    if not fragment.name or not call.name:
        return False
    if fragment.id and (fragment.index is None or call.index is None or fragment.index == call.index):
        return False
    if parse_object(call.raw) is None:
        return False
    return fragment.name != call.name or (bool(call.arguments) and bool(fragment.arguments.strip()))


def _finished(call: _Call, provider: str) -> ToolCall:
    opaque = dict(call.opaque)
    if call.provider_id != call.id:
        opaque["provider_id"] = call.provider_id
    return ToolCall(call.id, clean(call.name), clean(call.raw) or "{}", clean_data(opaque) or None, provider)
