"""Conversations are cut to the model's window: whole rounds, oldest first, in steps, and never more than they must."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from flask_instruct.adapters.conversation import well_formed
from flask_instruct.adapters.window import IMAGE
from flask_instruct.adapters.window import NOTE
from flask_instruct.adapters.window import PAGE
from flask_instruct.adapters.window import estimated
from flask_instruct.adapters.window import fitted
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Part
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings

from .hearing import WEATHER
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import system
from .hearing import user

LONG = "word " * 100
"""About 170 tokens, as they are estimated."""


def turn(name: str, text: str = LONG) -> tuple[Message, Message]:
    """A turn that calls a tool, and its result."""
    return assistant(ToolCall(name, "weather", "{}")), results(ToolResult(name, "weather", text))


def texts(request: ModelRequest) -> list[str]:
    return [f"{message.role}: {message.text[:20]}" for message in request.messages]


def without_note(message: Message) -> Message:
    return Message(message.role, tuple(part for part in message.parts if part != Text(NOTE)))


# -- what goes and what stays --------------------------------------------------------------------------------------


def test_what_fits_is_not_touched() -> None:
    request = asking(user(LONG), assistant(LONG), user("Hello"))
    assert fitted(request, 100_000) is request


def test_with_an_unknown_window_nothing_is_left_out() -> None:
    request = asking(*[user(LONG)] * 1000)
    assert fitted(request, None) is request


def test_the_oldest_rounds_go_whole_and_the_model_is_told() -> None:
    first = (user(f"first {LONG}"), *turn("a"), assistant(LONG))
    second = (user(f"second {LONG}"), *turn("b"), assistant(LONG))
    cut = fitted(asking(system("Be kind."), *first, *second, user("third")), 1400)
    assert texts(cut)[:2] == ["system: Be kind.", f"user: {NOTE[:20]}"]
    assert cut.messages[1].parts[0] == Text(NOTE)
    assert [without_note(message) for message in cut.messages[1:]] == [*second, user("third")]


def test_in_the_newest_round_the_oldest_turns_go_with_their_results() -> None:
    turns = [turn(f"t{number}") for number in range(6)]
    cut = fitted(asking(user("Do it."), *(message for pair in turns for message in pair)), 1000)
    asked, *kept = cut.messages
    assert asked.parts == (Text(NOTE), Text("Do it."))
    assert kept
    assert kept == [message for pair in turns[-len(kept) // 2 :] for message in pair]


def test_earlier_rounds_go_before_turns_of_the_newest() -> None:
    cut = fitted(asking(user(LONG), assistant(LONG), user("Now."), *turn("a"), *turn("b")), 800)
    assert [without_note(message) for message in cut.messages] == [user("Now."), *turn("a"), *turn("b")]


def test_what_must_stay_stays_even_where_it_alone_is_too_much() -> None:
    must = (user(LONG * 20), *turn("last", LONG * 20))
    cut = fitted(asking(system(LONG * 20), user(LONG), assistant(LONG), *must[:1], *turn("old"), *must[1:]), 100)
    assert [without_note(message) for message in cut.messages] == [system(LONG * 20), *must]


def test_system_messages_stay_wherever_they_stand() -> None:
    cut = fitted(asking(user(LONG), system("Later rule."), assistant(LONG), user("Now.")), 100)
    assert [message.role for message in cut.messages] == ["system", "user"]


def test_a_turn_that_the_provider_paused_is_not_split() -> None:
    paused = (assistant(f"one {LONG}"), assistant(f"two {LONG}"))
    cut = fitted(asking(user("Go."), *turn("a"), *paused), 100)
    assert [without_note(message) for message in cut.messages] == [user("Go."), *paused]


def test_a_conversation_that_no_user_began_is_cut_without_a_note() -> None:
    cut = fitted(asking(assistant(LONG), *turn("a"), *turn("b")), 100)
    assert cut.messages == turn("b")


def test_everything_else_of_the_request_stays() -> None:
    request = asking(user(LONG), user("Now."), tools=(WEATHER,), options={"max_tokens": 5}, effort="low")
    cut = fitted(request, 100)
    assert (cut.tools, cut.options, cut.effort, cut.model) == ((WEATHER,), {"max_tokens": 5}, "low", "m")


def test_where_no_whole_step_can_go_only_what_must_goes() -> None:
    must = user(LONG * 30)
    request = asking(user(LONG), assistant("One."), user("Two."), must)
    window = (estimated(request) - 10) * 8 // 7
    assert [without_note(message) for message in fitted(request, window).messages] == [user("Two."), must]


def test_the_note_has_room_too() -> None:
    """Without the first round it would just fit, were it not for the note."""
    rounds = (user("a" * 30), user("b" * 300), user("c" * 3_000))
    space = estimated(asking(*rounds[1:]))
    cut = fitted(asking(*rounds, options={"max_tokens": space}), 2 * space)
    assert [without_note(message) for message in cut.messages] == [rounds[2]]


def test_room_is_kept_for_the_answer() -> None:
    request = asking(user(LONG), assistant(LONG), user("Now."))
    window = estimated(request) + 200
    assert fitted(request, window) is request
    longer = asking(*request.messages, options={"max_tokens": 201})
    assert len(fitted(longer, window).messages) == 1


def test_a_limit_of_the_answer_above_the_window_does_not_empty_the_conversation() -> None:
    request = asking(user("One."), assistant("Two."), user("Three."), options={"max_tokens": 1_000_000})
    assert fitted(request, 8_000) is request


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 20, 180, 360),
        ("人人生而自由,在尊严和权利上一律平等。" * 20, 300, 500),
        ("2025-11-03;17;4.25\n" * 20, 380, 400),
        ("😀🎉" * 50, 100, 250),
        ("\ud800", 1, 10),
        ("", 0, 10),
    ],
    ids=["english", "chinese", "table", "emoji", "half-surrogate", "nothing"],
)
def test_tokens_are_estimated_from_the_script(text: str, least: int, most: int) -> None:
    """The lower bounds are counts of Mistral's Tekken tokenizer, but for the table: there each sign is a token."""
    assert least <= estimated(asking(user(text))) <= most


def test_tools_and_the_shape_of_the_answer_count() -> None:
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(100)}}
    plain = estimated(asking())
    assert estimated(asking(tools=(ToolSpec("big", "Do much.", schema),))) > plain + 1000
    assert estimated(asking(output=OutputSpec("answer", schema))) > plain + 1000


def test_attachments_count_by_what_they_cost_and_not_by_their_bytes() -> None:
    plain = estimated(asking(Message("user", ())))
    image = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 1_000_000)
    page = Document.from_bytes(b"%PDF-" + b"0" * 20_000)
    book = Document.from_bytes(b"%PDF-" + b"0" * 1_000_000)
    linked = Document.from_url("https://example.org/a.pdf")
    sizes = [estimated(asking(Message("user", (part,)))) - plain for part in (image, page, book, linked)]
    assert sizes == [IMAGE, PAGE, 21 * PAGE, 10 * PAGE]


def test_what_returns_to_the_provider_counts() -> None:
    hidden = {"type": "reasoning", "content": [{"signature": "s" * 4000}]}
    bare, laden = (estimated(asking(assistant(Reasoning("Hm.", "p", opaque)))) for opaque in (None, hidden))
    assert laden - bare > 790


UNCOUNTABLE = {"openai-compatible/openrouter_error_mid_stream"}
"""The router put a prompt of its own around fifteen letters."""


def requests_recorded() -> list[Any]:
    """Every recorded request of which the provider counted the tokens."""

    def is_counted(name: str, place: int) -> bool:
        usage = recordings.expected(name, place)["usage"]
        is_told = isinstance(recordings.exchange(name, place)["request"], dict)
        return bool(usage and usage[0]) and is_told and name not in UNCOUNTABLE

    return [one for one in recordings.answered() if one.marks or is_counted(*one.values)]


@pytest.mark.parametrize(("name", "place"), requests_recorded())
def test_recorded_requests_are_never_estimated_below_what_the_provider_counted(name: str, place: int) -> None:
    counted = recordings.expected(name, place)["usage"][0]
    request = neutral(recordings.exchange(name, place)["request"])
    assert counted <= estimated(request) <= 2 * counted + 1200


def neutral(body: dict[str, Any]) -> ModelRequest:
    """A recorded request body of any protocol as far as its size matters."""
    said = [body.get(key) for key in ("system", "systemInstruction", "instructions")]
    turns = body.get("messages") or body.get("contents") or body.get("input")
    turns = [turns] if isinstance(turns, str) else turns
    messages = [Message("user", tuple(parts_of(turn))) for turn in [*filter(None, said), *turns]]
    declared = [
        function
        for tool in body.get("tools") or []
        for function in tool.get("functionDeclarations") or tool.get("function_declarations") or [tool]
    ]
    shape = body.get("text", {}).get("format", {}).get("schema")
    return ModelRequest(
        "m",
        tuple(messages),
        tuple(spec_of(tool.get("function", tool)) for tool in declared),
        output=OutputSpec("answer", shape) if shape else None,
    )


def spec_of(tool: dict[str, Any]) -> ToolSpec:
    schema = next((tool[key] for key in ("parameters", "input_schema", "parametersJsonSchema") if tool.get(key)), {})
    return ToolSpec(tool.get("name", ""), tool.get("description", ""), schema)


def parts_of(value: Any) -> Iterator[Part]:
    match value:
        case str(text):
            yield Text(text)
        case list(items):
            for item in items:
                yield from parts_of(item)
        case {"functionCall": dict(call), **rest}:
            yield ToolCall("", call["name"], json.dumps(call.get("args")), rest)
        case {"functionResponse": dict(answer)}:
            yield ToolResult("", answer["name"], json.dumps(answer["response"]))
        case {"type": "tool_use" | "function_call", "name": str(name), **rest}:
            raw = rest.get("arguments") or json.dumps(rest.get("input"))
            yield ToolCall("", name, raw)
        case {"type": "tool_result" | "function_call_output", **rest}:
            yield ToolResult("", "", text_of(rest.get("content") or rest.get("output")))
        case {"role": "tool", "content": content}:
            yield ToolResult("", "", text_of(content))
        case {"type": "reasoning" | "thinking" | "redacted_thinking", **rest}:
            yield Reasoning("", "p", rest)
        case {"tool_calls": list(calls), **rest}:
            yield from parts_of(rest.get("content") or "")
            yield Reasoning("", "p", {"details": rest.get("reasoning_details")})
            for call in calls:
                yield ToolCall("", call["function"]["name"], call["function"]["arguments"])
        case dict(fields):
            for key in ("text", "content", "parts"):
                yield from parts_of(fields.get(key) or [])


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


# -- for any conversation ----------------------------------------------------------------------------------------------

words = st.integers(0, 300).map(lambda count: "word " * count)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Rounds of a user message and some turns, with and without calls; the last may be half done."""
    messages = [system(draw(words))] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 6))):
        messages.append(user(f"{number} {draw(words)}"))
        for step in range(draw(st.integers(0, 5))):
            calls = [ToolCall(f"{number}-{step}-{place}", "t") for place in range(draw(st.integers(0, 2)))]
            messages.append(assistant(f"{number}-{step} {draw(words)}", *calls))
            if calls:
                messages.append(results(*(ToolResult(call.id, "t", draw(words)) for call in calls)))
    return messages


windows = st.integers(1, 4000)


@settings(max_examples=300, deadline=None)
@given(conversations(), windows)
def test_the_rest_fits_or_nothing_more_may_go(messages: list[Message], window: int) -> None:
    cut = fitted(asking(*messages), window)
    first, *after = (message.role for message in cut.messages if message.role != "system")
    turns = sum(role == "assistant" != before for before, role in pairwise([first, *after]))
    assert estimated(cut) <= window - window // 8 or ("user" not in after and turns <= 1)


@settings(max_examples=300, deadline=None)
@given(conversations(), windows)
def test_the_newest_user_message_the_last_turn_and_the_rules_stay(messages: list[Message], window: int) -> None:
    kept = [without_note(message) for message in fitted(asking(*messages), window).messages]
    assert newest(messages) in kept
    assert kept[-1] == messages[-1]
    assert [message for message in kept if message.role == "system"] == [m for m in messages if m.role == "system"]


@settings(max_examples=300, deadline=None)
@given(conversations(), windows)
def test_no_call_loses_its_results_and_no_result_its_call(messages: list[Message], window: int) -> None:
    cut = fitted(asking(*messages), window).messages
    assert well_formed(messages) == tuple(messages)
    assert well_formed(cut) == cut
    assert next(message for message in cut if message.role != "system").role == "user"


@settings(max_examples=300, deadline=None)
@given(conversations(), windows)
def test_the_order_stays_and_the_model_is_told_once_and_only_of_a_gap(messages: list[Message], window: int) -> None:
    cut = fitted(asking(*messages), window).messages
    kept = [without_note(message) for message in cut]
    remaining = iter(messages)
    assert all(message in remaining for message in kept)
    notes = [part for message in cut for part in message.parts if part == Text(NOTE)]
    assert len(notes) == (len(cut) < len(messages))


@pytest.mark.parametrize("growth", ["rounds", "turns"])
def test_the_cut_stays_where_it_is_for_many_turns(growth: str) -> None:
    """Requests begin with the bytes of the one before, but where the cut moves: once in a quarter of the window."""
    messages, moved, before = [user("Begin.")], 0, ()
    for number in range(400):
        step = turn(f"call-{number}")
        messages += step if growth == "turns" else (user(f"{number} {LONG}"), assistant(LONG))
        sent = fitted(asking(*messages), 16_000).messages
        moved += sent[: len(before)] != before
        before = sent
        # A step and a round less than the space at the worst.
        assert len(sent) == len(messages) or estimated(asking(*sent)) > 14_000 - 3_500 - 600
    size = estimated(asking(*messages))
    assert size > 80_000
    assert moved <= (size - 14_000) // 3_500 + 1


def newest(messages: list[Message]) -> Message:
    return [message for message in messages if message.role == "user"][-1]
