"""Processor time of one talk, per piece or per turn, and two contenders side by side.

Machines are shared and change their speed, so what counts is the ratio of two runs that follow each other at once; the
order alternates, and the median of the ratios is told.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from statistics import median
from time import process_time

from .contenders import Contender
from .contenders import Place
from .workload import Task
from .workload import heard_of
from .workload import observed

Figures = Mapping[str, float]
"""Seconds by what they are for: ``piece``, or the number of turns in the history."""

WINDOW = 5
"""Turns before and behind the one that is told: the mean of all of them counts."""

FEWER = 10
"""A talk of so many times fewer pieces is the one that is taken away."""


class WrongAnswer(AssertionError):
    """A contender did other work than it was told to."""


@dataclass(slots=True)
class Entry:
    """A contender at its place, with the marks that its tool leaves."""

    contender: Contender
    marks: list[float] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, kind: type[Contender], place: Place) -> Iterator[Entry]:
        """Make a contender and close it at the end of the block."""
        marks: list[float] = []
        contender = kind(place, observed(lambda: marks.append(process_time())))
        try:
            yield cls(contender, marks)
        finally:
            contender.close()


@dataclass(frozen=True, slots=True)
class Beside:
    """Ours and another, run in pairs."""

    ours: tuple[Figures, ...]
    others: tuple[Figures, ...]

    def ratio(self, figure: str) -> float:
        """Return the median of ours through the other's."""
        return median(a[figure] / b[figure] for a, b in zip(self.ours, self.others, strict=True))


def middle(runs: tuple[Figures, ...], figure: str) -> float:
    """Return the median of a figure."""
    return median(run[figure] for run in runs)


def side_by_side(ours: Entry, other: Entry, task: Task, histories: tuple[int, ...], repeats: int) -> Beside:
    """Run two contenders in pairs, after one run of each that is not counted."""
    first: list[Figures] = []
    second: list[Figures] = []
    for number in range(repeats + 1):
        kept = [(ours, first), (other, second)]
        for entry, runs in kept if number % 2 else reversed(kept):
            runs.append(timed(entry, task, histories))
        if not number:
            # What all the libraries of this one process have loaded is not each one's to collect.
            gc.collect()
            gc.freeze()
    return Beside(tuple(first[1:]), tuple(second[1:]))


def timed(entry: Entry, task: Task, histories: tuple[int, ...] = ()) -> Figures:
    """Return what one talk costs, per turn behind each history or per piece.

    :raises WrongAnswer: when not every piece was told, or the tool not called once a round.
    """
    if task.kind == "turns":
        _talk(entry, task)
        return {str(history): _per_turn(entry.marks, history) for history in histories}
    # What a call costs without its pieces is taken away: libraries that queue them begin to tell late.
    few = replace(task, size=task.size // FEWER)
    return {"piece": (_talk(entry, task) - _talk(entry, few)) / (task.size - few.size)}


def _talk(entry: Entry, task: Task) -> float:
    """Return the processor seconds of one talk; where arguments are what counts, up to the call of the tool."""
    texts: list[str] = []
    arguments: list[str] = []
    entry.marks.clear()
    gc.collect()
    start = process_time()
    entry.contender.talk(task, texts.append, arguments.append)
    end = process_time()
    _check(entry, task, texts)
    return (entry.marks[0] if task.kind == "arguments" else end) - start


def _per_turn(marks: list[float], history: int) -> float:
    """From one call of the tool to the next lies one turn: its result, the request with the history, the answer."""
    window = min(WINDOW, history - 1, len(marks) - 1 - history)
    return (marks[history + window] - marks[history - window - 1]) / (2 * window + 1)


def _check(entry: Entry, task: Task, texts: list[str]) -> None:
    wanted, name = heard_of(task), entry.contender.name
    if [text for text in texts if text] != wanted:
        raise WrongAnswer(f"{name} told {len(texts)} pieces of text of {task.model}, not the {len(wanted)} that came.")
    if len(entry.marks) != task.rounds:
        raise WrongAnswer(f"{name} called the tool {len(entry.marks)} times in {task.model}, not {task.rounds} times.")
