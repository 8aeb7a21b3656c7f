"""The hub: joins the bus to the open pages of one web process. One thread reads Redis for all of them.

It knows connections only as something that takes frames without waiting, so that one loop may hold all the
sockets as well as a thread each.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from ..errors import InstructError
from .bus import Bus
from .channel import Channel
from .channel import Connection
from .frames import Event
from .guests import Guests
from .listener import Arrived
from .listener import Listener
from .listener import SignedOut
from .listener import Subscribed
from .position import Position
from .presence import Attendance
from .presence import Presence
from .subscription import Subscription

logger = logging.getLogger("flask_instruct")

TICK = 0.5
"""Seconds between two looks at what time does: stuck writers, an ending server, streams nobody follows."""

PATIENCE = 3.0
"""Seconds that a subscriber waits for Redis before the page is told to try again."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
"""Seconds between two tries to reach Redis."""

GOODBYE = 0.5
"""Seconds that an ending server waits for its pages to answer its goodbye."""

SECOND_LOOK = 4.0
"""Seconds after which the pages of a viewer who was signed out are told to connect anew once more: the first time the
browser may not have had the answer that signs it out, nor the app its commit."""

UNHEARD = 60.0
"""Seconds that a lost connection to Redis may have been deaf before it was noticed."""

FETCHING = 5
"""Milliseconds that each page adds to the time in which all fetch themselves again after Redis has lost something."""

LONGEST_FETCHING = 30_000

ASSURANCE = 5.0
"""Seconds after which a page is told how far it was sent, in case that the last of it got lost on the way."""

RESTARTING = 1012
TRY_AGAIN = 1013


class Unavailable(Exception):
    """Raise when Redis does not answer a subscriber in time."""


class Hub:
    """The open pages of this process.

    :param limit: most connections; further ones are told to try again.
    :param stopping: asked now and then whether the server is about to end.
    :param viewer_limit: most connections of one viewer.
    :param presence: is told which pages come and go that are counted, or want to know who is.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        limit: Callable[[], int],
        stopping: Callable[[], bool] = lambda: False,
        viewer_limit: int = 200,
        presence: Presence | None = None,
    ) -> None:
        self._bus = bus
        self._limit = limit
        self._stopping = stopping
        self._viewer_limit = viewer_limit
        self._presence = presence
        self._forget()

    def __len__(self) -> int:
        return len(self._connections)

    # -- connections -----------------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> bool:
        """Take a connection in, or close it and return False where there is no place for it."""
        self._ensure_started()
        with self._lock:
            leaving = self._closed or self._stopping()
            full = len(self._connections) >= self._limit()
            if not leaving and not full:
                self._connections.add(connection)
                self._full = False
                return True
            if full and not self._full:
                self._full = True
                logger.warning(
                    "%d pages are open in this process and no more fit: raise INSTRUCT_MAX_SOCKETS, or gunicorn's "
                    "--threads where each page takes one.",
                    len(self._connections),
                )
        connection.close(RESTARTING if leaving else TRY_AGAIN, "restarting" if leaving else "too many pages")
        return False

    def remove(self, connection: Connection) -> None:
        """Forget a connection and all it follows."""
        with self._lock:
            for stream in self._connections.remove(connection):
                if (channel := self._channels.get(stream)) is not None:
                    self._left(channel.members.pop(connection, None))

    def introduce(self, connection: Connection, viewer: str) -> bool:
        """Note whose page a connection is, once; False where that one has too many already."""
        with self._lock:
            return self._connections.introduce(connection, viewer)

    def subscribe(
        self,
        connection: Connection,
        stream: str,
        since: Position | None,
        viewer: str = "",
        attendance: Attendance | None = None,
    ) -> None:
        """Let a connection follow a stream from after ``since``; also again, from somewhere else.

        It is sent what is for everybody and what is for ``viewer``. With ``attendance`` it is counted while it does.

        Returns once the backlog is on its way. The order decides that nothing is lost: first live events are
        kept, then the backlog is read, then both are sent.

        :raises Unavailable: when Redis does not confirm within :data:`PATIENCE`.
        :raises redis.RedisError: when it cannot be read.
        """
        subscription = Subscription(stream, since, viewer, attendance)
        channel = self._join(connection, subscription)
        deadline = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                if not self._change.wait_for(lambda: channel.confirmed, max(0.0, deadline - time.monotonic())):
                    raise Unavailable(f"Redis did not confirm {stream} within {PATIENCE:.0f} s")
                generation = channel.generation
            replay = self._bus.replay(stream, since)
            with self._lock:
                if channel.members.get(connection) is not subscription:
                    return
                if channel.confirmed and channel.generation == generation:
                    connection.send(*subscription.replayed(replay))
                    return

    def unsubscribe(self, connection: Connection, stream: str) -> None:
        """Let a connection no longer follow a stream."""
        with self._lock:
            channel = self._channels.get(stream)
            if channel is not None and (subscription := channel.members.pop(connection, None)) is not None:
                self._connections.unfollow(connection, stream)
                self._left(subscription)

    def close(self, timeout: float = GOODBYE) -> None:
        """Tell every page that the server restarts, and end the thread. The hub takes no more connections."""
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return  # The pages and the thread are those of the process that forked us.
        with self._lock:
            self._closed = True
            connections = list(self._connections)
            thread = self._thread
        for connection in connections:
            connection.close(RESTARTING, "restarting")
        deadline = time.monotonic() + timeout
        while self._connections and time.monotonic() < deadline:
            time.sleep(0.01)
        self._stop.set()
        self._wake()
        if thread is not None:
            thread.join(2 * TICK)
        if self._presence is not None:
            self._presence.close()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._stop = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._connections = Guests(self._viewer_limit)
        self._look_again: dict[str, float] = {}
        """The viewers who were signed out a moment ago, and when their pages are told once more."""
        self._followed = 0.0
        """When Redis was followed last."""
        self._channels: dict[str, Channel] = {}
        self._ticked = 0.0
        self._assured = time.monotonic()
        self._failures = 0
        self._full = False

    def _ensure_started(self) -> None:
        if self._pid != os.getpid():
            # A forked child has neither the thread nor the sockets of its parent.
            self._forget()
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="flask-instruct-hub", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (RedisError, InstructError, OSError) as error:
                if self._failures == 0:
                    logger.warning("Live pages have lost Redis and try again: %s", error)
            except Exception:
                logger.exception("Live pages start reading Redis anew")
            self._failures += 1
            self._tick()
            self._stop.wait(min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE))

    def _follow(self) -> None:
        """Read Redis until the connection is lost or the hub closes."""
        listener = self._bus.listen()
        try:
            with self._lock:
                self._listener = listener
                listener.subscribe(*self._channels)
            self._failures = 0
            connected = 0
            while not self._stop.is_set():
                self._take(listener.poll(TICK))
                if listener.connected != connected:
                    connected = listener.connected
                    self._hear_of_signed_out()
                self._followed = time.monotonic()
                self._tick()
        finally:
            with self._lock:
                self._listener = None
                for channel in self._channels.values():
                    channel.confirmed = False
            listener.close()

    def _wake(self) -> None:
        """Let the thread notice at once what it would notice at its next tick."""
        with self._lock, suppress(RedisError, OSError):
            if self._listener is not None:
                self._listener.wake()

    def _take(self, notice: Subscribed | Arrived | SignedOut | None) -> None:
        if isinstance(notice, Subscribed):
            self._confirmed(notice.stream)
        elif isinstance(notice, Arrived):
            self._relay(notice)
        elif isinstance(notice, SignedOut):
            self._send_away(notice.viewer)
            self._look_again[notice.viewer] = time.monotonic() + SECOND_LOOK

    def _hear_of_signed_out(self) -> None:
        """Do for those who were signed out while Redis was lost what was not heard."""
        if self._followed:
            for viewer in self._bus.roll.signed_out(time.monotonic() - self._followed + UNHEARD):
                self._send_away(viewer)

    def _send_away(self, viewer: str) -> None:
        """Let the pages of a viewer connect anew, and so tell again who is looking."""
        with self._lock:
            pages = self._connections.pages_of(viewer)
        for connection in pages:
            connection.close(RESTARTING, "verify again")

    def _relay(self, arrived: Arrived) -> None:
        with self._lock:
            channel = self._channels.get(arrived.stream)
            if channel is None:
                return
            before, channel.last = channel.last, arrived.position
            if not channel.members:
                return
            frame = Event(arrived.position, arrived.stream, arrived.html, before)
            for connection, subscription in channel.members.items():
                connection.send(*subscription.event(arrived.position, frame, arrived.audience, arrived.epoch))

    def _confirmed(self, stream: str) -> None:
        """Note that Redis follows a stream for us; tell its pages what happened while it did not."""
        with self._lock:
            channel = self._channels.get(stream)
            if channel is None:
                return
            channel.generation += 1
            channel.confirmed = True
            channel.last = None  # There may have been more in between.
            self._change.notify_all()
            behind = [member.last for member in channel.members.values() if member.last is not None]
        if not behind:
            return
        replay = self._bus.replay(stream, min(behind))
        with self._lock:
            # All pages there are may have to: Redis was lost for all of them.
            within = min(len(self._connections) * FETCHING, LONGEST_FETCHING)
            for connection, subscription in channel.members.items():
                if subscription.live:
                    connection.send(*subscription.caught_up(replay, within))

    def _join(self, connection: Connection, subscription: Subscription) -> Channel:
        with self._lock:
            channel = self._channels.get(subscription.stream)
            if channel is None:
                channel = self._channels[subscription.stream] = Channel()
                self._ask_for(subscription.stream)
            if connection not in self._connections:
                return channel  # It has left meanwhile, and follows nothing any more.
            self._connections.follow(connection, subscription.stream)
            before = channel.members.get(connection)
            channel.members[connection] = subscription
            if self._presence is not None and subscription.attendance is not None:
                self._presence.came(subscription.attendance)
            self._left(before)
            return channel

    def _left(self, subscription: Subscription | None) -> None:
        if self._presence is not None and subscription is not None and subscription.attendance is not None:
            self._presence.went(subscription.attendance)

    def _ask_for(self, stream: str) -> None:
        if self._listener is None:
            return  # The next listener asks for all streams there are.
        try:
            self._listener.subscribe(stream)
        except (RedisError, OSError) as error:
            logger.debug("Asking for %s failed, the reading thread will notice: %s", stream, error)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked < TICK:
            return
        self._ticked = now
        stopping = self._stopping()
        with self._lock:
            connections = list(self._connections)
            self._release_empty()
            if now - self._assured >= ASSURANCE:
                self._assured = now
                self._assure()
        for connection in connections:
            if stopping:
                connection.close(RESTARTING, "restarting")
            connection.tick(now)
        for viewer in [viewer for viewer, at in self._look_again.items() if at <= now]:
            del self._look_again[viewer]
            self._send_away(viewer)

    def _assure(self) -> None:
        for channel in self._channels.values():
            for connection, subscription in channel.members.items():
                if (frame := subscription.assurance()) is not None:
                    connection.send(frame)

    def _release_empty(self) -> None:
        # Only confirmed ones: a late confirmation must not be taken for that of a stream asked for again.
        empty = [stream for stream, channel in self._channels.items() if not channel.members and channel.confirmed]
        if self._listener is not None and empty:
            for stream in empty:
                del self._channels[stream]
            self._listener.unsubscribe(*empty)
