"""What one page is sent about one stream, and in which order. Nothing here does I/O.

Live events wait while the backlog is read; then the page gets ``subscribed``, the backlog, the events that
waited and are newer, and ``ready``. Where the backlog has a hole the page gets ``reset`` in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import frames
from .addressed import EVERYBODY
from .addressed import Audience
from .frames import Event
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
        self._told = since
        """How far the page is by what it was sent; not further by what was for others."""
        self._assured = False
        self._waiting: list[tuple[Position, Event, Audience, int]] = []

    @property
    def live(self) -> bool:
        """Tell whether the backlog has been sent."""
        return self.last is not None

    def event(self, position: Position, frame: Event, audience: Audience = EVERYBODY, epoch: int = 0) -> list[Frame]:
        """Take a live event; return what the page is sent now.

        :param epoch: when the data that it belongs to began. A page that follows other data may lack what those had,
            also when nothing has told that there are others; their positions may even be lower.
        """
        if self.last is None:
            self._waiting.append((position, frame, audience, epoch))
            return []
        if epoch != self._epoch:
            return [self._begin_anew(position, epoch)]
        if position <= self.last:
            return []
        self.last = position
        if not audience.includes(self.viewer):
            return []
        told, self._told = self._told, position
        self._assured = False
        if frame.after is None or told is None or frame.after <= told:
            return [frame]
        return [frame.following(told)]

    def assurance(self) -> Frame | None:
        """Return what tells a page in which the last broadcasts got lost on the way that there were some."""
        if self.last is None or self._assured:
            return None
        self._assured = True
        return frames.told(self.stream, self._told)

    def replayed(self, replay: Replay) -> list[Frame]:
        """Take the backlog; return everything that the page is sent to be up to date."""
        self.last, self._epoch = replay.position, replay.epoch
        sent = [frames.subscribed(self.stream, self.since)]
        sent += self._backlog(replay)
        waiting, self._waiting = self._waiting, []
        for position, frame, audience, epoch in waiting:
            sent += self.event(position, frame, audience, epoch)
        told, self._told = self._told, self.last
        self._assured = False
        return [*sent, frames.ready(self.stream, self.last, told)]

    def caught_up(self, replay: Replay, within: int = 0) -> list[Frame]:
        """Take what was missed while the hub had lost Redis; ``replay`` may begin before our last position.

        :param within: milliseconds in which a page that has to fetch itself chooses its moment.
        """
        assert self.last is not None
        if replay.epoch != self._epoch:
            return [self._begin_anew(replay.position, replay.epoch, within)]
        if not replay.lossless:
            return [self._begin_anew(max(self.last, replay.position), self._epoch, within)]
        missed = tuple(entry for entry in replay.entries if entry.position > self.last)
        self.last = max(self.last, replay.position)
        return self._batches(missed)

    def _begin_anew(self, position: Position, epoch: int, within: int = 0) -> Frame:
        """Return what makes the page fetch itself; what is told from here on is in it."""
        self.last = self._told = position
        self._epoch, self._assured = epoch, False
        return frames.reset(self.stream, position, within)

    def _backlog(self, replay: Replay) -> list[Frame]:
        if not replay.lossless:
            self._told = replay.position
            return [frames.reset(self.stream, replay.position)]
        return self._batches(replay.entries)

    def _batches(self, entries: tuple[Entry, ...]) -> list[Frame]:
        return list(frames.batches(self._events(entries)))

    def _events(self, entries: tuple[Entry, ...]) -> Iterator[Event]:
        for entry in entries:
            if entry.audience.includes(self.viewer):
                yield Event(entry.position, self.stream, entry.html, self._told)
                self._told = entry.position
                self._assured = False
