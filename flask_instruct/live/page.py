"""What a page is given so that it can follow streams: the element, its cursor, and the script."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from flask import current_app
from flask import g
from flask import has_request_context
from flask import request
from flask import request_started
from flask import url_for
from markupsafe import Markup
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from .audience import current_viewer
from .audience import sign_stream
from .broadcasts import EXTENSION
from .language import domain
from .language import marked as _
from .presence import VIEWERS
from .presence import list_of
from .presence import viewers
from .turbo_stream import dom_id
from .turbo_stream import stream_id
from .turbo_stream import stream_name

if TYPE_CHECKING:
    from . import Live

logger = logging.getLogger("flask_instruct")

_EXEMPT = "instruct_live_exempt"

_TEXTS = {
    "changed": _("This was changed elsewhere while you were writing."),
    "removed": _("This was removed elsewhere while you were writing."),
    "mine": _("Your version"),
    "theirs": _("Other version"),
    "close": _("Close"),
    "below": _("New below"),
}


def register(app: Flask) -> None:
    """Give an app's templates ``turbo_stream_from``, ``instruct_viewers``, ``dom_id`` and ``instruct_scripts``."""
    # The signal comes before every before_request function, and so before every query of the request: a cursor
    # taken later would lie after a change that the page does not show.
    request_started.connect(_note_start, app, weak=False)
    app.jinja_env.globals.update(**_FUNCTIONS)


def turbo_stream_from(*streamables: object, presence: bool = False, **attributes: object) -> Markup:
    """Let the page follow the stream of a record or a name, from the moment its request began.

    With Redis down the page renders all the same, marked ``data-instruct-live="off"``, and catches up later.

    :param presence: count who looks at this page among the viewers of the record: see :func:`instruct_viewers`.
    """
    return _follow(stream_name(*streamables), present=presence, **attributes)


def instruct_viewers(*streamables: object) -> Markup:
    """Show who has a page of a record open that counts them (``turbo_stream_from(record, presence=True)``).

    The list is rendered by ``instruct/viewers.html`` and follows by itself.
    """
    stream = stream_name(*streamables)
    shown = list_of(stream, viewers(*streamables))
    element = Markup('<div class="instruct-viewers" id="{}">{}</div>').format(stream_id("viewers", stream), shown)
    return _follow(stream + VIEWERS) + element


def _follow(stream: str, *, present: bool = False, **attributes: object) -> Markup:
    live = _live()
    given: dict[str, object] = {
        "name": stream,
        "token": sign_stream(live.signer, stream, current_viewer(), present=present),
        "since": _cursor(live, stream),
        **{name.replace("_", "-"): value for name, value in attributes.items()},
    }
    if not given["since"]:
        given["data-instruct-live"] = "off"
    parts = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in given.items())
    return Markup("<instruct-stream{}></instruct-stream>").format(parts)


def instruct_scripts(nonce: str | None = None) -> Markup:
    """Load the script of live pages; place it once, in the head.

    :param nonce: of the page's content security policy; found by itself in ``g.csp_nonce`` and ``request.csp_nonce``.
    """
    given: dict[str, object] = {
        "type": "module",
        "src": url_for("instruct_live.static", filename="instruct.js"),
        # Only the path: behind a proxy the page knows better than we which host and scheme it came from.
        "data-instruct-socket": urlsplit(url_for("instruct_live.socket")).path,
        "data-instruct-events": urlsplit(url_for("instruct_live.events")).path,
        "data-instruct-ping": _live().config.ping_interval,
        **({"data-instruct-scripts": ""} if _live().config.allow_scripts else {}),
        **{f"data-instruct-text-{name}": _translated(text) for name, text in _TEXTS.items()},
    }
    nonce = nonce or g.get("csp_nonce") or getattr(request, "csp_nonce", None)
    if nonce:
        given["nonce"] = nonce
    parts = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in given.items())
    return Markup("<script{}></script>").format(parts)


_FUNCTIONS = {
    "turbo_stream_from": turbo_stream_from,
    "instruct_viewers": instruct_viewers,
    "instruct_scripts": instruct_scripts,
    "dom_id": dom_id,
}


def _note_start(sender: Flask, **extra: Any) -> None:
    _exempt_events(sender)
    _live().bus.prepare()
    g.instruct_started = time.monotonic()


def _exempt_events(app: Flask) -> None:
    """Let Flask-WTF's CSRFProtect pass the events: a page listens, changes nothing, and is told by its Origin."""
    protection = app.extensions.get("csrf")
    if protection is not None and not app.extensions.get(_EXEMPT):
        app.extensions[_EXEMPT] = True
        protection.exempt(app.blueprints["instruct_live"])


def _cursor(live: Live, stream: str) -> str:
    started = g.get("instruct_started") if has_request_context() else None
    try:
        return live.bus.cursor(stream, started) if started is not None else live.bus.now(stream)
    except (RedisError, ConfigurationError) as error:
        logger.warning("A page renders without live updates, Redis could not be asked for its clock: %s", error)
        return ""


def _translated(text: str) -> str:
    """Say a text in the reader's language: from the package's own texts with Flask-Babel, else by the app's gettext."""
    words = domain()
    if words is not None:
        # What Flask-Babel gives to templates takes a template's context, and there is none here.
        return str(words.gettext(text))
    gettext = current_app.jinja_env.globals.get("gettext")
    return str(gettext(text)) if callable(gettext) else text


def _live() -> Live:
    live: Live = current_app.extensions[EXTENSION]
    return live
