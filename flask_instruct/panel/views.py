"""What the panel's buttons do. Each POST is checked by ``forms.read`` first, then answered in the way it was sent:
a browser is sent back to its page (Post/Redirect/Get), a script gets a fragment or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any
from uuid import UUID

from flask import Blueprint
from flask import Response
from flask import current_app
from flask import redirect
from flask import request
from flask.typing import ResponseReturnValue

from ..errors import ConfigurationError
from ..errors import RunEnded
from ..live.broadcasts import broadcast
from ..live.turbo_stream import turbo_stream
from ..runs.again import mark_as_done
from ..runs.again import run_again
from ..runs.history import FROM_THE_START
from ..runs.models import Effect
from ..runs.models import Run
from . import forms
from . import waiting
from .forms import Posted
from .forms import Refused
from .keys import panel_key
from .keys import panel_stream
from .language import gettext as _
from .observer import announce
from .observer import tell_waiting
from .page import asset_url
from .rendering import render
from .threads import chat_id_of
from .threads import chat_of
from .threads import conversation_of
from .threads import parent_for
from .threads import rename
from .threads import runs_of
from .threads import thread_key

if TYPE_CHECKING:
    from ..state import State

DECISIONS = {"done": mark_as_done, "again": run_again}
STREAM_TYPE = "text/vnd.turbo-stream.html"

blueprint = Blueprint(
    "instruct_panel", __name__, template_folder="templates", static_folder="static", static_url_path="/panel"
)


@blueprint.post("/runs")
def start_run() -> ResponseReturnValue:
    """Start a run with what was asked, as the person who asks."""
    from ..extension import Instruct

    posted = forms.read(_state())
    text = forms.prompt_text()
    chat_id = chat_id_of(request.form.get("chat"))
    thread = {} if chat_id is None else _in_thread(posted, chat_id)
    preview = bool(request.form.get("preview"))
    run = Instruct().generate_for(posted.handler, user_prompt=text, actor=posted.actor, preview=preview, **thread)
    key = panel_key(posted.gid)
    if not _by_script():
        return _back(key) if chat_id is None else redirect(forms.way_back(chat=chat_id), 303)
    target = f"instruct_runs_{key if chat_id is None else thread_key(posted.gid, chat_id)}"
    return Response(
        str(turbo_stream("append", target=target, html=render("run.html", run=run, key=key).strip())),
        mimetype=STREAM_TYPE,
    )


def _in_thread(posted: Posted, chat_id: str) -> dict[str, Any]:
    runs = runs_of(_state().db.session, posted.gid, chat_id)
    return {
        "conversation": conversation_of(posted.gid, chat_id),
        "continues": parent_for(runs, request.form.get("after")),
    }


@blueprint.post("/runs/<uuid:run_id>/rewrite")
def rewrite_run(run_id: UUID) -> ResponseReturnValue:
    """Ask otherwise in the place of an earlier message: a branch, of which what came after that is no part."""
    posted = forms.read(_state())
    run = _run_of(run_id, posted)
    return _branch(posted, run, forms.prompt_text(f"rewrite-{run.id}"))


@blueprint.post("/runs/<uuid:run_id>/again")
def answer_again(run_id: UUID) -> ResponseReturnValue:
    """Ask the same once more in the place of a message, for another answer."""
    posted = forms.read(_state())
    run = _run_of(run_id, posted)
    return _branch(posted, run, run.user_prompt)


def _branch(posted: Posted, run: Run, text: str) -> ResponseReturnValue:
    from ..extension import Instruct

    chat_id = chat_of(run)
    if chat_id is None:
        raise Refused(404, _("There is no such request here."))
    session = _state().db.session
    before = session.get(Run, run.continues) if run.continues else None
    # What is at work in the thread belongs to the branch that is left.
    Instruct().generate_for(
        posted.handler,
        user_prompt=text,
        actor=posted.actor,
        conversation=run.conversation,
        continues=before or FROM_THE_START,
        when_busy="supersede",
        commit=False,
    )
    broadcast(panel_stream(posted.gid), "refresh")
    session.commit()
    return ("", 204) if _by_script() else redirect(forms.way_back(chat=chat_id), 303)


@blueprint.post("/chats/<uuid:chat_id>/title")
def rename_chat(chat_id: UUID) -> ResponseReturnValue:
    """Name a thread."""
    posted = forms.read(_state())
    session = _state().db.session
    if rename(session, posted.gid, str(chat_id), request.form.get("title", "")) is None:
        raise Refused(404, _("There is no such conversation here."))
    broadcast(panel_stream(posted.gid), "refresh")
    session.commit()
    return ("", 204) if _by_script() else redirect(forms.way_back(chat=str(chat_id)), 303)


@blueprint.post("/runs/<uuid:run_id>/retry")
def retry_run(run_id: UUID) -> ResponseReturnValue:
    """Start a failed run again where it stopped."""
    from ..extension import Instruct

    posted = forms.read(_state())
    try:
        Instruct().retry(_run_of(run_id, posted))
    except RunEnded:
        raise Refused(409, _("Someone else was faster: this is no longer waiting for a retry.")) from None
    return answered(panel_key(posted.gid))


@blueprint.post("/runs/<uuid:run_id>/stop")
def stop_run(run_id: UUID) -> ResponseReturnValue:
    """Stop a run; one that has ended meanwhile is as good as stopped."""
    posted = forms.read(_state())
    _run_of(run_id, posted).cancel()
    return answered(panel_key(posted.gid))


@blueprint.get("/runs/<uuid:run_id>/waiting")
def look_for_workers(run_id: UUID) -> ResponseReturnValue:
    """Let the pages that follow a run know whether a worker is running, where one of them shows the contrary.

    Whoever asks learns nothing by it: what there is to know goes to those who follow the run's panel.
    """
    run = _state().run(str(run_id))
    if run is not None and waiting.is_news(run, request.args.get("shown") == "1"):
        tell_waiting(run)
        announce(run)
        # Nothing was written; but what is told leaves with the end of the transaction that has read it.
        _state().db.session.commit()
    return "", 204


@blueprint.post("/runs/<uuid:run_id>/effects/<uuid:effect_id>/<any(done, again):decision>")
def decide_effect(run_id: UUID, effect_id: UUID, decision: str) -> ResponseReturnValue:
    """Mark an effect of which nobody knows as done, or have a worker run it again."""
    posted = forms.read(_state())
    run = _run_of(run_id, posted)
    effect = _state().db.session.get(Effect, str(effect_id))
    if effect is None or effect.run_id != run.id:
        raise Refused(404, _("There is no such step here."))
    try:
        DECISIONS[decision](effect)
    except RunEnded:
        raise Refused(409, _("Someone else was faster: this has been decided.")) from None
    return answered(panel_key(posted.gid))


def _run_of(run_id: UUID, posted: Posted) -> Run:
    """Return the run that a form is about, if it is one of the form's own record."""
    run = _state().run(str(run_id))
    if run is None or run.handler != posted.gid:
        raise Refused(404, _("There is no such request here."))
    return run


@blueprint.errorhandler(Refused)
def refused(error: Refused) -> ResponseReturnValue:
    """Say why nothing was done; what was written is never lost."""
    if _by_script():
        return Response(error.message, error.status, mimetype="text/plain")
    page = render(
        "refused.html",
        message=error.message,
        text=request.form.get("prompt", ""),
        back=forms.way_back(),
        stylesheet=asset_url("instruct-panel.css"),
    )
    return Response(str(page), error.status)


@blueprint.errorhandler(ConfigurationError)
def not_set_up(error: ConfigurationError) -> ResponseReturnValue:
    """Tell the person in words, and the developer what to set."""
    current_app.logger.error("A request could not be taken", exc_info=error)
    return refused(Refused(503, _("The AI is not set up on this site.")))


def _back(key: str) -> ResponseReturnValue:
    return redirect(f"{forms.way_back().partition('#')[0]}#instruct_panel_{key}", 303)


def answered(key: str, *, stay: bool = False) -> ResponseReturnValue:
    """Answer a POST that was acted on: a script's with nothing, as the fragments tell it all, a browser's with a page.

    :param stay: go back to just the page that it came from, and not to its panel.
    """
    if _by_script():
        return "", 204
    return redirect(forms.way_back(), 303) if stay else _back(key)


def _by_script() -> bool:
    return STREAM_TYPE in request.headers.get("Accept", "")


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
