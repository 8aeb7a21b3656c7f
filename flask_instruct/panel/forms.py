"""What makes a POST to the panel trustworthy: a signed token that names handler, record, viewer and moment.

The token is in the page of one viewer and never in a fragment, which all viewers share: a run's buttons belong
to the panel's own form by its id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any
from urllib.parse import parse_qsl
from urllib.parse import urlencode
from urllib.parse import urlsplit

from flask import request
from flask import url_for

from ..errors import HandlerError
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..live.audience import current_viewer
from ..live.audience import says_yes
from ..live.signing import InvalidToken
from .language import gettext as _
from .language import whole

if TYPE_CHECKING:
    from ..state import State
    from ..tools import Tool

PURPOSE = "panel"
LONGEST_PROMPT = 20_000
"""Characters of a request; the text field has the same limit."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_PLAIN_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*\Z")


class Refused(Exception):
    """Raise when a POST is not acted on: the HTTP status and words for the person who pressed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Form:
    """What the panel's forms carry for one viewer."""

    action: str
    token: str
    next: str
    longest: int = LONGEST_PROMPT


def form_for(state: State, handler: AiResponseHandler) -> Form | None:
    """Return the form of the current viewer for a handler, or None for one who may not ask."""
    actor = state.actor()
    if not _may(state, actor, handler):
        return None
    return Form(
        action=url_for("instruct_panel.start_run"),
        token=state.live.signer.sign(PURPOSE, {"handler": handler.to_gid()}, current_viewer()),
        next=request.script_root + (request.full_path if request.query_string else request.path),
    )


@dataclass(frozen=True, slots=True)
class Posted:
    """A POST that may be acted on."""

    handler: AiResponseHandler
    gid: str
    actor: Any


def read(state: State) -> Posted:
    """Check the current POST.

    :raises Refused: 403 for a token that is missing, wrong, expired or another viewer's, and for an actor whom
        ``@instruct.authorize`` refuses; 404 when the record is gone.
    """
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        raise Refused(403, _("This was sent from another site."))
    actor = state.actor()
    gid = _signed_gid(state, current_viewer())
    try:
        handler = locate(gid)
    except HandlerError:
        raise Refused(404, _("What this page was about no longer exists.")) from None
    if not _may(state, actor, handler):
        raise Refused(403, _("You are not allowed to ask for this."))
    return Posted(handler, gid, actor)


def prompt_text(name: str | None = None) -> str:
    """Return what was asked in the current POST, cleaned of control characters.

    :param name: of the field; default: what a panel's box or one of its suggestions says.
    :raises Refused: 400 when there is nothing, 413 when it is too long.
    """
    text = request.form.get(name, "") if name else request.form.get("suggestion") or request.form.get("prompt", "")
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if not text:
        raise Refused(400, _("Write what should change, then send."))
    if len(text) > LONGEST_PROMPT:
        raise Refused(
            413, _("This is longer than %(n)s characters. Shorten it and send again.", n=whole(LONGEST_PROMPT))
        )
    return text


def way_back(*, chat: str | None = None) -> str:
    """Return the path of the page the POST came from, on this site only; the site's root when it names another.

    :param chat: the thread that the page is to show.
    """
    path = request.form.get("next", "")
    parts = urlsplit(path) if _PLAIN_PATH.match(path) else None
    if parts is None or parts.scheme or parts.netloc:
        return request.script_root + "/"
    if chat is None:
        return path
    query = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("chat", "at")]
    return f"{parts.path}?{urlencode([*query, ('chat', chat)])}"


def _signed_gid(state: State, viewer: str) -> str:
    try:
        signed = state.live.signer.unsign(request.form.get("token", ""), PURPOSE, state.config.token_max_age)
    except InvalidToken as error:
        if error.expired:
            raise Refused(403, _("This page has been open for too long. Reload it and send again.")) from None
        raise Refused(403, _("This page can no longer send. Reload it and try again.")) from None
    if signed.viewer != viewer:
        raise Refused(403, _("You are signed in as someone else by now. Reload the page and send again."))
    return str(signed.payload["handler"])


def decides(state: State, handler: AiResponseHandler) -> frozenset[str]:
    """Return the names of the tools that the current viewer may decide about; with which arguments is asked then.

    ``preview:`` is before those that the viewer may accept in the preview of a whole run.
    """
    actor = state.actor()
    tools = handler.ai_tools()
    allowed = {tool.identifier for tool in tools if _may_approve(handler, tool, actor)}
    free = {tool.identifier for tool in tools if tool.approval is False}
    return frozenset(allowed | {f"preview:{name}" for name in allowed | free})


def _may_approve(handler: AiResponseHandler, tool: type[Tool], actor: Any) -> bool:
    try:
        return says_yes(handler.authorize_approval, tool, {}, actor)
    except Exception:
        # A rule that looks at the arguments, which are not known yet.
        return True


def _may(state: State, actor: Any, handler: AiResponseHandler) -> bool:
    authorize = state.hooks.authorize
    return authorize is None or says_yes(authorize, actor, handler)
