"""``python -m benchmarks jobs``: how soon a job asks its model, what the ledger costs, how many runs fit.

Workers stand beside each other on one machine and take turns; the aims stand beside what they are about.
"""

from __future__ import annotations

import gc
import logging
import platform
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from statistics import median

from flask_instruct.orchestrator import Orchestrator
from flask_instruct.prompt import Gen
from flask_instruct.prompt import Message
from flask_instruct.prompt import Text
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run

from . import archive
from .arrivals import HELD
from .arrivals import arrivals
from .floor import Floor
from .floor import floor
from .memory import Memory
from .memory import held_by
from .memory import is_known
from .server import serving
from .wire import SLACK
from .workers import OTHERS
from .workers import PATIENCE
from .workers import BareFork
from .workers import Contender
from .workers import Ours
from .workers import Site
from .workers import is_installed
from .workers import start_run
from .workload import Task

REST = 0.3
"""Seconds between two jobs: a worker that makes ready for its next one must not be felt in another's time."""
START = 1.5
"""Most that our start may take, as a multiple of a bare RQ worker's that forks."""
LEDGER = 0.005
"""Most processor seconds that the ledger may take a turn."""
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: jobs of each worker, turns of a talk, pairs of talks, runs that wait at once."""

    repeats: int = 30
    turns: int = 60
    few: int = 10
    talks: int = 5
    held: int = 4


QUICK = Sizes(repeats=2, turns=3, few=1, talks=1, held=1)


@dataclass(frozen=True, slots=True)
class Line:
    """One figure as it is told; ``share`` is what was measured as a multiple of the aim, where there is one."""

    text: str
    aim: str = ""
    share: float | None = None

    @property
    def missed(self) -> bool:
        return self.share is not None and self.share > SLACK

    def __str__(self) -> str:
        if self.share is None:
            return f"  {self.text}"
        words = "missed" if self.missed else "met" if self.share <= 1 else "just missed"
        return f"  {self.text}   {self.aim}: {words}"


@dataclass(frozen=True, slots=True)
class Table:
    """Figures under a title."""

    title: str
    lines: tuple[Line, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Return the aims that are missed, in words."""
        return tuple(f"{self.title}: {' '.join(line.text.split())}, {line.aim}" for line in self.lines if line.missed)

    def __str__(self) -> str:
        return "\n".join([self.title, *map(str, self.lines), ""])


def starts(sizes: Sizes) -> Table:
    """Measure the time from the call that enqueues to the arrival of the first model request."""
    kinds: list[type[Contender]] = [Ours, *filter(is_installed, OTHERS)]
    with arrivals() as server, Site.opened(f"{server.address}/v1") as site, ExitStack() as ends:
        workers = [kind(site) for kind in kinds]
        for worker in workers:
            ends.enter_context(worker.working())
        times: dict[str, list[float]] = {worker.name: [] for worker in workers}
        calls: dict[str, list[float]] = {worker.name: [] for worker in workers}
        for number in range(sizes.repeats + 1):
            for worker in workers if number % 2 else reversed(workers):
                worker.wait_until_idle()
                time.sleep(REST)
                start = time.perf_counter()
                worker.enqueue()
                calls[worker.name].append(time.perf_counter() - start)
                times[worker.name].append(server.next(PATIENCE) - start)
        for worker in workers:
            worker.wait_until_idle()
    # The first job of each is not counted.
    return _starts({name: measured[1:] for name, measured in times.items()}, calls[Ours.name][1:])


def _starts(times: dict[str, list[float]], calls: list[float]) -> Table:
    ours = times[Ours.name]
    lines = [
        Line(f"{Ours.name:<30}{median(ours) * 1e3:>8.1f} ms"),
        Line(f"{'  generate_for alone':<30}{median(calls) * 1e3:>8.1f} ms"),
    ]
    for name, others in times.items():
        if name == Ours.name:
            continue
        ratio = median(a / b for a, b in zip(ours, others, strict=True))
        text = f"{name:<30}{median(others) * 1e3:>8.1f} ms   ours is {ratio:>5.2f} of it"
        aimed = name == BareFork.name
        lines.append(Line(text, f"aim {START}", ratio / START) if aimed else Line(text))
    return Table("From the call that enqueues to the model request", tuple(lines))


def ledger(sizes: Sizes) -> Table:
    """Measure the processor time of a turn with the ledger and without it, over one mock model."""
    with serving() as address, Site.opened(f"{address}/v1") as site, _quiet(), _frozen():
        ways: dict[str, Callable[[int], float]] = {"with": _recorded, "without": partial(_unrecorded, site)}
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(sizes.talks + 1):
            for way, talk in tuple(ways.items())[:: 1 if number % 2 else -1]:
                costs[way].append((talk(sizes.turns) - talk(sizes.few)) / (sizes.turns - sizes.few))
        floors = [_floor(site, sizes) for _ in range(sizes.talks + 1)][1:]
    recorded, plain = costs["with"][1:], costs["without"][1:]
    cost = median(a - b for a, b in zip(recorded, plain, strict=True))
    return Table(
        "CPU per turn with one tool call, SQLite file",
        (
            Line(f"{'with the ledger':<30}{median(recorded) * 1e3:>8.2f} ms"),
            Line(f"{'the same loop without it':<30}{median(plain) * 1e3:>8.2f} ms"),
            Line(f"{'the ledger':<30}{cost * 1e3:>8.2f} ms", f"aim {LEDGER * 1e3:.0f} ms", cost / LEDGER),
            Line(f"{'  its floor: raw statements':<30}{median(floor.statements for floor in floors) * 1e3:>8.2f} ms"),
            Line(f"{'  and what pages are told':<30}{median(floor.told for floor in floors) * 1e3:>8.2f} ms"),
        ),
    )


def _floor(site: Site, sizes: Sizes) -> Floor:
    many, few = (floor(site, Task("turns", turns).model, site.folder) for turns in (sizes.turns, sizes.few))
    turns = sizes.turns - sizes.few
    return Floor((many.statements - few.statements) / turns, (many.told - few.told) / turns)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the package from warning that no worker is there: the runs are carried out in this process."""
    logger = logging.getLogger("flask_instruct")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _frozen() -> Iterator[None]:
    """Keep what is loaded from the garbage collector, as a worker does before it forks."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _recorded(turns: int) -> float:
    run_id = start_run(Task("turns", turns).model)
    archive.db.session.remove()
    cost = _timed(lambda: generate(run_id))
    run = archive.db.session.get(Run, run_id)
    if run is None or run.status != "succeeded" or len(run.calls) != turns:
        raise RuntimeError(f"The run of {turns} turns did not succeed: {run and run.error_technical}")
    archive.db.session.remove()
    return cost


def _unrecorded(site: Site, turns: int) -> float:
    handler = archive.Reader(archive.db.session.get(archive.Archive, 1))
    config = site.app.extensions["instruct"].config
    gen = Gen(
        model=f"bench:{Task('turns', turns).model}",
        tools=tuple(tool.spec() for tool in handler.ai_tools()),
        max_rounds=config.max_rounds,
        max_tool_retries=config.max_tool_retries,
    )
    messages = [Message("user", (Text("Go."),))]
    talk = Orchestrator(handler, messages, gen, config=config)
    cost = _timed(talk.start)
    results = sum(message.role == "tool" for message in messages)
    if results != turns:
        raise RuntimeError(f"The talk of {turns} turns had {results} results.")
    archive.db.session.remove()
    return cost


def _timed(call: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    call()
    return time.process_time() - start


def memory(sizes: Sizes) -> Table:
    """Measure what a run costs that waits for its model: its work-horse, and the RQ worker that stands above it."""
    kind = type("Many", (Ours,), {"concurrency": sizes.held})
    with arrivals() as server, Site.opened(f"{server.address}{HELD}/v1") as site:
        worker: Contender = kind(site)
        with worker.working() as pid:
            worker.wait_until_idle()
            for _ in range(sizes.held):
                worker.enqueue()
            for _ in range(sizes.held):
                server.next(PATIENCE)
            runs = held_by(pid)
            if len(runs) != sizes.held:
                raise RuntimeError(f"{len(runs)} work-horses hold {sizes.held} runs.")
            server.release()
    horse = Memory.middle(run.horse for run in runs)
    both = Memory.middle(run.horse + run.worker for run in runs)
    return Table(
        f"Memory of a run that waits for its model, {sizes.held} at once",
        (
            Line(f"{'its work-horse':<30}{horse}"),
            Line(f"{'with the RQ worker above it':<30}{both}"),
            Line(f"{'runs per GiB':<30}{GIB / both.pss:>8.0f} by PSS, {GIB / both.rss:.0f} by RSS"),
        ),
    )


def head(sizes: Sizes) -> Iterator[str]:
    """Say what is measured, with which versions, and what is left out."""
    there = ", ".join(f"{name} {version(name)}" for name in ("rq", "redis", "SQLAlchemy"))
    yield f"Python {platform.python_version()}, {there}"
    yield f"{sizes.repeats} jobs of each worker in turn, {sizes.talks} pairs of talks of {sizes.turns} turns; medians."
    for kind in OTHERS:
        if not is_installed(kind):
            yield f"Left out: {kind.name} is not installed: pip install -e '.[bench]'"
    if not is_known():
        yield "Left out: memory, which is read from /proc/…/smaps_rollup of Linux"
    yield ""


def report(sizes: Sizes, say: Callable[[str], object] = print) -> tuple[str, ...]:
    """Measure, tell each table, and return the aims that are missed."""
    for line in head(sizes):
        say(line)
    missed: list[str] = []
    for measure in (starts, ledger, *([memory] if is_known() else [])):
        table = measure(sizes)
        say(str(table))
        missed.extend(table.missed)
    return tuple(missed)
