"""The table of the crash matrix: each case adds a line to a file, and this prints them, or keeps them in a page.

``python -m tests.runs.results`` prints the table, ``python -m tests.runs.results docs/reliability.md`` also writes it
there, between two comments.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from .faults import FAULTS
from .faults import PLACES
from .faults import Fault
from .faults import Place
from .faults import impossible

FILE = Path(__file__).parents[2] / "test-artifacts" / "crash-matrix.jsonl"
REMARKS = FILE.with_name("chaos-remarks.jsonl")
BEGIN = "<!-- crash matrix: written by python -m tests.runs.results docs/reliability.md -->"
END = "<!-- end of the crash matrix -->"
DATABASES = ("sqlite", "postgresql")

Results = dict[tuple[str, str, str], float | None]
"""Seconds to recovery by place, fault and database; None for a case that failed."""


def note(place: Place, fault: Fault, database: str, seconds: float | None) -> None:
    """Write down one case; the latest of a case counts."""
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a") as file:
        file.write(json.dumps([place.name, fault, database, seconds]) + "\n")


def noted() -> Results:
    """Return what was written down."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {(place, fault, database): seconds for place, fault, database, seconds in map(json.loads, lines)}


def remark(about: str, text: str) -> None:
    """Write down what another long test found; the latest about a thing counts."""
    REMARKS.parent.mkdir(exist_ok=True)
    with REMARKS.open("a") as file:
        file.write(json.dumps([about, text]) + "\n")


def remarked() -> str:
    """Write what the other long tests found, as a list."""
    lines = REMARKS.read_text().splitlines() if REMARKS.exists() else []
    latest: dict[str, str] = dict(map(json.loads, lines))
    return "\n".join(f"- {about}: {latest[about]}." for about in sorted(latest))


def table(results: Results) -> str:
    """Write the table, a row for each place, with the reasons for empty cells below it."""
    reasons: list[str] = []
    rows = ["| point | " + " | ".join(FAULTS) + " |", "|---" * (len(FAULTS) + 1) + "|"]
    for place in PLACES:
        cells = [_cell(results, place, fault, reasons) for fault in FAULTS]
        rows.append(f"| {place.name} | " + " | ".join(cells) + " |")
    notes = [f"{number}: {reason}." for number, reason in enumerate(reasons, 1)]
    return "\n".join([*rows, "", *notes, "", summary(results.values())])


def summary(seconds: Iterable[float | None]) -> str:
    """Say how many cases there were and how long recovery took."""
    known = list(seconds)
    good = sorted(each for each in known if each is not None)
    if not good:
        return f"{len(known)} cases, none with the same result."
    return (
        f"{len(known)} cases, {len(good)} with the same result; seconds to recovery: {good[len(good) // 2]:.1f} at the "
        f"median, {good[-1]:.1f} at most."
    )


def _cell(results: Results, place: Place, fault: Fault, reasons: list[str]) -> str:
    reason = impossible(place, fault)
    if reason is not None:
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"
    return " / ".join(_told(results, (place.name, fault, database)) for database in DATABASES)


def _told(results: Results, case: tuple[str, str, str]) -> str:
    if case not in results:
        return "not run"
    seconds = results[case]
    return "**not the same**" if seconds is None else f"{seconds:.1f}"


def write(page: Path, text: str) -> None:
    """Put the table between the two comments of a page."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.runs.results", description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", help="a page with the two comments")
    page = parser.parse_args().page
    text = f"{table(noted())}\n\n{remarked()}".strip()
    print(text)
    if page is not None:
        write(page, text)


if __name__ == "__main__":
    main()
