"""The open pages of one process, as the hub knows them, and the streams that they follow."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import Protocol

from .frames import Frame
from .position import Position
from .subscription import Subscription


class Connection(Protocol):
    """One open page, whatever carries it. No method waits."""

    def send(self, *frames: Frame) -> None:
        """Take frames to be sent in this order, after those before them."""

    def close(self, code: int, reason: str) -> None:
        """Say goodbye and end; what was not sent yet is dropped."""

    def tick(self, now: float) -> None:
        """Do what time demands, such as giving up on a reader that does not read."""


@dataclass(slots=True, eq=False)
class Channel:
    """One stream that this process follows.

    :param generation: grows each time Redis (again) confirms it.
    :param last: the newest broadcast that arrived since it was confirmed.
    """

    members: dict[Connection, Subscription] = field(default_factory=dict)
    confirmed: bool = False
    generation: int = 0
    last: Position | None = None
