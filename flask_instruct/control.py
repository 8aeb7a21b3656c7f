"""What the extension offers to people who decide about what the AI does: approve and reject."""

from __future__ import annotations

import json
from collections.abc import Collection
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from flask import current_app

from .runs import deciding
from .runs.approval import Approval
from .state import State
from .state import actor_id

if TYPE_CHECKING:
    from .handlers import AiResponseHandler


class ControlMethods:
    """Mixed into :class:`~flask_instruct.Instruct`."""

    def approvals(self, handler: AiResponseHandler | None = None, *, actor: Any = None) -> list[Approval]:
        """Return what waits for a person, oldest first, 100 at most.

        :param handler: only of the runs for this handler and its record.
        :param actor: only what ``authorize`` and ``authorize_approval`` let this person decide; None: all.
        """
        state = _state()
        about = () if handler is None else (state.models.Run.handler == handler.to_gid(),)
        found = deciding.pending(state.db.session(), *about)
        return found if actor is None else [one for one in found if deciding.may_decide(state, one, actor)]

    def approve(
        self,
        approval: Approval,
        *,
        actor: Any,
        arguments: Mapping[str, Any] | str | None = None,
        chosen: Collection[int] | None = None,
    ) -> Approval:
        """Let a call run, and commit the session. Its run goes on in a worker.

        :param actor: who approves.
        :param arguments: in the place of the model's, as a mapping or as JSON; the model is told of them.
        :param chosen: of what it would change only these, by their numbers from 1; none of them is a rejection.
        :raises NotAllowed: when ``authorize`` or ``authorize_approval`` says no.
        :raises InvalidArguments: naming each fault of the arguments.
        :raises AlreadyDecided: when somebody was faster, it has expired, or its run has ended.
        :raises HandlerError: when the record, the handler or the tool is gone.
        """
        given = arguments if arguments is None or isinstance(arguments, str) else json.dumps(dict(arguments))
        by = actor_id(actor)
        return deciding.approve(_state(), approval, actor=actor, by=by, arguments=given, chosen=chosen)

    def reject(self, approval: Approval, *, actor: Any, reason: str | None = None) -> Approval:
        """Do not let a call run, and commit the session. Its run goes on in a worker, and the model is told.

        :param actor: who rejects it.
        :param reason: why, for the model and for people.
        :raises NotAllowed: when ``authorize`` or ``authorize_approval`` says no.
        :raises AlreadyDecided: when somebody was faster, it has expired, or its run has ended.
        """
        return deciding.reject(_state(), approval, actor=actor, by=actor_id(actor), reason=reason)


def _state() -> State:
    state: State = current_app.extensions["instruct"]
    return state
