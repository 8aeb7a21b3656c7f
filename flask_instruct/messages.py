"""What is said to a model, as neutral values: messages made of parts, tool specifications and one model call.

Nothing here knows a provider, a job or a database; adapters turn these values into their wire's form. The JSON form
is stable: it is what the ledger stores.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from typing import cast
from typing import get_args

from .attachments import Document
from .attachments import Image

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none", "required"]
Effort = Literal["off", "low", "medium", "high"]
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of plain text.

    :param opaque: data of the ``provider`` that must return with this text (a signature, an item's phase).
    """

    text: str
    provider: str = ""
    opaque: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's reasoning; ``opaque`` is the provider's own part, replayed to that ``provider`` unchanged."""

    text: str
    provider: str = ""
    opaque: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A finished request of the model to call a tool.

    :param id: unique within a conversation; the provider's id where it sent a usable one, else made here.
    :param raw: the argument text exactly as received; may be no JSON at all.
    :param opaque: data of the ``provider`` that must return with this call (signatures), keyed as the adapter likes.
    :param refusal: why the provider itself rejected the call; it is answered with this text and never run.
    """

    id: str
    name: str
    raw: str = "{}"
    opaque: JsonObject | None = None
    provider: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one tool call; ``content`` is never sent empty."""

    call_id: str
    name: str
    content: str
    error: bool = False


Part = Text | Image | Document | Reasoning | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: a role and its parts in order. Tool results of one assistant turn share one ``tool`` message."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The concatenated text parts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    def to_json(self) -> JsonObject:
        """Return ``{"role": …, "parts": [{"type": …, …}, …]}``; provider data is in it word for word."""
        return {"role": self.role, "parts": [_part_to_json(part) for part in self.parts]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: when the data is not of that form; names the place.
        """
        role, parts = data.get("role"), data.get("parts")
        if role not in get_args(Role):
            raise ValueError(f"A message's role must be one of {', '.join(get_args(Role))}, got {role!r}.")
        if not isinstance(parts, list):
            raise ValueError(f"A message's parts must be a list, got {type(parts).__name__}.")
        return cls(cast(Role, role), tuple(_part_from_json(part) for part in parts))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about one tool; ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: JsonObject

    def to_json(self) -> JsonObject:
        """Return the tool as ``{"type": "function", "function": {"name", "description", "parameters"}}``."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolSpec:
        """Read what :meth:`to_json` wrote, also when a person wrote it.

        :raises ValueError: when the name is missing or the parameters are no object schema.
        """
        function = data.get("function")
        if data.get("type") != "function" or not isinstance(function, Mapping):
            raise ValueError('A tool must be of the form {"type": "function", "function": {"name": …}}.')
        name, parameters = function.get("name"), function.get("parameters", {"type": "object", "properties": {}})
        if not isinstance(name, str) or not name:
            raise ValueError("A tool needs a name.")
        if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
            raise ValueError(f"The parameters of tool {name!r} must be a JSON Schema of type object.")
        return cls(name, str(function.get("description") or ""), dict(parameters))


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The shape that an answer must have; ``schema`` is a JSON Schema of type object."""

    name: str
    schema: JsonObject
    description: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, in neutral form: the only thing an adapter gets.

    :param model: the bare model name, without the provider prefix.
    :param tool_choice: ``none`` keeps the tools in the request but forbids their use.
    :param options: ``max_tokens``, ``temperature``, ``top_p``, ``stop`` and provider extras.
    :param effort: how much the model may reason; unset: as the provider likes.
    :param output: the shape that the provider itself must hold the answer to.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    options: JsonObject = field(default_factory=dict)
    effort: Effort | None = None
    output: OutputSpec | None = None


_OPAQUE = (dict, type(None))
_PART_FORMS: dict[str, tuple[Callable[..., Part], dict[str, type | tuple[type, ...]]]] = {
    "text": (Text, {"text": str}),
    "reasoning": (Reasoning, {"text": str, "provider": str, "opaque": _OPAQUE}),
    "tool_call": (ToolCall, {"id": str, "name": str, "raw": str, "opaque": _OPAQUE}),
    "tool_result": (ToolResult, {"call_id": str, "name": str, "content": str, "error": bool}),
}
_RARE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"provider": str, "opaque": _OPAQUE},
    "tool_call": {"provider": str, "refusal": str},
}
"""What is written only where it says something."""
_PART_KINDS: dict[type, str] = {Text: "text", Reasoning: "reasoning", ToolCall: "tool_call", ToolResult: "tool_result"}
_ATTACHMENTS: dict[str, type[Image] | type[Document]] = {"image": Image, "document": Document}


def _part_to_json(part: Part) -> JsonObject:
    if isinstance(part, Image | Document):
        return {"type": part.kind, **part.to_json()}
    kind = _PART_KINDS[type(part)]
    said = {name: getattr(part, name) for name in _PART_FORMS[kind][1]}
    rare = {name: value for name in _RARE.get(kind, ()) if (value := getattr(part, name))}
    return {"type": kind, **said, **rare}


def _part_from_json(data: Any) -> Part:
    kind = data.get("type") if isinstance(data, Mapping) else None
    if isinstance(kind, str) and kind in _ATTACHMENTS:
        return _ATTACHMENTS[kind].from_json(data)
    if not isinstance(kind, str) or kind not in _PART_FORMS:
        known = ", ".join([*_PART_FORMS, *_ATTACHMENTS])
        raise ValueError(f"A message part must be one of {known}, got {repr(kind)[:80]}.")
    make, needed = _PART_FORMS[kind]
    form = {**needed, **_RARE.get(kind, {})}
    values = {name: data[name] for name in form if name in data}
    for name, value in values.items():
        if not isinstance(value, form[name]):
            raise ValueError(f"{name!r} of a {kind} part may not be {type(value).__name__}.")
    try:
        return make(**values)
    except TypeError:
        raise ValueError(f"A {kind} part needs {', '.join(needed)}, got {', '.join(values) or 'nothing'}.") from None
