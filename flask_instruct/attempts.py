"""One answer of a model, called as often as it takes: tried again, then with the next model, until one is whole.

Nothing of an answer that failed stays: whoever shows it takes it back, or nothing is tried again once it was shown.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from collections.abc import Generator
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from .adapters.base import Model
from .adapters.conversation import NUDGE
from .adapters.window import estimated
from .adapters.window import fitted
from .errors import ConfigurationError
from .errors import ProviderError
from .errors import ProviderErrorKind
from .events import Event
from .events import Finish
from .events import ReasoningDelta
from .events import RetryScheduled
from .events import RoundStarted
from .events import TextDelta
from .messages import Message
from .messages import ModelRequest
from .messages import Text

logger = logging.getLogger("flask_instruct")

DEFAULT_RETRIES = 3
DEFAULT_LONGEST_WAIT = 60.0

FIRST_WAIT = {"rate_limited": 2.0, "overloaded": 2.0, "empty": 0.0, "malformed": 0.0}
"""Seconds before the second try by kind of failure, where the provider names none; 0.5 for any other. They double."""
LONGEST_BACKOFF = 30.0

SOFT = {"empty": 2, "malformed": 1}
"""How often an answer that came whole, yet is of no use, is asked for again: a model that fails so twice fails on."""

SHORTENINGS = 2
"""How often a conversation that a model found too long is cut shorter, where its window was not known or is smaller."""
SHORTER = 0.75

MOVES_ON = frozenset(
    {"rate_limited", "overloaded", "server", "timeout", "connection", "cut", "empty", "malformed"}
    | {"authentication", "permission", "not_found", "context_window", "unsupported"}
)
"""Failures for which another model is asked; a request that was wrong in itself would be so for all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a failing model is put up with.

    :param retries: further tries of one model.
    :param longest_wait: seconds; a provider that asks for more is not waited for.
    :param wait: waits for that many seconds, or raises to end the talk.
    :param may_discard: whether what was shown of an answer can be taken back.
    """

    retries: int = DEFAULT_RETRIES
    longest_wait: float = DEFAULT_LONGEST_WAIT
    wait: Callable[[float], object] = time.sleep
    may_discard: Callable[[], bool] = lambda: False
    jitter: Callable[[], float] = random.random


class Candidates:
    """The models of a talk in the order they are tried; once one is given up it is not asked again.

    :param names: ``provider:model`` each, or one ``None`` for the preferred one.
    :param find: looks a name up, afresh for every call: keys may change.
    """

    def __init__(self, names: tuple[str | None, ...], find: Callable[[str | None], Model]) -> None:
        self._names = names
        self._find = find
        self._place = 0
        self._windows: dict[str, int] = {}

    def current(self) -> Model:
        """Return the model to call; one that is not set up is passed over while there is another.

        :raises ConfigurationError: when the last one is not set up either.
        """
        try:
            return self._find(self._names[self._place])
        except ConfigurationError as error:
            if not self.move_on():
                raise
            logger.warning("Model %s is passed over: %s", self._names[self._place - 1], error)
            return self.current()

    def window(self, model: Model) -> int | None:
        """Return how many tokens a model takes, as far as that is known or was learnt in this talk."""
        return self._windows.get(model.label, model.window)

    def learn_window(self, model: Model, tokens: int) -> None:
        """Remember that a model takes fewer tokens than it was sent."""
        self._windows[model.label] = tokens

    def move_on(self) -> bool:
        """Give the current model up for the next one; false when it is the last."""
        if self._place + 1 >= len(self._names):
            return False
        self._place += 1
        return True


SHOWN = (TextDelta, ReasoningDelta)
"""What a reader has seen; made once, since it is asked for each delta."""

Ask = Callable[[Model], ModelRequest]
"""Makes the request for a model: what it can do differs."""


@dataclass(slots=True)
class _Trial:
    """The tries of one answer so far; ``failures`` counts those of the current model."""

    number: int
    may_be_empty: bool
    tries: int = 0
    shown: bool = False
    request: ModelRequest | None = None
    failures: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def started(self, model: Model) -> RoundStarted:
        return RoundStarted(self.number, model.name, model.provider, self.tries, model.base_url)


def answered(
    candidates: Candidates, ask: Ask, patience: Patience, *, number: int, may_be_empty: bool
) -> Generator[Event, None, Finish]:
    """Give off the events of one answer and return its end.

    ``RoundStarted`` comes before each try. ``RetryScheduled`` says that everything since is void, and how long the
    wait is that follows.

    :param number: of the round, from 1.
    :param may_be_empty: an answer without a word is taken after it was asked for again.
    :raises ProviderError: when no model answered; earlier failures stand in its technical text.
    :raises ConfigurationError: when no model is set up.
    """
    trial = _Trial(number, may_be_empty)
    while True:
        model = candidates.current()
        try:
            return (yield from _one_try(trial, candidates, model, ask, patience))
        except ConfigurationError as error:
            # Only now seen: a model's name, a client that could not be made.
            if not candidates.move_on():
                raise
            logger.warning("Model %s is passed over: %s", model.label, error)
            trial.failures.clear()
            # Said like a failed call, so that the round that had begun is closed in the ledger.
            scheduled = RetryScheduled(trial.tries + 1, 0.0, "configuration", str(error))
        except ProviderError as error:
            following = _next_try(trial, candidates, model, error, patience)
            if following is None:
                raise _with_history(error, trial.told) from error
            scheduled = following
        # Not the provider's own words: they may quote the prompt.
        logger.warning("Trying again in %.1f s: %s failed (%s)", scheduled.delay, model.label, scheduled.reason)
        yield scheduled
        patience.wait(scheduled.delay)


def _one_try(
    trial: _Trial, candidates: Candidates, model: Model, ask: Ask, patience: Patience
) -> Generator[Event, None, Finish]:
    trial.tries += 1
    trial.shown = False
    yield trial.started(model)
    request = trial.request = fitted(ask(model), candidates.window(model))
    if "empty" in trial.failures:
        request = replace(request, messages=(*request.messages, Message("user", (Text(NUDGE),))))
    finish = yield from _heard(trial, model, request)
    fault = _fault(finish)
    if fault is None:
        return finish
    worn_out = trial.failures.get(fault, 0) >= SOFT[fault] or not _may_try_again(trial, patience)
    if worn_out and (fault == "malformed" or trial.may_be_empty):
        return finish
    raise ProviderError(fault, f"The answer was {fault} (finish reason {finish.raw!r}).")


def _heard(trial: _Trial, model: Model, request: ModelRequest) -> Generator[Event, None, Finish]:
    stream = model.adapter.stream(request)
    try:
        for event in stream:
            if isinstance(event, Finish):
                return event
            if isinstance(event, RetryScheduled):
                # The adapter sends a request once more in another form: a physical call of its own.
                trial.tries += 1
                yield replace(event, attempt=trial.tries)
                yield trial.started(model)
                continue
            trial.shown = trial.shown or isinstance(event, SHOWN)
            yield event
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    raise AssertionError(f"Adapter {model.adapter.name!r} ended its stream without Finish and without an error.")


def _fault(finish: Finish) -> ProviderErrorKind | None:
    """What is wrong with an answer that came whole."""
    if finish.reason == "malformed":
        return "malformed"
    empty = finish.reason == "stop" and not finish.message.calls and not finish.message.text.strip()
    return "empty" if empty else None


def _next_try(
    trial: _Trial, candidates: Candidates, model: Model, error: ProviderError, patience: Patience
) -> RetryScheduled | None:
    trial.told.append(f"{model.label or model.name}: {error.technical} ({error.kind})")
    if not _may_try_again(trial, patience):
        return None
    key = error.kind if error.kind in SOFT else "hard"
    before = trial.failures.get(key, 0)
    again = before < SOFT.get(error.kind, patience.retries if error.retryable else 0)
    if again and (error.retry_after or 0) <= patience.longest_wait:
        trial.failures[key] = before + 1
        return RetryScheduled(trial.tries + 1, _delay(error, before, patience), error.kind, error.technical)
    if error.kind in MOVES_ON and candidates.move_on():
        trial.failures.clear()
    elif error.kind != "context_window" or not _shortened(trial, candidates, model):
        return None
    return RetryScheduled(trial.tries + 1, 0.0, error.kind, error.technical)


def _shortened(trial: _Trial, candidates: Candidates, model: Model) -> bool:
    """Cut a conversation that the last model found too long; false when nothing can go or enough went."""
    count = trial.failures.get("context_window", 0)
    if trial.request is None or count >= SHORTENINGS:
        return False
    tokens = int(estimated(trial.request) * SHORTER)
    if fitted(trial.request, tokens) is trial.request:
        return False
    trial.failures["context_window"] = count + 1
    candidates.learn_window(model, tokens)
    return True


def _may_try_again(trial: _Trial, patience: Patience) -> bool:
    """Text that a reader has seen must not appear twice (crmne/ruby_llm 4bf4e03)."""
    return not trial.shown or patience.may_discard()


def _delay(error: ProviderError, before: int, patience: Patience) -> float:
    """What the provider asks for, and on top the growing, jittered wait that keeps clients from coming all at once."""
    backoff: float = min(FIRST_WAIT.get(error.kind, 0.5) * 2**before, LONGEST_BACKOFF)
    asked = error.retry_after or 0.0
    return asked + backoff * (patience.jitter() if asked else (1 + patience.jitter()) / 2)


def _with_history(error: ProviderError, told: list[str]) -> ProviderError:
    if len(told) < 2:
        return error
    return ProviderError(
        error.kind,
        "\n".join(told),
        safe=error.safe,
        status=error.status,
        retry_after=error.retry_after,
        body=error.body,
    )
