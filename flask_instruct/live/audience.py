"""Who may listen: the site's own pages, by their Origin; a viewer, by a signed name and the app's own rule."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from flask import current_app
from sqlalchemy.exc import SQLAlchemyError

from .addressed import viewer_id
from .presence import VIEWERS
from .signing import InvalidToken
from .signing import Signer

logger = logging.getLogger("flask_instruct")

PURPOSE = "stream"

UNKNOWN = 4401
FORBIDDEN = 4403

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Refused(Exception):
    """Raise when a page may not listen; ``code`` closes its socket."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def current_viewer() -> str:
    """Return the id of who looks at the page, as the app's ``@instruct.actor`` or login says; ``""`` for nobody."""
    state = current_app.extensions.get("instruct")
    return viewer_id(state.actor() if state is not None else None)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a valid token allows: to follow a stream, and with ``present`` to be counted as one of its viewers."""

    stream: str
    present: bool


def sign_stream(signer: Signer, stream: str, viewer: str, *, present: bool = False) -> str:
    """Return the token with which a page of this viewer may follow a stream."""
    return signer.sign(PURPOSE, {"stream": stream, **({"present": True} if present else {})}, viewer)


def verified_stream(signer: Signer, token: str, viewer: str, max_age: float) -> Granted:
    """Return what a token allows.

    :raises Refused: when it is not valid, too old, made for someone else, or the app's rule says no.
    """
    try:
        signed = signer.unsign(token, PURPOSE, max_age)
    except InvalidToken as error:
        raise Refused(UNKNOWN, "expired" if error.expired else "not valid") from None
    stream = str(signed.payload["stream"])
    # What was signed for nobody in particular was on a page that anybody may see.
    if signed.viewer and signed.viewer != viewer:
        raise Refused(FORBIDDEN, "signed for another viewer")
    require_rule(viewer, stream)
    return Granted(stream, bool(signed.payload.get("present")))


def require_rule(viewer: str, stream: str) -> None:
    """Ask the app's ``@instruct.authorize_stream``; who may follow a stream may also see who else does.

    :raises Refused: when it says no.
    """
    hooks: Any = getattr(current_app.extensions.get("instruct"), "hooks", None)
    rule = getattr(hooks, "authorize_stream", None)
    if rule is not None and not says_yes(rule, viewer, stream.removesuffix(VIEWERS)):
        raise Refused(FORBIDDEN, "not allowed")


def says_yes(rule: Callable[..., Any], *about: object) -> bool:
    """Return what an app's rule answers.

    :raises TypeError: when the answer would have to be awaited, or is a tuple such as ``(False, "why")``: these are
        true, whatever they would say.
    """
    answer = rule(*about)
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer) or isinstance(answer, tuple):
        raise TypeError(
            f"The rule {_name_of(rule)} must return True or False, not {type(answer).__qualname__}: no async def, and "
            "nothing beside the answer."
        )
    return bool(answer)


def allows(rule: Callable[..., Any], *about: object) -> bool:
    """Return what an app's rule answers; one that fails has not said yes, and takes nothing else along."""
    try:
        return says_yes(rule, *about)
    except SQLAlchemyError:
        raise  # The session is of no more use to anybody.
    except Exception:
        logger.exception("The rule %s failed, which counts as no", _name_of(rule))
        return False


def _name_of(rule: Callable[..., Any]) -> str:
    return str(getattr(rule, "__qualname__", repr(rule)))


def is_own_origin(origin: str | None, host: str, scheme: str, allowed: Iterable[str]) -> bool:
    """Tell whether a handshake comes from a page of this site, or of an allowed origin.

    A browser always names the origin, and another site's page cannot change it; a handshake without one is no page's.
    The scheme is not compared: behind a proxy that ends TLS we see ``http``.
    """
    if not origin:
        return False
    if origin.rstrip("/").lower() in {known.rstrip("/").lower() for known in allowed}:
        return True
    try:
        there = urlsplit(origin)
        here = urlsplit(f"{scheme}://{host}")
        same_port = _port(there.scheme, there.port) == _port(there.scheme, here.port)
    except ValueError:
        return False
    return there.scheme in ("http", "https") and there.hostname == here.hostname and same_port


def _port(scheme: str, port: int | None) -> int | None:
    return port or _PORTS.get(scheme)
