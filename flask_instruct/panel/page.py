"""The panel of one record as it stands now: what a page shows when it is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from collections.abc import Sequence
from datetime import UTC
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from flask import current_app
from flask import g
from flask import request
from flask import url_for
from markupsafe import Markup
from sqlalchemy.orm import selectinload

from ..errors import HandlerError
from ..handlers import AiResponseHandler
from ..handlers import registered
from ..live.audience import allows
from ..live.page import instruct_scripts
from ..live.page import turbo_stream_from
from ..runs.models import ACTIVE
from ..runs.models import Message
from ..runs.models import Run
from ..runs.models import ToolCall
from ..runs.spending import spent_by_runs
from . import words
from .forms import decides
from .forms import form_for
from .keys import PANEL
from .keys import AnySession
from .keys import panel_key
from .language import gettext
from .rendering import render

if TYPE_CHECKING:
    from ..state import State
    from .chat import Chat

SHOWN_RUNS = 20
"""Requests that a panel shows; older ones leave it as new ones come."""

SHOWN_PROMPTS = 4
"""Suggestions that a panel shows at once; the others wait behind a button."""

Suggestion = str | tuple[str, str]


def instruct_panel(
    record: object,
    handler: str | None = None,
    *,
    title: str | None = None,
    prompts: Iterable[Suggestion] = (),
    placeholder: str | None = None,
) -> Markup:
    """Show the panel of a record: its requests, their answers and tools as they run, and a box to ask in.

    :param record: the record, or a handler object.
    :param handler: the name of the handler class that works on the record.
    :param prompts: suggestions, each a text or a pair of a short label and the text that is sent.
    :raises HandlerError: for a name that is no handler, or a record without a key.
    """
    state: State = current_app.extensions["instruct"]
    worker = worker_for(record, handler)
    runs = latest_runs(state.db.session, worker.to_gid())
    return shown_panel(worker, runs, title=title, prompts=prompts, placeholder=placeholder)


def shown_panel(
    worker: AiResponseHandler,
    runs: Sequence[Run],
    *,
    chat: Chat | None = None,
    title: str | None = None,
    prompts: Iterable[Suggestion] = (),
    placeholder: str | None = None,
) -> Markup:
    """Show a panel with the newest of these runs, which are in order; with ``chat`` as that thread."""
    state: State = current_app.extensions["instruct"]
    gid = worker.to_gid()
    suggestions = [_suggestion(prompt) for prompt in prompts]
    shown = runs[-SHOWN_RUNS:]
    load_answers(state.db.session, shown)
    return render(
        "panel.html",
        key=panel_key(gid),
        runs_key=panel_key(gid) if chat is None else chat.key,
        chat=chat,
        title=title or gettext("Assistant"),
        prompts=suggestions,
        first_prompts=len(suggestions) if len(suggestions) <= SHOWN_PROMPTS + 1 else SHOWN_PROMPTS,
        placeholder=placeholder or gettext("What should change?"),
        runs=shown,
        spent=spent_by_runs(state.db.session(), [run.id for run in shown if run.ended]),
        earlier=len(runs) > SHOWN_RUNS,
        announcement=words.announcement(spokesman(runs)),
        form=form_for(state, worker),
        decides=decides(state, worker),
        opens=may_open_dashboard(state),
        previews=any(tool.preview for tool in worker.ai_tools()),
        stream=turbo_stream_from(PANEL, gid),
        assets=page_assets(),
        live_scripts=instruct_scripts,
        now=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def may_open_dashboard(state: State) -> bool:
    """Tell whether whoever asks in the current request may see how runs went in the dashboard.

    The page is the app's own: a rule that has only ever been asked in the dashboard must not break it.
    """
    rule = state.hooks.authorize_dashboard
    return rule is not None and allows(rule, state.actor())


def latest_runs(session: AnySession, gid: str) -> Sequence[Run]:
    """Return the runs that a panel shows, oldest first, with one more when there are more."""
    newest_first = session.scalars(_NEWEST, {"gid": gid}).all()
    return newest_first[::-1]


def fallen_runs(session: AnySession, gid: str) -> Sequence[str]:
    """Return the ids of the runs that a panel has just stopped showing, for one new run or a few at once."""
    return session.scalars(_FALLEN, {"gid": gid}).all()


def load_answers(session: AnySession, runs: Sequence[Run]) -> None:
    """Read the messages and calls of some runs at once."""
    if runs:
        query = sa.select(Run).where(Run.id.in_([run.id for run in runs]))
        wanted = (
            selectinload(Run.messages).selectinload(Message.calls).selectinload(ToolCall.effects),
            selectinload(Run.messages).selectinload(Message.calls).selectinload(ToolCall.approval),
            selectinload(Run.calls),
        )
        session.scalars(query.options(*wanted)).all()


def spokesman(runs: Sequence[Run]) -> Run | None:
    """Return the run that the announcement speaks of: the newest at work, else the one that ended last."""
    active = [run for run in runs if run.status in ACTIVE]
    if active:
        return active[-1]
    return max(reversed(runs), key=lambda run: run.ended_at or run.created_at, default=None)


def spokesman_id(session: AnySession, gid: str) -> str | None:
    """Return the id of the :func:`spokesman` of the runs that a panel shows, without reading them all."""
    found: str | None = session.scalar(_SPOKESMAN, {"gid": gid})
    return found


def _newest_first(*wanted: Any) -> sa.Select[Any]:
    of_panel = sa.select(*wanted).where(Run.handler == sa.bindparam("gid"))
    return of_panel.order_by(Run.created_at.desc(), Run.id.desc())


def _speaks_first() -> sa.Select[Any]:
    shown = _newest_first(Run.id, Run.status, Run.created_at, Run.ended_at).limit(SHOWN_RUNS + 1).subquery()
    active = shown.c.status.in_(ACTIVE)
    since = sa.case((active, shown.c.created_at), else_=sa.func.coalesce(shown.c.ended_at, shown.c.created_at))
    order = (sa.case((active, 0), else_=1), since.desc(), shown.c.created_at.desc(), shown.c.id.desc())
    return sa.select(shown.c.id).order_by(*order).limit(1)


# Made once: building them takes as long as asking them.
_NEWEST = _newest_first(Run).limit(SHOWN_RUNS + 1)
_FALLEN = _newest_first(Run.id).offset(SHOWN_RUNS).limit(5)
_SPOKESMAN = _speaks_first()


def worker_for(record: object, name: str | None) -> AiResponseHandler:
    """Return the handler that works on a record, by its name or as it is given.

    :raises HandlerError: for a name that is no handler, or none at all.
    """
    if name is None:
        if isinstance(record, AiResponseHandler):
            return record
        raise HandlerError(
            f"instruct_panel() needs to know which handler works on this {type(record).__name__}: "
            'write instruct_panel(record, handler="TheHandlersName").'
        )
    cls = registered().get(name)
    if cls is None:
        known = ", ".join(sorted(registered())) or "none yet: import the module that defines it"
        raise HandlerError(f"There is no handler named {name!r}; there is {known}.")
    return record if isinstance(record, cls) else cls(record)


def _suggestion(prompt: Suggestion) -> tuple[str, str]:
    return (prompt, prompt) if isinstance(prompt, str) else prompt


def page_assets() -> dict[str, str | None] | None:
    """Return what loads the stylesheet and the script, for the first panel of a page."""
    if "instruct.panel" in request.environ:
        return None
    request.environ["instruct.panel"] = True
    return {
        "stylesheet": asset_url("instruct-panel.css"),
        "script": asset_url("instruct-panel.js"),
        "nonce": g.get("csp_nonce") or getattr(request, "csp_nonce", None),
    }


def asset_url(filename: str) -> str:
    """Return the address of a file of the panel; another version of the file has another address."""
    return url_for("instruct_panel.static", filename=filename, v=_fingerprint(filename))


@cache
def _fingerprint(filename: str) -> str:
    return hashlib.sha256(Path(__file__).with_name("static").joinpath(filename).read_bytes()).hexdigest()[:10]
