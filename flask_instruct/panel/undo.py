"""The page that shows what an undo would put back, and does it: plain forms, without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

from flask import Response
from flask import redirect
from flask import request
from flask.typing import ResponseReturnValue

from ..errors import HandlerError
from ..errors import UndoRefused
from ..handlers import locate
from ..runs.models import Run
from ..runs.models import ToolCall
from ..runs.undo import undo
from ..runs.undo import undo_preview
from ..state import actor_id
from . import forms
from . import undoing
from .forms import Refused
from .keys import panel_key
from .language import gettext as _
from .naming import Names
from .page import asset_url
from .rendering import render
from .told import told
from .views import _run_of
from .views import _state
from .views import blueprint

if TYPE_CHECKING:
    from ..handlers import AiResponseHandler


@blueprint.get("/runs/<uuid:run_id>/undo")
def show_undo(run_id: UUID) -> ResponseReturnValue:
    """Show what would be put back, and what was changed since; nothing is done."""
    state = _state()
    run = state.run(str(run_id))
    if run is None:
        raise Refused(404, _("There is no such request here."))
    form = forms.form_for(state, _handler(run))
    if form is None:
        raise Refused(403, _("You are not allowed to ask for this."))
    target = _target(run, request.args.get("call"))
    plan = undo_preview(state, target)
    rows = undoing.shown(plan.rows)
    page = render(
        "undo.html",
        run=run,
        call=target if isinstance(target, ToolCall) else None,
        plan=plan,
        rows=rows,
        names=Names(state, rows),
        label=undoing.label(run).rstrip("…"),
        form=form,
        back=_came_from(),
        stylesheet=asset_url("instruct-panel.css"),
    )
    return Response(str(page), headers={"Cache-Control": "no-store"})


@blueprint.post("/runs/<uuid:run_id>/undo")
def undo_run(run_id: UUID) -> ResponseReturnValue:
    """Put back what was shown, and of what was changed since only what is ticked."""
    state = _state()
    posted = forms.read(state)
    target = _target(_run_of(run_id, posted), request.form.get("call"))
    shown = set(request.form.getlist("shown"))
    skip = shown - set(request.form.getlist("field"))
    try:
        undo(state, target, actor_id(posted.actor), force=request.form.getlist("force"), skip=skip)
    except UndoRefused as refusal:
        raise Refused(409, told(str(refusal))) from None
    return redirect(f"{forms.way_back().partition('#')[0]}#instruct_panel_{panel_key(posted.gid)}", 303)


def _handler(run: Run) -> AiResponseHandler:
    try:
        return locate(run.handler)
    except HandlerError:
        raise Refused(
            404,
            _(
                "The record that this was about no longer exists, so that nobody can be asked whether you may undo it. "
                "Whoever looks after this site can."
            ),
        ) from None


def _target(run: Run, call_id: str | None) -> Run | ToolCall:
    if not call_id:
        return run
    call = next((one for one in run.calls if one.id == call_id), None)
    if call is None:
        raise Refused(404, _("There is no such step here."))
    return call


def _came_from() -> str:
    """Return the page of this site that the link was on."""
    parts = urlsplit(request.referrer or "")
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return path if parts.netloc == request.host and path.startswith("/") else f"{request.script_root}/"
