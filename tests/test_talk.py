"""The loop beyond tools: answers of a shape, failing tools, calls that the provider rejected, the app's settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from typing import Literal

import pytest
from pydantic import BaseModel
from pydantic import Field

from flask_instruct.adapters.base import Model
from flask_instruct.adapters.profiles import NativeOutput
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import DeclarationError
from flask_instruct.errors import OutputError
from flask_instruct.errors import ProviderError
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import FinishReason
from flask_instruct.events import LimitReached
from flask_instruct.events import ToolCallRequest
from flask_instruct.generation import gen
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Part
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolSpec
from flask_instruct.outputs import TOOL_NAME
from flask_instruct.prompt import Prompt
from flask_instruct.talk import MOST_CALLS
from flask_instruct.talk import TOO_MANY
from flask_instruct.talk import converse

ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
SUBTRACT = ToolSpec("subtract", "Subtract.", {"type": "object", "properties": {}})


class Verdict(BaseModel):
    """A judgement of a text."""

    word: Literal["good", "bad"]
    score: int = Field(ge=0, le=10)


class Speaker:
    """A model that says one turn after the other and remembers what it was asked."""

    name = "speaker"

    def __init__(self, *turns: str | Part | tuple[Part, ...] | FinishReason) -> None:
        self.asked: list[ModelRequest] = []
        self._turns = iter(turns)

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.asked.append(request)
        turn = next(self._turns)
        if turn in ("length", "refusal", "content_filter"):
            yield Finish(turn, str(turn), Message("assistant", (Text("I"),)))  # type: ignore[arg-type]
            return
        parts: tuple[Part, ...] = (
            (Text(turn),) if isinstance(turn, str) else turn if isinstance(turn, tuple) else (turn,)
        )
        calls = any(isinstance(part, ToolCall) for part in parts)
        yield Finish("tool_calls" if calls else "stop", "end", Message("assistant", parts))


def call(name: str, raw: str = "{}", call_id: str = "", refusal: str = "") -> ToolCall:
    return ToolCall(call_id or f"{name}-{len(raw)}", name, raw, refusal=refusal)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a speaker be a model whose provider holds answers to a schema."""

    def native(speaker: Speaker, held: NativeOutput = "always") -> Speaker:
        monkeypatch.setattr(
            "flask_instruct.talk.resolve", lambda *_: Model(speaker, "m", "p:m", "p", native_output=held)
        )
        return speaker

    return native


def test_a_shape_that_the_provider_holds_comes_as_text(native: Any) -> None:
    speaker = native(Speaker('{"word": "good", "score": 7}'))
    reply = (Prompt().user("Judge.") + gen("p:m", output=Verdict, capture="verdict")).call()
    assert reply.output == Verdict(word="good", score=7)
    assert reply.captures == {"verdict": '{"word": "good", "score": 7}'}
    assert speaker.asked[0].output is not None
    assert (speaker.asked[0].output.name, speaker.asked[0].tools) == ("Verdict", ())


def test_another_shape_is_a_tool_that_ends_the_talk() -> None:
    speaker = Speaker(call(TOOL_NAME, '{"word": "bad", "score": 1}'))
    reply = (Prompt().user("Judge.") + gen(output=Verdict, capture="verdict")).call(adapter=speaker)
    assert reply.output == Verdict(word="bad", score=1)
    assert reply.captures == {"verdict": '{"word": "bad", "score": 1}'}
    (request,) = speaker.asked
    assert ([tool.name for tool in request.tools], request.tool_choice) == ([TOOL_NAME], "required")
    # The history is valid for a next question: the final call has its result.
    assert [result.content for result in reply.messages[-1].results] == ["Accepted."]
    assert reply.finish is not None
    assert reply.finish.reason == "stop"


def test_the_final_tool_takes_another_name_where_a_tool_has_its_name() -> None:
    taken = ToolSpec(TOOL_NAME, "Mine.", {"type": "object", "properties": {}})
    speaker = Speaker(call(f"_{TOOL_NAME}", '{"word": "bad", "score": 1}'))
    reply = (Prompt().user("Judge.") + gen(output=Verdict, tools=[taken])).call(adapter=speaker)
    assert reply.output == Verdict(word="bad", score=1)


def test_tools_run_before_the_answer_and_beside_it() -> None:
    speaker = Speaker(call("add"), (call("add", "{ }"), call(TOOL_NAME, '{"word": "good", "score": 9}')))
    ran: list[str] = []

    def answer(event: Event) -> None:
        if isinstance(event, ToolCallRequest):
            ran.append(event.call.raw)
            event.respond("ok")

    reply = (Prompt().user("Judge.") + gen(output=Verdict, tools=[ADD])).call(answer, adapter=speaker)
    assert (ran, reply.output) == (["{}", "{ }"], Verdict(word="good", score=9))
    assert [result.content for result in reply.messages[-1].results] == ["ok", "Accepted."]


@pytest.mark.parametrize("way", ["native", "tool"])
def test_an_answer_of_another_shape_is_asked_for_again_with_every_fault(native: Any, way: str) -> None:
    wrong, right = '{"word": "so-so", "score": 11}', '{"word": "good", "score": 10}'
    if way == "native":
        speaker = native(Speaker(wrong, right))
    else:
        speaker = native(Speaker(call(TOOL_NAME, wrong), call(TOOL_NAME, right)), "never")
    reply = (Prompt().user("Judge.") + gen("p:m", output=Verdict)).call()
    assert reply.output == Verdict(word="good", score=10)
    last = speaker.asked[1].messages[-1]
    told = last.text or last.results[0].content
    assert "word: " in told
    assert "score: " in told


def test_the_budget_of_asking_again_is_kept(native: Any) -> None:
    speaker = native(Speaker("no", "never", "not a chance"))
    with pytest.raises(OutputError) as caught:
        (Prompt().user("Judge.") + gen("p:m", output=Verdict, output_retries=1)).call()
    assert len(speaker.asked) == 2
    assert (caught.value.text, len(caught.value.problems)) == ("never", 1)


@pytest.mark.parametrize("reason", ["refusal", "content_filter", "length"])
def test_a_refusal_or_a_cut_is_no_answer_of_another_shape(native: Any, reason: FinishReason) -> None:
    """A refusal in structured output is a content-filter outcome, not a validation retry (pydantic-ai#4315)."""
    speaker = native(Speaker(reason))
    reply = (Prompt().user("Judge.") + gen("p:m", output=Verdict)).call()
    assert (reply.output, len(speaker.asked)) == (None, 1)
    assert reply.finish is not None
    assert reply.finish.reason == reason


def test_json_in_a_fence_is_read(native: Any) -> None:
    native(Speaker('```json\n{"word": "good", "score": 1}\n```'))
    assert (Prompt().user("Judge.") + gen("p:m", output=Verdict)).call().output == Verdict(word="good", score=1)


def test_a_provider_that_holds_shapes_only_without_tools_gets_the_tool_beside_others(native: Any) -> None:
    speaker = native(Speaker(call(TOOL_NAME, '{"word": "good", "score": 1}')), "without_tools")
    (Prompt().user("Judge.") + gen("p:m", output=Verdict, tools=[ADD])).call()
    assert speaker.asked[0].output is None
    speaker = native(Speaker('{"word": "good", "score": 1}'), "without_tools")
    (Prompt().user("Judge.") + gen("p:m", output=Verdict)).call()
    assert speaker.asked[0].output is not None


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("shape", "value"),
    [(Point, Point(3)), ({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"x": 3})],
)
def test_a_shape_may_be_a_dataclass_or_a_schema(native: Any, shape: Any, value: Any) -> None:
    native(Speaker('{"x": "three"}', '{"x": 3}'))
    assert (Prompt().user("Where?") + gen("p:m", output=shape)).call().output == value


@pytest.mark.parametrize("shape", [int, list[int], {"type": "array"}, object()])
def test_a_shape_that_is_no_object_is_refused_where_it_is_written(shape: Any) -> None:
    with pytest.raises(DeclarationError):
        gen(output=shape)


def test_a_shape_survives_storage_as_its_schema(native: Any) -> None:
    native(Speaker('{"word": "good", "score": 1}'))
    prompt = Prompt.from_json((Prompt().user("Judge.") + gen("p:m", output=Verdict, effort="low")).to_json())
    assert prompt.call().output == {"word": "good", "score": 1}


def test_a_tool_that_only_fails_is_taken_away_after_its_budget() -> None:
    """The count survives rounds, and a success puts it back to none (pydantic-ai#6582)."""
    speaker = Speaker(
        call("add", call_id="1"),
        call("subtract", call_id="2"),
        call("add", call_id="3"),
        call("add", call_id="4"),
        call("add", call_id="5"),
        "I give up.",
    )
    outcomes = iter([False, True, True, False, False])
    events: list[Event] = []
    for event in converse(
        [Message("user", (Text("Add."),))], gen("m", tools=[ADD, SUBTRACT], max_tool_retries=1), adapter=speaker
    ):
        events.append(event)
        if isinstance(event, ToolCallRequest):
            if next(outcomes):
                event.respond("ok")
            else:
                event.respond_error("no")
    assert events[-1] == LimitReached("tool_failures", 1)
    assert [request.tool_choice for request in speaker.asked] == ["auto"] * 5 + ["none"]


def test_failures_of_another_tool_do_not_count_and_talks_do_not_share_a_count() -> None:
    """A name is counted for itself (openai-agents#325), and two runs count apart (pydantic-ai#1918)."""
    for _ in range(2):
        speaker = Speaker(*(call(name, call_id=name) for name in ("a", "b", "c", "d")), "Done.")
        events = list(
            converse([Message("user", (Text("Go."),))], gen("m", tools=[ADD], max_tool_retries=0), adapter=speaker)
        )
        assert isinstance(events[-1], LimitReached)
        assert len(speaker.asked) == 2
        speaker = Speaker(*(call(name, call_id=name) for name in ("a", "b", "c", "d")), "Done.")
        events = list(
            converse([Message("user", (Text("Go."),))], gen("m", tools=[ADD], max_tool_retries=1), adapter=speaker)
        )
        assert isinstance(events[-1], Finish)
        assert len(speaker.asked) == 5


def test_a_call_that_the_provider_rejected_is_answered_with_its_words_and_never_asked_of_the_app() -> None:
    speaker = Speaker(call("add", "not json", refusal="The service rejected it: bad JSON"), "Sorry.")
    messages = [Message("user", (Text("Add."),))]
    events = list(converse(messages, gen("m", tools=[ADD]), adapter=speaker))
    assert not [event for event in events if isinstance(event, ToolCallRequest)]
    assert [(result.content, result.error) for result in messages[2].results] == [
        ("The service rejected it: bad JSON", True)
    ]


def test_an_empty_last_word_after_tools_is_asked_for_again_and_then_taken() -> None:
    """Text before a call is not taken for the answer after it (pydantic-ai#6403)."""
    speaker = Speaker((Text("Let me see."), call("add")), (), (), ())
    reply = (Prompt().user("Add.") + gen("m", tools=[ADD])).call(adapter=speaker)
    assert (reply.text, len(speaker.asked)) == ("", 4)


def test_without_tools_an_empty_answer_is_an_error() -> None:
    with pytest.raises(ProviderError) as caught:
        (Prompt().user("Hello.") + gen("m")).call(adapter=Speaker((), (), ()))
    assert caught.value.kind == "empty"


@pytest.mark.parametrize("refusal", ["", "No such function."])
def test_a_model_that_calls_what_it_was_not_offered_meets_the_limits_too(refusal: str) -> None:
    speaker = Speaker(*(call("x", call_id=str(number), refusal=refusal) for number in range(50)))
    with pytest.raises(OutputError):
        (Prompt().user("Go.") + gen("m", output=Verdict, max_rounds=3)).call(adapter=speaker)
    assert len(speaker.asked) <= 6
    speaker = Speaker(*(call("x", call_id=str(number), refusal=refusal) for number in range(50)))
    events = list(converse([Message("user", (Text("Go."),))], gen("m", max_rounds=3), adapter=speaker))
    assert isinstance(events[-1], LimitReached)


def test_forbidden_tools_are_not_offered_beside_the_final_one() -> None:
    speaker = Speaker(call(TOOL_NAME, '{"word": "good", "score": 1}'))
    (Prompt().user("Judge.") + gen(output=Verdict, tools=[ADD], tool_choice="none")).call(adapter=speaker)
    assert [tool.name for tool in speaker.asked[0].tools] == [TOOL_NAME]


def test_an_unfit_answer_does_not_begin_a_new_count_of_rounds(native: Any) -> None:
    speaker = native(Speaker(call("add"), "unfit", "unfit", "unfit"))
    with pytest.raises(OutputError):
        (Prompt().user("Judge.") + gen("p:m", output=Verdict, tools=[ADD], max_rounds=1)).call()
    assert [request.tool_choice for request in speaker.asked] == ["auto", "none", "none", "none"]


class Lenient(BaseModel):
    word: str = "good"


@pytest.mark.parametrize("nothing", ["null", "```json\n```", "  "])
def test_nothing_is_no_answer_even_where_every_field_has_a_default(native: Any, nothing: str) -> None:
    native(Speaker(nothing, '{"word": "bad"}'))
    assert (Prompt().user("Judge.") + gen("p:m", output=Lenient)).call().output == Lenient(word="bad")


def test_what_is_captured_is_the_answer_and_not_a_call_beside_it() -> None:
    speaker = Speaker((call(TOOL_NAME, '{"word": "good", "score": 9}'), call("add")))
    reply = (Prompt().user("Judge.") + gen(output=Verdict, tools=[ADD], capture="it")).call(adapter=speaker)
    assert reply.captures == {"it": '{"word": "good", "score": 9}'}


def test_a_turn_of_thousands_of_calls_is_cut_short_and_each_call_is_answered() -> None:
    many = tuple(call("add", call_id=str(number)) for number in range(MOST_CALLS + 5))
    messages = [Message("user", (Text("Go."),))]
    events = list(converse(messages, gen("m", tools=[ADD]), adapter=Speaker(many, "Done.")))
    assert len([event for event in events if isinstance(event, ToolCallRequest)]) == MOST_CALLS
    assert len(messages[2].results) == MOST_CALLS + 5
    assert messages[2].results[-1].content == TOO_MANY


def test_a_prompt_without_a_model_tries_all_that_the_setting_names(monkeypatch: pytest.MonkeyPatch) -> None:
    register_script("good", [[Say("Here.")]])
    monkeypatch.setenv("INSTRUCT_DEFAULT_MODEL", "scripted:no-such-script, scripted:good")
    assert (Prompt().user("Go.") + gen()).call().text == "Here."
