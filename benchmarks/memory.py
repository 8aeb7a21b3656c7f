"""What work-horses take of the memory, as the Linux kernel counts it: whole (RSS), and shared pages divided (PSS)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PROC = Path("/proc")
KIB = 1024
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process or several."""

    rss: float
    pss: float

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss + other.rss, self.pss + other.pss)

    def __str__(self) -> str:
        return f"{self.pss / MIB:>8.1f} MiB PSS, {self.rss / MIB:.1f} MiB RSS"

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Read what a process takes."""
        text = (PROC / str(pid) / "smaps_rollup").read_text()
        found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE))
        return cls(int(found["Rss"]) * KIB, int(found["Pss"]) * KIB)

    @classmethod
    def middle(cls, several: Iterable[Memory]) -> Memory:
        """Return the median of each figure."""
        known = tuple(several)
        return cls(median(memory.rss for memory in known), median(memory.pss for memory in known))


@dataclass(frozen=True, slots=True)
class Held:
    """A run in flight: its work-horse, and the RQ worker that waits for it."""

    horse: Memory
    worker: Memory


def is_known() -> bool:
    """Tell whether this system counts memory that way."""
    return (PROC / "self" / "smaps_rollup").exists()


def held_by(supervisor: int) -> list[Held]:
    """Return the runs in flight below a worker's supervisor: each of its children that has a child has one."""
    runs: list[Held] = []
    for worker in _children(supervisor):
        above = Memory.of(worker)
        runs.extend(Held(Memory.of(horse), above) for horse in _children(worker))
    return runs


def _children(pid: int) -> list[int]:
    tasks = (PROC / str(pid) / "task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
