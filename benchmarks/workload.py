"""What the model of the benchmark says: the tasks, their texts, the one tool and its results.

The server and the measured process compute the same values, so that each can check the other's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

SYSTEM = "You read records for an archive and say what they hold. Read one record after the other."
QUESTION = "Read the records, one after the other, then say that you are done."
TOOL = "look_up"
FIELD = "history"
TEXT_PIECES = 8
"""Pieces of text before each tool call."""

Kind = Literal["text", "arguments", "turns"]


@dataclass(frozen=True, slots=True)
class Task:
    """What the model is to do: ``size`` pieces of text, of one call's arguments, or ``size`` turns with a call.

    It is the model's name on the wire, so that the server needs no memory.
    """

    kind: Kind
    size: int

    @property
    def model(self) -> str:
        return f"{self.kind}-{self.size}"

    @property
    def rounds(self) -> int:
        """How many calls of the tool it takes."""
        return {"text": 0, "arguments": 1, "turns": self.size}[self.kind]

    @classmethod
    def of_model(cls, model: str) -> Task:
        """Read a model's name.

        :raises ValueError: for any other model.
        """
        if not (found := re.fullmatch(r"(text|arguments|turns)-(\d+)", model)):
            raise ValueError(f"No task is named {model!r}.")
        kind: Kind = found[1]  # type: ignore[assignment]
        return cls(kind, int(found[2]))


def text_pieces(task: Task, turn: int) -> list[str]:
    """Return the text of a turn, as it is streamed."""
    if task.kind == "text":
        return [f" word{number}" for number in range(task.size)]
    if turn == task.rounds:
        return ["All", " records", " are", " read", "."]
    return [f"Record {turn}:", *(f" step {step}" for step in range(1, TEXT_PIECES))]


def argument_pieces(task: Task, turn: int) -> list[str]:
    """Return the arguments of a turn's call, as they are streamed; none in the last turn."""
    if turn == task.rounds:
        return []
    field = [f"{number % 1000}," for number in range(task.size)] if task.kind == "arguments" else [FIELD]
    return [f'{{"record": {turn}, ', '"field": "', *field, '"}']


def heard_of(task: Task) -> list[str]:
    """Return every piece of text of the whole talk."""
    return [piece for turn in range(task.rounds + 1) for piece in text_pieces(task, turn)]


def look_up(record: int, field: str) -> str:
    """Return one field of a record.

    Args:
        record: The number of the record.
        field: The name of the field, such as "history".
    """
    return f"Record {record}, {field[:20]}: " + f"entry {record} of the archive, checked and found in order; " * 4


def observed(mark: Callable[[], object]) -> Callable[[int, str], str]:
    """Return the tool as a function that says when it is called."""

    def observed_look_up(record: int, field: str) -> str:
        mark()
        return look_up(record, field)

    observed_look_up.__name__ = observed_look_up.__qualname__ = TOOL
    observed_look_up.__doc__ = look_up.__doc__
    return observed_look_up
