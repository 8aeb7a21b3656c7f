"""The routes of live pages: the socket, the events for where no socket gets through, and the scripts that use them."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from flask import Blueprint
from flask import Flask
from flask import Response
from flask import current_app
from flask import make_response
from flask import request
from flask_sock import Sock

from . import frames
from . import scripts
from . import server
from . import takeover
from .audience import is_own_origin
from .broadcasts import EXTENSION
from .event_stream import HEADERS
from .event_stream import EventStream
from .handshake import Handshake
from .rate import counted_address
from .sockets import MESSAGE_BYTES
from .sockets import LockedSocket
from .sockets import ThreadSocket
from .speech import EVENTS
from .visitor import Visitor

logger = logging.getLogger("flask_instruct")

CHECK_INTERVAL = 60.0
"""Seconds after which a page's right to listen is asked for again."""

_TAKEN = "flask_instruct.taken"
_SERVER_SOCKETS = ("werkzeug.socket", "gunicorn.socket")


def register(app: Flask, url_prefix: str) -> None:
    """Add the routes to an app."""
    blueprint = Blueprint("instruct_live", __name__, template_folder="templates")
    blueprint.before_request(_handshake)
    blueprint.after_request(_ended)
    Sock().route("/socket", bp=blueprint, endpoint="socket")(_socket)
    blueprint.post("/events", endpoint="events")(_events)
    blueprint.get("/live/<path:filename>", endpoint="static")(scripts.serve)
    app.register_blueprint(blueprint, url_prefix=url_prefix)


class _TakenOver(Response):
    """What the server gets once a socket is not its own any more: nothing that it would write into it."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if "gunicorn.socket" in environ:
            raise StopIteration
        # Werkzeug takes it for a page that has left, and is silent (pallets/werkzeug#2865).
        raise ConnectionAbortedError("the socket was taken over")


def _handshake() -> Response | None:
    """Refuse at once what may not listen; make the server's socket safe for the rest."""
    if request.endpoint not in ("instruct_live.socket", "instruct_live.events"):
        return None
    if (refused := _too_often()) is not None:
        return refused
    allowed = _live().config.allowed_origins
    if not is_own_origin(request.headers.get("Origin"), request.host, request.scheme, allowed):
        logger.warning(
            "A socket from origin %r to %r was refused; list other origins of this site in INSTRUCT_ALLOWED_ORIGINS.",
            request.headers.get("Origin"),
            request.host,
        )
        return _refusal(403, "This origin may not open the socket.")
    return _prepare_socket() if request.endpoint == "instruct_live.socket" else None


def _too_often() -> Response | None:
    """Count this handshake for the address it comes from; refuse it where those are too many."""
    address = counted_address(request.environ)
    wait = _live().handshakes.take(address, time.monotonic()) if address is not None else 0.0
    if not wait:
        return None
    logger.warning(
        "A live page of %s was told to come back later: more than INSTRUCT_HANDSHAKES_PER_MINUTE from there. Behind a "
        "proxy the app has to know whom it speaks for: see ProxyFix.",
        address,
    )
    response = _refusal(429, "Too many live pages have come from this address within a minute.")
    response.retry_after = math.ceil(wait)
    return response


def _prepare_socket() -> Response | None:
    environ = request.environ
    problem = server.unusable(environ)
    if problem is not None:
        logger.error(problem)
        return _refusal(503, problem)
    if not _is_websocket(environ):
        return _refusal(426, "A WebSocket handshake of version 13 is expected here.")
    # A frame is encoded once for all pages, and compressing it for each took most of the memory of idle sockets.
    environ.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
    for key in _SERVER_SOCKETS:
        if takeover.is_possible(sock := environ.get(key)):
            return _held_socket(sock)
        if sock is not None:
            environ[key] = LockedSocket(sock)
    return None


def _held_socket(sock: socket.socket) -> Response:
    """Let the loop serve one page. It is answered by hand: flask-sock's way takes five times the work, and a thread."""
    live = _live()
    _release_session()
    with suppress(OSError):  # The loop will find that it has gone.
        sock.sendall(frames.accepted(request.environ["HTTP_SEC_WEBSOCKET_KEY"]))
    request.environ[_TAKEN] = True
    held = live.loop.hold(takeover.take(sock))
    live.hub.add(held)
    held.serve(Visitor(live.site, Handshake(request.environ), held))
    return _TakenOver()


def _socket(ws: Any) -> None:
    """Serve one page until it leaves, where the server's thread has to stay with its socket."""
    request.environ[_TAKEN] = True
    live = _live()
    _release_session()
    handshake = Handshake(request.environ)
    connection = ThreadSocket(ws, ws.sock, limit=live.config.socket_queue, ping_interval=live.config.ping_interval)
    visitor = Visitor(live.site, handshake, connection)
    live.hub.add(connection)
    try:
        connection.run(visitor.receive, CHECK_INTERVAL, visitor.check)
    finally:
        live.hub.remove(connection)


def _events() -> Response:
    """Send one page what it follows as the events of a response; the request's body is its message."""
    live = _live()
    if (request.content_length or 0) > MESSAGE_BYTES:
        return _refusal(413, "The message is too big.")
    message = request.get_data(cache=False, as_text=True)
    _release_session()
    handshake = Handshake(request.environ)
    for key in _SERVER_SOCKETS:
        if takeover.is_possible(sock := request.environ.get(key)):
            return _held_events(live, handshake, sock, message)
    problem = server.blocked_by_events(request.environ)
    if problem is not None:
        logger.error(problem)
        return _refusal(503, problem)
    connection = EventStream(limit=live.config.socket_queue, ping_interval=live.config.ping_interval)
    visitor = Visitor(live.site, handshake, connection)

    def body() -> Iterator[bytes]:
        live.hub.add(connection)
        try:
            visitor.receive(message)
            yield from connection.pieces(CHECK_INTERVAL, visitor.check)
        finally:
            live.hub.remove(connection)

    return Response(body(), headers=HEADERS)


def _held_events(live: Any, handshake: Handshake, sock: socket.socket, message: str) -> Response:
    """Answer by hand, as the server is not to know of the rest."""
    lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in HEADERS.items()), "Connection: close", "", ""]
    sock.sendall("\r\n".join(lines).encode())
    request.environ[_TAKEN] = True
    held = live.loop.hold(takeover.take(sock), EVENTS)
    live.hub.add(held)
    held.serve(Visitor(live.site, handshake, held), message)
    return _TakenOver()


def _ended(response: Response) -> Response:
    return _TakenOver() if _TAKEN in request.environ else response


def _is_websocket(environ: dict[str, Any]) -> bool:
    upgrade = environ.get("HTTP_UPGRADE", "").lower() == "websocket"
    return upgrade and environ.get("HTTP_SEC_WEBSOCKET_VERSION") == "13" and "HTTP_SEC_WEBSOCKET_KEY" in environ


def _release_session() -> None:
    """Give back the database connection that a function before the request may have taken."""
    db = getattr(current_app.extensions.get("instruct"), "db", None)
    if db is not None:
        db.session.remove()


def _refusal(status: int, text: str) -> Response:
    response = make_response(text, status)
    response.mimetype = "text/plain"
    return response


def _live() -> Any:
    return current_app.extensions[EXTENSION]
