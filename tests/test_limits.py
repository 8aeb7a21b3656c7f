"""Limits: their arithmetic, and the talk that ends at one with a valid history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from flask_instruct import Limits
from flask_instruct.errors import ProviderError
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import LimitReached
from flask_instruct.events import ToolCallRequest
from flask_instruct.events import Usage
from flask_instruct.events import UsageReported
from flask_instruct.generation import Gen
from flask_instruct.generation import gen
from flask_instruct.limits import Measure
from flask_instruct.limits import Reached
from flask_instruct.limits import first_met
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolSpec
from flask_instruct.outputs import TOOL_NAME
from flask_instruct.prompt import Prompt
from flask_instruct.talk import MOST_CALLS
from flask_instruct.talk import PAST_LIMIT
from flask_instruct.talk import TOO_MANY
from flask_instruct.talk import converse

ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {}})


# -- the values --------------------------------------------------------------------------------------------------------


def test_of_two_limits_the_smaller_counts_and_none_is_no_limit() -> None:
    app = Limits(rounds=8, tokens=1000, cost="1")
    run = Limits(rounds=20, tokens=500, seconds=60)
    assert app.tighter(run) == run.tighter(app) == Limits(rounds=8, tokens=500, cost=1, seconds=60)
    assert app.tighter(Limits()) == app
    assert Limits(tokens=0).tighter(app).tokens == 0


def test_dollars_are_exact_however_they_are_written() -> None:
    for written in ("0.1", 0.1, Decimal("0.10")):
        assert Limits(cost=written).cost == Decimal("0.1")  # type: ignore[arg-type]
    assert Limits(cost=2).cost == 2  # type: ignore[arg-type]


def test_limits_survive_storage_as_json() -> None:
    limits = Limits(rounds=3, tool_calls=0, seconds=1.5, tokens=2000, cost=Decimal("0.25"))
    data = json.loads(json.dumps(limits.to_json()))
    assert data == {"rounds": 3, "tool_calls": 0, "seconds": 1.5, "tokens": 2000, "cost": "0.25"}
    assert Limits.of(data) == limits
    assert (Limits().to_json(), Limits.of(None)) == ({}, Limits())


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": -1}, {"tokens": 1.5}, {"cost": "cheap"}, {"seconds": "nan"}, {"cost": "inf"}, {"tool_calls": True}],
)
def test_a_limit_that_is_no_amount_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits.of(wrong)


def test_a_limit_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"'token'; there are rounds, tool_calls, seconds, tokens, cost"):
        Limits.of({"token": 5})
    with pytest.raises(ValueError, match="mapping"):
        Limits.of(["tokens"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "reached"),
    [
        (99, None),
        (100, Reached("tokens", 100, last_answer=True)),
        (125, Reached("tokens", 100, last_answer=True)),
        (126, Reached("tokens", 100, last_answer=False)),
    ],
)
def test_a_limit_is_met_when_it_is_used_up_and_allows_an_answer_until_it_is_a_quarter_past(
    used: int, reached: Reached | None
) -> None:
    assert first_met([Measure("tokens", 100, used)]) == reached


def test_the_quarter_is_reckoned_exactly_in_dollars() -> None:
    assert first_met([Measure("cost", Decimal("0.1"), Decimal("0.125"))]) == Reached("cost", Decimal("0.1"))


def test_of_several_limits_the_one_that_allows_no_answer_decides() -> None:
    measures = [Measure("seconds", 10, 10), Measure("tokens", None, 10**9), Measure("cost", 1, 2)]
    assert first_met(measures) == Reached("cost", 1, last_answer=False)
    assert first_met(measures[:2]) == Reached("seconds", 10)
    assert first_met([Measure("actor_tokens", 10, 10, spares=False)]) == Reached("actor_tokens", 10, False)


# -- the talk ----------------------------------------------------------------------------------------------------------


class Counter:
    """A model that says one turn after the other and counts tokens: each turn a total of them."""

    name = "counter"

    def __init__(self, *turns: str | tuple[ToolCall, ...] | ProviderError, tokens: int = 10) -> None:
        self.asked: list[ModelRequest] = []
        self._turns = iter(turns)
        self._tokens = tokens

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.asked.append(request)
        turn = next(self._turns)
        # Reported twice, as providers do while they stream: the last word counts.
        yield UsageReported(Usage(input_tokens=1, output_tokens=0))
        yield UsageReported(Usage(input_tokens=self._tokens - 4, output_tokens=4, cache_read_tokens=2))
        if isinstance(turn, ProviderError):
            raise turn
        parts = (Text(turn),) if isinstance(turn, str) else turn
        yield Finish("stop" if isinstance(turn, str) else "tool_calls", "end", Message("assistant", parts))


class Talk:
    """What came of a talk: its events, its messages, and the calls that were carried out."""

    def __init__(self, speaker: Counter, gen: Gen, messages: list[Message] | None = None) -> None:
        self.messages = messages if messages is not None else [Message("user", (Text("Go."),))]
        self.events: list[Event] = []
        self.ran: list[str] = []
        for event in converse(self.messages, gen, adapter=speaker):
            self.events.append(event)
            if isinstance(event, ToolCallRequest):
                self.ran.append(event.id)
                event.respond("ok")

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.messages]


def calls(*ids: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(each, "add", "{}") for each in ids)


def test_tokens_of_all_turns_are_summed_and_the_model_answers_once_more() -> None:
    speaker = Counter(calls("1"), calls("2"), "That is what I have.")
    talk = Talk(speaker, gen("m", tools=[ADD], limits={"tokens": 20}))
    assert [request.tool_choice for request in speaker.asked] == ["auto", "auto", "none"]
    assert talk.events[-1] == LimitReached("tokens", 20)
    assert talk.roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_a_limit_that_is_far_behind_allows_no_answer_and_leaves_the_history_valid() -> None:
    speaker = Counter(calls("1"), "Never said.", tokens=100)
    talk = Talk(speaker, gen("m", tools=[ADD], limits=Limits(tokens=20)))
    assert (len(speaker.asked), talk.ran) == (1, ["1"])
    assert talk.events[-1] == LimitReached("tokens", 20)
    assert talk.roles == ["user", "assistant", "tool"]


def test_tokens_of_failed_tries_count_too() -> None:
    again = ProviderError("malformed", "not read")
    speaker = Counter(again, calls("1"), "That is all.")
    talk = Talk(speaker, gen("m", tools=[ADD], limits={"tokens": 20}))
    assert (talk.events[-1], len(speaker.asked)) == (LimitReached("tokens", 20), 3)


def test_an_answer_within_its_limits_is_no_limited_one() -> None:
    talk = Talk(Counter("Here."), gen("m", limits={"tokens": 5, "seconds": 60, "tool_calls": 0}))
    assert isinstance(talk.events[-1], Finish)


def test_time_is_asked_before_each_model_call(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.0, 11.0, 30.0])
    monkeypatch.setattr("flask_instruct.limits.time.monotonic", lambda: next(moments))
    speaker = Counter(calls("1"), "I had no time for more.")
    talk = Talk(speaker, gen("m", tools=[ADD], limits={"seconds": 10}))
    assert talk.events[-1] == LimitReached("seconds", 10)
    assert [request.tool_choice for request in speaker.asked] == ["auto", "none"]


def test_calls_that_would_pass_the_limit_are_refused_whole_and_each_is_answered() -> None:
    speaker = Counter(calls("1", "2"), calls("3", "4"), "I did two of four.")
    talk = Talk(speaker, gen("m", tools=[ADD], limits={"tool_calls": 3}))
    assert talk.ran == ["1", "2"]
    refused = talk.messages[4].results
    assert [result.call_id for result in refused] == ["3", "4"]
    assert all(result.error and result.content.startswith(PAST_LIMIT) for result in refused)
    assert speaker.asked[-1].tool_choice == "none"
    assert talk.events[-1] == LimitReached("tool_calls", 3)
    assert talk.roles[-1] == "assistant"


def test_a_talk_that_needs_exactly_its_calls_is_not_limited() -> None:
    talk = Talk(Counter(calls("1", "2"), "Done."), gen("m", tools=[ADD], limits={"tool_calls": 2}))
    assert (talk.ran, type(talk.events[-1])) == (["1", "2"], Finish)


def test_calls_of_an_earlier_request_do_not_count() -> None:
    first = Talk(Counter(calls("1"), "Done."), gen("m", tools=[ADD], limits={"tool_calls": 1}))
    first.messages.append(Message("user", (Text("Again."),)))
    talk = Talk(Counter(calls("2"), "Done."), gen("m", tools=[ADD], limits={"tool_calls": 1}), first.messages)
    assert (talk.ran, type(talk.events[-1])) == (["2"], Finish)


def test_a_turn_of_too_many_calls_keeps_its_own_refusals_under_a_limit() -> None:
    many = calls(*(str(number) for number in range(MOST_CALLS + 2)))
    talk = Talk(Counter(many, "Done."), gen("m", tools=[ADD], limits={"tool_calls": MOST_CALLS}))
    assert (len(talk.ran), talk.messages[2].results[-1].content) == (MOST_CALLS, TOO_MANY)
    talk = Talk(Counter(many, "Done."), gen("m", tools=[ADD], limits={"tool_calls": MOST_CALLS - 1}))
    assert (talk.ran, talk.events[-1]) == ([], LimitReached("tool_calls", MOST_CALLS - 1))
    assert talk.messages[2].results[-1].content == TOO_MANY


def test_the_smaller_of_both_numbers_of_rounds_counts() -> None:
    for max_rounds, limit in ((2, 5), (5, 2)):
        speaker = Counter(calls("1"), calls("2"), "Done.")
        talk = Talk(speaker, gen("m", tools=[ADD], max_rounds=max_rounds, limits={"rounds": limit}))
        assert talk.events[-1] == LimitReached("rounds", 2)


class Verdict(BaseModel):
    word: str


def test_the_call_that_is_the_answer_is_no_tool_call_and_comes_at_a_limit_too() -> None:
    answer = ToolCall("a", TOOL_NAME, '{"word": "good"}')
    for turns in ([calls("1"), (answer,)], [calls("1"), calls("2"), (answer,)]):
        prompt = Prompt().user("Judge.") + gen(output=Verdict, tools=[ADD], limits={"tool_calls": 1})
        reply = prompt.call(lambda event: None, adapter=Counter(*turns))
        assert reply.output == Verdict(word="good")


def test_each_generation_of_a_prompt_has_its_limits_for_itself() -> None:
    step = gen("m", limits={"tokens": 10})
    prompt = Prompt().user("One.") + step + Prompt().user("Two.") + step
    events: list[Event] = []
    prompt.call(events.append, adapter=Counter("Yes.", "Yes."))
    assert not [event for event in events if isinstance(event, LimitReached)]


def test_limits_of_a_prompt_survive_storage() -> None:
    prompt = Prompt().user("Go.") + gen("m", limits={"tokens": 10, "seconds": 5})
    again = Prompt.from_json(json.loads(json.dumps(prompt.to_json())))
    assert again == prompt


def test_a_prompt_cannot_be_limited_by_what_only_a_ledger_adds_up() -> None:
    with pytest.raises(ValueError, match="limit its tokens"):
        gen("m", limits={"cost": "1"})
