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

from .attachments import Document
from .attachments import Image
from .attachments import attached
from .generation import DEFAULT_MAX_ROUNDS
from .generation import Gen
from .generation import gen
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
    "Document",
    "Gen",
    "Image",
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


@dataclass(frozen=True, slots=True)
class Reply:
    """What a finished prompt came to: every message, the captured texts, and why the model stopped.

    :param output: the value that the last ``gen(output=…)`` asked for; ``None`` where the model declined or was cut,
        see ``finish.reason``.
    """

    messages: tuple[Message, ...]
    captures: Mapping[str, str]
    finish: Finish | None
    output: Any = None

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

    def user(self, text: str, *attachments: Image | Document) -> Prompt:
        """Add what the person says, with images and documents that the model is to look at.

        :raises ValueError: for an attachment that is neither.
        """
        # Attachments first: models read a question about them better behind them.
        return self + Message("user", (*attached(attachments), Text(text)))

    def assistant(self, text: str) -> Prompt:
        """Add an answer that the model is told it gave."""
        return self + Message("assistant", (Text(text),))

    def messages(self, messages: Iterable[Message]) -> Prompt:
        """Add a conversation as it was."""
        return Prompt(self.steps + tuple(messages))

    def gen(
        self,
        model: str | Iterable[str] | None = None,
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

    def stream(self, *, adapter: Adapter | None = None, discard: bool = False) -> Generator[Event, None, None]:
        """Run the prompt and give off its events as they happen.

        A :class:`~flask_instruct.events.ToolCallRequest` must be answered before the next event is taken; an
        unanswered one is answered with an error.

        :param discard: the caller takes back what it showed of an answer when
            :class:`~flask_instruct.events.RetryScheduled` comes; without this a model call that failed after its
            first words is not tried again.
        :raises ValueError: when the prompt has no ``gen``.
        :raises ProviderError: when a model call fails for good.
        :raises OutputError: when an answer does not get the shape that was asked for.
        :raises ConfigurationError: when the model's provider is not set up.
        """
        return _run(self.steps, _Talk(adapter, discard))

    def call(self, on_event: Callable[[Event], object] | None = None, *, adapter: Adapter | None = None) -> Reply:
        """Run the prompt to its end and return what it came to; raises as :meth:`stream` does.

        :param on_event: called with each event; must answer each ``ToolCallRequest``.
        """
        # Without a listener nothing of an answer was shown before it is whole.
        talk = _Talk(adapter, discard=on_event is None)
        for event in _run(self.steps, talk):
            if on_event is not None:
                on_event(event)
        return Reply(tuple(talk.messages), talk.captures, talk.finish, talk.output)


@dataclass(slots=True)
class _Talk:
    """A prompt while it runs."""

    adapter: Adapter | None
    discard: bool
    messages: list[Message] = field(default_factory=list)
    captures: dict[str, str] = field(default_factory=dict)
    finish: Finish | None = None
    output: Any = None

    def finished(self, finish: Finish, step: Gen) -> None:
        self.finish, self.output = finish, finish.output
        if step.capture is not None:
            self.captures[step.capture] = finish.answer or finish.message.text


def _run(steps: tuple[Message | Gen, ...], talk: _Talk) -> Generator[Event, None, None]:
    if not any(isinstance(step, Gen) for step in steps):
        raise ValueError("This prompt has no place for an answer: add one, as in Prompt().user(…) + gen(…).")
    return _converse_all(steps, talk)


def _converse_all(steps: tuple[Message | Gen, ...], talk: _Talk) -> Generator[Event, None, None]:
    from .ambient import surroundings
    from .attempts import Patience
    from .events import Finish
    from .talk import converse

    found = surroundings()
    patience = Patience(found.config.retries, found.config.retry_wait, may_discard=lambda: talk.discard)
    for step in steps:
        if isinstance(step, Message):
            talk.messages.append(step)
            continue
        for event in converse(
            talk.messages,
            step,
            adapter=talk.adapter,
            config=found.config,
            credentials=found.credentials,
            patience=patience,
        ):
            if isinstance(event, Finish):
                talk.finished(event, step)
            yield event
