"""Presence: who watches a record, counted from the open pages of all processes, and told to the pages that ask.

One thread of a process, begun by the first page that asks for it, tells Redis who is here and renders the list
where it has changed. A leave is postponed, so that a reload or another server is none.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import Flask
from flask import current_app
from markupsafe import Markup
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from .reader import Reader
from .rendering import render_fragment
from .roll import GRACE
from .roll import LIFETIME
from .turbo_stream import stream_id
from .turbo_stream import stream_name
from .turbo_stream import turbo_stream

if TYPE_CHECKING:
    from .bus import Bus

logger = logging.getLogger("flask_instruct")

VIEWERS = "!viewers"
"""Behind a stream's name: the stream on which the list of its viewers travels. No list of streamables is named so."""

TEMPLATE = "instruct/viewers.html"

GATHERING = 0.2
"""Seconds in which those who come are gathered to one change."""

RENEWAL = LIFETIME / 3
"""Seconds between two words to Redis that the viewers are still here."""

PAUSE = 2.0
"""Seconds before Redis is told again what it could not be told."""

PATIENCE = 0.5
"""Seconds before it is looked whether another process, which was about to, has told the pages."""

GOODBYE = 0.5
"""Seconds that an ending process takes to say which viewers it no longer has."""

_NOBODY = ""


@dataclass(frozen=True, slots=True)
class Attendance:
    """A page is at a stream: one of its viewers, or with an empty ``viewer`` only to see who they are.

    :param reader: for whom the list is rendered where this page brings it about.
    """

    stream: str
    viewer: str
    reader: Reader


def attendance(stream: str, viewer: str, *, present: bool) -> Attendance | None:
    """Return what a page's following of a stream means for presence; mostly nothing."""
    if stream.endswith(VIEWERS):
        return Attendance(stream.removesuffix(VIEWERS), _NOBODY, Reader.current())
    return Attendance(stream, viewer, Reader.current()) if present and viewer else None


def viewers(*streamables: object) -> list[str]:
    """Return the sorted ids of the signed-in viewers who have a page of this record open, in any process.

    Counted are pages with ``turbo_stream_from(record, presence=True)``. With Redis down it is nobody.
    """
    live = current_app.extensions["instruct_live"]
    try:
        there: list[str] = live.bus.roll.attend(stream_name(*streamables), _NOBODY)[0]
    except (RedisError, ConfigurationError) as error:
        logger.warning("Nobody could be asked who watches, Redis could not be reached: %s", error)
        return []
    return there


def list_of(stream: str, there: list[str]) -> Markup:
    """Render who is at a stream."""
    return render_fragment(TEMPLATE, viewers=there, stream=stream)


class Presence:
    """The viewers of this process's pages.

    :param told: seconds for which it is remembered what the pages were told last.
    """

    def __init__(self, app: Flask, bus: Bus, told: float) -> None:
        self._app = app
        self._bus = bus
        self._told = told
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._process = uuid.uuid4().hex
        self._change = threading.Condition()
        self._closed = False
        self._failing = False
        self._thread: threading.Thread | None = None
        self._here: dict[str, Counter[str]] = {}
        """The streams that pages of this process are at, and how many pages each viewer has there."""
        self._leaving: dict[str, set[str]] = {}
        """Whom Redis still takes to be here."""
        self._readers: dict[str, Reader] = {}
        self._gone_at: dict[str, float] = {}
        """When those who left a stream last have left it for good."""
        self._due: dict[str, float] = {}
        """When each stream is looked at next."""

    # -- told by the hub, which waits for nothing ----------------------------------------------------------------------

    def came(self, page: Attendance) -> None:
        """A page is there."""
        if self._pid != os.getpid():
            self._forget()
        with self._change:
            here = self._here.setdefault(page.stream, Counter())
            here[page.viewer] += 1
            self._leaving.get(page.stream, set()).discard(page.viewer)
            self._readers[page.stream] = page.reader
            self._soon(page.stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flask-instruct-presence", daemon=True)
                self._thread.start()

    def went(self, page: Attendance) -> None:
        """A page has left."""
        if self._pid != os.getpid():
            return
        with self._change:
            here = self._here[page.stream]
            here[page.viewer] -= 1
            if here[page.viewer] > 0:
                return
            del here[page.viewer]
            if not here:
                del self._here[page.stream]
            if page.viewer:
                self._leaving.setdefault(page.stream, set()).add(page.viewer)
                self._soon(page.stream)

    def close(self) -> None:
        """End the thread; the viewers get some seconds to appear in another process."""
        if self._pid != os.getpid() or self._thread is None:
            return
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(GOODBYE)
        until = time.monotonic() + GOODBYE
        gone = {stream: set(here) | self._leaving.get(stream, set()) for stream, here in self._here.items()}
        for stream, leaving in {**self._leaving, **gone}.items():
            try:
                self._bus.roll.attend(stream, self._process, (), leaving - {_NOBODY})
            except RedisError:
                return  # Redis will find out by itself.
            if time.monotonic() > until:
                return

    # -- the thread ------------------------------------------------------------------------------------------------

    def _soon(self, stream: str) -> None:
        self._plan(stream, time.monotonic() + GATHERING)
        self._change.notify_all()

    def _run(self) -> None:
        while (streams := self._wait()) is not None:
            for stream in streams:
                self._try(stream)

    def _wait(self) -> list[str] | None:
        """Return the streams that are due, as soon as there are some; None at the end."""
        with self._change:
            while not self._closed:
                now = time.monotonic()
                due = [stream for stream, at in self._due.items() if at <= now]
                if due:
                    return due
                self._change.wait(min(self._due.values()) - now if self._due else None)
        return None

    def _try(self, stream: str) -> None:
        with self._change:
            # Who comes or leaves while this goes on makes it due again.
            del self._due[stream]
        try:
            self._settle(stream)
            self._failing = False
        except RedisError as error:
            if not self._failing:
                logger.warning("Presence has lost Redis and tries again: %s", error)
            self._failing = True
            self._plan(stream, time.monotonic() + PAUSE)
        except Exception:
            logger.exception("The viewers of %s could not be shown", stream)
            self._plan(stream, time.monotonic() + RENEWAL)

    def _settle(self, stream: str) -> None:
        """Tell Redis who is here, and the pages where that makes a difference."""
        now = time.monotonic()
        with self._change:
            staying = set(self._here.get(stream, ())) - {_NOBODY}
            leaving = set(self._leaving.get(stream, ()))
        there, told = self._bus.roll.attend(stream, self._process, staying, leaving)
        with self._change:
            if (waiting := self._leaving.get(stream)) is not None:
                waiting -= leaving
                if not waiting:
                    del self._leaving[stream]
            if leaving:
                self._gone_at[stream] = now + GRACE + GATHERING
            if self._gone_at.get(stream, now) > now:
                self._plan(stream, self._gone_at[stream])
            else:
                self._gone_at.pop(stream, None)
            if stream in self._here:
                self._plan(stream, now + RENEWAL)
        while there != told and not self._closed:
            if not self._bus.roll.may_tell(stream):
                self._plan(stream, now + PATIENCE)
                break
            self._tell(stream, there)
            # Also for what has changed meanwhile, and where one that was too slow has told something older.
            there, told = self._bus.roll.attend(stream, self._process)
        with self._change:
            if stream not in self._due:
                self._readers.pop(stream, None)

    def _plan(self, stream: str, at: float) -> None:
        """Look at a stream again at a time, or before."""
        with self._change:
            self._due[stream] = min(at, self._due.get(stream, at))

    def _tell(self, stream: str, there: list[str]) -> None:
        with self._change:
            reader = self._readers.get(stream, Reader())
        with reader.looking(self._app):
            html = list_of(stream, there)
        fragment = turbo_stream("update", target=stream_id("viewers", stream), html=html, method="morph")
        self._bus.publish(stream + VIEWERS, fragment)
        self._bus.roll.told(stream, there, self._told)
