"""Turbo Stream markup, and the names that join a record to it: the element's id and the stream's name.

Values are escaped here; ``html`` is taken as markup only when it is a :class:`~markupsafe.Markup`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Literal
from typing import get_args
from urllib.parse import quote
from uuid import UUID

from markupsafe import Markup
from markupsafe import escape
from sqlalchemy import inspect

Action = Literal["append", "prepend", "replace", "update", "remove", "before", "after", "refresh", "text"]

ACTIONS: frozenset[str] = frozenset(get_args(Action))
"""What a page does with a fragment. ``text`` is ours: it adds plain text at an offset."""

_BARE: frozenset[str] = frozenset({"remove", "refresh"})
_ATTRIBUTE = re.compile(r"[a-z][a-z0-9-]*\Z")
_SAFE_PART = re.compile(r"[A-Za-z0-9-]+\Z")
_SAFE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def turbo_stream(
    action: str,
    *,
    target: object = None,
    targets: str | None = None,
    html: Markup | str = "",
    method: str | None = None,
    **attributes: object,
) -> Markup:
    """Build one ``<turbo-stream>`` element.

    :param target: id of the element that the action is about, or a record (then its :func:`dom_id`).
    :param targets: a CSS selector instead, for several elements.
    :param html: the fragment; plain text is escaped.
    :param method: ``"morph"`` to change the existing elements instead of exchanging them.
    :param attributes: further attributes, such as ``offset=12`` of ``text``; ``_`` becomes ``-``, ``None`` is left out.
    :raises ValueError: for an unknown action, or when neither or both of ``target`` and ``targets`` are given.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is no Turbo Stream action; they are {', '.join(sorted(ACTIONS))}.")
    if action != "refresh" and (target is None) == (targets is None):
        raise ValueError(f"{action} needs either a target or targets.")
    named = {"action": action, "target": _target(target), "targets": targets, "method": method, **attributes}
    # Put together as plain text, each part escaped: Markup.format takes ten times as long.
    opening = "".join(_attribute(name, value) for name, value in named.items())
    content = "" if action in _BARE else f"<template>{escape(html)}</template>"
    return Markup(f"<turbo-stream{opening}>{content}</turbo-stream>")


def dom_id(record: object, suffix: str | None = None) -> str:
    """Return the element id of a record: ``assessment_42``, with a suffix ``instructions_assessment_42``.

    A record without a key yet gives ``new_assessment``. The id needs no escaping in HTML and CSS: a key of
    other characters than letters, digits, ``-`` and ``_`` is told by its hash.
    """
    name = snake_case(type(record).__name__)
    key = identity(record)
    whole = f"{name}_{_key(key)}" if key else f"new_{name}"
    return f"{suffix}_{whole}" if suffix else whole


def stream_name(*streamables: object) -> str:
    """Join records, text and numbers to the name of a stream, so that no two lists share a name.

    :raises ValueError: for no streamable at all, empty text, or a record that has no key yet.
    """
    if not streamables:
        raise ValueError("A stream needs at least one record or text to be named after.")
    return ":".join(_stream_part(streamable) for streamable in streamables)


def identity(record: object) -> tuple[object, ...] | None:
    """Return the primary key of a record, or None while it has none."""
    state = inspect(record, raiseerr=False)
    if state is not None and hasattr(state, "identity"):
        return tuple(state.identity) if state.identity else None
    key = getattr(record, "id", None)
    return None if key is None else (key,)


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.replace("_", "-")
    if not _ATTRIBUTE.match(name):
        raise ValueError(f"{name!r} cannot be the name of an attribute.")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


def _target(target: object) -> str | None:
    if target is None or isinstance(target, str):
        return target
    return dom_id(target)


def _key(parts: Iterable[object]) -> str:
    texts = [str(part) for part in parts]
    if len(texts) == 1 and _SAFE_KEY.match(texts[0]):
        return texts[0]
    if all(_SAFE_PART.match(text) for text in texts):
        return "_".join(texts)
    return "x" + hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _stream_part(streamable: object) -> str:
    if isinstance(streamable, str | int | UUID):
        if streamable == "":
            raise ValueError("A stream cannot be named after empty text.")
        return quote(str(streamable), safe="")
    key = identity(streamable)
    if key is None:
        name = type(streamable).__name__
        if streamable is None:
            raise ValueError("A stream cannot be named after None: was the record found?")
        raise ValueError(f"A stream cannot be named after this {name}: it has no key yet; flush or commit it first.")
    return "/".join([type(streamable).__name__, *(quote(str(part), safe="") for part in key)])


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
