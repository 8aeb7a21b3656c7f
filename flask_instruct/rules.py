"""The app's own rules: what the extension asks the app about people, keys and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import TypeVar

from .state import Hooks

_A = TypeVar("_A", bound=Callable[..., Any])


class RuleMethods:
    """The decorators of :class:`~flask_instruct.Instruct`; each gives back what it decorates."""

    _hooks: Hooks

    def authorize(self, rule: _A) -> _A:
        """Register who may start and steer runs: ``rule(actor, handler) -> bool``."""
        self._hooks.authorize = rule
        return rule

    def authorize_stream(self, rule: _A) -> _A:
        """Register who may listen to a stream: ``rule(viewer, stream) -> bool``, besides the signed name."""
        self._hooks.authorize_stream = rule
        return rule

    def authorize_dashboard(self, rule: _A) -> _A:
        """Register who may see the dashboard: ``rule(actor) -> bool``. Until there is a rule nobody may."""
        self._hooks.authorize_dashboard = rule
        return rule

    def actor(self, rule: _A) -> _A:
        """Register how to tell who is acting: ``rule() -> user, id or None``, called in a request."""
        self._hooks.actor = rule
        return rule

    def actor_name(self, rule: _A) -> _A:
        """Register what people are called: ``rule(actor_id) -> name or None``, with the id as the ledger has it.

        Shown to everyone who sees a run: who asked, approved, rejected, undid. Without a rule an id that is a number or
        a UUID is not shown at all.
        """
        self._hooks.actor_name = rule
        return rule

    def credentials(self, rule: _A) -> _A:
        """Register whose key a model call is made with: ``rule(provider, run) -> key, settings, client or None``.

        Asked before each model call, so keys may expire and tenants have their own. ``provider`` is its name
        (``openai``), ``run`` the run, or ``None`` for a prompt outside of one. The answer is a key, a mapping of
        ``api_key``, ``base_url``, ``headers`` or ``client``, a ready client of the provider's SDK, a function without
        arguments that gives one, or ``None`` for what is configured.
        """
        self._hooks.credentials = rule
        return rule

    def quota(self, rule: _A) -> _A:
        """Register what a day may use, for instance by plan: ``rule(actor, tenant) -> Limits or None``.

        Asked in the worker as a run is taken up: ``rule("42", "acme")`` for the person's day, and for the whole
        tenant's ``rule(None, "acme")``; both are as the run has them. Of the answer ``tokens`` and ``cost`` count,
        each in place of the setting (``INSTRUCT_ACTOR_TOKENS_PER_DAY``, …); ``None`` leaves the setting as it is.
        """
        self._hooks.quota = rule
        return rule

    def remind_approval(self, rule: _A) -> _A:
        """Register what hears of an approval that waits: ``rule(approval)``, once for each.

        Called in a worker, with an app context and no request, ``INSTRUCT_APPROVAL_REMINDER`` seconds after the person
        was asked: the place to write a mail. What it writes in ``db.session`` it commits itself.
        """
        self._hooks.remind_approval = rule
        return rule
