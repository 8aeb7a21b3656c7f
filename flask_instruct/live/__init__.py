"""Live pages: fragments go through Redis to every open page that follows a stream, and none is lost on the way.

``init_live`` sets an app up; the template functions ``turbo_stream_from``, ``dom_id`` and ``instruct_scripts``
are all that a page needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask

from ..config import Config
from . import page
from . import routes
from . import server
from .broadcasts import EXTENSION
from .bus import Bus
from .bus import RedisFactory
from .hub import Hub
from .loop import Loop
from .loop import Terms
from .presence import Presence
from .rate import Counters
from .rate import Rate
from .server import WebServer
from .signed_out import follow_logins
from .signing import Signer
from .visitor import Site


@dataclass(frozen=True, slots=True)
class Live:
    """The live half of one app, in one process."""

    bus: Bus
    hub: Hub
    loop: Loop
    signer: Signer
    site: Site
    config: Config
    handshakes: Counters

    def close(self) -> None:
        """Tell the open pages that the server restarts, and end the threads."""
        self.hub.close()
        self.loop.close()


def init_live(app: Flask, config: Config, redis_factory: RedisFactory) -> Live:
    """Add live pages to an app: the socket, the scripts and the template functions. Nothing connects yet.

    :param redis_factory: gives this process's client of Redis; it must not retry by itself.
    """
    server.announce()
    live = assemble(app, config, Bus(redis_factory, config))
    routes.register(app, config.url_prefix)
    page.register(app)
    follow_logins(app)
    return live


def assemble(app: Flask, config: Config, bus: Bus) -> Live:
    """Make the live half of an app on a bus, and let the app use it from now on."""
    web_server = WebServer()
    hub = Hub(
        bus,
        limit=lambda: web_server.socket_limit(config.max_sockets),
        stopping=web_server.stopping,
        viewer_limit=config.max_sockets_per_viewer,
        presence=Presence(app, bus, config.stream_ttl),
    )
    terms = Terms(config.socket_queue, config.ping_interval, routes.CHECK_INTERVAL, left=hub.remove)
    signer = Signer(app)
    handshakes = Counters(Rate(config.handshakes_per_minute))
    site = Site(app, hub, signer, config.token_max_age)
    live = Live(bus, hub, Loop(terms, config.max_sockets), signer, site, config, handshakes)
    app.extensions[EXTENSION] = live
    return live
