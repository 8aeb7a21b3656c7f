"""``python -m benchmarks wire|jobs|live|changes [--check]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from . import changes
from . import jobs
from . import live
from . import wire


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a name on the command line stands for; ``repeats`` says what is repeated."""

    help: str
    report: Callable[[Any, Callable[[str], object]], tuple[str, ...]]
    sizes: Any
    quick: Any
    repeats: str


def benchmarks() -> Mapping[str, Benchmark]:
    """Return all benchmarks by their names."""
    return {
        "wire": Benchmark(
            "processor time per streamed delta and per turn, beside other libraries",
            wire.report,
            wire.Sizes(),
            wire.QUICK,
            "pairs with each library",
        ),
        "jobs": Benchmark(
            "time to the first model request beside RQ's workers, cost of the ledger, memory of runs in flight",
            jobs.report,
            jobs.Sizes(),
            jobs.QUICK,
            "jobs of each worker",
        ),
        "live": Benchmark(
            "memory of open pages, broadcasts to many of them beside other libraries, and what Chromium shows when",
            live.report,
            live.Sizes(),
            live.QUICK,
            "turns of each server",
        ),
        "changes": Benchmark(
            "what it costs to record the rows that a tool changes",
            changes.report,
            changes.Sizes(),
            changes.QUICK,
            "pairs of tools",
        ),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what the package costs.")
    names = parser.add_subparsers(required=True, dest="name")
    known = benchmarks()
    for name, benchmark in known.items():
        own = names.add_parser(name, help=benchmark.help)
        own.add_argument("--check", action="store_true", help="exit with 1 when an aim is missed by more than a fifth")
        own.add_argument("--quick", action="store_true", help="a little of each, to see that everything runs")
        told = f"{benchmark.repeats} (default: {benchmark.sizes.repeats})"
        own.add_argument("--repeats", type=int, metavar="N", help=told)
    options = parser.parse_args(arguments)
    chosen = known[options.name]
    sizes = chosen.quick if options.quick else chosen.sizes
    if options.repeats is not None:
        if options.repeats < 1:
            parser.error("--repeats must be at least 1")
        sizes = replace(sizes, repeats=options.repeats)
    missed = chosen.report(sizes, lambda text: print(text, flush=True))
    if not options.check:
        return 0
    for aim in missed:
        print(f"Missed: {aim}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
