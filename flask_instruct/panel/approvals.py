"""Where a person decides: the buttons of a card, a page for one approval with its arguments to change, the inbox.

Who may see an approval may steer the runs of its record; who may decide about it is asked of the handler each time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from typing import Any
from uuid import UUID

from flask import current_app
from flask import request
from flask.typing import ResponseReturnValue
from markupsafe import Markup

from ..arguments import InvalidArguments
from ..errors import AlreadyDecided
from ..errors import HandlerError
from ..errors import NotAllowed
from ..handlers import AiResponseHandler
from ..handlers import locate
from ..live.page import instruct_scripts
from ..live.page import turbo_stream_from
from ..runs import deciding
from ..runs.approval import Approval
from ..runs.proposals import Proposal
from ..state import actor_id
from . import forms
from . import words
from .fields import Field
from .fields import fields_of
from .fields import read_fields
from .forms import Refused
from .keys import INBOX
from .keys import panel_key
from .language import gettext as _
from .page import asset_url
from .proposing import may_choose
from .proposing import proposal_of
from .rendering import render
from .told import fault
from .views import answered
from .views import blueprint

if TYPE_CHECKING:
    from ..state import State

LONGEST_REASON = 2000
"""Characters of the reason for a rejection."""


def instruct_approvals() -> Markup:
    """Show what waits for the person who looks at the page, with a link to each; follows what is asked and decided."""
    state = _state()
    return render(
        "approvals.html", approvals=waiting_for(state, state.actor()), stream=turbo_stream_from(INBOX), standalone=False
    )


def waiting_for(state: State, actor: Any) -> list[Approval]:
    """Return what a person may decide, oldest first."""
    return [one for one in deciding.pending(state.db.session()) if deciding.may_decide(state, one, actor)]


@blueprint.get("/approvals")
def show_approvals() -> ResponseReturnValue:
    """Show the inbox of the person who asks for it."""
    state = _state()
    return _page("inbox.html", approvals=waiting_for(state, state.actor()))


@blueprint.get("/approvals/<uuid:approval_id>")
def show_approval(approval_id: UUID) -> ResponseReturnValue:
    """Show one approval: what would run, for whom and why, with its arguments to change."""
    approval, handler = _found(approval_id)
    return _shown(approval, handler)


@blueprint.post("/approvals/<uuid:approval_id>/<any(approve, reject):decision>")
def decide(approval_id: UUID, decision: str) -> ResponseReturnValue:
    """Approve a call, as it is or with the arguments of the form, or reject it."""
    state = _state()
    posted = forms.read(state)
    approval = state.db.session.get(Approval, str(approval_id))
    if approval is None or approval.run.handler != posted.gid:
        raise Refused(404, _("There is no such step here."))
    by = actor_id(posted.actor)
    try:
        if decision == "reject":
            reason = request.form.get("reason", "")[:LONGEST_REASON]
            deciding.reject(state, approval, actor=posted.actor, by=by, reason=reason)
        else:
            edited = _edited(posted.handler, approval)
            deciding.approve(state, approval, actor=posted.actor, by=by, arguments=edited, chosen=_chosen(approval))
    except NotAllowed:
        current_app.logger.warning("%s may not decide about approval %s", by, approval_id)
        raise Refused(403, _("You are not allowed to decide this.")) from None
    except AlreadyDecided as error:
        raise Refused(409, _too_late(error)) from None
    except InvalidArguments as error:
        return _shown(approval, posted.handler, error)
    except HandlerError:
        raise Refused(404, _("What this page was about no longer exists.")) from None
    return answered(panel_key(posted.gid), stay=bool(request.form.get("edit")))


def _edited(handler: AiResponseHandler, approval: Approval) -> str | None:
    """Return the arguments that the form has, as JSON; None where it has none."""
    if not request.form.get("edit") or approval.call_id is None:
        return None
    tool, before = deciding.checked(handler, approval.tool, approval.arguments)
    given = read_fields(tool.parameters_schema(), request.form)
    # Unchanged defaults, which the model had left out, are no change.
    asked = json.loads(approval.arguments)
    kept = {name: value for name, value in given.items() if name in asked or before.get(name) != value}
    return json.dumps(kept, ensure_ascii=False)


def _chosen(approval: Approval) -> list[int] | None:
    """Return the numbers of the changes that are ticked; None where all are, or none could be chosen.

    :raises Refused: 409 where the proposal has changed since the page was made.
    """
    proposal = Proposal.from_json(approval.proposal)
    if not request.form.get("edit") or not may_choose(proposal):
        return None
    count = len(proposal.changes)
    if request.form.get("shown") != f"{approval.stale}.{count}":
        raise Refused(409, _("What would change is no longer what you saw. Look at it again."))
    numbers = [int(text) for text in request.form.getlist("change") if text.isdecimal() and len(text) < 10]
    return None if len(set(numbers)) >= count else numbers


def _too_late(error: AlreadyDecided) -> str:
    said, by = words.DECISIONS[error.status]
    name = words.person(error.decided_by)
    told = _(by, name=name) if name else _(said)
    return _("Someone else was faster: %(decision)s.", decision=told)


def _found(approval_id: UUID) -> tuple[Approval, AiResponseHandler]:
    """Return an approval that the current viewer may see, with its handler; who may not see it learns nothing."""
    state = _state()
    approval = state.db.session.get(Approval, str(approval_id))
    try:
        handler = locate(approval.run.handler) if approval is not None else None
    except HandlerError:
        handler = None
    if approval is None or handler is None or forms.form_for(state, handler) is None:
        raise Refused(404, _("There is no such step here."))
    return approval, handler


def _shown(
    approval: Approval, handler: AiResponseHandler, error: InvalidArguments | None = None
) -> ResponseReturnValue:
    state = _state()
    faults = {problem.path.partition(".")[0]: fault(problem.message) for problem in error.problems} if error else {}
    fields: list[Field] | None = []
    try:
        if approval.call_id is not None:
            fields = _fields(handler, approval, faults)
    except (HandlerError, InvalidArguments):
        # The tool has changed since it was asked for: it can be rejected, and approved no more.
        fields = None
    return _page(
        "approval.html",
        status=422 if error else 200,
        approval=approval,
        run=approval.run,
        form=forms.form_for(state, handler),
        fields=fields,
        proposal=proposal_of(state, approval),
        faults=faults,
        may=deciding.may_decide(state, approval, state.actor()),
        longest_reason=LONGEST_REASON,
    )


def _fields(handler: AiResponseHandler, approval: Approval, faults: dict[str, str]) -> list[Field]:
    given = approval.edited or approval.arguments
    tool, checked = deciding.checked(handler, approval.tool, given)
    schema = tool.parameters_schema()
    values = read_fields(schema, request.form) if faults else {**checked, **json.loads(given)}
    return fields_of(schema, values, faults)


def _page(template: str, *, status: int = 200, **context: Any) -> ResponseReturnValue:
    html = render(
        template,
        stylesheet=asset_url("instruct-panel.css"),
        script=asset_url("instruct-panel.js"),
        live_scripts=instruct_scripts,
        stream=turbo_stream_from(INBOX),
        **context,
    )
    return str(html), status


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
