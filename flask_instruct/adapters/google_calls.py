"""Gemini's tool calls as they arrive: mostly whole in one part, on Vertex also argument by argument, path by path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from ..errors import ProviderError
from .base import clean
from .base import id_for_call
from .names import ToolNames
from .wire_values import as_objects
from .wire_values import as_text

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


@dataclass(slots=True)
class ArrivingCall:
    """One call; ``closed`` once the server said that nothing more of it follows."""

    id: str
    provider_id: str
    name: str
    arguments: Any
    closed: bool
    signature: str = ""
    _growing: set[str] = field(default_factory=set)

    @property
    def raw(self) -> str:
        return clean(json.dumps(self.arguments, ensure_ascii=False))

    def grow(self, said: Mapping[str, Any]) -> None:
        """Take a piece: values with the path where each belongs, and whether more follows."""
        for piece in as_objects(said.get("partialArgs")):
            path = as_text(piece.get("jsonPath"))
            self._set(path, list(_steps(path)), piece)
            (self._growing.add if piece.get("willContinue") else self._growing.discard)(path)
        self.closed = not said.get("willContinue")

    def _set(self, path: str, steps: list[str | int], piece: Mapping[str, Any]) -> None:
        value = _value(piece)
        place, key = self._place(path, steps)
        if path in self._growing and isinstance(value, str) and isinstance(place[key], str):
            value = place[key] + value
        place[key] = value

    def _place(self, path: str, steps: list[str | int]) -> tuple[Any, str | int]:
        """Return the object or list that holds the last step of a path; what is missing on the way is made."""
        holder: Any = self.arguments
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            _make_room(holder, step, path)
            if following is None:
                return holder, step
            if holder[step] is None:
                holder[step] = [] if isinstance(following, int) else {}
            holder = holder[step]
        raise _misplaced(path)


def _make_room(holder: Any, step: str | int, path: str) -> None:
    if isinstance(step, str) and isinstance(holder, dict):
        holder.setdefault(step, None)
    elif isinstance(step, int) and isinstance(holder, list) and step <= len(holder):
        holder.extend([None] * (step + 1 - len(holder)))
    else:
        raise _misplaced(path)


def _misplaced(path: str) -> ProviderError:
    return ProviderError("malformed", f"Arguments came for a place that cannot be: {path!r}.")


class ArrivingCalls:
    """The calls of one turn.

    :param taken: ids used before in the conversation; servers may repeat theirs, or send none.
    :param names: the way back from the names that were sent.
    """

    def __init__(self, taken: Iterable[str], names: ToolNames) -> None:
        self._taken = set(taken)
        self._names = names
        self._calls: list[ArrivingCall] = []

    @property
    def any(self) -> bool:
        return bool(self._calls)

    @property
    def unfinished(self) -> bool:
        return any(not call.closed for call in self._calls)

    def add(self, said: Mapping[str, Any]) -> tuple[ArrivingCall | None, bool]:
        """Take a ``functionCall``; return the call it belongs to, and whether it began it. A name begins a call."""
        provider_id, name = as_text(said.get("id")), clean(as_text(said.get("name")))
        open_calls = [call for call in reversed(self._calls) if not call.closed]
        if not name and open_calls:
            call = next((call for call in open_calls if provider_id and call.provider_id == provider_id), open_calls[0])
            call.grow(said)
            return call, False
        if not name and not said.get("args"):
            return None, False
        call = self._begin(provider_id, name, said.get("args"))
        call.grow(said)
        return call, True

    def _begin(self, provider_id: str, name: str, arguments: Any) -> ArrivingCall:
        call_id = id_for_call(provider_id, self._taken)
        call = ArrivingCall(call_id, provider_id, self._names.ours(name), arguments or {}, False)
        self._calls.append(call)
        return call


def _steps(path: str) -> Iterator[str | int]:
    """Read a path such as ``$.rooms[0]['long name']``."""
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            break
        name, index, single, double = match.groups()
        quoted = single if single is not None else double
        yield int(index) if index is not None else name if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    if at < len(path) or at < 2:
        raise ProviderError("malformed", f"Arguments came for a path that cannot be read: {path!r}.")


def _value(piece: Mapping[str, Any]) -> Any:
    kind = next((kind for kind in _VALUES if kind in piece), "nullValue")
    if kind == "nullValue":
        return None
    value = piece[kind]
    # The wire knows only doubles, and a tool that wants a whole number is not to see 3.0.
    return int(value) if isinstance(value, float) and value.is_integer() else value
