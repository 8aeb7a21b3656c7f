"""What the ledger says a run, its actor and its tenant have used, held against what they may use.

The loop asks before each model call; every physical call that was made counts, of all attempts at the run.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ..config import Config
from ..errors import ConfigurationError
from ..events import LimitReached
from ..limits import NO_LIMITS
from ..limits import Limits
from ..limits import Measure
from ..limits import Reached
from ..limits import first_met
from .columns import now
from .interruption import Interrupted
from .models import Run
from .spending import Spending
from .spending import spent_by_run
from .spending import spent_on_day

if TYPE_CHECKING:
    from ..state import State

OF_A_DAY = ("tokens", "cost")
"""The limits that a quota may have; the others belong to one run."""


class Quotas:
    """What one attempt at a run may still use.

    :param reader: an engine for looking only.
    :param note: writes the name of the limit that is met into the run's row, or None: after a crash nothing else tells
        that the answer being received was the last one.
    """

    def __init__(self, state: State, reader: sa.Engine, run: Run, note: Callable[[str | None], None]) -> None:
        self._state = state
        self._reader = reader
        self._run = run
        self._note = note
        self._noted = run.limit_reached
        self._limits = limits_of(state.config, run)
        self._of_days: dict[str, Limits] | None = None

    def met(self) -> Reached | None:
        """Return the limit that is met, and write it down before the last answer is asked for.

        :raises Interrupted: when the ledger cannot be read.
        """
        reached = first_met(self._read())
        name = reached.limit if reached is not None else None
        if name != self._noted:
            self._note(name)
            self._noted = name
        return reached

    def noted(self) -> LimitReached | None:
        """Return the limit that an earlier attempt had met when it asked for the last answer.

        :raises Interrupted: when the ledger cannot be read.
        """
        if self._noted is None:
            return None
        bounds = {measure.limit: measure.bound for measure in self._read()}
        return LimitReached(self._noted, float(bounds.get(self._noted) or 0))

    def _read(self) -> list[Measure]:
        try:
            return list(self._measures())
        except SQLAlchemyError as error:
            raise Interrupted(f"What run {self._run.id} has used could not be read.") from error

    def _measures(self) -> Iterator[Measure]:
        limits, run = self._limits, self._run
        yield Measure("seconds", limits.seconds, (now() - run.started_at).total_seconds() if run.started_at else 0.0)
        days = self._quotas_of_days()
        if limits.tokens is None and limits.cost is None and not days:
            return
        with Session(self._reader) as session:
            spent = spent_by_run(session, run.id)
            yield from _tokens_and_cost("", limits, spent)
            for who, quota in days.items():
                of_day = spent_on_day(session, now().date(), **{who: getattr(run, who)})
                # A run over its quota is not begun; one that is under way may come to an end.
                yield from _tokens_and_cost(f"{who}_", quota, of_day, spares=spent.calls > 0)

    def _quotas_of_days(self) -> dict[str, Limits]:
        """Return what actor and tenant may use in a day; the app's own rule is asked once in an attempt."""
        if self._of_days is None:
            run = self._run
            quotas = {
                "actor": self._quota("actor", run.actor, run.actor, run.tenant),
                "tenant": self._quota("tenant", run.tenant, None, run.tenant),
            }
            self._of_days = {who: quota for who, quota in quotas.items() if quota != NO_LIMITS}
        return self._of_days

    def _quota(self, who: str, name: str | None, actor: str | None, tenant: str | None) -> Limits:
        if name is None:
            return NO_LIMITS
        own = self._ask(actor, tenant)
        usual = {each: getattr(self._state.config, f"{who}_{each}_per_day") for each in OF_A_DAY}
        return Limits(**{each: usual[each] if own.get(each) is None else own[each] for each in OF_A_DAY})

    def _ask(self, actor: str | None, tenant: str | None) -> dict[str, Any]:
        rule = self._state.hooks.quota
        if rule is None:
            return {}
        try:
            own = Limits.of(rule(actor, tenant)).to_json()
        finally:
            # Whatever the rule looked up: no transaction stays open while the model is waited for (G5).
            self._state.db.session.remove()
        others = [name for name in own if name not in OF_A_DAY]
        if others:
            raise ConfigurationError(
                f"The @instruct.quota rule limits {others[0]}, which no day has: it may limit tokens and cost; the "
                "rest belongs to one run, as in generate_for(…, limits=…)."
            )
        return own


def limits_of(config: Config, run: Run) -> Limits:
    """Return what one run may use: of the app's settings and the run's own limits the smaller."""
    of_app = Limits(
        rounds=config.max_rounds,
        tool_calls=config.max_tool_calls,
        seconds=config.max_seconds,
        tokens=config.max_tokens,
        cost=config.max_cost,
    )
    return of_app.tighter(Limits.of(run.limits))


def _tokens_and_cost(prefix: str, limits: Limits, spent: Spending, *, spares: bool = True) -> Iterator[Measure]:
    yield Measure(f"{prefix}tokens", limits.tokens, spent.input_tokens + spent.output_tokens, spares)
    yield Measure(f"{prefix}cost", limits.cost, spent.cost or 0, spares)
