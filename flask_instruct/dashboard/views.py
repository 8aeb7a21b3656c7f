"""The addresses of the dashboard. All are read only, and each asks the app's rule first, whatever it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from uuid import UUID

from flask import Blueprint
from flask import Response
from flask import current_app
from flask import g
from flask import request
from flask import stream_with_context
from flask import url_for
from flask.typing import ResponseReturnValue

from ..errors import InstructError
from ..handlers import registered
from ..live.page import instruct_scripts
from ..live.page import turbo_stream_from
from ..panel import numbers
from ..panel.keys import PANEL
from ..panel.keys import panel_key
from ..panel.language import gettext as _
from ..panel.page import asset_url
from ..panel.rendering import render
from ..panel.words import attached
from ..runs.columns import now
from ..runs.recording import export
from . import charts
from . import filters
from . import listing
from . import spreadsheet
from . import words
from .access import refusal
from .condition import condition
from .discreet import Discreet
from .figures import figures
from .filters import Filters
from .listing import Place
from .span import USUAL
from .span import Span
from .story import story

if TYPE_CHECKING:
    from ..state import State

NAME = "instruct_dashboard"
LATEST = 8
"""Runs that the first page lists."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
"""What a page of the dashboard may load, unless the app says otherwise: a script that slipped through could not run."""


def make_blueprint(home: str) -> Blueprint:
    """Return the routes; ``home`` is the path of the first page below the prefix."""
    blueprint = Blueprint(
        NAME, __name__, template_folder="templates", static_folder="static", static_url_path="/dashboard-assets"
    )
    blueprint.before_request(_ask_the_rule)
    blueprint.after_request(_guard)
    rules: tuple[tuple[str, str, Callable[..., ResponseReturnValue]], ...] = (
        (home, "overview", overview),
        ("/runs", "runs", runs),
        ("/runs.csv", "runs_csv", runs_csv),
        ("/runs/<uuid:run_id>", "run", run),
        ("/runs/<uuid:run_id>/export.json", "export_run", export_run),
    )
    for rule, endpoint, view in rules:
        blueprint.add_url_rule(rule, endpoint, view, methods=["GET"], strict_slashes=False)
    return blueprint


def overview() -> ResponseReturnValue:
    """Show how it goes: queue and workers, charts of a stretch of time, what each model and handler cost."""
    state = _state()
    span = Span.read(request.args, datetime.now(UTC))
    found = figures(state.db.session, span)
    return _page(
        "overview.html",
        span=span,
        usual=USUAL,
        figures=found,
        charts=charts.charts(found, span),
        condition=condition(state),
        latest=listing.page(state.db.session, Filters(), size=LATEST).lines,
    )


def runs() -> ResponseReturnValue:
    """List the runs that the address asks for, a page at a time."""
    state = _state()
    wanted = Filters.read(request.args)
    before, after = (Place.read(request.args.get(name, "")) for name in ("before", "after"))
    return _page(
        "runs.html",
        filters=wanted,
        page=listing.page(state.db.session, wanted, before=before, after=after),
        count=listing.count(state.db.session, wanted),
        counted=listing.COUNTED,
        searched=listing.SEARCHED,
        shortest=filters.SHORTEST_SEARCH,
        longest=filters.LONGEST,
        statuses=filters.STATUSES,
        kinds=filters.KINDS,
        handlers=sorted(registered()),
    )


def runs_csv() -> ResponseReturnValue:
    """Send the same list, all of it, as CSV."""
    lines = spreadsheet.rows(_state(), Filters.read(request.args))
    response = Response(stream_with_context(lines), mimetype="text/csv")
    response.headers["Content-Disposition"] = 'attachment; filename="runs.csv"'
    return response


def run(run_id: UUID) -> ResponseReturnValue:
    """Show all of a run; the page follows it while it is open."""
    state = _state()
    shown = state.run(str(run_id))
    if shown is None:
        return _gone()
    return _page(
        "run.html",
        run=shown,
        story=story(state.db.session, shown, Discreet.of(state).text),
        key=panel_key(shown.handler),
        stream=turbo_stream_from(PANEL, shown.handler),
        live_scripts=instruct_scripts,
        script=_asset("instruct-dashboard.js"),
        attached=attached(shown) if shown.attached else "",
    )


def export_run(run_id: UUID) -> ResponseReturnValue:
    """Send a run that has ended as ``flask instruct export`` prints it."""
    state = _state()
    shown = state.run(str(run_id))
    if shown is None:
        return _gone()
    try:
        text = export(state, shown).to_json()
    except InstructError as error:
        return _told(409, _("This cannot be exported"), str(error))
    response = Response(text.encode("utf-8", "backslashreplace"), mimetype="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="run-{shown.id}.json"'
    return response


def _gone() -> ResponseReturnValue:
    return _told(404, _("There is no such run"), _("It was never there, or it was deleted by “prune”."))


def _told(status: int, title: str, message: str) -> ResponseReturnValue:
    return _page("told.html", title=title, message=message), status


def _ask_the_rule() -> ResponseReturnValue | None:
    if request.endpoint == f"{NAME}.static":
        return None
    refused = refusal(_state())
    return None if refused is None else (_page("refused.html", refused=refused), 403)


def _guard(response: Response) -> Response:
    if request.endpoint != f"{NAME}.static":
        response.headers["Cache-Control"] = "no-store"
        response.headers.setdefault("Content-Security-Policy", _policy())
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Referrer-Policy", "same-origin")
    return response


def _policy() -> str:
    nonce = _nonce()
    return POLICY.replace("script-src 'self'", f"script-src 'self' 'nonce-{nonce}'") if nonce else POLICY


def _nonce() -> str | None:
    nonce: str | None = g.get("csp_nonce") or getattr(request, "csp_nonce", None)
    return nonce


def _page(template: str, **context: Any) -> str:
    shared = {
        "said": words,
        "numbers": numbers,
        "discreet": Discreet.of(_state()),
        "stylesheets": [asset_url("instruct-panel.css"), _asset("instruct-dashboard.css")],
        "nonce": _nonce(),
        "here": request.endpoint,
        "now": now(),
    }
    return str(render(f"dashboard/{template}", **(shared | context)))


def _asset(filename: str) -> str:
    return url_for(f"{NAME}.static", filename=filename, v=_fingerprint(filename))


@cache
def _fingerprint(filename: str) -> str:
    return hashlib.sha256(Path(__file__).with_name("static").joinpath(filename).read_bytes()).hexdigest()[:10]


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
