"""The open pages of one process: whose each of them is, and which streams it follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .channel import Connection


@dataclass(frozen=True, slots=True)
class Guest:
    """What is known of a page.

    :param viewer: whose it is; ``""`` for nobody's, or not yet known.
    """

    viewer: str = ""
    streams: tuple[str, ...] = ()


_NEW = Guest()


class Guests:
    """All pages, to be found by their viewer too. The hub's lock guards them.

    :param most: pages that one viewer may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guests: dict[Connection, Guest] = {}
        self._pages: dict[str, tuple[Connection, ...]] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._guests)

    def __contains__(self, connection: object) -> bool:
        return connection in self._guests

    def add(self, connection: Connection) -> None:
        self._guests[connection] = _NEW

    def introduce(self, connection: Connection, viewer: str) -> bool:
        """Note whose page it is, once; False where that one has too many already."""
        guest = self._guests.get(connection)
        if guest is None or not viewer:
            return True
        pages = self._pages.get(viewer, ())
        if len(pages) >= self._most:
            return False
        self._pages[viewer] = (*pages, connection)
        self._guests[connection] = Guest(viewer, guest.streams)
        return True

    def pages_of(self, viewer: str) -> tuple[Connection, ...]:
        return self._pages.get(viewer, ())

    def follow(self, connection: Connection, stream: str) -> None:
        guest = self._guests[connection]
        if stream not in guest.streams:
            self._guests[connection] = Guest(guest.viewer, (*guest.streams, stream))

    def unfollow(self, connection: Connection, stream: str) -> None:
        guest = self._guests[connection]
        remaining = tuple(each for each in guest.streams if each != stream)
        self._guests[connection] = Guest(guest.viewer, remaining)

    def remove(self, connection: Connection) -> tuple[str, ...]:
        """Forget a page; return the streams that it followed."""
        guest = self._guests.pop(connection, _NEW)
        if guest.viewer:
            others = tuple(each for each in self._pages[guest.viewer] if each is not connection)
            if others:
                self._pages[guest.viewer] = others
            else:
                del self._pages[guest.viewer]
        return guest.streams
