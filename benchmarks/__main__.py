"""``python -m benchmarks wire [--check]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from .wire import QUICK
from .wire import Sizes
from .wire import report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what the package costs.")
    wire = parser.add_subparsers(required=True).add_parser(
        "wire", help="processor time per streamed delta and per turn, beside other libraries"
    )
    wire.add_argument("--check", action="store_true", help="exit with 1 when an aim is missed by more than a fifth")
    wire.add_argument("--quick", action="store_true", help="a few pieces only, to see that everything runs")
    wire.add_argument("--repeats", type=int, metavar="N", help="pairs with each library (default: 5)")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    if options.repeats is not None:
        if options.repeats < 1:
            parser.error("--repeats must be at least 1")
        sizes = replace(sizes, repeats=options.repeats)
    missed = report(sizes, lambda text: print(text, flush=True))
    if not options.check:
        return 0
    for aim in missed:
        print(f"Missed: {aim}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
