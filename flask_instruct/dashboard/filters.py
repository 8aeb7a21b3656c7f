"""Which runs are listed: what the address asks for, read into one value, written back into links, and as conditions of
SQL. Every value is a bound parameter, and what makes no sense is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from typing import Any
from typing import get_args

import sqlalchemy as sa
from werkzeug.datastructures import MultiDict

from ..runs.columns import storable
from ..runs.models import ACTIVE
from ..runs.models import ModelCall
from ..runs.models import Run
from ..runs.models import Status
from .span import as_day

STATUSES: tuple[str, ...] = get_args(Status)
KINDS = ("ai", "undo")
AT_WORK = "active"
"""In an address: any of the statuses of a run that has not ended."""

SHORTEST_SEARCH = 3
"""Characters; shorter texts stand in nearly every request."""
LONGEST = 200
"""Characters of one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What the listed runs have in common; empty texts ask for nothing.

    :param handler: a handler's name, or the reference of one on a record.
    :param since: the first and ``until`` the last day in UTC on which they were asked for.
    :param search: a text in what was asked or went wrong, or the beginning of a run's id.
    """

    statuses: tuple[str, ...] = ()
    handler: str = ""
    actor: str = ""
    model: str = ""
    tenant: str = ""
    kind: str = ""
    conversation: str = ""
    since: date | None = None
    until: date | None = None
    search: str = ""

    @classmethod
    def read(cls, given: MultiDict[str, str]) -> Filters:
        """Read what an address asks for."""

        def text(name: str) -> str:
            return storable(given.get(name, "")).strip()[:LONGEST]

        kind = text("kind")
        return cls(
            statuses=tuple(dict.fromkeys(each for each in given.getlist("status") if each in (AT_WORK, *STATUSES))),
            handler=text("handler"),
            actor=text("actor"),
            model=text("model"),
            tenant=text("tenant"),
            kind=kind if kind in KINDS else "",
            conversation=text("conversation"),
            since=as_day(given.get("since", "")),
            until=as_day(given.get("until", "")),
            search=text("q"),
        )

    def address(self) -> dict[str, Any]:
        """Return what :meth:`read` reads, for ``url_for``."""
        said: dict[str, Any] = {
            name: getattr(self, name) for name in ("handler", "actor", "model", "tenant", "kind", "conversation")
        }
        said |= {"status": list(self.statuses), "q": self.search}
        said |= {name: day.isoformat() for name in ("since", "until") if (day := getattr(self, name)) is not None}
        return {name: value for name, value in said.items() if value}

    @property
    def searches(self) -> bool:
        """Whether texts are to be searched."""
        return len(self.search) >= SHORTEST_SEARCH

    @property
    def too_short(self) -> bool:
        """Whether there is something to search for that is too short for it."""
        return bool(self.search) and not self.searches

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return what a run must fulfil, but for the search."""
        equal = {
            Run.actor: self.actor,
            Run.tenant: self.tenant,
            Run.kind: self.kind,
            Run.conversation: self.conversation,
        }
        found: list[sa.ColumnElement[bool]] = [column == value for column, value in equal.items() if value]
        if self.statuses:
            found.append(Run.status.in_(list(_spelled_out(self.statuses))))
        if self.handler:
            found.append(sa.or_(Run.handler_name == self.handler, Run.handler == self.handler))
        if self.model:
            found.append(_of_model(self.model))
        if self.since is not None:
            found.append(Run.created_at >= _midnight(self.since))
        if self.until is not None and self.until < date.max:
            found.append(Run.created_at < _midnight(self.until + timedelta(days=1)))
        return found

    def found(self) -> sa.ColumnElement[bool]:
        """Return the condition of the search; the wildcards of ``LIKE`` mean themselves."""
        texts = (Run.user_prompt, Run.error_safe, Run.error_technical)
        return sa.or_(
            Run.id.startswith(self.search.lower(), autoescape=True),
            *(text.icontains(self.search, autoescape=True) for text in texts),
        )


def _of_model(model: str) -> sa.ColumnElement[bool]:
    """A run that asked for a model, or one of whose calls went to it."""
    provider, colon, name = model.partition(":")
    called = ModelCall.model == model
    if colon:
        called = sa.or_(called, sa.and_(ModelCall.provider == provider, ModelCall.model == name))
    return sa.or_(Run.model == model, sa.exists().where(ModelCall.run_id == Run.id, called))


def _spelled_out(statuses: Iterable[str]) -> Iterable[str]:
    for status in statuses:
        yield from ACTIVE if status == AT_WORK else (status,)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
