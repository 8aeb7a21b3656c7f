"""Histories of any kind become what every provider takes."""

from __future__ import annotations

from itertools import pairwise

from flask_instruct.adapters.conversation import INTERRUPTED
from flask_instruct.adapters.conversation import well_formed
from flask_instruct.adapters.conversation import without_calls
from flask_instruct.messages import Message
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult

from .hearing import assistant
from .hearing import results
from .hearing import user


def pairs(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    """Each call's id with the content of its result, in order."""
    found = []
    for turn, answer in pairwise(messages):
        if turn.calls:
            assert [result.call_id for result in answer.results] == [call.id for call in turn.calls]
            found += [(result.call_id, result.content) for result in answer.results]
    return found


def test_results_that_no_call_asked_for_are_left_out() -> None:
    """A history cut to its last messages may begin with a result (openai-agents#4324)."""
    history = [results(ToolResult("gone", "x", "old")), user("Hi"), assistant("Yes?")]
    assert well_formed(history) == tuple(history[1:])


def test_a_call_that_was_never_answered_gets_an_honest_result() -> None:
    history = [
        user("Go."),
        assistant(ToolCall("a", "x"), ToolCall("b", "x")),
        results(ToolResult("b", "x", "ok")),
        user("And?"),
    ]
    assert pairs(well_formed(history)) == [("a", INTERRUPTED), ("b", "ok")]


def test_results_stand_in_the_order_of_the_calls_and_only_once() -> None:
    """The order of completion would change the prompt's bytes (vercel/ai#16578)."""
    history = [
        assistant(ToolCall("a", "x"), ToolCall("b", "x")),
        results(ToolResult("b", "x", "second")),
        results(ToolResult("a", "x", "first"), ToolResult("b", "x", "again")),
    ]
    assert pairs(well_formed(history)) == [("a", "first"), ("b", "second")]


def test_ids_that_were_used_before_get_another_which_stays_the_same() -> None:
    """Servers count from call_0 in every turn, or send no id at all (vercel/ai#19091)."""
    turn = [assistant(ToolCall("call_0", "x"), ToolCall("", "x"), ToolCall("", "x"))]
    answer = [results(ToolResult("call_0", "x", "1"), ToolResult("", "x", "2"), ToolResult("", "x", "3"))]
    formed = well_formed([*turn, *answer, *turn, *answer])
    found = pairs(formed)
    assert [content for _, content in found] == ["1", "2", "3", "1", "2", "3"]
    assert len({call_id for call_id, _ in found}) == 6
    assert found[:3] == pairs(well_formed([*turn, *answer]))


def test_a_turn_that_says_nothing_disappears() -> None:
    """An empty assistant turn is a 400 (pydantic-ai#5300)."""
    assert well_formed([user("Hi"), assistant(), assistant(" \n"), user("Hello?")]) == (user("Hi"), user("Hello?"))


def test_a_dropped_call_takes_the_reasoning_with_it_that_led_to_it() -> None:
    """Reasoning without its call is a 400 (openai-agents#3207)."""
    first, second = Reasoning("why a"), Reasoning("why b")
    assert without_calls([first, Text("So."), second, ToolCall("b", "x")]) == (first, Text("So."))
