"""One open page's conversation over its socket: what it asks for is verified and handed to the hub."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flask import Flask
from redis.exceptions import RedisError
from werkzeug.exceptions import HTTPException

from . import frames
from .audience import UNKNOWN
from .audience import Refused
from .audience import current_viewer
from .audience import require_rule
from .audience import verified_stream
from .channel import Connection
from .frames import Malformed
from .frames import Subscribe
from .frames import Unsubscribe
from .handshake import Handshake
from .hub import TRY_AGAIN
from .hub import Hub
from .hub import Unavailable
from .presence import attendance
from .rate import Rate
from .signing import Signer

logger = logging.getLogger("flask_instruct")

MOST_STREAMS = 500
"""Streams that one page may follow."""

ASKED = Rate(6000)
"""What one page may ask for in a minute. Each stream it names costs one, and each message ten at least."""

MESSAGE_COST = 10

POLICY = 1008
INTERNAL = 1011


@dataclass(frozen=True, slots=True)
class Site:
    """What all visitors of an app have in common.

    :param max_age: seconds that a token is good for.
    """

    app: Flask
    hub: Hub
    signer: Signer
    max_age: float


class Visitor:
    """A page, its viewer and the streams it follows.

    The app's own rules are asked in a request context of their own, from the handshake's cookies, so that
    nothing of it, such as a database connection, is held while the socket is open.
    """

    __slots__ = ("_connection", "_handshake", "_site", "_spent", "_streams", "_viewer")

    def __init__(self, site: Site, handshake: Handshake, connection: Connection) -> None:
        self._site = site
        self._handshake = handshake
        self._connection = connection
        self._streams: tuple[str, ...] = ()
        self._viewer: str | None = None
        self._spent = 0.0

    def receive(self, message: str | bytes) -> None:
        """Do what a message of the page asks, or close the socket with the reason for not doing it."""
        with self._closing_on_error():
            requests = frames.parse(message)
            self._count(len(requests))
            for request in requests:
                self._answer(request)

    def check(self) -> None:
        """Ask again whether the viewer may listen, so that a logout ends it."""
        with self._closing_on_error(), self._context():
            viewer = self._same_viewer()
            for stream in self._streams:
                require_rule(viewer, stream)

    def _count(self, requests: int) -> None:
        self._spent, wait = ASKED.take(self._spent, time.monotonic(), max(MESSAGE_COST, requests))
        if wait:
            raise Malformed("too many messages")

    def _answer(self, request: frames.Request) -> None:
        if isinstance(request, Subscribe):
            self._subscribe(request)
        elif isinstance(request, Unsubscribe):
            self._streams = tuple(stream for stream in self._streams if stream != request.stream)
            self._site.hub.unsubscribe(self._connection, request.stream)
        else:
            self._connection.send(frames.pong())

    def _subscribe(self, request: Subscribe) -> None:
        with self._context():
            viewer = self._same_viewer()
            granted = verified_stream(self._site.signer, request.token, viewer, self._site.max_age)
            attends = attendance(granted.stream, viewer, present=granted.present)
        stream = granted.stream
        if stream not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                raise Malformed("too many streams")
            self._streams = (*self._streams, stream)
        self._site.hub.subscribe(self._connection, stream, request.since, viewer, attends)

    def _same_viewer(self) -> str:
        """Return who is looking.

        :raises Refused: when it is someone else than before: what is on its way is for that one's eyes; or when the
            viewer has too many pages open.
        """
        viewer = current_viewer()
        if self._viewer is None:
            if not self._site.hub.introduce(self._connection, viewer):
                raise Refused(TRY_AGAIN, "too many pages")
            self._viewer = viewer
        if viewer != self._viewer:
            raise Refused(UNKNOWN, "another viewer")
        return viewer

    @contextmanager
    def _context(self) -> Iterator[None]:
        app = self._site.app
        with app.app_context(), app.request_context(self._handshake.environ()):
            self._let_the_app_look()
            yield

    def _let_the_app_look(self) -> None:
        """Run the app's functions before the request: many apps learn there who is looking (``g.user``).

        :raises Refused: when one of them answers the request itself, as a sign-in guard does.
        """
        for function in self._site.app.before_request_funcs.get(None, ()):
            try:
                answer = self._site.app.ensure_sync(function)()
            except HTTPException as error:
                raise Refused(UNKNOWN, f"the app answered {error.code}") from error
            if answer is not None:
                raise Refused(UNKNOWN, "the app sends this visitor elsewhere")

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        close: Callable[[int, str], None] = self._connection.close
        try:
            yield
        except Refused as refused:
            logger.warning("A page's socket was closed with %d: %s", refused.code, refused)
            close(refused.code, str(refused))
        except Malformed as malformed:
            close(POLICY, str(malformed))
        except (RedisError, Unavailable) as error:
            logger.warning("A page could not be subscribed: %s", error)
            close(TRY_AGAIN, "try again")
        except Exception:
            logger.exception("A page's socket failed")
            close(INTERNAL, "internal error")
