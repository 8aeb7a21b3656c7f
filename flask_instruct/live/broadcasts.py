"""Sends fragments to pages: ``broadcast`` and its family, as functions and as the methods of a handler.

A fragment is rendered once, at the call or with ``render_later`` after the response. It leaves after the commit of the
transaction that is open, and never after a rollback; while a tool runs, its outlet takes it into that tool's own
transaction.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING
from typing import Any

from flask import current_app
from markupsafe import Markup
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from ..transactions import on_commit
from .addressed import EVERYBODY
from .addressed import NOBODY
from .addressed import Audience
from .addressed import addressed
from .addressed import audience
from .later import later
from .rendering import render_fragment
from .turbo_stream import dom_id
from .turbo_stream import stream_name
from .turbo_stream import turbo_stream

if TYPE_CHECKING:
    from . import Live
    from .bus import Bus

logger = logging.getLogger("flask_instruct")

EXTENSION = "instruct_live"

Outlet = Callable[[str, str], None]
"""Takes the stream and the HTML of a broadcast instead of the bus."""

outlet: ContextVar[Outlet | None] = ContextVar("flask_instruct_outlet", default=None)


def broadcast(
    stream: str,
    action: str,
    *,
    target: object = None,
    targets: str | None = None,
    template: str | None = None,
    html: Markup | str | None = None,
    method: str | None = None,
    attributes: Mapping[str, object] | None = None,
    only: object = None,
    except_: object = None,
    render_later: bool = False,
    **context: Any,
) -> None:
    """Render a fragment now and send it to the pages that follow ``stream`` once it is committed.

    :param target: id of the element, or a record (its :func:`dom_id`); ``targets`` is a CSS selector instead.
    :param template: rendered with ``context``; or give ``html``, of which plain text is escaped.
    :param attributes: further attributes of the element, such as ``{"offset": 12}``.
    :param only: users, or their ids: of the pages that follow the stream only theirs are sent it.
    :param except_: users, or their ids, whose pages are not sent it.
    :param render_later: render after the commit and the response; records among the context are read again then, and
        an error is only logged. In a tool, which nobody waits for, it is rendered now.
    :raises InstructError: when the fragment is larger than ``INSTRUCT_BROADCAST_BYTES``.
    """
    if template is not None and html is not None:
        raise TypeError("A broadcast takes a template or html, not both.")
    if context and template is None:
        raise TypeError(f"{', '.join(context)} would be the context of a template, but none is given.")
    to_whom = audience(only, except_)
    attributes = attributes or {}

    def render(**context: Any) -> str:
        content = render_fragment(template, **context) if template is not None else html or ""
        return str(turbo_stream(action, target=target, targets=targets, html=content, method=method, **attributes))

    if to_whom == NOBODY:
        return
    db = getattr(current_app.extensions.get("instruct"), "db", None)
    if not render_later or db is None or outlet.get() is not None:
        send(stream, render(**context), to_whom)
        return
    target = target if target is None or isinstance(target, str) else dom_id(target)
    later(db, render, lambda html: send(stream, html, to_whom), context)


def broadcast_append_to(*streamables: object, **options: Any) -> None:
    """Add a fragment after the last child of its target; a child with an id that is there already moves."""
    broadcast(stream_name(*streamables), "append", **options)


def broadcast_prepend_to(*streamables: object, **options: Any) -> None:
    """Add a fragment before the first child of its target."""
    broadcast(stream_name(*streamables), "prepend", **options)


def broadcast_replace_to(*streamables: object, **options: Any) -> None:
    """Exchange the target by a fragment, or change it into the fragment with ``method="morph"``."""
    broadcast(stream_name(*streamables), "replace", **options)


def broadcast_update_to(*streamables: object, **options: Any) -> None:
    """Exchange what is inside the target by a fragment, or change it with ``method="morph"``."""
    broadcast(stream_name(*streamables), "update", **options)


def broadcast_remove_to(*streamables: object, **options: Any) -> None:
    """Remove the target."""
    broadcast(stream_name(*streamables), "remove", **options)


def broadcast_before_to(*streamables: object, **options: Any) -> None:
    """Add a fragment in front of the target."""
    broadcast(stream_name(*streamables), "before", **options)


def broadcast_after_to(*streamables: object, **options: Any) -> None:
    """Add a fragment behind the target."""
    broadcast(stream_name(*streamables), "after", **options)


def broadcast_refresh_to(*streamables: object, **options: Any) -> None:
    """Let the pages fetch themselves again and change what differs."""
    broadcast(stream_name(*streamables), "refresh", **options)


def broadcast_text_to(*streamables: object, target: object, text: str, offset: int, **options: Any) -> None:
    """Add plain text to the end of the target.

    :param offset: length of the text that is in front of this piece, in UTF-16 code units as browsers count. A page
        that has more ignores the piece; one that has less fetches itself again.
    """
    broadcast(stream_name(*streamables), "text", target=target, html=text, attributes={"offset": offset}, **options)


class HandlerBroadcasts:
    """The broadcast methods of a handler.

    The short ones go to the stream of the handler's record, with the target ``dom_id(record, suffix)``; the ``_to``
    ones name streamables and target themselves.
    """

    broadcast_append_to = staticmethod(broadcast_append_to)
    broadcast_prepend_to = staticmethod(broadcast_prepend_to)
    broadcast_replace_to = staticmethod(broadcast_replace_to)
    broadcast_update_to = staticmethod(broadcast_update_to)
    broadcast_remove_to = staticmethod(broadcast_remove_to)
    broadcast_before_to = staticmethod(broadcast_before_to)
    broadcast_after_to = staticmethod(broadcast_after_to)
    broadcast_refresh_to = staticmethod(broadcast_refresh_to)
    broadcast_text_to = staticmethod(broadcast_text_to)

    def broadcast_append(self, suffix: str | None = None, **options: Any) -> None:
        """Append to the record's element of this suffix."""
        self._broadcast("append", suffix, options)

    def broadcast_prepend(self, suffix: str | None = None, **options: Any) -> None:
        """Prepend to the record's element of this suffix."""
        self._broadcast("prepend", suffix, options)

    def broadcast_replace(self, suffix: str | None = None, **options: Any) -> None:
        """Replace the record's element of this suffix."""
        self._broadcast("replace", suffix, options)

    def broadcast_update(self, suffix: str | None = None, **options: Any) -> None:
        """Update the record's element of this suffix."""
        self._broadcast("update", suffix, options)

    def broadcast_remove(self, suffix: str | None = None, **options: Any) -> None:
        """Remove the record's element of this suffix."""
        self._broadcast("remove", suffix, options)

    def broadcast_before(self, suffix: str | None = None, **options: Any) -> None:
        """Add in front of the record's element of this suffix."""
        self._broadcast("before", suffix, options)

    def broadcast_after(self, suffix: str | None = None, **options: Any) -> None:
        """Add behind the record's element of this suffix."""
        self._broadcast("after", suffix, options)

    def broadcast_refresh(self, **options: Any) -> None:
        """Let the record's pages fetch themselves again."""
        broadcast(stream_name(_record(self)), "refresh", **options)

    def _broadcast(self, action: str, suffix: str | None, options: dict[str, Any]) -> None:
        record = _record(self)
        if "targets" not in options:
            options.setdefault("target", dom_id(record, suffix))
        broadcast(stream_name(record), action, **options)


def _record(handler: object) -> object:
    record = getattr(handler, "record", None)
    return handler if record is None else record


def send(stream: str, html: str, to_whom: Audience = EVERYBODY) -> None:
    """Send what is rendered already, once the open transaction is committed; in a tool with the tool's own.

    :raises InstructError: when it is larger than ``INSTRUCT_BROADCAST_BYTES``.
    """
    bus = live().bus
    html = addressed(html, to_whom)
    bus.check_size(stream, html)
    deliver = outlet.get()
    if deliver is not None:
        deliver(stream, html)
        return
    broadcast_id = uuid.uuid4().hex
    db = getattr(current_app.extensions.get("instruct"), "db", None)
    if db is None:
        _publish(bus, stream, html, broadcast_id)
    else:
        on_commit(db.session, lambda: _publish(bus, stream, html, broadcast_id))


def _publish(bus: Bus, stream: str, html: str, broadcast_id: str) -> None:
    # The commit has happened: an error here would tell the caller that it had not.
    try:
        bus.publish(stream, html, broadcast_id=broadcast_id)
    except RedisError as error:
        logger.error("A broadcast to %s was lost, Redis could not be reached: %s", stream, error)


def live() -> Live:
    """Return the current app's live pages.

    :raises ConfigurationError: when it has none.
    """
    found: Live | None = current_app.extensions.get(EXTENSION)
    if found is None:
        raise ConfigurationError("This app has no live pages: call Instruct.init_app(app) first.")
    return found
