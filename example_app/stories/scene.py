"""What a story sees of the conversation, and what a story is.

The scripted model keeps no state: each turn is decided from the request alone, as with a real model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from datetime import datetime
from functools import cached_property
from typing import Any

from flask_instruct.adapters.scripted import Step
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import ToolResult

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """One model call of the story that the last user message began."""

    request: ModelRequest

    @cached_property
    def _since_prompt(self) -> tuple[Message, ...]:
        messages = self.request.messages
        last = max((number for number, message in enumerate(messages) if message.role == "user"), default=-1)
        return messages[last + 1 :]

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return next((message.text for message in reversed(self.request.messages) if message.role == "user"), "")

    @property
    def turn(self) -> int:
        """How many answers the model has given to this prompt."""
        return sum(message.role == "assistant" for message in self._since_prompt)

    @property
    def results(self) -> list[ToolResult]:
        """All tool results since the prompt, in order."""
        return [result for message in self._since_prompt for result in message.results]

    @property
    def latest(self) -> list[ToolResult]:
        """The results of the turn before this one."""
        return next((list(message.results) for message in reversed(self._since_prompt) if message.results), [])

    @property
    def failures(self) -> list[str]:
        """What the turn before this one was told went wrong."""
        return [result.content for result in self.latest if result.error]

    @property
    def assessment(self) -> JsonObject:
        """The assessment as it was last read since the prompt.

        :raises LookupError: when it was not read.
        """
        for result in reversed(self.results):
            if result.name == "read_assessment" and not result.error:
                data: JsonObject = json.loads(result.content)
                return data
        raise LookupError("The story asks for the assessment before it was read.")

    @property
    def criteria(self) -> list[JsonObject]:
        return list(self.assessment["criteria"])

    @property
    def seconds_since_reading(self) -> float:
        read_at = datetime.fromisoformat(self.assessment["read_at"])
        return (datetime.now(UTC) - read_at).total_seconds()

    def found(self, pattern: str) -> list[str]:
        """Return the first group of each match of a pattern in the results since the prompt."""
        return [match for result in self.results for match in re.findall(pattern, result.content)]

    def said(self, name: str) -> str:
        """Return the newest result of a tool; empty when it was not called."""
        return next((result.content for result in reversed(self.results) if result.name == name), "")


Play = Callable[[Scene], list[Step]]


@dataclass(frozen=True)
class Story:
    """One thing that the scripted model can do.

    :param label: the suggestion on the page, short.
    :param prompt: what the suggestion asks.
    :param about: what it does, for the list of what the scripted model can do.
    :param words: patterns that choose this story for a prompt in other words.
    :param demo: shows how trouble looks; makes no sense to ask of a real model.
    """

    name: str
    label: str
    prompt: str
    about: str
    play: Play
    words: tuple[str, ...] = ()
    demo: bool = False

    def fits(self, prompt: str) -> int:
        """Say how well a prompt fits: 0 not at all, 100 word for word."""
        if self.prompt.casefold().rstrip(".") in prompt.casefold():
            return 100
        return sum(bool(re.search(pattern, prompt, re.IGNORECASE)) for pattern in self.words)


def shares(weights: Mapping[int, int], total: int = 100) -> dict[int, int]:
    """Scale weights to a total, in steps of five where they fit, keeping their proportions as well as that allows."""
    if not weights:
        return {}
    step = 5 if total % 5 == 0 and len(weights) * 5 <= total else 1
    units = total // step
    sum_of_all = sum(weights.values()) or len(weights)
    exact = {key: (weight if sum(weights.values()) else 1) * units / sum_of_all for key, weight in weights.items()}
    given = {key: max(1, int(value)) for key, value in exact.items()}
    while (difference := units - sum(given.values())) != 0:
        change = 1 if difference > 0 else -1
        open_keys = [key for key in given if change > 0 or given[key] > 1]
        nearest = max(open_keys, key=lambda key: change * (exact[key] - given[key]))
        given[nearest] += change
    return {key: value * step for key, value in given.items()}
