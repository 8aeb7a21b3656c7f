"""Public bug reports of other libraries, each as one case: what went in, and what is right.

The reports stand in the docstrings. Most kinds of failure have more tests elsewhere; here each report has its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest

from flask_instruct.adapters import anthropic
from flask_instruct.adapters import google
from flask_instruct.adapters import google_transport
from flask_instruct.adapters import openai_chat
from flask_instruct.adapters import openai_responses
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.conversation import INTERRUPTED
from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.calls import OutcomeKind
from flask_instruct.calls import ToolContext
from flask_instruct.calls import run_tool
from flask_instruct.errors import ProviderError
from flask_instruct.events import Event
from flask_instruct.events import Finish
from flask_instruct.events import LimitReached
from flask_instruct.events import RetryScheduled
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallDelta
from flask_instruct.events import ToolCallRequest
from flask_instruct.generation import gen
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Reasoning
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.talk import converse
from flask_instruct.tools import ai_tool

from .adapters.bodies import BODIES
from .adapters.hearing import WEATHER
from .adapters.hearing import Heard
from .adapters.hearing import asking
from .adapters.hearing import assistant
from .adapters.hearing import cut_in
from .adapters.hearing import results
from .adapters.hearing import settings
from .adapters.hearing import user
from .adapters.responses_wire import answer
from .adapters.responses_wire import call_item
from .adapters.responses_wire import ended
from .adapters.responses_wire import event
from .adapters.responses_wire import reasoning_item
from .adapters.responses_wire import text_item
from .adapters.served import PARSERS
from .support import wait_for
from .talking import OVER_HTTP
from .talking import PROTOCOLS
from .talking import Desk
from .talking import Stage
from .talking import Verdict
from .talking import echo
from .talking import say
from .talking import theatre
from .wire import Reply
from .wire import WireServer
from .wire_format import DONE
from .wire_format import anthropic_delta
from .wire_format import anthropic_end
from .wire_format import anthropic_event
from .wire_format import anthropic_start
from .wire_format import openai_chunk
from .wire_google import google_chunk

CALL = ToolCall("call_1", "weather", '{"city": "Rome"}')
OTHER = ToolCall("call_2", "weather", '{"city": "Oslo"}')
RESULT = ToolResult("call_1", "weather", "sun")


@pytest.fixture
def tell() -> Iterator[Callable[..., Stage]]:
    with theatre() as tell:
        yield tell
    for module in (openai_chat, anthropic, google_transport):
        module.clients.close()


def hear(protocol: str, body: str, request: ModelRequest | None = None, piece: int = 65536) -> Heard:
    return Heard(PARSERS[protocol](cut_in(body, piece), request or asking(tools=(WEATHER,)), protocol))


def fragments(*calls: dict[str, Any], finish: str | None = "tool_calls") -> str:
    return "".join(openai_chunk({"tool_calls": [call]}) for call in calls) + openai_chunk({}, finish) + DONE


def fragment(arguments: str | None, name: str | None = "weather", **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


def chat_messages(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    request = asking(*messages, **fields)
    return openai_chat.render_messages(request, settings("openai", quirks=BUILT_IN["openai"].quirks))


def anthropic_messages(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    body = anthropic.render_request(asking(*messages, options={"cache": False}, **fields), settings("anthropic"))
    said: list[dict[str, Any]] = body["messages"]
    return said


def gemini_contents(*messages: Message, model: str = "gemini-3-pro") -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = google.render_request(asking(*messages, model=model), settings("google"))[
        "contents"
    ]
    return contents


class TestStreaming:
    def test_two_calls_of_one_index_with_two_ids_are_two_calls(self) -> None:
        """Index 0 twice, ids a and b, each with its own arguments → two calls with their own names and arguments.

        vercel/ai#18382, pydantic-ai#6759, langchain#35281
        """
        body = fragments(
            fragment('{"city": "Rome"}', index=0, id="a"), fragment('{"of": "Oslo"}', "time", index=0, id="b")
        )
        assert hear("openai", body).calls == [("a", "weather", {"city": "Rome"}), ("b", "time", {"of": "Oslo"})]

    @pytest.mark.parametrize("index", [1, 3, None])
    def test_the_only_call_may_have_any_index(self, index: int | None) -> None:
        """Index 1, 3 or none → one call, no crash, no empty slot. vercel/ai#18333"""
        place: dict[str, Any] = {} if index is None else {"index": index}
        body = fragments(fragment('{"city":', id="a", **place), fragment(' "Rome"}', None, **place))
        assert hear("openai", body).calls == [("a", "weather", {"city": "Rome"})]

    def test_a_name_may_come_after_the_id(self) -> None:
        """Id and arguments "" first, the name in the next delta → one call of that name. vercel/ai#14722"""
        body = fragments(fragment("", None, index=0, id="a"), fragment("{}", index=0))
        heard = hear("openai", body)
        assert heard.calls == [("a", "weather", {})]
        assert [event.name for event in heard.events if isinstance(event, ToolCallDelta)] == ["weather"]

    @pytest.mark.parametrize("arguments", ["", None, "missing"])
    def test_no_arguments_at_all_are_none(self, arguments: str | None) -> None:
        """Arguments "", null or missing → called with none, and the history says {}.

        simonw/llm#1521, pydantic-ai#1802, litellm#5063
        """
        call = fragment(arguments, index=0, id="a")
        if arguments == "missing":
            del call["function"]["arguments"]
        heard = hear("openai", fragments(call))
        assert heard.calls == [("a", "weather", {})]
        assert chat_messages(user("?"), heard.message)[1]["tool_calls"][0]["function"]["arguments"] == "{}"

    def test_a_gemini_call_of_a_name_alone_runs_and_keeps_its_signature(self) -> None:
        """functionCall with a name only → run with {}, and the signature stays on it. vercel/ai#14968"""
        part = {"functionCall": {"name": "weather"}, "thoughtSignature": "c2ln"}
        heard = hear("google", google_chunk(part, finish="STOP"))
        assert [call[1:] for call in heard.calls] == [("weather", {})]
        assert gemini_contents(user("?"), heard.message)[1]["parts"][0]["thoughtSignature"] == "c2ln"

    def test_calls_with_empty_ids_get_ids_of_their_own(self) -> None:
        """Id "" for two calls → two different ids, and the results go to their calls. vercel/ai#19091"""
        rome, oslo = (fragment(json.dumps({"city": city}), index=at, id="") for at, city in enumerate(("Rome", "Oslo")))
        heard = hear("openai", fragments(rome, oslo))
        ids = [call.id for call in heard.message.calls]
        assert (len(set(ids)), all(ids)) == (2, True)
        back = results(*(ToolResult(call_id, "weather", text) for call_id, text in zip(ids, "ab", strict=True)))
        _, turn, first, second = chat_messages(user("?"), heard.message, back)
        assert [call["id"] for call in turn["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]] == ids

    def test_chunks_without_choices_or_delta_are_passed_over(self) -> None:
        """``choices: null``, ``choices: []``, ``delta: null`` → ignored. pydantic-ai#5165, #2763"""
        strange = openai_chunk(choices=None) + openai_chunk() + openai_chunk(choices=[{"index": 0, "delta": None}])
        body = strange + openai_chunk({"content": "Hi"}) + strange + openai_chunk({}, "stop") + DONE
        assert hear("openai", body).message.text == "Hi"

    @PROTOCOLS
    def test_a_connection_that_closes_after_some_text_is_no_answer(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        """Text, then the end without a finish → an error; the text was shown, the work is not done.

        vercel/ai#19165, #19169, #15938
        """
        talk = tell([[say("Half"), Fail("cut")]]).talk(protocol)
        assert talk.error is not None
        assert (talk.error.kind, talk.all(Finish), len(talk.messages)) == ("cut", [], 2)
        assert "".join(event.text for event in talk.all(TextDelta)) == "Half"

    @PROTOCOLS
    def test_an_error_after_some_text_is_not_tried_again(self, tell: Callable[..., Stage], protocol: str) -> None:
        """Text must not appear twice. crmne/ruby_llm 4bf4e03"""
        stage = tell([[say("Half"), Fail("overloaded")]])
        talk = stage.talk(protocol, retries=3)
        assert talk.error is not None
        assert (len(stage.asked), stage.waits, talk.all(RetryScheduled)) == (1, [], [])

    @OVER_HTTP
    @pytest.mark.parametrize("piece", [1, 17])
    def test_an_error_that_the_network_splits_is_seen(
        self, tell: Callable[..., Stage], protocol: str, piece: int
    ) -> None:
        """An error event over several network reads → still an error. crmne/ruby_llm 4bf4e03"""
        name = "openai" if protocol == "openai_chat" else protocol
        body = next(body for body in BODIES if (body.protocol, body.shape) == (name, "overload in mid-stream"))
        talk = tell([], Reply(body.text, piece=piece)).talk(protocol)
        assert talk.error is not None
        assert talk.error.kind == "overloaded"

    @OVER_HTTP
    @pytest.mark.parametrize("body", ['"No more of this."', '{"error": "No more of this."}', "No more of this."])
    def test_an_error_may_be_a_bare_text(self, tell: Callable[..., Stage], protocol: str, body: str) -> None:
        """A string, or ``{"error": "text"}`` → its words, no TypeError. crmne/ruby_llm#840"""
        talk = tell([], Reply(body, status=400, content_type="application/json")).talk(protocol)
        assert talk.error is not None
        assert talk.error.kind == "bad_request"
        assert "No more of this." in talk.error.technical

    def test_anthropics_usage_is_the_last_and_not_the_sum(self) -> None:
        """10 tokens in at the start and 61 in message_delta → 61, not 71. pydantic-ai#2771, #3111"""
        start = anthropic_event("message_start", message={"id": "m", "usage": {"input_tokens": 10}})
        heard = hear("anthropic", start + anthropic_end(input_tokens=61))
        assert heard.usage is not None
        assert heard.usage.input_tokens == 61

    def test_items_of_responses_are_joined_by_their_place(self) -> None:
        """Another item id in each event → joined by output_index. vercel/ai's fixture of GitHub Copilot"""
        parts = [
            event("response.output_item.added", output_index=0, item=call_item("a", arguments="", id="x1")),
            event("response.function_call_arguments.delta", output_index=0, item_id="x2", delta='{"city": "Paris"}'),
            event("response.output_item.done", output_index=0, item=call_item("a", id="x3")),
        ]
        heard = hear("openai_responses", "".join(parts) + ended())
        assert heard.calls == [("a", "weather", {"city": "Paris"})]
        assert heard.shown_calls == {"a": ("weather", '{"city": "Paris"}')}

    @OVER_HTTP
    def test_a_stream_that_nobody_reads_on_is_closed(self, tell: Callable[..., Stage], protocol: str) -> None:
        """The consumer stops → the HTTP response is closed. openai-agents#4366"""
        stage = tell([[say("Half"), Wait(30)]])
        events = converse([user("Go.")], gen(f"{protocol}:m"), config=stage.config)
        assert next(event for event in events if isinstance(event, TextDelta)).text == "Half"
        with pytest.raises(KeyError):
            events.throw(KeyError("the consumer failed"))
        assert wait_for(stage.server.seen[0].hung_up.is_set)

    @PROTOCOLS
    def test_a_tool_runs_once_however_many_pieces_its_call_came_in(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        """Streaming runs a tool once, not once per callback. crmne/ruby_llm#95"""
        talk = tell(echo).talk(protocol)
        assert len(talk.all(ToolCallDelta)) >= len(talk.all(ToolCallRequest)) == 2
        assert talk.desk.ran == ["Zürich", "東京"]


class TestTheEnd:
    @PROTOCOLS
    def test_a_whole_call_beside_the_limit_does_not_run(self, tell: Callable[..., Stage], protocol: str) -> None:
        """finish length with a complete call → not run; the turn is told as cut. vercel/ai#19063, #19066"""
        talk = tell([[Use("weather", city="Rome"), Stop("length")]]).talk(protocol)
        assert (talk.desk.ran, talk.all(Finish)[-1].reason) == ([], "length")

    def test_arguments_cut_by_anthropics_limit_name_the_limit(self, tell: Callable[..., Stage]) -> None:
        """max_tokens inside the arguments → an end that names max_tokens, and no retry loop. pydantic-ai#3118, #3137"""
        start = anthropic_event(
            "content_block_start",
            index=0,
            content_block={"type": "tool_use", "id": "t", "name": "weather", "input": {}},
        )
        cut = anthropic_delta(0, "input_json_delta", partial_json='{"city": "Ro')
        body = anthropic_start() + start + cut + anthropic_end("max_tokens")
        stage = tell([], Reply(body))
        talk = stage.talk("anthropic", retries=3)
        finish = talk.all(Finish)[-1]
        assert (finish.reason, finish.raw, len(stage.server.seen)) == ("length", "max_tokens", 1)
        assert (talk.desk.ran, talk.call_ids) == ([], [])

    @PROTOCOLS
    def test_nothing_but_the_limit_is_told_at_once(self, tell: Callable[..., Stage], protocol: str) -> None:
        """An empty answer that met the limit → told at once, no retries. pydantic-ai#3512, openai-agents#4513"""
        stage = tell([[Stop("length")]])
        assert stage.talk(protocol, retries=3).all(Finish)[-1].reason == "length"
        assert len(stage.asked) == 1

    @pytest.mark.parametrize("status", ["incomplete", "failed"])
    def test_a_response_that_is_not_completed_is_no_answer(self, status: str) -> None:
        """Status incomplete or failed, streamed or whole → not an answer. openai-agents#4516"""
        body = answer(text_item("Half"), call_item("a"), end=ended(status))
        if status == "failed":
            with pytest.raises(ProviderError):
                hear("openai_responses", body)
        else:
            heard = hear("openai_responses", body)
            assert heard.finish.reason not in ("stop", "tool_calls")
            assert heard.message.calls == ()
        whole = json.dumps({"status": status, "output": [text_item("Half")], "error": {"message": "No."}})
        with WireServer.playing(Reply(whole, content_type="application/json")) as server:
            adapter = OpenAIResponses(settings("openai", server.base_url("openai")))
            with pytest.raises(ProviderError):
                Heard(adapter.stream(asking()))

    @PROTOCOLS
    def test_words_before_a_call_are_no_answer_after_it(self, tell: Callable[..., Stage], protocol: str) -> None:
        """Text, a call, then nothing → asked again within the budget, the text is not taken. pydantic-ai#6403"""
        turns = iter([[say("Let me see."), Use("weather", city="Rome")], [], [], []])
        stage = tell(lambda request: next(turns))
        talk = stage.talk(protocol)
        assert (talk.text, len(stage.asked)) == ("", 4)

    def test_a_refused_shape_is_no_wrong_shape(self, tell: Callable[..., Stage]) -> None:
        """OpenAI's refusal, Gemini's promptFeedback → a filtered end, no validation retry. pydantic-ai#4315"""
        refusal = tell([[say("I can't."), Stop("refusal")]])
        for protocol in ("openai_chat", "openai_responses"):
            talk = refusal.talk(protocol, output=Verdict, tools=())
            assert (talk.output, talk.all(Finish)[-1].reason) == (None, "refusal")
        assert len(refusal.asked) == 2
        blocked = tell([], Reply('data: {"promptFeedback": {"blockReason": "SAFETY"}}\n\n'))
        talk = blocked.talk("google", output=Verdict, tools=())
        assert (talk.output, talk.all(Finish)[-1].reason) == (None, "content_filter")
        assert len(blocked.server.seen) == 1

    def test_a_paused_turn_is_sent_back_as_it_came_and_goes_on(self, tell: Callable[..., Stage]) -> None:
        """pause_turn → the same content back, no word of the user, and the loop goes on.

        anthropics/anthropic-sdk-python#1170, crmne/ruby_llm f4cf2eac
        """
        server_use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
        start = anthropic_event("content_block_start", index=0, content_block={**server_use, "input": {}})
        delta = anthropic_delta(0, "input_json_delta", partial_json='{"query": "x"}')
        stop = anthropic_event("content_block_stop", index=0)
        stage = tell(
            [[say("Never.")], [say("Found.")]],
            Reply(anthropic_start() + start + delta + stop + anthropic_end("pause_turn")),
        )
        assert stage.talk("anthropic").messages[-1].role == "assistant"
        first, second = stage.server.bodies
        assert second["messages"][:-1] == first["messages"]
        assert second["messages"][-1] == {"role": "assistant", "content": [server_use]}

    def test_an_ollama_answer_without_a_finish_reason_is_one(self) -> None:
        """finish_reason null → taken as stop, once [DONE] has come. pydantic-ai#3045"""
        heard = hear("openai", openai_chunk({"content": "Hi"}) + openai_chunk({}) + DONE)
        assert (heard.finish.reason, heard.message.text) == ("stop", "Hi")


class TestArguments:
    @PROTOCOLS
    @pytest.mark.parametrize("raw", ["[1, 2]", '"text"'])
    def test_that_are_no_object_are_told_so(self, tell: Callable[..., Stage], protocol: str, raw: str) -> None:
        """``[1,2]`` or ``"text"`` → the model hears "must be an object", the tool is not called. openai-agents#3166"""
        stage = tell([[Use("weather", raw=raw)], [say("Done.")]])
        assert stage.talk(protocol).desk.ran == []
        (result,) = stage.asked[1].messages[-1].results
        assert "must be a JSON object" in result.content

    @PROTOCOLS
    def test_of_an_unknown_tool_are_answered_with_the_known_names(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        """The available names are listed, the loop goes on, and it counts for that name only.

        openai-agents#3459, #325, pydantic-ai#4940, simonw/llm#1483
        """
        turns: Script = [[Use("a")], [Use("b")], [Use("weather", city="Rome")], [say("Done.")]]
        stage = tell(turns)
        talk = stage.talk(protocol, max_tool_retries=1)
        assert (talk.text, talk.desk.ran, talk.all(LimitReached)) == ("Done.", ["Rome"], [])
        for request in stage.asked[1:3]:
            assert "nothing, refuse, weather" in request.messages[-1].results[0].content

    def test_failures_are_counted_across_rounds_until_a_success(self, tell: Callable[..., Stage]) -> None:
        """A fails, B works, A fails, with a budget of 1 → over it; a success of A sets it to 0. pydantic-ai#6582"""
        fail, other, work = Use("weather"), Use("nothing"), Use("weather", city="Rome")
        over = tell([[fail], [other], [fail], [say("I give up.")]])
        talk = over.talk("scripted", max_tool_retries=1)
        assert talk.all(LimitReached) == [LimitReached("tool_failures", 1)]
        assert [request.tool_choice for request in over.asked] == ["auto"] * 3 + ["none"]
        within = tell([[fail], [work], [fail], [say("Done.")]])
        assert within.talk("scripted", max_tool_retries=1).all(LimitReached) == []

    def test_two_talks_at_once_count_their_own_failures(self, tell: Callable[..., Stage]) -> None:
        """Two runs of one agent in parallel → their counts are apart. pydantic-ai#1918"""
        stage = tell([[Use("weather")], [say("Done.")]])
        shared = gen("scripted:story", tools=Desk().ai_tools(), max_tool_retries=1)
        talks = [converse([user("Go.")], shared, config=stage.config) for _ in range(3)]
        heard: list[list[Event]] = [[] for _ in talks]
        # Step by step in turn, so that all have failed once before the first goes on.
        while sum(_step(talk, events) for talk, events in zip(talks, heard, strict=True)):
            pass
        assert [isinstance(events[-1], Finish) for events in heard] == [True] * 3

    @pytest.mark.parametrize("status", [504, 529])
    def test_a_call_that_failed_for_a_moment_is_made_again(self, tell: Callable[..., Stage], status: int) -> None:
        """A POST answered 504 or 529 once → made again, and told as timeout or overload. crmne/ruby_llm#624"""
        kind = "timeout" if status == 504 else "overloaded"
        stage = tell([[say("Hi.")]], Reply("{}", status=status, content_type="application/json"))
        talk = stage.talk("anthropic")
        assert (talk.text, [event.reason for event in talk.all(RetryScheduled)]) == ("Hi.", [kind])

    @PROTOCOLS
    def test_a_call_that_is_made_again_says_everything_once(self, tell: Callable[..., Stage], protocol: str) -> None:
        """The user's words are stored and sent once, not once a try. openai-agents#3857"""
        fails = iter([True, True])
        stage = tell(lambda request: [Fail("server")] if next(fails, False) else [say("Hi.")])
        talk = stage.talk(protocol, retries=2)
        assert [message.role for message in talk.messages] == ["system", "user", "assistant"]
        assert [[message.text for message in request.messages] for request in stage.asked] == [["Be brief.", "Go."]] * 3

    @PROTOCOLS
    def test_tools_and_parameters_may_be_named_as_our_own_are(self, tell: Callable[..., Stage], protocol: str) -> None:
        """A parameter named like an internal one, a tool named "parallel" → no clash. vercel/ai#19098"""
        uses = [{"recipient_name": "functions.weather", "parameters": {"city": "Rome"}}]
        named = {"call": "a", "name": "b", "raw": "c", "context": "d", "handler": "e"}
        stage = tell([[Use("parallel", raw=json.dumps({"tool_uses": uses, **named}))], [say("Done.")]])
        desk = Odd()
        stage.talk(protocol, desk=desk)
        assert desk.ran == ["parallel abcde 1"]


class Odd(Desk, name="tests.cases.Odd"):
    """A handler whose tool has names that are ours, or a provider's, elsewhere."""

    @ai_tool
    def parallel(self, tool_uses: list[Any], call: str, name: str, raw: str, context: str, handler: str) -> None:
        """Do it."""
        self.ran.append(f"parallel {call}{name}{raw}{context}{handler} {len(tool_uses)}")


def _step(talk: Iterator[Event], heard: list[Event]) -> bool:
    event = next(talk, None)
    if event is None:
        return False
    heard.append(event)
    if isinstance(event, ToolCallRequest):
        event.respond_error("No.")
    return True


class TestHistory:
    def test_all_results_of_a_turn_go_to_anthropic_in_one_message(self) -> None:
        """Two results → one user message with two tool_result blocks. crmne/ruby_llm#853"""
        back = results(RESULT, ToolResult("call_2", "weather", "rain"))
        (*_, last) = anthropic_messages(user("?"), assistant(CALL, OTHER), back)
        assert last["role"] == "user"
        assert [block["tool_use_id"] for block in last["content"]] == ["call_1", "call_2"]

    @PROTOCOLS
    @pytest.mark.parametrize("kind", ["none", "text", "list"])
    def test_a_tool_that_gives_nothing_is_answered(self, tell: Callable[..., Stage], protocol: str, kind: str) -> None:
        """None, "" or [] → the model gets a result for that call. openai-agents#3312, #3554"""
        stage = tell([[Use("nothing", kind=kind)], [say("Done.")]])
        stage.talk(protocol)
        turn, back = stage.asked[1].messages[-2:]
        assert [result.call_id for result in back.results] == [call.id for call in turn.calls]
        assert back.results[0].content.strip()

    @PROTOCOLS
    def test_a_result_without_its_call_is_not_sent(self, tell: Callable[..., Stage], protocol: str) -> None:
        """A history cut to its last messages begins with a result → it is left out. openai-agents#4324"""
        stage = tell([[say("Hi.")]])
        stage.talk(protocol, messages=[results(RESULT), assistant("Sunny."), user("And now?")])
        sent = stage.asked[0].messages if protocol != "scripted" else ()
        assert [result for message in sent for result in message.results] == []

    @OVER_HTTP
    def test_a_call_that_was_left_open_is_told_as_interrupted(self, tell: Callable[..., Stage], protocol: str) -> None:
        """A dangling call, then a new word of the user → a result is made up. pydantic-ai, cleaning of histories"""
        stage = tell([[say("Hi.")]])
        stage.talk(protocol, messages=[user("?"), assistant(CALL, OTHER), results(RESULT), user("And now?")])
        (back,) = [message for message in stage.asked[0].messages if message.role == "tool"]
        assert [result.content.removeprefix("Error: ") for result in back.results] == ["sun", INTERRUPTED]
        assert [result.error for result in back.results] == [False, True]

    def test_a_dropped_call_takes_its_reasoning_along(self) -> None:
        """Reasoning without the call that it led to is refused. openai-agents#3207"""
        body = answer(text_item("Hi."), reasoning_item(), call_item("a"))
        heard = hear("openai_responses", body, asking(tools=(WEATHER,), tool_choice="none"))
        sent = openai_responses.render_input(asking(user("?"), heard.message), settings("openai_responses"))
        assert [item.get("type", item.get("role")) for item in sent] == ["user", "assistant"]

    def test_thinking_without_its_signature_is_not_sent(self) -> None:
        """A thinking block with an empty signature → left out. pydantic-ai#7601"""
        unsigned = Reasoning("Hm.", "anthropic", {"type": "thinking", "thinking": "Hm.", "signature": ""})
        (_, turn, _) = anthropic_messages(user("?"), assistant(unsigned, CALL), results(RESULT))
        assert [block["type"] for block in turn["content"]] == ["tool_use"]

    def test_geminis_signature_goes_back_on_its_call(self) -> None:
        """A streamed call with thoughtSignature → stored on it and sent back with it. pydantic-ai#3647"""
        calls = [{"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"}]
        body = google_chunk(*calls) + google_chunk({"functionCall": {"name": "time"}}, finish="STOP")
        heard = hear("google", body)
        stored = Message.from_json(json.loads(json.dumps(heard.message.to_json())))
        parts = gemini_contents(user("?"), stored)[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == ["c2ln", None]

    def test_an_id_that_gemini_did_not_give_is_not_sent(self) -> None:
        """A made-up id → neither in functionCall nor in functionResponse, which Vertex refuses. vercel/ai#17902"""
        heard = hear("google", google_chunk({"functionCall": {"name": "weather", "args": {}}}, finish="STOP"))
        (call,) = heard.message.calls
        contents = gemini_contents(user("?"), heard.message, results(ToolResult(call.id, "weather", "sun")))
        assert "id" not in contents[1]["parts"][0]["functionCall"]
        assert "id" not in contents[2]["parts"][0]["functionResponse"]

    def test_a_turn_that_says_nothing_is_left_out(self) -> None:
        """An empty assistant turn → skipped, where it would be refused. pydantic-ai#5300"""
        sent = chat_messages(user("?"), Message("assistant", ()), assistant(" "), user("Well?"))
        assert [message["role"] for message in sent] == ["user", "user"]

    def test_without_tools_nothing_about_them_is_sent(self) -> None:
        """No tools on this turn → neither tools nor parallel_tool_calls. pydantic-ai#4935"""
        request = asking(user("?"), options={"parallel_tool_calls": True}, tool_choice="required")
        for rendered in (openai_chat.render_request, openai_responses.render_request, google.render_request):
            body = rendered(request, settings("p"))
            assert {"tools", "tool_choice", "parallel_tool_calls", "toolConfig"}.isdisjoint(body)


class Guarded(Desk, name="tests.cases.Guarded"):
    """A handler whose tools need a person's approval."""

    @ai_tool(approval=True)
    def sell(self, what: str) -> str:
        """Sell it."""
        self.ran.append(what)
        return "sold"

    @ai_tool(approval=lambda handler, arguments: arguments["limits"]["most"] < 10)
    def pay(self, limits: dict[str, int] | None = None) -> str:
        """Pay."""
        self.ran.append("paid")
        return "paid"


class TestApproval:
    def test_a_call_without_approval_does_not_run_on_resume(self, tell: Callable[..., Stage]) -> None:
        """A history that ends in an unapproved call, resumed without a decision → it does not run. pydantic-ai#3355"""
        desk = Guarded()
        history = [user("?"), assistant(ToolCall("a", "sell", '{"what": "all"}'))]
        talk = tell([[say("Never said.")], [say("Not sold.")]]).talk("scripted", messages=history, desk=desk)
        assert (desk.ran, talk.text) == ([], "Not sold.")
        (result,) = talk.results
        assert result.error
        assert "approval" in result.content

    @pytest.mark.parametrize("raw", ["", "{}", '{"limits": {}}', '{"limits": null}'])
    def test_a_rule_that_cannot_read_its_arguments_means_approval(self, raw: str) -> None:
        """Empty or unexpected arguments break the rule → approval is needed. openai-agents#4545"""
        assert decided(ToolCall("a", "pay", raw)) == "not_approved"

    def test_arguments_that_cannot_be_read_at_all_run_nothing(self) -> None:
        """Broken arguments never reach the rule, nor the tool. openai-agents#4545"""
        assert decided(ToolCall("a", "pay", '{"limits": ')) == "invalid_arguments"

    def test_two_calls_that_wait_are_told_apart(self, tell: Callable[..., Stage]) -> None:
        """Two parallel calls ask → two ids, and each answer goes to its own. langgraph#6533, #6626, #6624"""
        desk = Guarded()
        turns: Script = [[Use("sell", what="a"), Use("weather", city="Rome"), Use("sell", what="b")], [say("Done.")]]
        talk = tell(turns).talk("scripted", desk=desk)
        requests = talk.all(ToolCallRequest)
        assert len({request.id for request in requests}) == 3
        assert [result.call_id for result in talk.results] == [request.id for request in requests]
        assert [result.error for result in talk.results] == [True, False, True]
        assert desk.ran == ["Rome"]

    def test_a_call_that_was_finished_is_not_run_again_on_resume(self, tell: Callable[..., Stage]) -> None:
        """One of two calls has its result → only the other is asked for. langgraph#3126, simonw/llm#1482"""
        history = [user("?"), assistant(CALL, OTHER), results(RESULT)]
        talk = tell([[say("Never said.")], [say("Done.")]]).talk("scripted", messages=history)
        assert (talk.desk.ran, talk.text) == (["Oslo"], "Done.")
        assert [result.content for result in talk.results] == ["sun", "Sunny in Oslo"]


def decided(call: ToolCall) -> OutcomeKind:
    desk = Guarded()
    outcome = run_tool(desk, call, ToolContext(call.id, None, call.name, 1, call.id))
    assert desk.ran == []
    return outcome.kind


def test_a_very_high_limit_is_streamed() -> None:
    """A high max_tokens, which the SDK refuses to wait for → the adapter streams by itself. pydantic-ai#4496"""
    body = anthropic_start() + anthropic_end()
    with WireServer.playing(body) as server:
        request = asking(model="claude-sonnet-4-5", options={"max_tokens": 64_000})
        Heard(Anthropic(settings("anthropic", server.base_url("anthropic"))).stream(request))
    anthropic.clients.close()
    (sent,) = server.bodies
    assert (sent["max_tokens"], sent["stream"]) == (64_000, True)
