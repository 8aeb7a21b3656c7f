"""For whom a fragment is: everybody who follows its stream, only some viewers, or all but some.

Who it is for travels in front of the fragment, so that what keeps or carries one, such as an outbox, needs to know
nothing of it. The bus takes it off again, and the hub sends the fragment to whom it names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote
from urllib.parse import unquote

_MARK = "<!--instruct-"
_END = "-->"


@dataclass(frozen=True, slots=True)
class Audience:
    """The viewers whom a fragment is for, by their ids; with ``others`` it is for everybody but them."""

    viewers: frozenset[str]
    others: bool = False

    def includes(self, viewer: str) -> bool:
        """Tell whether a page of this viewer (``""``: of nobody in particular) is sent the fragment."""
        return (viewer in self.viewers) is not self.others


EVERYBODY = Audience(frozenset(), others=True)
NOBODY = Audience(frozenset())


def audience(only: object = None, except_: object = None) -> Audience:
    """Return the audience of a broadcast; users may be given as such or as their ids, one or several.

    :raises TypeError: when both are given.
    """
    if only is not None and except_ is not None:
        raise TypeError("A broadcast is for only some or for all except some, not both.")
    if only is not None:
        return Audience(_ids(only))
    return Audience(_ids(except_), others=True) if except_ is not None else EVERYBODY


def viewer_id(actor: object) -> str:
    """Return how a viewer is told apart: by ``get_id()``, ``id`` or its text; ``""`` for nobody."""
    get_id = getattr(actor, "get_id", None)
    key = get_id() if callable(get_id) else getattr(actor, "id", actor)
    return "" if key is None else str(key)


def addressed(html: str, audience: Audience) -> str:
    """Return a fragment as it travels to its audience."""
    if audience == EVERYBODY:
        return html
    kind = "except" if audience.others else "only"
    viewers = ",".join(quote(viewer, safe="") for viewer in sorted(audience.viewers))
    return f"{_MARK}{kind} {viewers}{_END}{html}"


def opened(text: str) -> tuple[Audience, str]:
    """Take apart what :func:`addressed` has put together. What cannot be understood is for nobody."""
    if not text.startswith(_MARK):
        return EVERYBODY, text
    head, end, html = text.removeprefix(_MARK).partition(_END)
    kind, _, viewers = head.partition(" ")
    if not end or kind not in ("only", "except"):
        return NOBODY, html
    ids = frozenset(unquote(viewer) for viewer in viewers.split(",") if viewer)
    return Audience(ids, others=kind == "except"), html


def _ids(viewers: object) -> frozenset[str]:
    several = isinstance(viewers, Iterable) and not isinstance(viewers, str) and not hasattr(viewers, "get_id")
    ids = (viewer_id(viewer) for viewer in (viewers if several else [viewers]))  # type: ignore[attr-defined]
    return frozenset(each for each in ids if each)
