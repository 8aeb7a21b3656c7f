"""The loop without job or database: rounds, answers, limits, ends, and each callback called once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import AlreadyAnswered
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import LimitReached
from flask_instruct.events import RoundStarted
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallRequest
from flask_instruct.handlers import AiResponseHandler
from flask_instruct.orchestrator import Ending
from flask_instruct.orchestrator import Orchestrator
from flask_instruct.prompt import Gen
from flask_instruct.prompt import Message
from flask_instruct.prompt import ModelRequest
from flask_instruct.prompt import Text
from flask_instruct.prompt import ToolCall
from flask_instruct.prompt import ToolResult
from flask_instruct.prompt import ToolSpec
from flask_instruct.talk import converse
from flask_instruct.tools import ai_tool

ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {}})


class Adder(AiResponseHandler):
    """A handler that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    id = 1

    @classmethod
    def find(cls, key: int) -> Adder:
        return cls()

    @ai_tool
    def add(self, a: int, b: int = 1) -> int:
        """Add two numbers."""
        if a < 0:
            raise ValueError("secret")
        return a + b

    def handle_ai_text_chunk(self, content: str) -> None:
        self.heard.append(("text", content))

    def handle_ai_finish(self, reason: str) -> None:
        self.heard.append(("finish", reason))

    def handle_ai_error(self, exception: Exception) -> None:
        self.heard.append(("error", type(exception).__name__))

    def handle_tool_error(self, tool_name: str, exception: BaseException, arguments: dict[str, Any]) -> None:
        self.heard.append(("tool error", (tool_name, type(exception).__name__)))

    def handle_unknown_tool(self, tool_name: str) -> None:
        self.heard.append(("unknown", tool_name))

    def handle_limit(self, limit: str) -> None:
        self.heard.append(("limit", limit))


def asked(text: str = "Go.") -> list[Message]:
    return [Message("user", (Text(text),))]


def orchestrate(*turns: list[Any], **options: Any) -> tuple[Adder, Orchestrator, Ending]:
    register_script("m", list(turns))
    handler = Adder()
    gen = Gen(model="scripted:m", tools=tuple(tool.spec() for tool in handler.ai_tools()), **options)
    orchestrator = Orchestrator(handler, asked(), gen)
    return handler, orchestrator, orchestrator.start()


def test_tools_run_between_model_calls_and_results_come_in_call_order() -> None:
    handler, orchestrator, ending = orchestrate(
        [Say("Adding.", every=0), Use("add", a=1), Use("add", a=2, b=3)], [Say("Done.", every=0)]
    )
    _, first, results, last = orchestrator.messages
    assert [result.content for result in results.results] == ["2", "5"]
    assert [result.call_id for result in results.results] == [call.id for call in first.calls]
    assert last.text == "Done."
    assert ending.finish is not None
    assert [what for what in handler.heard if what[0] != "text"] == [("finish", "stop")]


def test_failures_of_tools_are_answers_and_each_is_heard_once() -> None:
    handler, orchestrator, _ = orchestrate([Use("add", a=-1), Use("save"), Use("add", raw="[1]")], [Say("Sorry.")])
    failed, unknown, malformed = orchestrator.messages[2].results
    assert failed.error
    assert unknown.error
    assert malformed.error
    assert "secret" not in failed.content
    assert "add" in unknown.content
    heard = [what for what in handler.heard if what[0] in ("tool error", "unknown")]
    assert heard[:2] == [("tool error", ("add", "ValueError")), ("unknown", "save")]
    assert len(heard) == 3


def test_an_error_of_the_model_is_heard_once_and_is_an_ending() -> None:
    handler, _, ending = orchestrate([Say("Well, ", every=0), Fail("overloaded", "busy")])
    assert type(ending.error).__name__ == "ProviderError"
    assert [what for what in handler.heard if what[0] != "text"] == [("error", "ProviderError")]


@pytest.mark.parametrize("reason", ["length", "content_filter", "refusal", "other"])
def test_calls_of_a_turn_that_did_not_end_well_are_not_run(reason: str) -> None:
    handler, orchestrator, _ = orchestrate([Use("add", a=-1), Stop(reason)])
    assert handler.heard == [("finish", reason)]
    assert not orchestrator.messages[-1].calls


def test_after_the_last_round_the_model_answers_once_with_its_tools_forbidden() -> None:
    requests: list[ModelRequest] = []

    def always(request: ModelRequest) -> list[Any]:
        requests.append(request)
        return [Use("add", a=1)]

    register_script("always", always)
    handler = Adder()
    gen = Gen(model="scripted:always", tools=(ADD,), max_rounds=3)
    orchestrator = Orchestrator(handler, asked(), gen)
    ending = orchestrator.start()
    assert [request.tool_choice for request in requests] == ["auto", "auto", "auto", "none"]
    assert all(request.tools == (ADD,) for request in requests)
    assert ending.limit == LimitReached("rounds", 3)
    assert [what for what in handler.heard if what[0] != "text"] == [("limit", "rounds")]
    assert not orchestrator.messages[-1].calls


def test_the_default_is_eight_tool_rounds() -> None:
    register_script("always", lambda request: [Use("add", a=1)])
    orchestrator = Orchestrator(Adder(), asked(), Gen(model="scripted:always", tools=(ADD,)))
    assert orchestrator.start().limit == LimitReached("rounds", 8)


def test_a_failing_callback_costs_the_talk_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(Adder):
        def handle_ai_text_chunk(self, content: str) -> None:
            raise RuntimeError("deaf")

    register_script("m", [[Say("Hello.", every=0)]])
    orchestrator = Orchestrator(Deaf(), asked(), Gen(model="scripted:m"))
    assert orchestrator.start().error is None
    assert "callback" in caplog.text


def events(*turns: list[Any], messages: list[Message] | None = None) -> Iterator[Event]:
    register_script("m", list(turns))
    return converse(messages or asked(), Gen(model="m", tools=(ADD,)), adapter=Scripted())


def test_the_events_of_a_talk_come_in_the_order_of_what_happens() -> None:
    seen = []
    for event in events([Say("Hm", every=0), Use("add", a=1)], [Say("Ok", every=0)]):
        seen.append(type(event).__name__)
        if isinstance(event, ToolCallRequest):
            event.respond({"sum": 2})
    kept = [name for name in seen if name not in ("ToolCallDelta", "UsageReported")]
    assert kept == ["RoundStarted", "TextDelta", "Finish", "ToolCallRequest", "RoundStarted", "TextDelta", "Finish"]


def test_a_call_that_nobody_answers_is_answered_with_an_error() -> None:
    messages = asked()
    list(events([Use("add", a=1)], [Say("Ok")], messages=messages))
    [result] = messages[2].results
    assert result.error
    assert result.content


def test_a_second_answer_raises() -> None:
    request = ToolCallRequest(ToolCall("c1", "add"))
    request.respond("2")
    with pytest.raises(AlreadyAnswered, match="c1"):
        request.respond_error("no")
    assert request.responded
    assert request.result == ToolResult("c1", "add", "2")


def test_open_calls_of_the_history_come_before_the_next_model_call() -> None:
    calls = (ToolCall("a", "add", '{"a": 1}'), ToolCall("b", "add", '{"a": 2}'))
    messages = [*asked(), Message("assistant", calls), Message("tool", (ToolResult("a", "add", "2"),))]
    seen: list[Event] = []
    for event in events([Say("never")], [Say("Ok", every=0)], messages=messages):
        seen.append(event)
        if isinstance(event, ToolCallRequest):
            event.respond("3")
    first, second = seen[:2]
    assert isinstance(first, ToolCallRequest)
    assert first.id == "b"
    assert isinstance(second, RoundStarted)
    assert messages[2].results == (ToolResult("a", "add", "2"), ToolResult("b", "add", "3"))


def test_a_pause_goes_on_with_the_same_history_and_no_new_word_of_the_user() -> None:
    messages = asked()
    finishes = list(events([Say("Hm", every=0), Stop("pause")], [Say("Ok")], messages=messages))
    assert [event.reason for event in finishes if isinstance(event, Finish)] == ["pause", "stop"]
    assert [message.role for message in messages] == ["user", "assistant", "assistant"]


def test_leaving_early_closes_the_models_stream() -> None:
    closed: list[bool] = []

    class Watched(Scripted):
        def stream(self, request: ModelRequest) -> Iterator[Event]:
            try:
                yield from super().stream(request)
            finally:
                closed.append(True)

    register_script("m", [[Say("a long story " * 50)]])
    talk = converse(asked(), Gen(model="m"), adapter=Watched())
    for event in talk:
        if isinstance(event, TextDelta):
            break
    talk.close()
    assert closed == [True]
