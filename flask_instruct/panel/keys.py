"""What a panel's stream and its elements are called, so that a page and the fragments for it mean the same."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from sqlalchemy.orm import Session
from sqlalchemy.orm import scoped_session

from ..live.turbo_stream import stream_name

PANEL = "instruct-panel"
INBOX = "instruct-approvals"
"""The stream that hears whenever something is asked or decided: pages that show more than one approval refresh."""

AnySession = Session | scoped_session[Any]


@lru_cache(maxsize=1024)
def panel_stream(gid: str) -> str:
    """Return the name of the stream that a handler's panel listens to."""
    return stream_name(PANEL, gid)


@lru_cache(maxsize=1024)
def panel_key(gid: str) -> str:
    """Return what tells the elements of one panel on a page from those of another."""
    return hashlib.sha256(gid.encode()).hexdigest()[:12]
