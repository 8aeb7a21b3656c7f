"""What stands beside an answer: the model's reasoning, and what the request has used and cost."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import object_session

from ..runs.models import Message
from ..runs.models import Run
from ..runs.spending import Spending
from ..runs.spending import spent_by_run
from .language import gettext as _
from .numbers import dollars
from .numbers import whole


def reasoning(message: Message) -> str:
    """Return what a model has told of its reasoning; empty for none, and while it is still at it."""
    parts = (message.parts or {}).get("parts")
    if not isinstance(parts, list):
        return ""
    found = (part for part in parts if isinstance(part, dict) and part.get("type") == "reasoning")
    texts = (str(part.get("text") or "") for part in found)
    return "\n\n".join(text for text in texts if text.strip())


def spent(run: Run, known: Mapping[str, Spending] | None = None) -> str:
    """Say how many tokens a run has used and what they cost, as far as their price is known; nothing for none.

    :param known: of the runs of a page, so that not each is asked for by itself.
    """
    session = object_session(run)
    if known is not None:
        sums = known.get(run.id, Spending())
    else:
        sums = spent_by_run(session, run.id) if session is not None else Spending()
    tokens = sums.input_tokens + sums.output_tokens
    if not tokens:
        return ""
    said = _("%(n)s tokens", n=whole(tokens))
    if sums.cost is None:
        return said
    cost = dollars(sums.cost)
    if sums.unpriced:
        cost = _("at least %(cost)s", cost=cost)
    return f"{said} · {cost}"
