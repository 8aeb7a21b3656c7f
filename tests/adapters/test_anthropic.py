"""Anthropic Messages: what is sent, and what each kind of streamed answer means."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.anthropic import render_request
from flask_instruct.errors import ProviderError
from flask_instruct.events import TextDelta
from flask_instruct.events import UsageReported
from flask_instruct.messages import Reasoning
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from tests import recordings
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import WireServer
from tests.wire_format import anthropic_delta
from tests.wire_format import anthropic_end
from tests.wire_format import anthropic_event
from tests.wire_format import anthropic_start

from .anthropic_wire import OFFICIAL
from .anthropic_wire import SIGNED
from .anthropic_wire import body_of
from .anthropic_wire import called
from .anthropic_wire import closed
from .anthropic_wire import hear
from .anthropic_wire import opened
from .anthropic_wire import rendered
from .anthropic_wire import said
from .anthropic_wire import text_block
from .hearing import KEY
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user


class TestRecordedAnswers:
    @pytest.mark.parametrize(("name", "place"), recordings.streamed("anthropic"))
    @pytest.mark.parametrize("size", [1, 7, 65536])
    def test_mean_the_same_however_the_network_cuts_them(self, name: str, place: int, size: int) -> None:
        heard = hear(recordings.exchange(name, place)["body"], size=size)
        wanted = recordings.expected(name, place)
        if wanted["finish"] != "refusal":
            assert heard.text == wanted["text"]
        assert heard.message.text == heard.text
        assert heard.calls == ([] if wanted["open_blocks"] else recordings.arguments_of(wanted))
        assert bool(heard.reasoning) == wanted["thinking"]
        assert heard.finish.raw == wanted["finish"]
        assert heard.usage is not None
        assert [heard.usage.input_tokens, heard.usage.output_tokens] == wanted["usage"]

    def test_with_thinking_are_replayed_as_the_recorded_request_does(self) -> None:
        name = "anthropic/stream_thinking_tool_replay"
        heard = hear(recordings.exchange(name, 0)["body"])
        history = (user("?"), heard.message, results(ToolResult(heard.message.calls[0].id, "fixed_version", "0.32a0")))
        replayed = rendered(*history)
        recorded = recordings.exchange(name, 1)["request"]["messages"]
        assert replayed[1]["content"][0] == recorded[1]["content"][0]
        assert [block["type"] for block in replayed[1]["content"]] == ["thinking", "tool_use"]

    def test_with_parallel_calls_are_answered_in_one_user_message(self) -> None:
        name = "anthropic/stream_parallel_tools"
        heard = hear(recordings.exchange(name, 0)["body"])
        answers = results(*(ToolResult(call.id, call.name, "Pelly") for call in heard.message.calls))
        replayed = render_request(asking(user("?"), heard.message, answers), OFFICIAL)["messages"]
        recorded = recordings.exchange(name, 1)["request"]["messages"]
        assert [message["role"] for message in replayed] == [message["role"] for message in recorded]
        ids = [block["tool_use_id"] for block in replayed[2]["content"]]
        assert ids == [block["tool_use_id"] for block in recorded[2]["content"]]


class TestToolCalls:
    def test_may_come_in_parallel_with_pings_between(self) -> None:
        heard = hear(
            anthropic_start(),
            said("Both."),
            called("", '{"x":', "1}", index=1),
            anthropic_event("ping"),
            called('{"y":2}', index=2, id="toolu_b", name="sub"),
            anthropic_end("tool_use"),
        )
        assert heard.finish.reason == "tool_calls"
        assert heard.calls == [("toolu_a", "add", {"x": 1}), ("toolu_b", "sub", {"y": 2})]
        assert heard.shown_calls["toolu_a"] == ("add", '{"x":1}')

    @pytest.mark.parametrize("pieces", [(), ("",), ("{}",)])
    def test_may_have_no_arguments(self, pieces: tuple[str, ...]) -> None:
        assert hear(anthropic_start(), called(*pieces), anthropic_end("tool_use")).calls == [("toolu_a", "add", {})]

    def test_may_bring_their_input_with_the_start(self) -> None:
        start = opened(0, type="tool_use", id="toolu_a", name="add", input={"x": 1})
        assert hear(anthropic_start(), start, closed(0), anthropic_end("tool_use")).calls == [
            ("toolu_a", "add", {"x": 1})
        ]

    @pytest.mark.parametrize("sent", ["toolu_a", ""])
    def test_get_an_id_that_the_conversation_has_not_used(self, sent: str) -> None:
        earlier = (user("?"), assistant(ToolCall("toolu_a", "add")), results(ToolResult("toolu_a", "add", "1")))
        heard = hear(anthropic_start(), called("{}", id=sent), anthropic_end("tool_use"), request=asking(*earlier))
        (call,) = heard.message.calls
        assert call.id not in ("toolu_a", "")
        assert (call.opaque, call.provider) == ({"provider_id": sent}, "anthropic")
        assert heard.shown_calls[call.id] == ("add", "{}")

    def test_that_are_cut_by_the_token_limit_do_not_run(self) -> None:
        heard = hear(
            anthropic_start(), said("Now:"), called('{"x":', index=1, open_end=True), anthropic_end("max_tokens")
        )
        assert (heard.finish.reason, heard.message.calls, heard.message.text) == ("length", (), "Now:")

    def test_without_their_own_end_do_not_run(self) -> None:
        with pytest.raises(ProviderError, match="inside a tool call") as caught:
            hear(anthropic_start(), called('{"x":1}', open_end=True), anthropic_end("tool_use"))
        assert caught.value.kind == "cut"

    @pytest.mark.parametrize(
        ("word", "reason"),
        [
            ("refusal", "refusal"),
            ("stop_sequence", "stop"),
            ("model_context_window_exceeded", "context_window"),
            ("pause_turn", "pause"),
            ("compaction", "pause"),
            ("something_new", "other"),
        ],
    )
    def test_do_not_run_after_any_other_reason(self, word: str, reason: str) -> None:
        heard = hear(anthropic_start(), said("So:"), called("{}", index=1), anthropic_end(word))
        assert (heard.finish.reason, heard.finish.raw, heard.message.calls) == (reason, word, ())

    def test_do_not_run_when_tools_were_forbidden(self) -> None:
        request = asking(tools=(WEATHER,), tool_choice="none")
        heard = hear(anthropic_start(), said("So:"), called("{}", index=1), anthropic_end("tool_use"), request=request)
        assert (heard.finish.reason, heard.message.calls) == ("stop", ())


class TestTheEnd:
    def test_is_missing_without_message_stop(self) -> None:
        whole = anthropic_start() + said("All of it.") + anthropic_end()
        with pytest.raises(ProviderError) as caught:
            hear(whole.removesuffix(anthropic_event("message_stop")))
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)

    def test_is_missing_when_the_stream_is_empty(self) -> None:
        with pytest.raises(ProviderError, match="message_stop"):
            hear("")

    def test_of_a_refusal_without_text_is_the_explanation(self) -> None:
        body = recordings.exchange("anthropic/stream_refusal")["body"]
        heard = hear(body)
        assert heard.finish.reason == "refusal"
        assert heard.text.startswith("This request triggered restrictions")
        assert heard.message.text == heard.text

    def test_refuses_two_answers_mixed_in_one_stream(self) -> None:
        with pytest.raises(ProviderError, match="msg_1 and msg_2") as caught:
            hear(anthropic_start(), said("A"), anthropic_start("msg_2"), said("B"), anthropic_end())
        assert caught.value.kind == "malformed"

    def test_takes_the_same_start_twice(self) -> None:
        assert hear(anthropic_start(), anthropic_start(), said("Hi"), anthropic_end()).text == "Hi"


class TestUsage:
    def test_of_the_end_replaces_that_of_the_start(self) -> None:
        heard = hear(anthropic_start(), said("Hi"), anthropic_end(input_tokens=61))
        assert heard.usage is not None
        assert (heard.usage.input_tokens, heard.usage.output_tokens) == (61, 20)
        assert sum(isinstance(event, UsageReported) for event in heard.events) == 2

    def test_counts_cached_input_in(self) -> None:
        end = anthropic_end(input_tokens=10, cache_read_input_tokens=5, cache_creation_input_tokens=2)
        heard = hear(anthropic_start(), said("Hi"), end)
        assert heard.usage is not None
        assert heard.usage.input_tokens == 17
        assert (heard.usage.cache_read_tokens, heard.usage.cache_write_tokens) == (5, 2)


class TestThinking:
    def test_keeps_its_signature_and_comes_back_before_the_call(self) -> None:
        heard = hear(
            anthropic_start(),
            opened(0, type="thinking", thinking="", signature=""),
            anthropic_delta(0, "thinking_delta", thinking="Hm"),
            anthropic_delta(0, "thinking_delta", thinking="."),
            anthropic_delta(0, "signature_delta", signature="s1"),
            closed(0),
            opened(1, type="redacted_thinking", data="xyz"),
            closed(1),
            called("{}", index=2),
            anthropic_end("tool_use"),
        )
        assert heard.reasoning == "Hm."
        blocks = rendered(user("Hi"), heard.message)[1]["content"]
        assert blocks[:2] == [SIGNED, {"type": "redacted_thinking", "data": "xyz"}]
        assert blocks[2]["type"] == "tool_use"

    def test_without_a_signature_is_not_sent_back(self) -> None:
        heard = hear(
            anthropic_start(),
            opened(0, type="thinking", thinking="", signature=""),
            anthropic_delta(0, "thinking_delta", thinking="Hm."),
            closed(0),
            said("Hi", index=1),
            anthropic_end(),
        )
        assert heard.reasoning == "Hm."
        unsigned = Reasoning("Hm.", "anthropic", {**SIGNED, "signature": ""})
        assert rendered(user("Hi"), heard.message)[1]["content"] == [text_block("Hi")]
        assert rendered(user("Hi"), assistant(unsigned, "Hi"))[1]["content"] == [text_block("Hi")]

    def test_of_another_provider_is_not_sent(self) -> None:
        foreign = Reasoning("Hm.", "openai", {"reasoning_content": "Hm."})
        assert rendered(user("Hi"), assistant(foreign, "Hi"))[1]["content"] == [text_block("Hi")]

    def test_never_ends_a_turn(self) -> None:
        thought = Reasoning("Hm.", "anthropic", SIGNED)
        assert rendered(user("Hi"), assistant(thought), user("So?"))[0]["content"] == [
            text_block("Hi"),
            text_block("So?"),
        ]


class TestBlocksOfTheProvidersOwn:
    def test_come_back_unchanged_after_a_pause(self) -> None:
        server_use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search"}
        found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "x"}]}
        heard = hear(
            anthropic_start(),
            opened(0, **server_use, input={}),
            anthropic_delta(0, "input_json_delta", partial_json='{"query":"y"}'),
            closed(0),
            opened(1, **found),
            closed(1),
            anthropic_end("pause_turn"),
        )
        assert heard.finish.reason == "pause"
        assert rendered(user("Hi"), heard.message)[1]["content"] == [{**server_use, "input": {"query": "y"}}, found]

    def test_with_unknown_deltas_and_unknown_events_are_passed_over(self) -> None:
        heard = hear(
            anthropic_start(),
            anthropic_event("brand_new", x=1),
            opened(0, type="brand_new"),
            anthropic_delta(0, "brand_new_delta", y=2),
            closed(0),
            said("Hi", index=1),
            anthropic_delta(7, "text_delta", text="lost"),
            anthropic_end(),
        )
        assert heard.text == "Hi"
        assert [type(part).__name__ for part in heard.message.parts] == ["Text"]


class TestErrorsInsideAStream:
    @pytest.mark.parametrize(
        ("type_", "kind"),
        [
            ("overloaded_error", "overloaded"),
            ("api_error", "server"),
            ("rate_limit_error", "rate_limited"),
            ("invalid_request_error", "bad_request"),
            ("brand_new_error", "server"),
        ],
    )
    def test_have_the_kind_of_their_type(self, type_: str, kind: str) -> None:
        error = anthropic_event("error", error={"type": type_, "message": "Overloaded"})
        with pytest.raises(ProviderError, match="Overloaded") as caught:
            hear(anthropic_start(), said("Hi"), error, size=3)
        assert caught.value.kind == kind


class TestTheRequest:
    def test_has_instructions_apart_and_a_token_limit(self) -> None:
        payload = body_of(system("One."), user("Hi"), system("Two."))
        assert payload["system"] == [text_block("One.\n\nTwo.")]
        assert payload["messages"] == [{"role": "user", "content": [text_block("Hi")]}]
        assert payload["max_tokens"] == 16_000
        assert "tools" not in payload
        assert "tool_choice" not in payload

    @pytest.mark.parametrize(
        ("model", "options", "limit"),
        [
            ("claude-3-haiku-20240307", {}, 4096),
            ("claude-3-5-haiku-latest", {}, 8192),
            ("claude-sonnet-5", {"max_tokens": 7}, 7),
            ("claude-sonnet-5", {}, 32_000),
            ("claude-sonnet-4-5", {}, 16_000),
            ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, 18_000),
            ("claude-opus-4-1", {"thinking": {"type": "enabled", "budget_tokens": 20_000}}, 32_000),
        ],
    )
    def test_asks_no_more_tokens_than_the_model_has(self, model: str, options: dict[str, Any], limit: int) -> None:
        assert render_request(asking(model=model, options=options), OFFICIAL)["max_tokens"] == limit

    def test_puts_all_results_of_a_turn_first_in_one_user_message(self) -> None:
        calls = assistant("Both.", ToolCall("a", "add", '{"x": 1}'), ToolCall("b", "sub"))
        answers = results(ToolResult("a", "add", "2"), ToolResult("b", "sub", "broken", error=True))
        messages = rendered(user("Hi"), calls, answers, user("And?"))
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        assert messages[1]["content"][1] == {"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}}
        assert messages[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "a", "content": "2"},
            {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": True},
            text_block("And?"),
        ]

    @pytest.mark.parametrize("raw", ["[1, 2]", '"text"', '{"x": oops', '{"x": 1e999}', '{"x":' * 500 + "1" + "}" * 500])
    def test_replays_arguments_as_an_object_always(self, raw: str) -> None:
        block = rendered(user("Hi"), assistant(ToolCall("a", "add", raw)))[1]["content"][0]
        assert block["input"] == {"invalid_arguments": raw}

    def test_replays_characters_that_cannot_be_sent_as_others(self) -> None:
        block = rendered(user("Hi\ud83d"), assistant(ToolCall("a", "add", '{"x": "\\ud83d"}')))[1]["content"][0]
        assert block["input"] == {"x": "\ufffd"}

    def test_replays_invented_names_and_foreign_ids_as_legal_ones(self) -> None:
        long = "call_1__thought__" + "a+/=" * 3
        messages = rendered(user("Hi"), assistant(ToolCall(long, "do it!")), results(ToolResult(long, "do it!", "")))
        used, answered = messages[1]["content"][0], messages[2]["content"][0]
        assert used["name"] == "do_it_"
        assert used["id"] == answered["tool_use_id"]
        assert used["id"].replace("_", "").isalnum()
        assert answered["content"] == "(no output)"

    def test_merges_neighbours_and_leaves_blank_texts_out(self) -> None:
        messages = rendered(user("One"), assistant(" \n"), user("Two"), assistant("", "Yes"), assistant("No"), user(""))
        assert messages == [
            {"role": "user", "content": [text_block("One"), text_block("Two")]},
            {"role": "assistant", "content": [text_block("Yes"), text_block("No")]},
            {"role": "user", "content": [text_block("(no text)")]},
        ]

    def test_begins_with_the_user(self) -> None:
        assert rendered(assistant("Hi"), user("Yes"))[0] == {"role": "user", "content": [text_block("(no text)")]}
        assert rendered(system("Be."))[0]["role"] == "user"

    def test_does_not_end_a_prefilled_answer_in_blanks(self) -> None:
        assert rendered(user("Hi"), assistant("{ \n"))[1]["content"] == [text_block("{")]

    def test_keeps_the_tools_but_forbids_their_use(self) -> None:
        payload = body_of(tools=(WEATHER,), tool_choice="none")
        assert payload["tool_choice"] == {"type": "none"}
        assert payload["tools"] == [
            {"name": "weather", "description": WEATHER.description, "input_schema": WEATHER.parameters}
        ]

    def test_declares_the_tools_of_a_history_that_has_none_any_more(self) -> None:
        history = (user("Hi"), assistant(ToolCall("a", "gone")), results(ToolResult("a", "gone", "1")))
        payload = render_request(asking(*history), OFFICIAL)
        assert [tool["name"] for tool in payload["tools"]] == ["gone"]
        assert payload["tool_choice"] == {"type": "none"}

    def test_translates_options(self) -> None:
        options = {"stop": ["x"], "temperature": 0.5, "parallel_tool_calls": False}
        payload = body_of(tools=(WEATHER,), tool_choice="required", options=options)
        assert payload["stop_sequences"] == ["x"]
        assert payload["temperature"] == 0.5
        assert payload["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
        assert not {"stop", "parallel_tool_calls"} & payload.keys()


class TestOverHttp:
    def adapter(self, server: WireServer, **changes: Any) -> Anthropic:
        return Anthropic(settings("anthropic", server.base_url("anthropic"), **changes))

    def test_an_answer_comes_through_the_official_client(self) -> None:
        body = anthropic_start() + said("Grüße") + anthropic_end()
        with WireServer.playing(body, piece=1) as server:
            assert Heard(self.adapter(server).stream(asking())).text == "Grüße"
        (seen,) = server.seen
        assert seen.path == "/v1/messages"
        assert KEY in (seen.headers.get("x-api-key", "") + seen.headers.get("authorization", ""))
        assert seen.headers["anthropic-version"]
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.body["stream"] is True

    def test_a_client_of_the_apps_own_is_asked_for_on_each_call(self) -> None:
        with WireServer.playing(anthropic_start() + said("Hi") + anthropic_end()) as server:
            made: list[anthropic.Anthropic] = []

            def make() -> anthropic.Anthropic:
                made.append(anthropic.Anthropic(auth_token=f"token-{len(made)}", base_url=server.url))
                return made[-1]

            adapter = Anthropic(settings("anthropic", client=make))
            assert [Heard(adapter.stream(asking())).text for _ in range(2)] == ["Hi", "Hi"]
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-0", "Bearer token-1"]
        for client in made:
            client.close()

    @pytest.mark.parametrize(
        ("status", "type_", "kind"),
        [
            (400, "invalid_request_error", "bad_request"),
            (401, "authentication_error", "authentication"),
            (402, "billing_error", "permission"),
            (403, "permission_error", "permission"),
            (404, "not_found_error", "not_found"),
            (413, "request_too_large", "context_window"),
            (429, "rate_limit_error", "rate_limited"),
            (500, "api_error", "server"),
            (504, "timeout_error", "timeout"),
            (529, "overloaded_error", "overloaded"),
        ],
    )
    def test_an_error_status_has_its_kind(self, status: int, type_: str, kind: str) -> None:
        body = json.dumps({"type": "error", "error": {"type": type_, "message": "Their words"}})
        with (
            WireServer.playing(Reply(body, status=status, content_type="application/json")) as server,
            pytest.raises(ProviderError, match="Their words") as caught,
        ):
            Heard(self.adapter(server).stream(asking()))
        assert (caught.value.kind, caught.value.status) == (kind, status)
        assert len(server.seen) == 1, "the SDK must not retry"

    def test_a_recorded_prompt_that_is_too_long_is_told_so(self) -> None:
        answer = recordings.exchange("anthropic/error_prompt_too_long")
        reply = Reply(answer["body"], status=answer["status"], content_type=answer["content_type"])
        with WireServer.playing(reply) as server, pytest.raises(ProviderError, match="prompt is too long") as caught:
            Heard(self.adapter(server).stream(asking()))
        assert caught.value.kind == "context_window"

    def test_a_connection_cut_in_mid_stream_is_cut(self) -> None:
        first = anthropic_start() + said("Half")
        with WireServer.playing(Reply(first + anthropic_end(), cut_after=len(first) + 9)) as server:
            stream = self.adapter(server).stream(asking())
            assert TextDelta("Half") in [next(stream), next(stream)]
            with pytest.raises(ProviderError) as caught:
                list(stream)
        assert caught.value.kind == "cut"

    def test_a_silent_server_times_out(self) -> None:
        with (
            WireServer.playing(Reply(anthropic_start(), stall_after=5)) as server,
            pytest.raises(ProviderError) as caught,
        ):
            Heard(self.adapter(server, timeout=0.2).stream(asking()))
        assert caught.value.kind == "timeout"

    def test_closing_the_stream_hangs_up(self) -> None:
        first = anthropic_start() + said("Half")
        with WireServer.playing(Reply(first + anthropic_end(), stall_after=len(first))) as server:
            stream = self.adapter(server).stream(asking())
            assert TextDelta("Half") in [next(stream), next(stream)]
            stream.close()
            assert wait_for(server.seen[0].hung_up.is_set)
