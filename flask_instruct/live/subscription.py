"""What one page is sent about one stream, and in which order. Nothing here does I/O.

Live events wait while the backlog is read; then the page gets ``subscribed``, the backlog, the events that
waited and are newer, and ``ready``. Where the backlog has a hole the page gets ``reset`` in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import frames
from .addressed import EVERYBODY
from .addressed import Audience
from .frames import Frame
from .position import Position

if TYPE_CHECKING:
    from .presence import Attendance


@dataclass(frozen=True, slots=True)
class Entry:
    """A broadcast as Redis keeps it."""

    position: Position
    html: str
    audience: Audience = EVERYBODY


@dataclass(frozen=True, slots=True)
class History:
    """What Redis knows about one stream at one moment.

    :param now: Redis' clock, in milliseconds.
    :param epoch: since when this Redis has had its data, in milliseconds; None when it has just lost them.
    :param first: the oldest entry kept; None when none is.
    :param last: the newest id ever given; None when there is no such key.
    :param added: how many entries were ever added; None when the server does not count them (Redis before 7).
    :param lifetime: milliseconds that an idle stream is kept.
    :param maxlen: entries that are certainly kept.
    :param lead: milliseconds that positions were ahead of the clock at the beginning. They lose it at half its speed.
    """

    now: int
    epoch: int | None
    first: Position | None
    last: Position | None
    length: int
    added: int | None
    lifetime: int
    maxlen: int
    lead: int = 0

    def covers(self, since: Position) -> bool:
        """Tell whether every entry after ``since`` is still there; in doubt, no."""
        if self.epoch is None or since.ms < self.epoch:
            return False
        if since.ms > self.now and (self.last is None or since > self.last):
            return False
        if self.first is not None and since >= self.first:
            return True
        if self.last is not None and self.length == 0:
            return since >= self.last
        # The key may have expired, and begun anew, since a cursor older than its lifetime.
        return not self._trimmed and self._age(since) <= self.lifetime

    def _age(self, since: Position) -> int:
        """Return the milliseconds that may have passed since a position: while positions have a lead, twice as many."""
        passed = self.now - since.ms
        return min(2 * passed, passed + self.lead)

    @property
    def _trimmed(self) -> bool:
        if self.added is None:
            return self.length >= self.maxlen
        return self.added != self.length


@dataclass(frozen=True, slots=True)
class Replay:
    """The backlog after a cursor.

    :param lossless: False when entries may be missing; then there are no entries here.
    :param position: up to where the stream is told by this, also when it is lossy or empty.
    :param epoch: when the data that it was read from began; 0 for where that cannot change.
    """

    lossless: bool
    entries: tuple[Entry, ...]
    position: Position
    epoch: int = 0


class Subscription:
    """One page's following of one stream.

    :param viewer: whose page it is; it is not sent what is for others.
    :param attendance: what it means for presence, kept for whoever asks.
    """

    def __init__(
        self, stream: str, since: Position | None, viewer: str = "", attendance: Attendance | None = None
    ) -> None:
        self.stream = stream
        self.since = since
        self.viewer = viewer
        self.attendance = attendance
        self.last: Position | None = None
        self._epoch = 0
        self._waiting: list[tuple[Position, Frame, Audience, int]] = []

    @property
    def live(self) -> bool:
        """Tell whether the backlog has been sent."""
        return self.last is not None

    def event(self, position: Position, frame: Frame, audience: Audience = EVERYBODY, epoch: int = 0) -> list[Frame]:
        """Take a live event; return what the page is sent now.

        :param epoch: when the data that it belongs to began. A page that follows other data may lack what those had,
            also when nothing has told that there are others; their positions may even be lower.
        """
        if self.last is None:
            self._waiting.append((position, frame, audience, epoch))
            return []
        if epoch != self._epoch:
            self.last, self._epoch = position, epoch
            return [frames.reset(self.stream, position)]
        if position <= self.last:
            return []
        self.last = position
        return [frame] if audience.includes(self.viewer) else []

    def replayed(self, replay: Replay) -> list[Frame]:
        """Take the backlog; return everything that the page is sent to be up to date."""
        self.last, self._epoch = replay.position, replay.epoch
        sent = [frames.subscribed(self.stream, self.since)]
        sent += self._backlog(replay)
        waiting, self._waiting = self._waiting, []
        for position, frame, audience, epoch in waiting:
            sent += self.event(position, frame, audience, epoch)
        return [*sent, frames.ready(self.stream, self.last)]

    def caught_up(self, replay: Replay, within: int = 0) -> list[Frame]:
        """Take what was missed while the hub had lost Redis; ``replay`` may begin before our last position.

        :param within: milliseconds in which a page that has to fetch itself chooses its moment.
        """
        assert self.last is not None
        if replay.epoch != self._epoch:
            self.last, self._epoch = replay.position, replay.epoch
            return [frames.reset(self.stream, self.last, within)]
        if not replay.lossless:
            self.last = max(self.last, replay.position)
            return [frames.reset(self.stream, self.last, within)]
        missed = tuple(entry for entry in replay.entries if entry.position > self.last)
        self.last = max(self.last, replay.position)
        return self._batches(missed)

    def _backlog(self, replay: Replay) -> list[Frame]:
        if not replay.lossless:
            return [frames.reset(self.stream, replay.position)]
        return self._batches(replay.entries)

    def _batches(self, entries: tuple[Entry, ...]) -> list[Frame]:
        shown = (entry for entry in entries if entry.audience.includes(self.viewer))
        return list(frames.batches(frames.event(entry.position, self.stream, entry.html) for entry in shown))
