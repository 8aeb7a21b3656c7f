"""``python -m benchmarks live``: what an open page costs, and what a broadcast to many of them costs.

Servers stand beside each other on one machine and take turns; the aims stand beside what they are about.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median

from markupsafe import Markup

from flask_instruct.live.turbo_stream import turbo_stream

from . import chromium
from .crowd import most_files
from .hosts import OTHERS
from .hosts import SPARE
from .hosts import WARM
from .hosts import Bare
from .hosts import Ground
from .hosts import Host
from .hosts import Ours
from .hosts import OursApart
from .hosts import SocketIo
from .hosts import is_installed
from .hosts import standing
from .jobs import Line
from .jobs import Table
from .memory import KIB

PAGE = 3 * KIB
"""Most bytes that an open page may take."""
FLOOR = 1.3
"""Most that our broadcast may take, as a multiple of the websockets library's."""
SOCKET_IO = 0.25
"""Most that it may take, as a multiple of Flask-SocketIO's."""
FRAGMENT = (
    '<article class="comment" id="comment_{number}"><header><strong>Ada</strong> <time>12:0{number}</time></header>'
    "<p>{text}</p><footer><a href='/comments/{number}'>Reply</a></footer></article>"
)
WORDS = "The second criterion asks for two things at once; a student who does one of them cannot be placed on a level. "


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    :param repeats: rounds in which each server has its turn.
    :param broadcasts: of one turn.
    :param pages: sockets of ours at which memory and threads are read.
    :param beside: sockets of each server that is compared.
    :param floor: sockets of ours and of the floor, once more without the others.
    :param settled: seconds after which a server has done with what nobody waits for.
    """

    repeats: int = 15
    broadcasts: int = 10
    pages: tuple[int, ...] = (1_000, 5_000, 10_000)
    beside: int = 1_000
    floor: int = 5_000
    settled: float = 0.2
    reading: chromium.Reading = field(default_factory=chromium.Reading)

    def within(self, files: int) -> Sizes:
        """Return sizes that fit where a process may have so many files open."""
        most = max(files - SPARE, 2 * WARM)
        pages = tuple(sorted({min(sockets, most) for sockets in self.pages}))
        # A greenlet or thread that reads has an epoll of its own: two files a socket.
        return replace(self, pages=pages, beside=min(self.beside, most // 2), floor=min(self.floor, most))


QUICK = Sizes(1, 2, pages=(2 * WARM, 4 * WARM), beside=2 * WARM, floor=4 * WARM, settled=0.02, reading=chromium.QUICK)


@dataclass(frozen=True, slots=True)
class Opened:
    """What so many sockets cost a server: bytes of each, threads of all, and how many of the last a second took."""

    sockets: int
    pss: float
    rss: float
    threads: int
    rate: float

    def __str__(self) -> str:
        figures = f"{self.pss / KIB:>8.2f} KiB PSS {self.rss / KIB:>8.2f} KiB RSS"
        return f"{figures} {self.threads:>6} threads {self.rate:>7.0f} opened a second"


@dataclass(frozen=True, slots=True)
class Turn:
    """A broadcast: processor seconds of the server, and seconds until the last client has it; of each socket."""

    processor: float
    wall: float


def open_sockets(host: Host, steps: Sequence[int], settled: float) -> list[Opened]:
    """Open sockets step by step; each figure is beyond what the first few have taken."""
    time.sleep(settled)
    before, first = host.memory(), host.opened
    found: list[Opened] = []
    for sockets in steps:
        opened = host.opened
        rate = (sockets - opened) / host.open(sockets)
        time.sleep(settled)
        now, more = host.memory(), sockets - first
        pss, rss = (now.pss - before.pss) / more, (now.rss - before.rss) / more
        found.append(Opened(sockets, pss, rss, host.threads(), rate))
    return found


def pages(ground: Ground, sizes: Sizes) -> Table:
    """Measure what our open pages take, with one stream for all of them and with one for each."""
    hosts = (Ours(ground, sizes.pages[-1]), OursApart(ground, sizes.pages[-1]))
    lines: list[Line] = []
    with standing(hosts):
        for host, words in zip(hosts, ("one stream", "each its own"), strict=True):
            for at in open_sockets(host, sizes.pages, sizes.settled):
                text = f"{at.sockets:>6,} pages, {words:<13}{at}"
                aimed = type(host) is Ours and at.sockets == sizes.pages[-1]
                lines.append(Line(text, f"aim {PAGE // KIB} KiB", at.pss / PAGE) if aimed else Line(text))
    return Table("An open page of ours, in one gunicorn process with 8 threads", tuple(lines))


def fan_out(ground: Ground, sizes: Sizes) -> tuple[Table, ...]:
    """Measure one broadcast to many sockets, and what these take, ours beside others."""
    kinds = list(filter(is_installed, OTHERS))
    ours = Ours(ground, sizes.floor)
    hosts: list[Host] = [ours, *(kind(ground, sizes.beside) for kind in kinds)]
    bare = next((host for host in hosts if isinstance(host, Bare)), None)
    with standing(hosts):
        opened = {host: open_sockets(host, [sizes.beside], sizes.settled)[0] for host in hosts}
        beside = take_turns(hosts, sizes)
        tables = (_taken(opened), _spread(sizes.beside, beside, {SocketIo: SOCKET_IO}))
        if bare is None:
            return tables
        time.sleep(sizes.settled)  # A page that asks within a millisecond of a broadcast is told it once more.
        for host in (ours, bare):
            host.open(sizes.floor)
        floor = take_turns([ours, bare], sizes)
    return *tables, _spread(sizes.floor, floor, {Bare: FLOOR})


def take_turns(hosts: Sequence[Host], sizes: Sizes) -> dict[Host, list[Turn]]:
    """Let each server broadcast in alternating order; the first round is not counted."""
    turns: dict[Host, list[Turn]] = {host: [] for host in hosts}
    for number in range(sizes.repeats + 1):
        for host in hosts if number % 2 else reversed(hosts):
            turns[host].append(_turn(host, sizes.broadcasts, number))
    return {host: found[1:] for host, found in turns.items()}


def _turn(host: Host, broadcasts: int, number: int) -> Turn:
    texts = [fragment(number * broadcasts + at) for at in range(broadcasts)]
    wall = 0.0
    before = host.processor_time()
    for text in texts:
        host.crowd.expect(text)
        start = time.monotonic()
        host.publish(text)
        wall += host.crowd.heard() - start
    count = host.opened * broadcasts
    return Turn((host.processor_time() - before) / count, wall / count)


def fragment(number: int) -> str:
    """Return a broadcast of some 700 bytes."""
    html = Markup(FRAGMENT).format(number=number, text=WORDS * 3)
    return str(turbo_stream("append", target="comments", html=html))


def _taken(opened: dict[Host, Opened]) -> Table:
    ours = next(at for host, at in opened.items() if isinstance(host, Ours))
    lines = [
        Line(f"{host.name:<26}{at}" + ("" if at is ours else f"   ours is {ours.pss / at.pss:.2f} of it"))
        for host, at in opened.items()
    ]
    return Table(f"An open page, {ours.sockets:,} of each server", tuple(lines))


def _spread(sockets: int, turns: dict[Host, list[Turn]], aims: Mapping[type[Host], float]) -> Table:
    ours = next(found for host, found in turns.items() if isinstance(host, Ours))
    lines: list[Line] = []
    for host, found in turns.items():
        text = (
            f"{host.name:<26}{median(turn.processor for turn in found) * 1e6:>7.2f} µs CPU"
            f"{median(turn.wall for turn in found) * 1e6:>8.2f} µs until all have it"
        )
        if found is ours:
            lines.append(Line(text))
            continue
        ratio = median(a.processor / b.processor for a, b in zip(ours, found, strict=True))
        wall = median(a.wall / b.wall for a, b in zip(ours, found, strict=True))
        text += f"   ours is {ratio:.2f} of it, {wall:.2f} by the clock"
        aim = aims.get(type(host))
        lines.append(Line(text) if aim is None else Line(text, f"aim {aim}", ratio / aim))
    return Table(f"A broadcast to {sockets:,} sockets, of each socket", tuple(lines))


def head(sizes: Sizes, wished: Sizes) -> Iterator[str]:
    """Say what is measured, with which versions, and what is left out."""
    names = ["gunicorn", "redis", *(kind.pip.split()[0] for kind in OTHERS if is_installed(kind))]
    there = ", ".join(f"{name} {version(name)}" for name in names)
    yield f"Python {platform.python_version()}, {there}"
    yield f"{sizes.repeats} turns of each server, of {sizes.broadcasts} broadcasts each; medians."
    for kind in OTHERS:
        if not is_installed(kind):
            yield f"Left out: {kind.name} is not installed: pip install {kind.pip}"
    if (missing := chromium.missing()) is not None:
        yield f"Left out: everything in a browser: {missing}"
    if sizes != wished:
        yield f"Fewer sockets than {wished.pages[-1]:,}: the limit of open files (ulimit -Hn) is lower."
    yield ""


def report(wished: Sizes, say: Callable[[str], object] = print) -> tuple[str, ...]:
    """Measure, tell each table, and return the aims that are missed."""
    if sys.platform != "linux" or find_spec("gunicorn") is None:
        say("Left out: everything. It needs Linux, for its clocks and counters, and gunicorn: pip install gunicorn")
        return ()
    sizes = wished.within(most_files())
    for line in head(sizes, wished):
        say(line)
    missed: list[str] = []

    def tell(*tables: Table) -> None:
        for table in tables:
            say(str(table))
            missed.extend(table.missed)

    with Ground.laid(sizes.pages[-1]) as ground:
        tell(pages(ground, sizes))
        tell(*fan_out(ground, sizes))
        if chromium.missing() is None:
            tell(*chromium.tables(ground, sizes.reading))
    return tuple(missed)
