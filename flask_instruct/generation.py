"""A place in a prompt where the model answers: which models, which tools, what shape, and within which limits."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import get_args

from .errors import DeclarationError
from .limits import NO_LIMITS
from .limits import Limits
from .messages import Effort
from .messages import JsonObject
from .messages import ToolChoice
from .messages import ToolSpec
from .outputs import Output
from .outputs import output_of

if TYPE_CHECKING:
    from .tools import Tool

DEFAULT_MAX_ROUNDS = 8
DEFAULT_MAX_TOOL_RETRIES = 3
DEFAULT_OUTPUT_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Gen:
    """A place in a prompt where the model answers; make one with :func:`gen`."""

    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_rounds: int = DEFAULT_MAX_ROUNDS
    capture: str | None = None
    options: JsonObject = field(default_factory=dict)
    effort: Effort | None = None
    output: Output | None = None
    max_tool_retries: int = DEFAULT_MAX_TOOL_RETRIES
    output_retries: int = DEFAULT_OUTPUT_RETRIES
    limits: Limits = NO_LIMITS

    @property
    def rounds(self) -> int:
        """Tool rounds after which the model must answer without tools."""
        return self.max_rounds if self.limits.rounds is None else min(self.max_rounds, self.limits.rounds)

    @property
    def models(self) -> tuple[str, ...]:
        """The models in the order they are tried."""
        return models_of(self.model)

    def to_json(self) -> JsonObject:
        """Return the generation as plain JSON data. Of an output's type the schema stays."""
        return {
            "model": self.model,
            "tools": [tool.to_json() for tool in self.tools],
            "tool_choice": self.tool_choice,
            "max_rounds": self.max_rounds,
            "capture": self.capture,
            "options": self.options,
            "effort": self.effort,
            "output": self.output.to_json() if self.output else None,
            "max_tool_retries": self.max_tool_retries,
            "output_retries": self.output_retries,
            "limits": self.limits.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gen:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for a tool or a tool choice that is not of that form.
        """
        return gen(
            data.get("model"),
            tools=[ToolSpec.from_json(tool) for tool in data.get("tools", ())],
            tool_choice=data.get("tool_choice", "auto"),
            max_rounds=data.get("max_rounds", DEFAULT_MAX_ROUNDS),
            capture=data.get("capture"),
            effort=data.get("effort"),
            output=data.get("output"),
            max_tool_retries=data.get("max_tool_retries", DEFAULT_MAX_TOOL_RETRIES),
            output_retries=data.get("output_retries", DEFAULT_OUTPUT_RETRIES),
            limits=data.get("limits"),
            **data.get("options", {}),
        )


def gen(
    model: str | Iterable[str] | None = None,
    tools: Iterable[type[Tool] | ToolSpec | Mapping[str, Any]] = (),
    tool_choice: ToolChoice = "auto",
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    capture: str | None = None,
    *,
    effort: Effort | None = None,
    output: Any = None,
    max_tool_retries: int = DEFAULT_MAX_TOOL_RETRIES,
    output_retries: int = DEFAULT_OUTPUT_RETRIES,
    limits: Limits | Mapping[str, Any] | None = None,
    **options: Any,
) -> Gen:
    """Ask for an answer of the model at this place of a prompt.

    :param model: ``provider:model``, or several in the order they are tried; unset: the configured default.
    :param tools: tool classes, :class:`ToolSpec` values, or ``{"type": "function", "function": {…}}`` objects.
    :param max_rounds: tool rounds before the model must answer without tools.
    :param capture: key under which :class:`Reply` keeps the answer's text.
    :param effort: how much the model may reason: ``off``, ``low``, ``medium`` or ``high``; unset: its own default.
    :param output: the shape of the answer: a pydantic model, dataclass, TypedDict or JSON Schema of type object.
    :param max_tool_retries: how often in a row one tool may fail again before the model must answer without tools.
    :param output_retries: how often an answer of another shape is asked for again.
    :param limits: ``rounds``, ``tool_calls``, ``seconds`` and ``tokens`` of this generation, as ``Limits(…)`` or a
        mapping. Of ``rounds`` and ``max_rounds`` the smaller counts.
    :param options: ``max_tokens``, ``temperature``, ``top_p``, ``stop`` (list of str) and provider extras.
    :raises DeclarationError: for two tools of one name, and for an output that is no object.
    :raises ValueError: for a tool choice, an effort, a limit or a tool that cannot be read.
    """
    _require_one_of("tool_choice", tool_choice, get_args(ToolChoice))
    _require_one_of("effort", effort, (None, *get_args(Effort)))
    counts = {"max_rounds": max_rounds, "max_tool_retries": max_tool_retries, "output_retries": output_retries}
    for name, value in counts.items():
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}.")
    bounds = Limits.of(limits)
    if bounds.cost is not None:
        raise ValueError("A prompt has no ledger to add up its cost: limit its tokens, or the cost of a run.")
    return Gen(
        ", ".join(models_of(model)) or None,
        _specs(tools),
        tool_choice,
        max_rounds,
        capture,
        options,
        effort,
        output_of(output),
        max_tool_retries,
        output_retries,
        bounds,
    )


def models_of(model: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the models that are named, in the order they are tried; a text may list several with commas."""
    texts = (model,) if isinstance(model, str) else tuple(model or ())
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _require_one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(str(one) for one in known if one)}, got {value!r}.")


def _specs(tools: Iterable[type[Tool] | ToolSpec | Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    specs = tuple(_tool_spec(tool) for tool in tools)
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DeclarationError(f"Two tools of one generation are named {twice!r}; a model tells tools by their name.")
    return specs


def _tool_spec(tool: type[Tool] | ToolSpec | Mapping[str, Any]) -> ToolSpec:
    if isinstance(tool, ToolSpec):
        return tool
    if isinstance(tool, Mapping):
        return ToolSpec.from_json(tool)
    return tool.spec()
