"""A prompt: messages and generations in order, as one immutable value that can be composed, stored and run.

It runs without handler, job, database or Redis. The message parts live in ``messages`` and are re-exported here.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import get_args

from .errors import DeclarationError
from .messages import JsonObject
from .messages import Message
from .messages import ModelRequest
from .messages import Part
from .messages import Reasoning
from .messages import Role
from .messages import Text
from .messages import ToolCall
from .messages import ToolChoice
from .messages import ToolResult
from .messages import ToolSpec

if TYPE_CHECKING:
    from jinja2 import Environment

    from .adapters.base import Adapter
    from .events import Event
    from .events import Finish
    from .tools import Tool

__all__ = [
    "Gen",
    "JsonObject",
    "Message",
    "ModelRequest",
    "Part",
    "Prompt",
    "Reasoning",
    "Reply",
    "Role",
    "Text",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolSpec",
    "gen",
]

DEFAULT_MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Gen:
    """A place in a prompt where the model answers; make one with :func:`gen`."""

    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_rounds: int = DEFAULT_MAX_ROUNDS
    capture: str | None = None
    options: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the generation as plain JSON data."""
        return {
            "model": self.model,
            "tools": [tool.to_json() for tool in self.tools],
            "tool_choice": self.tool_choice,
            "max_rounds": self.max_rounds,
            "capture": self.capture,
            "options": self.options,
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
            **data.get("options", {}),
        )


def gen(
    model: str | None = None,
    tools: Iterable[type[Tool] | ToolSpec | Mapping[str, Any]] = (),
    tool_choice: ToolChoice = "auto",
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    capture: str | None = None,
    **options: Any,
) -> Gen:
    """Ask for an answer of the model at this place of a prompt.

    :param model: ``provider:model``; unset: the configured default.
    :param tools: tool classes, :class:`ToolSpec` values, or ``{"type": "function", "function": {…}}`` objects.
    :param max_rounds: tool rounds before the model must answer without tools.
    :param capture: key under which :class:`Reply` keeps the answer's text.
    :param options: ``max_tokens``, ``temperature``, ``top_p``, ``stop`` (list of str) and provider extras.
    :raises DeclarationError: for two tools of one name.
    :raises ValueError: for a tool choice or a tool that cannot be read.
    """
    if tool_choice not in get_args(ToolChoice):
        raise ValueError(f"tool_choice must be one of {', '.join(get_args(ToolChoice))}, got {tool_choice!r}.")
    if max_rounds < 0:
        raise ValueError(f"max_rounds must not be negative, got {max_rounds}.")
    specs = tuple(_tool_spec(tool) for tool in tools)
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DeclarationError(f"Two tools of one generation are named {twice!r}; a model tells tools by their name.")
    return Gen(model, specs, tool_choice, max_rounds, capture, options)


def _tool_spec(tool: type[Tool] | ToolSpec | Mapping[str, Any]) -> ToolSpec:
    if isinstance(tool, ToolSpec):
        return tool
    if isinstance(tool, Mapping):
        return ToolSpec.from_json(tool)
    return tool.spec()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a finished prompt came to: every message, the captured texts, and why the model stopped."""

    messages: tuple[Message, ...]
    captures: Mapping[str, str]
    finish: Finish | None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.finish.message.text if self.finish else ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages and generations in order; every method returns a new prompt."""

    steps: tuple[Message | Gen, ...] = ()

    def system(self, text: str) -> Prompt:
        """Add an instruction of the application."""
        return self + Message("system", (Text(text),))

    def user(self, text: str) -> Prompt:
        """Add what the person says."""
        return self + Message("user", (Text(text),))

    def assistant(self, text: str) -> Prompt:
        """Add an answer that the model is told it gave."""
        return self + Message("assistant", (Text(text),))

    def messages(self, messages: Iterable[Message]) -> Prompt:
        """Add a conversation as it was."""
        return Prompt(self.steps + tuple(messages))

    def gen(
        self,
        model: str | None = None,
        tools: Iterable[type[Tool] | ToolSpec | Mapping[str, Any]] = (),
        tool_choice: ToolChoice = "auto",
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        capture: str | None = None,
        **options: Any,
    ) -> Prompt:
        """Add a place where the model answers; the parameters are those of :func:`gen`."""
        return self + gen(model, tools, tool_choice, max_rounds, capture, **options)

    def capture(self, key: str) -> Prompt:
        """Keep the text of the last generation so far under ``key``.

        :raises ValueError: when there is no generation to capture.
        """
        for place in range(len(self.steps) - 1, -1, -1):
            step = self.steps[place]
            if isinstance(step, Gen):
                return Prompt((*self.steps[:place], replace(step, capture=key), *self.steps[place + 1 :]))
        raise ValueError(f"Nothing to capture as {key!r}: add a gen() first.")

    def __add__(self, other: Prompt | Gen | Message) -> Prompt:
        if isinstance(other, Prompt):
            return Prompt(self.steps + other.steps)
        if isinstance(other, Gen | Message):
            return Prompt((*self.steps, other))
        return NotImplemented

    @classmethod
    def from_template(cls, template: str, /, *, environment: Environment | None = None, **values: Any) -> Prompt:
        """Render a Jinja template whose ``{% system %}``, ``{% user %}`` and ``{% assistant %}`` blocks are messages.

        The blocks are found when the template is compiled, so no value can end one or open another.

        :param template: name of the template, found as the app's own templates are.
        :param environment: where to look instead; needed without a Flask app.
        :raises DeclarationError: for text outside the blocks, and for blocks inside blocks.
        """
        from .prompt_template import render

        return cls(tuple(Message(role, (Text(text),)) for role, text in render(template, environment, values)))

    def to_json(self) -> JsonObject:
        """Return the prompt as plain JSON data."""
        steps = [{"gen": step.to_json()} if isinstance(step, Gen) else step.to_json() for step in self.steps]
        return {"steps": steps}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prompt:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: when the data is not of that form.
        """
        steps = data.get("steps")
        if not isinstance(steps, list):
            raise ValueError(f"A prompt's steps must be a list, got {type(steps).__name__}.")
        return cls(tuple(Gen.from_json(step["gen"]) if "gen" in step else Message.from_json(step) for step in steps))

    def stream(self, *, adapter: Adapter | None = None) -> Generator[Event, None, None]:
        """Run the prompt and give off its events as they happen.

        A :class:`~flask_instruct.events.ToolCallRequest` must be answered before the next event is taken; an
        unanswered one is answered with an error.

        :raises ValueError: when the prompt has no ``gen``.
        :raises ProviderError: when a model call fails.
        :raises ConfigurationError: when the model's provider is not set up.
        """
        return _run(self.steps, [], {}, adapter)

    def call(self, on_event: Callable[[Event], object] | None = None, *, adapter: Adapter | None = None) -> Reply:
        """Run the prompt to its end and return what it came to; raises as :meth:`stream` does.

        :param on_event: called with each event; must answer each ``ToolCallRequest``.
        """
        from .events import Finish

        messages: list[Message] = []
        captures: dict[str, str] = {}
        finish: Finish | None = None
        for event in _run(self.steps, messages, captures, adapter):
            if isinstance(event, Finish):
                finish = event
            if on_event is not None:
                on_event(event)
        return Reply(tuple(messages), captures, finish)


def _run(
    steps: tuple[Message | Gen, ...], messages: list[Message], captures: dict[str, str], adapter: Adapter | None
) -> Generator[Event, None, None]:
    if not any(isinstance(step, Gen) for step in steps):
        raise ValueError("This prompt has no place for an answer: add one, as in Prompt().user(…) + gen(…).")
    return _converse_all(steps, messages, captures, adapter)


def _converse_all(
    steps: tuple[Message | Gen, ...], messages: list[Message], captures: dict[str, str], adapter: Adapter | None
) -> Generator[Event, None, None]:
    from .events import Finish
    from .orchestrator import converse

    for step in steps:
        if isinstance(step, Message):
            messages.append(step)
            continue
        for event in converse(messages, step, adapter=adapter):
            if isinstance(event, Finish) and step.capture is not None:
                captures[step.capture] = event.message.text
            yield event
