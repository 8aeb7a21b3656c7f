"""How much a talk or a day may use, and whether that much has been used: the numbers and their arithmetic.

Nothing here knows where the numbers come from; a talk measures itself with :class:`Meter`, a run asks the ledger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields
from decimal import Decimal
from decimal import InvalidOperation
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

if TYPE_CHECKING:
    from .events import Usage

OVERSHOOT = Decimal("1.25")
"""How far past its limit a talk may be and still give one last answer."""

LARGEST = 10**15
"""The largest limit. A text such as 1e999999999 is a number whose digits fill the memory."""

NOT_CARRIED_OUT = "Not carried out:"
"""How each answer begins to a call that a limit of ours kept from running."""

Number = int | float | Decimal


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one talk, run or day may use; ``None`` sets no limit.

    :param rounds: model turns that call tools.
    :param tool_calls: calls that are carried out.
    :param seconds: from the start, waiting and retries included.
    :param tokens: sent and received together, as the provider counts them.
    :param cost: dollars, also as text (``"0.25"``). A call whose price nobody knows costs nothing.
    :raises ValueError: for a limit that is no number or is negative.
    """

    rounds: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: Decimal | None = None

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            object.__setattr__(self, name, read(name, getattr(self, name)))

    def tighter(self, other: Limits) -> Limits:
        """Return the smaller of each two."""
        return Limits(**{name: _smaller(getattr(self, name), getattr(other, name)) for name in NAMES})

    def to_json(self) -> dict[str, Any]:
        """Return what is limited as plain JSON data; dollars are text, which is exact."""
        limits = {name: getattr(self, name) for name in NAMES}
        return {name: str(value) if name == "cost" else value for name, value in limits.items() if value is not None}

    @classmethod
    def of(cls, limits: Limits | Mapping[str, Any] | None) -> Limits:
        """Read limits that may be written as a mapping, such as ``{"tokens": 20_000, "cost": "0.25"}``.

        :raises ValueError: for a name or a number that is no limit.
        """
        if limits is None or isinstance(limits, Limits):
            return limits or NO_LIMITS
        if not isinstance(limits, Mapping):
            raise ValueError(f"limits must be Limits(…) or a mapping, got {limits!r}.")
        unknown = [str(name) for name in limits if name not in NAMES]
        if unknown:
            raise ValueError(f"No limit is named {unknown[0]!r}; there are {', '.join(NAMES)}.")
        return cls(**limits)


class Reached(NamedTuple):
    """A limit that is met; ``last_answer`` says whether the model may still answer once, without tools."""

    limit: str
    bound: Number
    last_answer: bool = True


class Measure(NamedTuple):
    """One limit by its name, and how much of it has been used.

    :param spares: one last answer is allowed as long as the limit is not far behind.
    """

    limit: str
    bound: Number | None
    used: Number
    spares: bool = True


Allowance = Callable[[], Reached | None]
"""Tells before a model call which limit is met, of those that a talk's messages do not tell."""


def first_met(measures: Iterable[Measure]) -> Reached | None:
    """Return the limit that is met: the first that allows no answer any more, else the first."""
    met = [
        Reached(measure.limit, measure.bound, measure.spares and not _far_behind(measure.bound, measure.used))
        for measure in measures
        if measure.bound is not None and measure.used >= measure.bound
    ]
    return next((reached for reached in met if not reached.last_answer), met[0] if met else None)


def tokens_of(usage: Usage) -> int:
    """Return the tokens of a model call, sent and received; both counts have their special kinds in them."""
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


class Meter:
    """What one talk has used, as far as it can tell by itself: its time, and the tokens that were reported to it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._before = self._now = 0

    def new_call(self) -> None:
        """A model call is about to leave."""
        self._before, self._now = self._before + self._now, 0

    def count(self, usage: Usage) -> None:
        """Take the provider's count; its last word about a call counts."""
        self._now = tokens_of(usage)

    def met(self) -> Reached | None:
        """Return the limit of the talk that is met, if one is."""
        seconds, tokens = time.monotonic() - self._began, self._before + self._now
        return first_met(
            [Measure("seconds", self._limits.seconds, seconds), Measure("tokens", self._limits.tokens, tokens)]
        )


def _far_behind(bound: Number, used: Number) -> bool:
    return _exact(used) > _exact(bound) * OVERSHOOT


def _exact(number: Number) -> Decimal:
    return Decimal(number)


def _smaller(one: Any, other: Any) -> Any:
    return min((number for number in (one, other) if number is not None), default=None)


def _whole(name: str, value: Any) -> int | None:
    number = _number(name, value)
    if number is not None and number % 1:
        raise ValueError(f"The limit {name} must be a whole number, got {value!r}.")
    return None if number is None else int(number)


def _seconds(name: str, value: Any) -> float | None:
    number = _number(name, value)
    return None if number is None else float(number)


def _dollars(name: str, value: Any) -> Decimal | None:
    # By way of its text: 0.1 is meant as a tenth of a dollar, which no float is.
    return _number(name, str(value) if isinstance(value, float) else value)


def _number(name: str, value: Any) -> Decimal | None:
    if value is None:
        return None
    try:
        number = Decimal(value) if not isinstance(value, bool) else Decimal("nan")
    except (InvalidOperation, TypeError, ValueError):
        number = Decimal("nan")
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"The limit {name} must be a number of at least 0, got {value!r}.")
    if number > LARGEST:
        raise ValueError(f"The limit {name} may be {LARGEST:,} at most, got {str(value)[:40]}; None sets no limit.")
    return number


_READERS: dict[str, Callable[[str, Any], Number | None]] = {
    "rounds": _whole,
    "tool_calls": _whole,
    "seconds": _seconds,
    "tokens": _whole,
    "cost": _dollars,
}
NAMES = tuple(field.name for field in fields(Limits))
NO_LIMITS = Limits()
