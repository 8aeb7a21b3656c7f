"""Who may see the dashboard: nobody, until the app has a rule; then whom the rule lets in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Literal

from ..live.audience import says_yes

if TYPE_CHECKING:
    from ..state import State

Refusal = Literal["no_rule", "not_allowed"]


def refusal(state: State) -> Refusal | None:
    """Return why whoever asks in the current request may not see it, or None for one who may.

    :raises TypeError: for a rule that is an ``async def``, whose answer would always be true.
    """
    rule = state.hooks.authorize_dashboard
    if rule is None:
        return "no_rule"
    return None if says_yes(rule, state.actor()) else "not_allowed"
