"""Retries and fallback: what is tried again, when, and what whoever listens is told (guarantee G9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flask_instruct.adapters.base import Model
from flask_instruct.adapters.conversation import NUDGE
from flask_instruct.attempts import Candidates
from flask_instruct.attempts import Patience
from flask_instruct.attempts import answered
from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import ProviderError
from flask_instruct.errors import ProviderErrorKind
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import FinishReason
from flask_instruct.events import ReasoningDelta
from flask_instruct.events import RetryScheduled
from flask_instruct.events import RoundStarted
from flask_instruct.events import TextDelta
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Text

Step = ProviderError | Event


class Moody:
    """A model that does, call by call, what it is told."""

    name = "moody"

    def __init__(self, *calls: list[Step]) -> None:
        self.asked: list[ModelRequest] = []
        self._calls = iter(calls)

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.asked.append(request)
        for step in next(self._calls):
            if isinstance(step, ProviderError):
                raise step
            yield step


class Waits:
    """Remembers how long it was told to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def fails(kind: ProviderErrorKind, technical: str = "Their words", **fields: Any) -> ProviderError:
    return ProviderError(kind, technical, **fields)


def says(text: str, reason: FinishReason = "stop") -> list[Step]:
    shown: list[Step] = [TextDelta(text)] if text else []
    return [*shown, Finish(reason, reason, Message("assistant", (Text(text),) if text else ()))]


def models(*found: Moody | ConfigurationError) -> Candidates:
    def find(name: str | None) -> Model:
        adapter = found[int(name or 0)]
        if isinstance(adapter, ConfigurationError):
            raise adapter
        return Model(adapter, f"m{name}", f"moody:m{name}", "moody")

    return Candidates(tuple(str(number) for number in range(len(found))), find)


def listen(
    *found: Moody | ConfigurationError, wait: Waits | None = None, may_be_empty: bool = False, **patience: Any
) -> list[Event]:
    """Return every event, the end included."""
    heard: list[Event] = []
    talk = answered(
        models(*found),
        lambda model: ModelRequest(model.name, (Message("user", (Text("Hello"),)),)),
        Patience(wait=wait or Waits(), jitter=lambda: 0.5, **patience),
        number=1,
        may_be_empty=may_be_empty,
    )
    while True:
        try:
            heard.append(next(talk))
        except StopIteration as end:
            return [*heard, end.value]


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "server", "timeout", "connection", "cut"])
def test_g9_a_passing_failure_is_tried_again(kind: ProviderErrorKind) -> None:
    """A POST answered 504 or 529 once is retried (crmne/ruby_llm#624)."""
    heard = listen(Moody([fails(kind)], says("Hello")))
    rounds = [event for event in heard if isinstance(event, RoundStarted)]
    assert [(event.number, event.model, event.provider, event.attempt) for event in rounds] == [
        (1, "m0", "moody", 1),
        (1, "m0", "moody", 2),
    ]
    (retry,) = [event for event in heard if isinstance(event, RetryScheduled)]
    assert (retry.attempt, retry.reason, retry.technical) == (2, kind, "Their words")
    assert isinstance(heard[-1], Finish)
    assert heard[-1].message.text == "Hello"


@pytest.mark.parametrize("kind", ["authentication", "permission", "not_found", "bad_request", "context_window"])
def test_g9_a_lasting_failure_is_told_at_once(kind: ProviderErrorKind) -> None:
    model = Moody([fails(kind)], says("Hello"))
    with pytest.raises(ProviderError, match="Their words"):
        listen(model)
    assert len(model.asked) == 1


def test_tries_are_counted_and_come_to_an_end() -> None:
    model = Moody(*[[fails("overloaded", f"No {number}")] for number in range(9)])
    with pytest.raises(ProviderError) as caught:
        listen(model, retries=2)
    assert len(model.asked) == 3
    assert caught.value.kind == "overloaded"
    assert [f"No {number}" in caught.value.technical for number in range(4)] == [True, True, True, False]


def test_waits_grow_and_are_jittered() -> None:
    wait = Waits()
    listen(Moody([fails("server")], [fails("server")], [fails("server")], says("Hello")), wait=wait)
    assert wait.seconds == [0.375, 0.75, 1.5]


def test_a_provider_that_names_a_time_is_waited_for_at_least_so_long() -> None:
    wait = Waits()
    heard = listen(Moody([fails("rate_limited", retry_after=7.0)], says("Hello")), wait=wait)
    (retry,) = [event for event in heard if isinstance(event, RetryScheduled)]
    assert wait.seconds == [retry.delay]
    assert 7.0 <= retry.delay <= 9.0


def test_a_provider_that_asks_for_hours_is_not_waited_for() -> None:
    wait = Waits()
    with pytest.raises(ProviderError) as caught:
        listen(Moody([fails("rate_limited", retry_after=3600.0)], says("Hello")), wait=wait, longest_wait=60.0)
    assert wait.seconds == []
    assert caught.value.retry_after == 3600.0


@pytest.mark.parametrize("shown", [TextDelta("Well, "), ReasoningDelta("Hm. ")])
def test_what_was_shown_and_cannot_be_taken_back_is_not_said_again(shown: Event) -> None:
    """Text must not appear twice after an error in mid-stream (crmne/ruby_llm 4bf4e03)."""
    model = Moody([shown, fails("cut")], says("Hello"))
    with pytest.raises(ProviderError):
        listen(model)
    assert len(model.asked) == 1


def test_what_was_shown_and_is_taken_back_is_said_again() -> None:
    heard = listen(Moody([TextDelta("Well, "), fails("cut")], says("Hello")), may_discard=lambda: True)
    kinds = [type(event) for event in heard]
    assert kinds == [RoundStarted, TextDelta, RetryScheduled, RoundStarted, TextDelta, Finish]


def test_the_next_model_is_asked_when_one_stays_away() -> None:
    first, second = Moody(*[[fails("overloaded")]] * 9), Moody(says("Hello"))
    wait = Waits()
    heard = listen(first, second, wait=wait, retries=1)
    assert (len(first.asked), len(second.asked)) == (2, 1)
    assert wait.seconds[-1] == 0
    assert [event.model for event in heard if isinstance(event, RoundStarted)] == ["m0", "m0", "m1"]


@pytest.mark.parametrize("kind", ["authentication", "permission", "not_found", "context_window", "unsupported"])
def test_the_next_model_is_asked_at_once_for_what_only_concerns_this_one(kind: ProviderErrorKind) -> None:
    first, second = Moody([fails(kind)]), Moody(says("Hello"))
    listen(first, second)
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_a_wrong_request_is_not_taken_to_the_next_model() -> None:
    second = Moody(says("Hello"))
    with pytest.raises(ProviderError):
        listen(Moody([fails("bad_request")]), second)
    assert second.asked == []


def test_a_model_that_is_not_set_up_is_passed_over_while_there_is_another() -> None:
    heard = listen(ConfigurationError("No key"), Moody(says("Hello")))
    assert isinstance(heard[-1], Finish)
    with pytest.raises(ConfigurationError, match="No key"):
        listen(Moody([fails("not_found")]), ConfigurationError("No key"))


def test_a_model_that_proves_not_set_up_in_the_call_has_its_round_closed() -> None:
    class Unready:
        name = "unready"

        def stream(self, request: ModelRequest) -> Iterator[Event]:
            raise ConfigurationError("No such script")
            yield

    heard = listen(Unready(), Moody(says("Hello")))  # type: ignore[arg-type]
    kinds = [type(event) for event in heard]
    assert kinds == [RoundStarted, RetryScheduled, RoundStarted, TextDelta, Finish]
    with pytest.raises(ConfigurationError, match="No such script"):
        listen(Unready())  # type: ignore[arg-type]


def test_every_failure_of_every_model_is_told_to_the_developer() -> None:
    first, second = Moody([fails("permission", "Not for you")]), Moody([fails("not_found", "Who is that?")])
    with pytest.raises(ProviderError) as caught:
        listen(first, second)
    assert "moody:m0: Not for you (permission)" in caught.value.technical
    assert "moody:m1: Who is that? (not_found)" in caught.value.technical


def test_an_empty_answer_is_asked_for_again_with_a_nudge() -> None:
    """Text of an earlier turn is not the answer when the last one is empty (pydantic-ai#6403)."""
    model = Moody(says(""), says("Hello"))
    heard = listen(model)
    assert isinstance(heard[-1], Finish)
    assert heard[-1].message.text == "Hello"
    assert [request.messages[-1].text for request in model.asked] == ["Hello", NUDGE]


def test_an_answer_that_stays_empty_is_an_error_unless_the_work_is_done() -> None:
    with pytest.raises(ProviderError) as caught:
        listen(Moody(*[says("")] * 9))
    assert caught.value.kind == "empty"
    model = Moody(*[says("")] * 9)
    heard = listen(model, may_be_empty=True)
    assert isinstance(heard[-1], Finish)
    assert len(model.asked) == 3


def test_an_empty_answer_at_the_limit_of_tokens_is_not_asked_for_again() -> None:
    """No retries for an empty response with finish reason length (pydantic-ai#3512, openai-agents#4513)."""
    model = Moody(says("", "length"), says("Hello"))
    heard = listen(model)
    assert isinstance(heard[-1], Finish)
    assert heard[-1].reason == "length"
    assert len(model.asked) == 1


def test_a_call_that_the_provider_could_not_read_is_asked_for_once_more() -> None:
    """MALFORMED_FUNCTION_CALL is neither run nor taken for an empty answer (pydantic-ai#631)."""
    model = Moody(says("", "malformed"), says("", "malformed"), says("Hello"))
    heard = listen(model)
    assert isinstance(heard[-1], Finish)
    assert (heard[-1].reason, len(model.asked)) == ("malformed", 2)


def long_talk(turns: int) -> tuple[Message, ...]:
    words = "a word or two " * 40
    talk = [Message(role, (Text(words),)) for _ in range(turns) for role in ("user", "assistant")]
    return (*talk, Message("user", (Text("And now?"),)))


def ask_long(model: Moody, times: int = 1) -> list[int]:
    """Ask a long question again and again; give how many messages each call had."""
    candidates = Candidates(("m",), lambda name: Model(model, "m", "p:m"))

    def ask(model: Model) -> ModelRequest:
        return ModelRequest(model.name, long_talk(8))

    for _ in range(times):
        list(answered(candidates, ask, Patience(wait=Waits()), number=1, may_be_empty=False))
    return [len(request.messages) for request in model.asked]


def test_a_conversation_that_the_last_model_finds_too_long_is_cut_and_asked_again() -> None:
    model = Moody([fails("context_window")], says("Hello"))
    first, second = ask_long(model)
    assert second < first
    assert [request.messages[-1].text for request in model.asked] == ["And now?", "And now?"]


def test_what_was_learnt_of_a_window_holds_for_the_rest_of_the_talk() -> None:
    first, second, third = ask_long(Moody([fails("context_window")], says("Hello"), says("Again")), times=2)
    assert third == second < first


def test_cutting_comes_to_an_end() -> None:
    model = Moody(*[[fails("context_window")]] * 9)
    with pytest.raises(ProviderError):
        ask_long(model)
    assert len(model.asked) == 3


def test_the_stream_of_a_failed_try_is_closed_before_the_next() -> None:
    """The response of a turn that is given up is closed (openai-agents#4366)."""
    closed: list[str] = []

    class Guarded:
        name = "guarded"

        def stream(self, request: ModelRequest) -> Iterator[Event]:
            try:
                yield TextDelta("Well")
                raise fails("cut")
            finally:
                closed.append(request.model)

    with pytest.raises(ProviderError):
        list(
            answered(
                Candidates(("g",), lambda name: Model(Guarded(), "g", "g")),
                lambda model: ModelRequest(model.name, ()),
                Patience(retries=1, wait=Waits(), may_discard=lambda: True),
                number=1,
                may_be_empty=False,
            )
        )
    assert closed == ["g", "g"]
