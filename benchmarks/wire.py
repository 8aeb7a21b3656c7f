"""``python -m benchmarks wire``: what a streamed piece and a turn of a tool loop cost, ours beside others.

Each table is measured in pairs in this one process, on one mock server; the aims stand beside what they are about.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

from .contenders import Contender
from .contenders import Ours
from .contenders import OursOverAnthropic
from .contenders import OursOverResponses
from .contenders import Place
from .contenders import RawAnthropic
from .contenders import RawChat
from .contenders import RawResponses
from .contenders import TypedSdk
from .peers import LIBRARIES
from .server import serving
from .timing import Beside
from .timing import Entry
from .timing import middle
from .timing import side_by_side
from .workload import Task

PER_PIECE = 1.3
"""Most that a piece may cost, as a multiple of the floor."""
PER_TURN = 1.0
"""Most that a turn may cost, as a multiple of each peer: at or below the cheapest."""
SLACK = 1.2
"""An aim counts as missed where it is missed by more than a fifth: less is noise on a shared machine."""

PEERS: tuple[type[Contender], ...] = (TypedSdk, *LIBRARIES)

FLOOR_REPEATS = 3
"""The floor is cheap and close, so its pairs are run more often."""

INSTALL = "pip install -e '.[bench]'"
TOGETHER = "/together"
"""The path where the server puts many events into each piece of the body, so that the network costs next to nothing."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    pieces: int = 5000
    histories: tuple[int, ...] = (20, 80)
    repeats: int = 5

    @property
    def turns(self) -> int:
        return max(self.histories) + 6


QUICK = Sizes(pieces=100, histories=(2, 4), repeats=1)


@dataclass(frozen=True, slots=True)
class Line:
    """One contender in a table: its own cost in seconds, ours as a multiple of it, and the most that this may be."""

    name: str
    cost: float
    ratio: float
    aim: float | None = None

    @property
    def missed(self) -> bool:
        return self.aim is not None and self.ratio > self.aim * SLACK

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        words = "missed" if self.missed else "met" if self.ratio <= self.aim else "just missed"
        return f"aim {self.aim:.1f}: {words}"


@dataclass(frozen=True, slots=True)
class Table:
    """What ours costs in seconds, and the others beside it."""

    title: str
    unit: str
    ours: float
    lines: tuple[Line, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Return the aims that are missed, in words."""
        return tuple(
            f"{self.title}: {line.ratio:.2f} of {line.name}, the aim is {line.aim:.1f}"
            for line in self.lines
            if line.missed
        )

    def __str__(self) -> str:
        scale = {"µs": 1e6, "ms": 1e3}[self.unit]
        rows = [f"  {Ours.name:<28}{self.ours * scale:>9.2f} {self.unit}"]
        for line in self.lines:
            row = f"  {line.name:<28}{line.cost * scale:>9.2f} {self.unit}   ours is {line.ratio:>5.2f} of it   "
            rows.append((row + line.verdict).rstrip())
        return "\n".join([self.title, *rows, ""])


@dataclass(frozen=True, slots=True)
class Course:
    """One task that ours and others run in pairs; ``titles`` has a table for each figure."""

    titles: Mapping[str, str]
    task: Task
    floor: type[Contender] = RawChat
    ours: type[Contender] = Ours
    peers: tuple[type[Contender], ...] = ()
    path: str = ""
    unit: str = "µs"
    floor_aim: float | None = PER_PIECE
    peer_aim: float | None = None


def courses(sizes: Sizes) -> tuple[Course, ...]:
    """Return all that is measured."""
    text, arguments = Task("text", sizes.pieces), Task("arguments", sizes.pieces)
    turns = {str(history): f"CPU per turn of a tool loop, behind {history} turns" for history in sizes.histories}
    return (
        Course({"piece": "CPU per text delta, Chat Completions"}, text, peers=PEERS),
        Course({"piece": "CPU per text delta, Chat Completions, many events in a packet"}, text, path=TOGETHER),
        Course({"piece": "CPU per delta of a tool's arguments, Chat Completions"}, arguments),
        Course({"piece": "CPU per text delta, OpenAI Responses"}, text, RawResponses, OursOverResponses),
        Course({"piece": "CPU per text delta, Anthropic Messages"}, text, RawAnthropic, OursOverAnthropic),
        Course(turns, Task("turns", sizes.turns), peers=PEERS, unit="ms", floor_aim=None, peer_aim=PER_TURN),
    )


def measured(sizes: Sizes) -> Iterator[Table]:
    """Run everything and give each table when it is there."""
    with serving() as address:
        for course in courses(sizes):
            if _is_installed(course.floor):
                yield from _tables(course, Place(address, course.path), sizes)


def _tables(course: Course, place: Place, sizes: Sizes) -> Iterator[Table]:
    results: list[tuple[str, Beside, float | None]] = []
    peers = filter(_is_installed, course.peers)
    with Entry.opened(course.ours, place) as ours:
        for kind in (course.floor, *peers):
            floor = kind is course.floor
            with Entry.opened(kind, place) as other:
                repeats = sizes.repeats * (FLOOR_REPEATS if floor else 1)
                beside = side_by_side(ours, other, course.task, sizes.histories, repeats)
            results.append((kind.name, beside, course.floor_aim if floor else course.peer_aim))
    every_run = tuple(run for _, beside, _ in results for run in beside.ours)
    for figure, title in course.titles.items():
        lines = (Line(name, middle(beside.others, figure), beside.ratio(figure), aim) for name, beside, aim in results)
        yield Table(title, course.unit, middle(every_run, figure), tuple(lines))


def _is_installed(kind: type[Contender]) -> bool:
    return find_spec(kind.package) is not None


def head(sizes: Sizes) -> Iterator[str]:
    """Say what is measured, with which versions, and what is left out."""
    others: tuple[type[Contender], ...] = (RawChat, RawAnthropic, *LIBRARIES)
    there = [f"{kind.distribution} {version(kind.distribution)}" for kind in others if _is_installed(kind)]
    yield f"Python {platform.python_version()}, {', '.join(there)}"
    yield f"{sizes.pieces} deltas, {sizes.turns} turns; processor time of this process, medians of pairs."
    for kind in others:
        if not _is_installed(kind):
            yield f"Left out: {kind.distribution} is not installed: {INSTALL}"
    yield ""


def report(sizes: Sizes, say: Callable[[str], object] = print) -> tuple[str, ...]:
    """Measure, tell each table, and return the aims that are missed."""
    for line in head(sizes):
        say(line)
    missed: list[str] = []
    for table in measured(sizes):
        say(str(table))
        missed.extend(table.missed)
    return tuple(missed)
