"""OpenAI Chat Completions: what is sent, and what each kind of streamed answer means."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from typing import Any

import pytest

from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_chat import parse_events
from flask_instruct.adapters.openai_chat import render_request
from flask_instruct.adapters.profiles import OPENAI
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.events import Finish
from flask_instruct.events import TextDelta
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Reasoning
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import WireServer
from tests.wire_format import DONE
from tests.wire_format import openai_chunk

from .hearing import KEY
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import cut_in
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user

OFFICIAL = settings("openai", quirks=OPENAI)
COMPATIBLE = settings("ollama", "http://localhost:11434/v1")


def hear(*parts: str, request: ModelRequest | None = None, size: int = 4096) -> Heard:
    return Heard(parse_events(read_events(cut_in("".join(parts), size)), request or asking()))


def hear_calls(*fragments: dict[str, Any], finish: str | None = "tool_calls", **options: Any) -> Heard:
    chunks = [openai_chunk({"tool_calls": [fragment]}) for fragment in fragments]
    return hear(*chunks, openai_chunk({}, finish), DONE, **options)


def fragment(**fields: Any) -> dict[str, Any]:
    """A piece of a call; ``name`` and ``arguments`` go where the protocol has them."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, "function": function}


def rendered(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    messages_of_body: list[dict[str, Any]] = render_request(asking(*messages, **fields), OFFICIAL)["messages"]
    return messages_of_body


class TestRecordedAnswers:
    @pytest.mark.parametrize(("name", "place"), recordings.streamed("openai-chat", "openai-compatible"))
    @pytest.mark.parametrize("size", [1, 7, 65536])
    def test_mean_the_same_however_the_network_cuts_them(self, name: str, place: int, size: int) -> None:
        body = recordings.exchange(name, place)["body"]
        wanted = recordings.expected(name, place)
        if wanted["error"]:
            with pytest.raises(ProviderError, match=wanted["error"]["message"][:40]):
                hear(body, size=size)
            return
        heard = hear(body, size=size)
        assert heard.text == (wanted["text"] or wanted["refusal"])
        assert heard.message.text == heard.text
        assert heard.calls == recordings.arguments_of(wanted)
        assert bool(heard.reasoning) == wanted["thinking"]
        assert heard.finish.raw == (wanted["finish"] or "")
        reported = heard.usage and [heard.usage.input_tokens, heard.usage.output_tokens]
        assert reported == wanted["usage"]

    def test_of_a_gateway_keep_reasoning_details_as_its_next_request_replays_them(self) -> None:
        name = "openai-compatible/openrouter_reasoning_details_stream_tools"
        heard = hear(recordings.exchange(name, 0)["body"])
        history = (
            user("?"),
            heard.message,
            results(ToolResult(heard.message.calls[0].id, "reasoning_weather", "15°C")),
        )
        replayed = render_request(asking(*history), OFFICIAL)["messages"][1]
        recorded = recordings.exchange(name, 1)["request"]["messages"][1]
        assert replayed["reasoning_details"] == recorded["reasoning_details"]
        assert json.loads(replayed["tool_calls"][0]["function"]["arguments"]) == {"city": "Berlin"}


class TestToolCallFragments:
    def test_with_one_index_and_two_ids_are_two_calls(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="a", name="add", arguments='{"x":'),
            fragment(index=0, id="a", arguments="1}"),
            fragment(index=0, id="b", name="sub", arguments='{"y":2}'),
        )
        assert heard.calls == [("a", "add", {"x": 1}), ("b", "sub", {"y": 2})]

    def test_without_an_id_go_to_the_latest_call_of_their_index(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="a", name="add"),
            fragment(index=0, id="b", name="sub"),
            fragment(index=0, arguments='{"y":2}'),
        )
        assert heard.calls == [("a", "add", {}), ("b", "sub", {"y": 2})]

    def test_of_parallel_calls_may_interleave(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="a", name="add", arguments=""),
            fragment(index=1, id="b", name="sub", arguments=""),
            fragment(index=0, arguments='{"x":'),
            fragment(index=1, arguments='{"y":'),
            fragment(index=0, arguments="1}"),
            fragment(index=1, arguments="2}"),
        )
        assert heard.calls == [("a", "add", {"x": 1}), ("b", "sub", {"y": 2})]

    @pytest.mark.parametrize("index", [1, 3, None])
    def test_with_a_strange_index_leave_no_empty_slot(self, index: int | None) -> None:
        heard = hear_calls(fragment(index=index, id="a", name="add"), fragment(index=index, arguments='{"x":1}'))
        assert heard.calls == [("a", "add", {"x": 1})]

    def test_without_index_and_id_go_to_the_latest_call(self) -> None:
        heard = hear_calls(fragment(id="a", name="add"), fragment(arguments='{"x":'), fragment(arguments="1}"))
        assert heard.calls == [("a", "add", {"x": 1})]

    def test_may_bring_the_name_late_and_are_shown_only_then(self) -> None:
        heard = hear_calls(fragment(index=0, id="a", arguments='{"x"'), fragment(index=0, name="add", arguments=":1}"))
        assert heard.calls == [("a", "add", {"x": 1})]
        assert heard.shown_calls == {"a": ("add", '{"x":1}')}

    def test_that_repeat_id_and_name_set_them_instead_of_appending(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="a", name="add", arguments='{"x":'),
            fragment(index=0, id="a", name="add", arguments="1}"),
        )
        assert heard.calls == [("a", "add", {"x": 1})]

    @pytest.mark.parametrize("blank", [{"arguments": ""}, {"arguments": None}, {}, {"arguments": "{}"}])
    def test_without_arguments_call_with_none(self, blank: dict[str, Any]) -> None:
        heard = hear_calls(fragment(index=0, id="a", name="version", **blank))
        assert heard.calls == [("a", "version", {})]

    def test_may_hold_the_arguments_as_an_object(self) -> None:
        assert hear_calls(fragment(index=0, id="a", name="add", arguments={"x": 1})).calls == [("a", "add", {"x": 1})]

    def test_whose_arguments_are_no_json_keep_the_text(self) -> None:
        heard = hear_calls(fragment(index=0, id="a", name="add", arguments='{"x": oops'))
        assert heard.finish.reason == "tool_calls"
        assert heard.message.calls[0].raw == '{"x": oops'

    def test_of_two_calls_that_a_server_gave_one_index_and_no_id_are_two_calls(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="", name="weather", arguments='{"city":"Rome"}'),
            fragment(index=0, id="", name="weather", arguments='{"city":"Oslo"}'),
        )
        (first, *_), (second, *_) = heard.calls
        assert [call[1:] for call in heard.calls] == [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]
        assert first != second

    def test_of_two_calls_that_a_server_gave_one_id_are_two_calls(self) -> None:
        heard = hear_calls(
            fragment(index=0, id="0", name="weather", arguments='{"city":"Rome"}'),
            fragment(index=1, id="0", name="weather", arguments='{"city":"Oslo"}'),
        )
        assert [call[1:] for call in heard.calls] == [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]
        assert len({call[0] for call in heard.calls}) == 2

    def test_show_a_call_under_the_id_it_ends_with(self) -> None:
        heard = hear_calls(fragment(index=0, name="add"), fragment(index=0, id="late", arguments='{"x":1}'))
        (call,) = heard.message.calls
        assert heard.shown_calls == {call.id: ("add", '{"x":1}')}
        assert call.opaque == {"provider_id": "late"}

    @pytest.mark.parametrize("sent", ["call_0", "", None])
    def test_get_an_id_that_the_conversation_has_not_used(self, sent: str | None) -> None:
        earlier = (user("?"), assistant(ToolCall("call_0", "add")), results(ToolResult("call_0", "add", "1")))
        heard = hear_calls(fragment(index=0, id=sent, name="add", arguments="{}"), request=asking(*earlier))
        (call,) = heard.message.calls
        assert call.id not in ("call_0", "")
        assert call.opaque == {"provider_id": sent or ""}

    def test_are_marked_with_their_provider_and_named_as_the_app_names_its_tools(self) -> None:
        tool = ToolSpec("wetter heute", "", {"type": "object", "properties": {}})
        heard = hear_calls(fragment(index=0, id="a", name="wetter_heute"), request=asking(tools=(tool,)))
        (call,) = heard.message.calls
        assert (call.name, call.provider) == ("wetter heute", "openai")
        assert heard.shown_calls == {"a": ("wetter heute", "")}

    def test_with_a_signature_in_their_id_get_a_short_one_and_keep_it(self) -> None:
        sent = "call_1__thought__" + "A+b/" * 500
        (call,) = hear_calls(fragment(index=0, id=sent, name="add"), fragment(index=0, id=sent)).message.calls
        assert call.id.replace("_", "").isalnum()
        assert (len(call.id), call.opaque) == (29, {"provider_id": sent})

    def test_keep_what_a_gateway_wants_back_with_them(self) -> None:
        signature = {"google": {"thought_signature": "abc"}}
        heard = hear_calls(fragment(index=0, id="a", name="add", arguments="{}", extra_content=signature))
        assert rendered(user("?"), heard.message)[1]["tool_calls"][0]["extra_content"] == signature


class TestTheEnd:
    @pytest.mark.parametrize("reason", ["length", "content_filter", "insufficient_system_resource"])
    def test_runs_no_call_after_anything_but_stop_and_tool_calls(self, reason: str) -> None:
        heard = hear_calls(fragment(index=0, id="a", name="delete_record", arguments="{}"), finish=reason)
        assert heard.message.calls == ()
        assert heard.finish.reason == ("other" if reason.startswith("insufficient") else reason)
        assert heard.finish.raw == reason

    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            ("function_call", "other"),
            ("content_filter: PROHIBITED_CONTENT", "content_filter"),
            ("function_call_filter: MALFORMED_FUNCTION_CALL", "malformed"),
            ("model_length", "length"),
            ("error", "error"),
            ("STOP", "other"),
        ],
    )
    def test_has_a_closed_reason_for_every_word(self, raw: str, reason: str) -> None:
        old = {"function_call": {"name": "add", "arguments": "{}"}}
        heard = hear(openai_chunk({"content": "Hi", **old}), openai_chunk({}, raw), DONE)
        assert (heard.finish.reason, heard.finish.raw, heard.message.text) == (reason, raw, "Hi")
        assert heard.message.calls == ()

    def test_without_calls_keeps_no_reasoning_that_led_to_one(self) -> None:
        """openai-agents#3207: a call and its reasoning go together."""
        call = openai_chunk({"tool_calls": [fragment(index=0, id="a", name="add", arguments="{}")]})
        heard = hear(openai_chunk({"reasoning_content": "Hm."}), call, openai_chunk({}, "length"), DONE)
        assert (heard.reasoning, heard.message.parts) == ("Hm.", ())

    def test_runs_calls_after_stop(self) -> None:
        heard = hear_calls(fragment(index=0, id="a", name="add", arguments="{}"), finish="stop")
        assert (heard.finish.reason, heard.finish.raw) == ("tool_calls", "stop")

    def test_runs_no_call_when_tools_were_forbidden(self) -> None:
        request = asking(tools=(WEATHER,), tool_choice="none")
        heard = hear_calls(fragment(index=0, id="a", name="weather", arguments="{}"), request=request)
        assert (heard.finish.reason, heard.message.calls) == ("stop", ())

    def test_is_stop_when_tool_calls_were_announced_and_none_came(self) -> None:
        heard = hear(openai_chunk({"content": "Hi"}), openai_chunk({}, "tool_calls"), DONE)
        assert heard.finish.reason == "stop"

    def test_is_missing_when_the_connection_closes_without_a_word(self) -> None:
        with pytest.raises(ProviderError) as caught:
            hear(openai_chunk({"content": "Half an ans"}))
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)

    def test_is_missing_when_the_stream_is_empty(self) -> None:
        with pytest.raises(ProviderError, match="without finish_reason"):
            hear("")

    def test_without_a_finish_reason_takes_a_done_text_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "flask_instruct"):
            heard = hear(openai_chunk({"content": "All of it."}), DONE)
        assert (heard.finish.reason, heard.finish.raw) == ("stop", "")
        assert "without a finish_reason" in caplog.text

    def test_without_a_finish_reason_runs_done_calls_only_if_all_are_whole(self) -> None:
        whole = fragment(index=0, id="a", name="add", arguments='{"x":1}')
        assert hear_calls(whole, finish=None).finish.reason == "tool_calls"
        with pytest.raises(ProviderError, match="inside the arguments"):
            hear_calls(whole, fragment(index=1, id="b", name="add", arguments='{"x":'), finish=None)

    def test_without_a_finish_reason_and_without_an_answer_is_cut(self) -> None:
        with pytest.raises(ProviderError) as caught:
            hear(openai_chunk({"role": "assistant"}), DONE)
        assert caught.value.kind == "cut"

    def test_may_lack_done_when_the_reason_was_given(self) -> None:
        assert hear(openai_chunk({"content": "Hi"}), openai_chunk({}, "stop")).finish.reason == "stop"

    def test_may_lack_the_last_blank_line(self) -> None:
        assert hear(openai_chunk({"content": "Hi"}), openai_chunk({}, "stop").rstrip()).finish.reason == "stop"

    def test_keeps_the_reason_when_a_later_chunk_has_none(self) -> None:
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        heard = hear(openai_chunk({"content": "Hi"}, "stop"), openai_chunk({"content": ""}, None, usage=usage), DONE)
        assert heard.finish.raw == "stop"
        assert heard.usage is not None
        assert heard.usage.input_tokens == 3

    def test_is_a_refusal_with_its_text(self) -> None:
        heard = hear(
            openai_chunk({"refusal": "I "}), openai_chunk({"refusal": "won't."}), openai_chunk({}, "stop"), DONE
        )
        assert (heard.finish.reason, heard.finish.raw, heard.text) == ("refusal", "stop", "I won't.")
        assert heard.message.text == "I won't."


class TestStrangeChunks:
    def test_without_choices_or_delta_are_passed_over(self) -> None:
        empty = [
            '{"choices": null}',
            '{"choices": []}',
            '{"choices": [{"index": 0, "delta": null}]}',
            '{"choices": [null]}',
        ]
        body = [f"data: {chunk}\n\n" for chunk in empty]
        heard = hear(*body, openai_chunk({"content": "Hi"}), *body, openai_chunk({}, "stop"), DONE)
        assert heard.text == "Hi"

    def test_of_a_second_choice_are_passed_over(self) -> None:
        other = 'data: {"choices": [{"index": 1, "delta": {"content": "Other"}, "finish_reason": "length"}]}\n\n'
        heard = hear(other, openai_chunk({"content": "Hi"}, "stop"), DONE)
        assert (heard.text, heard.finish.reason) == ("Hi", "stop")

    def test_with_usage_let_the_last_one_count(self) -> None:
        chunks = [openai_chunk({}, usage={"prompt_tokens": 10, "completion_tokens": count}) for count in (1, 61)]
        heard = hear(*chunks, openai_chunk({}, usage=None), openai_chunk({"content": "Hi"}, "stop"), DONE)
        assert heard.usage is not None
        assert heard.usage.output_tokens == 61

    def test_with_cached_and_reasoning_tokens_are_counted_in_their_classes(self) -> None:
        usage = {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 4},
        }
        heard = hear(openai_chunk({"content": "Hi"}, "stop"), openai_chunk(usage=usage), DONE)
        assert heard.usage is not None
        assert (heard.usage.cache_read_tokens, heard.usage.reasoning_tokens) == (8, 4)

    @pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
    def test_may_end_their_lines_in_three_ways(self, end: str) -> None:
        body = [part.replace("\n\n", end) for part in (openai_chunk({"content": "Hi"}, "stop"), DONE)]
        assert hear(": comment" + end, *body, size=1).text == "Hi"

    def test_with_line_separators_inside_the_text_stay_whole(self) -> None:
        text = "a\u2028b\x85c"
        chunk = json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False)
        assert hear(f"data: {chunk}\n\n", openai_chunk({}, "stop"), DONE).text == text

    def test_that_split_a_surrogate_pair_give_one_character(self) -> None:
        halves = [openai_chunk({"content": half}) for half in ("a\ud83d", "\ude00b")]
        assert hear(*halves, openai_chunk({}, "stop"), DONE).text == "a😀b"

    def test_with_characters_that_no_database_takes_are_cleaned(self) -> None:
        heard = hear(openai_chunk({"content": "a\x00b\ud83d"}), openai_chunk({}, "stop"), DONE)
        assert heard.message.text == "ab\ufffd"

    @pytest.mark.parametrize("data", ["{torn", "[1]", "12"])
    def test_that_are_no_objects_are_malformed(self, data: str) -> None:
        with pytest.raises(ProviderError) as caught:
            hear(f"data: {data}\n\n", DONE)
        assert caught.value.kind == "malformed"

    def test_of_mistral_with_lists_of_parts_are_text_and_reasoning(self) -> None:
        content = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Hi"}]
        heard = hear(openai_chunk({"content": content}), openai_chunk({}, "stop"), DONE)
        assert (heard.text, heard.reasoning) == ("Hi", "Hm.")
        assert heard.message.parts[0] == Reasoning("Hm.", "openai", {"content": content[:1]})


class TestErrorsInsideAStream:
    @pytest.mark.parametrize(
        ("data", "kind", "said"),
        [
            ({"object": "error", "message": "Bad", "type": "invalid_request_error"}, "bad_request", "Bad"),
            ({"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}, "rate_limited", "Slow down"),
            ({"error": {"message": "Busy", "code": 502}}, "server", "Busy"),
            ({"error": {"message": "Too many", "code": "429"}}, "rate_limited", "Too many"),
            ({"error": "plain text"}, "server", "plain text"),
            ({"error": {"message": "maximum context length is 8192", "code": 400}}, "context_window", "8192"),
            ({"error": {"message": "no", "code": "tool_use_failed", "failed_generation": "<x>"}}, "malformed", "<x>"),
        ],
    )
    def test_are_raised_with_the_providers_words(self, data: dict[str, Any], kind: str, said: str) -> None:
        with pytest.raises(ProviderError) as caught:
            hear(openai_chunk({"content": "Hi"}), f"data: {json.dumps(data)}\n\n", DONE)
        assert caught.value.kind == kind
        assert said in caught.value.technical
        assert said not in caught.value.safe

    def test_count_more_than_the_content_beside_them(self) -> None:
        beside = openai_chunk({"content": "Hi"}, "stop", error={"message": "Token limit reached", "code": 400})
        with pytest.raises(ProviderError, match="Token limit reached"):
            hear(beside, DONE)

    @pytest.mark.parametrize("data", ['"just a string"', "just a string", '{"message": "just a string"}'])
    def test_may_be_an_event_with_a_bare_string(self, data: str) -> None:
        with pytest.raises(ProviderError, match="just a string"):
            hear(f"event: error\ndata: {data}\n\n")

    def test_are_seen_when_the_network_splits_them(self) -> None:
        with pytest.raises(ProviderError, match="Überlast"):
            hear('event: error\ndata: {"error": {"message": "Überlast"}}\n\n', size=1)


class TestTheRequest:
    def test_puts_all_instructions_first(self) -> None:
        messages = rendered(system("One."), user("Hi"), system("Two."))
        assert messages == [{"role": "system", "content": "One.\n\nTwo."}, {"role": "user", "content": "Hi"}]

    def test_calls_instructions_developer_for_openais_reasoning_models_only(self) -> None:
        request = asking(system("Be."), user("Hi"), model="o3-mini")
        assert render_request(request, OFFICIAL)["messages"][0]["role"] == "developer"
        assert render_request(request, COMPATIBLE)["messages"][0]["role"] == "system"

    def test_replays_a_tool_round_in_order(self) -> None:
        call, other = ToolCall("a", "add", '{"x": 1}'), ToolCall("b", "sub", "")
        answers = results(ToolResult("a", "add", "2"), ToolResult("b", "sub", "broken", error=True))
        messages = rendered(user("Hi"), assistant(call, other), answers)
        assert messages[1]["content"] is None
        assert [entry["function"]["arguments"] for entry in messages[1]["tool_calls"]] == ['{"x": 1}', "{}"]
        assert messages[2:] == [
            {"role": "tool", "tool_call_id": "a", "content": "2"},
            {"role": "tool", "tool_call_id": "b", "content": "Error: broken"},
        ]

    @pytest.mark.parametrize("raw", ["[1, 2]", '"text"', '{"x": oops', '{"x": NaN}'])
    def test_replays_arguments_as_an_object_always(self, raw: str) -> None:
        (call,) = rendered(user("Hi"), assistant(ToolCall("a", "add", raw)))[1]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"invalid_arguments": raw}

    def test_replays_an_invented_name_as_a_legal_one(self) -> None:
        (call,) = rendered(user("Hi"), assistant(ToolCall("a", "do it, now!")))[1]["tool_calls"]
        assert call["function"]["name"] == "do_it__now_"

    @pytest.mark.parametrize("content", ["", "  \n"])
    def test_sends_no_empty_result(self, content: str) -> None:
        messages = rendered(user("Hi"), assistant(ToolCall("a", "add")), results(ToolResult("a", "add", content)))
        assert messages[2]["content"] == "(no output)"

    def test_leaves_out_an_assistant_turn_that_says_nothing(self) -> None:
        assert [message["role"] for message in rendered(user("Hi"), assistant(), assistant(""), user("Hm"))] == [
            "user"
        ] * 2

    def test_has_no_tool_fields_without_tools(self) -> None:
        payload = render_request(asking(options={"parallel_tool_calls": False}), OFFICIAL)
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & payload.keys()

    def test_keeps_the_tools_but_forbids_their_use(self) -> None:
        payload = render_request(asking(tools=(WEATHER,), tool_choice="none"), COMPATIBLE)
        assert payload["tool_choice"] == "none"
        assert payload["tools"] == [
            {
                "type": "function",
                "function": {"name": "weather", "description": WEATHER.description, "parameters": WEATHER.parameters},
            }
        ]

    def test_passes_options_on_and_names_the_limit_as_the_server_knows_it(self) -> None:
        request = asking(options={"max_tokens": 5, "temperature": 0.5, "stop": ["x"], "seed": 1})
        official, compatible = render_request(request, OFFICIAL), render_request(request, COMPATIBLE)
        assert (official["temperature"], official["stop"], official["seed"]) == (0.5, ["x"], 1)
        assert (official["max_completion_tokens"], compatible["max_tokens"]) == (5, 5)
        assert "max_tokens" not in official
        assert "max_completion_tokens" not in compatible

    def test_sends_reasoning_back_to_its_own_server_and_only_with_calls(self) -> None:
        thought = Reasoning("Hm.", "openai", {"reasoning_content": "Hm."})
        foreign = Reasoning("Hm.", "anthropic", {"type": "thinking", "signature": "s"})
        messages = rendered(user("Hi"), assistant(thought, foreign, ToolCall("a", "add")), assistant(thought, "Hi"))
        assert messages[1]["reasoning_content"] == "Hm."
        assert "signature" not in messages[1]
        assert messages[3] == {"role": "assistant", "content": "Hi"}


class TestOverHttp:
    def ask(self, server: WireServer, **changes: Any) -> Generator[Any, None, None]:
        adapter = OpenAIChat(settings("openai", server.base_url("openai"), **changes))
        return adapter.stream(asking(tools=(WEATHER,)))

    def test_an_answer_comes_through_the_official_client(self) -> None:
        body = openai_chunk({"content": "Grüße"}) + openai_chunk({}, "stop") + DONE
        with WireServer.playing(body, piece=1) as server:
            assert Heard(self.ask(server, headers=(("x-team", "blue"),))).text == "Grüße"
        (seen,) = server.seen
        assert seen.path == "/v1/chat/completions"
        assert seen.headers["authorization"] == f"Bearer {KEY}"
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.headers["x-team"] == "blue"
        assert (seen.body["stream"], seen.body["stream_options"]) == (True, {"include_usage": True})

    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            (400, {"error": {"message": "bad", "type": "invalid_request_error"}}, "bad_request"),
            (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, "context_window"),
            (401, {"error": {"message": "Incorrect key", "code": "invalid_api_key"}}, "authentication"),
            (402, {"error": {"message": "No credit"}}, "permission"),
            (403, {"error": {"message": "no"}}, "permission"),
            (404, {"error": {"message": "no", "code": "model_not_found"}}, "not_found"),
            (408, {"error": "slow"}, "timeout"),
            (409, "conflict", "server"),
            (413, "", "context_window"),
            (429, {"error": {"message": "slow"}}, "rate_limited"),
            (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "permission"),
            (500, "<html>oops</html>", "server"),
            (502, {"detail": "bad gateway"}, "server"),
            (503, {}, "overloaded"),
            (504, "", "timeout"),
            (529, "", "overloaded"),
        ],
    )
    def test_an_error_status_has_its_kind(self, status: int, body: Any, kind: str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        with (
            WireServer.playing(Reply(text, status=status, content_type="application/json")) as server,
            pytest.raises(ProviderError) as caught,
        ):
            Heard(self.ask(server))
        assert (caught.value.kind, caught.value.status) == (kind, status)
        assert len(server.seen) == 1, "the SDK must not retry"

    def test_no_credit_is_told_to_the_person(self) -> None:
        reply = Reply('{"error": {"message": "x", "code": "insufficient_quota"}}', 429, "application/json")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server))
        assert "no credit" in caught.value.safe
        assert not caught.value.retryable

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "7"}, 7.0),
            ({"retry-after-ms": "250"}, 0.25),
            ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({}, None),
        ],
    )
    def test_the_time_to_wait_is_read(self, headers: dict[str, str], seconds: float | None) -> None:
        reply = Reply("{}", status=429, content_type="application/json", headers=headers)
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server))
        assert caught.value.retry_after == seconds

    def test_a_connection_cut_in_mid_stream_is_cut(self) -> None:
        body = openai_chunk({"content": "Half"}) + openai_chunk({}, "stop") + DONE
        with WireServer.playing(Reply(body, cut_after=len(openai_chunk({"content": "Half"})) + 9)) as server:
            stream = self.ask(server)
            assert next(stream) == TextDelta("Half")
            with pytest.raises(ProviderError) as caught:
                next(stream)
        assert caught.value.kind == "cut"

    def test_a_connection_closed_before_the_answer_is_a_connection_error(self) -> None:
        with WireServer.playing(Reply(cut_after=0)) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server))
        assert caught.value.kind == "connection"

    def test_nobody_at_the_address_is_a_connection_error(self, free_port: int) -> None:
        adapter = OpenAIChat(settings("openai", f"http://127.0.0.1:{free_port}/v1"))
        with pytest.raises(ProviderError) as caught:
            Heard(adapter.stream(asking()))
        assert caught.value.kind == "connection"

    @pytest.mark.parametrize("after", [0, len(openai_chunk({"content": "Half"}))])
    def test_a_silent_server_times_out(self, after: int) -> None:
        reply = Reply(openai_chunk({"content": "Half"}) + DONE, stall_after=after)
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server, timeout=0.2))
        assert caught.value.kind == "timeout"

    def test_closing_the_stream_hangs_up(self) -> None:
        first = openai_chunk({"content": "Half"})
        with WireServer.playing(Reply(first + DONE, stall_after=len(first))) as server:
            stream = self.ask(server)
            assert next(stream) == TextDelta("Half")
            stream.close()
            assert wait_for(server.seen[0].hung_up.is_set)

    def test_a_web_page_instead_of_a_stream_says_so(self) -> None:
        reply = Reply("<title>Log in</title>", content_type="text/html")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError, match="Log in") as caught:
            Heard(self.ask(server))
        assert caught.value.kind == "malformed"

    def test_an_error_sent_as_a_good_json_answer_is_an_error(self) -> None:
        reply = Reply('{"error": {"code": "overloaded", "message": "Busy"}}', content_type="application/json")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError, match="Busy") as caught:
            Heard(self.ask(server))
        assert caught.value.kind == "overloaded"

    def test_a_key_that_a_gateway_repeats_is_not_kept(self) -> None:
        reply = Reply(json.dumps({"error": f"wrong key {KEY}"}), status=401, content_type="application/json")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server))
        assert KEY not in caught.value.technical
        assert KEY not in str(caught.value)

    def test_a_recorded_answer_comes_through_whole(self) -> None:
        body = recordings.exchange("openai-chat/stream_parallel_tools")["body"]
        with WireServer.playing(body, piece=5) as server:
            heard = Heard(self.ask(server))
        assert isinstance(heard.finish, Finish)
        assert [name for _, name, _ in heard.calls] == ["get_current_weather"] * 2
