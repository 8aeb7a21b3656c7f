"""The moments in a run's life at which a worker's death would matter most, by name. Tests put one there.

Nothing listens in production, where reaching a point costs a look at an empty list.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from typing import get_args

Point = Literal[
    "before claim",
    "claimed",
    "call leaves",
    "text stored",
    "turn written",
    "tool begun",
    "tool returned",
    "tool committed",
    "before publish",
    "after publish",
    "effect begun",
    "effect returned",
    "before the wait",
    "put down",
    "before the end",
    "ended",
]
POINTS: tuple[Point, ...] = get_args(Point)

_listeners: list[Callable[[Point], object]] = []


def listen(listener: Callable[[Point], object]) -> None:
    """Call ``listener`` at each point that this process reaches from now on."""
    _listeners.append(listener)


def reach(point: Point) -> None:
    """Say that a point was reached."""
    for listener in _listeners:
        listener(point)


@contextmanager
def unheard() -> Iterator[None]:
    """Keep what happens in the block from the listeners: it only looks like a run."""
    heard = _listeners[:]
    _listeners.clear()
    try:
        yield
    finally:
        _listeners[:] = heard
