"""One run's card alone on a page: as it stands, followed as it goes on, with its buttons."""

from __future__ import annotations

from datetime import UTC
from datetime import datetime
from typing import TYPE_CHECKING

from flask import current_app
from markupsafe import Markup

from ..errors import HandlerError
from ..handlers import locate
from ..live.page import instruct_scripts
from ..live.page import turbo_stream_from
from ..runs.models import Run
from . import words
from .forms import decides
from .forms import form_for
from .keys import PANEL
from .keys import panel_key
from .page import load_answers
from .page import may_open_dashboard
from .page import page_assets
from .rendering import render

if TYPE_CHECKING:
    from ..state import State


def instruct_run(run: Run | str, *, title: str | None = None) -> Markup:
    """Show one run: what was asked, its answer, tools and state, followed live, with Stop, Approve and Retry.

    It is for a page of its own: not beside the panel of the same record, whose elements have the same names. Who may
    not ask the AI about the record sees it without its buttons; whether they see the page at all is the app's to say.

    :param run: the run, or its id.
    :param title: above the card; default: "Request".
    :raises HandlerError: for an id that is no run's.
    """
    state: State = current_app.extensions["instruct"]
    found = state.run(run) if isinstance(run, str) else run
    if found is None:
        raise HandlerError(f"instruct_run() was given {run!r}, and there is no such run.")
    try:
        worker = locate(found.handler)
    except HandlerError:
        worker = None
    form = form_for(state, worker) if worker is not None else None
    load_answers(state.db.session, [found])
    return render(
        "one_run.html",
        run=found,
        key=panel_key(found.handler),
        title=title,
        form=form,
        opens=may_open_dashboard(state),
        decides=decides(state, worker) if worker is not None else frozenset(),
        stream=turbo_stream_from(PANEL, found.handler),
        announcement=words.announcement(found),
        assets=page_assets(),
        live_scripts=instruct_scripts,
        now=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
