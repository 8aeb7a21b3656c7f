"""What the adapter tests share: requests, and what was heard of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from flask_instruct.adapters.base import ProviderSettings
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import ReasoningDelta
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallDelta
from flask_instruct.events import Usage
from flask_instruct.events import UsageReported
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Part
from flask_instruct.messages import Text
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

KEY = "sk-test-0123456789"
WEATHER = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def settings(name: str, base_url: str | None = None, **changes: Any) -> ProviderSettings:
    return ProviderSettings(name, KEY, base_url, **changes)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def assistant(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def results(*answers: ToolResult) -> Message:
    return Message("tool", answers)


def asking(*messages: Message, model: str = "m", **fields: Any) -> ModelRequest:
    return ModelRequest(model, messages or (user("Hello"),), **fields)


def cut_in(body: str, size: int) -> Iterator[bytes]:
    data = body.encode()
    return (data[start : start + size] for start in range(0, len(data), size))


class Heard:
    """The events of a stream, asked in a test's words."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)

    @property
    def finish(self) -> Finish:
        finish = self.events[-1]
        assert isinstance(finish, Finish)
        assert sum(isinstance(event, Finish) for event in self.events) == 1
        return finish

    @property
    def message(self) -> Message:
        return self.finish.message

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def usage(self) -> Usage | None:
        reported = [event.usage for event in self.events if isinstance(event, UsageReported)]
        return reported[-1] if reported else None

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """The calls of the finished message as id, name and parsed arguments."""
        return [(call.id, call.name, json.loads(call.raw)) for call in self.message.calls]

    @property
    def shown_calls(self) -> dict[str, tuple[str, str]]:
        """What a page would have shown of the calls: name and argument text by id."""
        shown: dict[str, tuple[str, str]] = {}
        for event in self.events:
            if isinstance(event, ToolCallDelta):
                shown[event.call_id] = (event.name, shown.get(event.call_id, ("", ""))[1] + event.arguments)
        return shown
