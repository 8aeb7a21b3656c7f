"""Rendering a fragment after the response: the page that caused a broadcast does not wait for it.

The work is begun once the transaction is committed and the response sent, in the request's own thread and in the
order of the calls, and reads its records anew. Nothing is queued elsewhere, so there is nothing that gets lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask import Response
from flask import after_this_request
from flask import current_app
from flask import g
from flask import has_request_context
from sqlalchemy.orm import Session

from ..transactions import on_commit
from .reader import Reader

logger = logging.getLogger("flask_instruct")


class _Record:
    """A record by its key; read again when it is needed."""

    def __init__(self, record: object) -> None:
        state = sa.inspect(record)
        assert state is not None
        self._class: type[Any] = state.mapper.class_
        self._key = state.identity

    def read(self, session: Session) -> Any:
        found = session.get(self._class, self._key)
        if found is None:
            raise _Gone(f"{self._class.__name__} {self._key}")
        return found


class _Gone(Exception):
    """Raised for a record that was deleted before it could be shown: whoever deleted it tells the pages."""


class _Answer:
    """The work that waits for one request's response."""

    def __init__(self) -> None:
        self._sent = False
        self._work: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        if self._sent:
            work()
        else:
            self._work.append(work)

    def attach(self, response: Response) -> Response:
        response.call_on_close(self._begin)
        return response

    def _begin(self) -> None:
        self._sent = True
        for work in self._work:
            work()
        self._work.clear()


def later(db: Any, render: Callable[..., str], deliver: Callable[[str], object], context: Mapping[str, Any]) -> None:
    """Deliver what ``render(**context)`` gives after the commit and the response; records are read again by their keys.

    Outside of a request, and in an app under test, it is called right after the commit. An error is logged.

    :raises ValueError: for a record without a key: flush it before.
    """
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    kept = {name: _Record(value) if _is_record(name, value) else value for name, value in context.items()}
    reader = Reader.current()

    def carry_out() -> None:
        try:
            with app.app_context(), reader.looking(app):
                session = db.session()
                fresh = {name: _fresh(each, session) for name, each in kept.items()}
                html = render(**fresh)
                # With its transaction open it would wait for a commit.
                session.rollback()
                deliver(html)
        except _Gone as gone:
            logger.info("A broadcast was left out, what it shows is gone: %s", gone)
        except Exception:
            logger.exception("A broadcast could not be rendered after the response")

    answer = _answer() if has_request_context() and not app.testing else None
    on_commit(db.session, carry_out if answer is None else lambda: answer.add(carry_out))


def _answer() -> _Answer:
    answer: _Answer | None = g.get("instruct_answer")
    if answer is None:
        answer = g.instruct_answer = _Answer()
        after_this_request(answer.attach)
    return answer


def _fresh(kept: Any, session: Session) -> Any:
    return kept.read(session) if isinstance(kept, _Record) else kept


def _is_record(name: str, value: object) -> bool:
    state: Any = sa.inspect(value, raiseerr=False)
    if not hasattr(state, "identity"):
        return False
    if state.identity is None:
        raise ValueError(f"{name} is a {type(value).__name__} that has no key yet: flush or commit it first.")
    return True
