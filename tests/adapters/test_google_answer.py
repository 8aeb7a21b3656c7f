"""Gemini generateContent: what each kind of streamed answer means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flask_instruct.adapters.google_answer import parse_payloads
from flask_instruct.adapters.google_answer import read_payloads
from flask_instruct.errors import ProviderError
from flask_instruct.events import ReasoningDelta
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallDelta
from flask_instruct.events import Usage
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings

from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import cut_in
from .hearing import results
from .hearing import user

SIZES = [1, 7, 65536]


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One response object; ``parts`` alone or with the finish reason."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [{**candidate, "finishReason": finish} if finish else candidate], **fields}


def call(name: str | None = "add", signature: str = "", **fields: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, **fields} if name else fields}
    return {**part, "thoughtSignature": signature} if signature else part


def sse(*chunks: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(item, ensure_ascii=False)}\r\n\r\n" for item in chunks)


def hear(*chunks: dict[str, Any], request: ModelRequest | None = None) -> Heard:
    return read(sse(*chunks), request=request)


def read(body: str, size: int = 4096, request: ModelRequest | None = None) -> Heard:
    return Heard(parse_payloads(read_payloads(cut_in(body, size)), request or asking()))


def as_array(body: str) -> str:
    """The same answer as a server sends it without ``alt=sse``."""
    return json.dumps([dict(payload) for payload in read_payloads([body.encode()])], indent=2, ensure_ascii=False)


def as_events(body: str) -> str:
    return sse(*(dict(payload) for payload in read_payloads([body.encode()])))


class TestRecordedAnswers:
    @pytest.mark.parametrize(("name", "place"), recordings.answered("gemini"))
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("form", [str, as_array, as_events])
    def test_mean_the_same_in_each_form_and_however_the_network_cuts_them(
        self, name: str, place: int, size: int, form: Any
    ) -> None:
        heard = read(form(recordings.exchange(name, place)["body"]), size)
        wanted = recordings.expected(name, place)
        assert heard.text == heard.message.text == wanted["text"]
        assert [(name, arguments) for _, name, arguments in heard.calls] == [
            (item["name"], item["arguments"]) for item in wanted["calls"]
        ]
        assert bool(heard.reasoning) == wanted["thinking"]
        assert heard.finish.raw == wanted["finish"]
        assert heard.usage is not None
        assert [heard.usage.input_tokens, heard.usage.output_tokens or 0] == wanted["usage"]
        signed = [part for part in heard.message.parts if "thoughtSignature" in (getattr(part, "opaque", None) or {})]
        assert len(signed) == wanted["signatures"]

    @pytest.mark.parametrize(("name", "place"), recordings.answered("gemini"))
    def test_are_never_a_success_when_cut_after_any_event(self, name: str, place: int) -> None:
        chunks = [dict(payload) for payload in read_payloads([recordings.exchange(name, place)["body"].encode()])]
        for kept in range(len(chunks)):
            with pytest.raises(ProviderError) as caught:
                hear(*chunks[:kept])
            assert caught.value.kind == "cut"

    @pytest.mark.parametrize("name", ["gemini/stream_tools_json_array", "gemini/stream_gemini3_signatures"])
    def test_are_never_a_success_when_their_array_is_cut_anywhere(self, name: str) -> None:
        body = recordings.exchange(name)["body"].rstrip()
        for length in range(0, len(body), 37):
            with pytest.raises(ProviderError) as caught:
                read(body[:length])
            assert caught.value.kind == "cut"


class TestToolCalls:
    def test_may_come_several_in_a_part_list_and_over_chunks(self) -> None:
        heard = hear(chunk(call(args={"x": 1}, id="a"), call("sub", id="b")), chunk(call("mul"), finish="STOP"))
        assert heard.finish.reason == "tool_calls"
        assert [(name, arguments) for _, name, arguments in heard.calls] == [
            ("add", {"x": 1}),
            ("sub", {}),
            ("mul", {}),
        ]
        assert [item.id for item in heard.message.calls][:2] == ["a", "b"]
        assert list(heard.shown_calls.values()) == [("add", '{"x": 1}'), ("sub", "{}"), ("mul", "{}")]

    def test_with_only_a_name_run_with_no_arguments_and_keep_their_signature(self) -> None:
        """vercel/ai#14968"""
        (made,) = hear(chunk(call(signature="s1"), finish="STOP")).message.calls
        assert (made.raw, made.opaque, made.provider) == ("{}", {"thoughtSignature": "s1"}, "google")

    def test_come_before_a_finish_in_an_empty_text(self) -> None:
        heard = hear(chunk(call(args={})), chunk({"text": ""}, finish="STOP"))
        assert [type(part) for part in heard.message.parts] == [ToolCall]

    def test_with_two_equal_ids_get_one_of_their_own(self) -> None:
        first, second = hear(chunk(call(id="a"), call("sub", id="a"), finish="STOP")).message.calls
        assert first.id == "a"
        assert second.id not in ("", "a")
        assert second.opaque == {"provider_id": "a"}

    @pytest.mark.parametrize("sent", [{}, {"id": ""}, {"id": "used"}])
    def test_get_an_id_that_the_conversation_has_not_used(self, sent: dict[str, str]) -> None:
        earlier = (user("?"), assistant(ToolCall("used", "add")), results(ToolResult("used", "add", "1")))
        (made,) = hear(chunk(call(**sent), finish="STOP"), request=asking(*earlier)).message.calls
        assert made.id not in ("", "used")
        assert (made.opaque or {}).get("provider_id") == (sent.get("id") or None)

    def test_bear_the_names_of_our_tools_again(self) -> None:
        tool = ToolSpec("über.tool", "", {"type": "object"})
        heard = hear(chunk(call("_ber_tool"), finish="STOP"), request=asking(tools=(tool,)))
        assert heard.calls[0][1] == "über.tool"

    def test_are_not_run_where_they_were_forbidden(self) -> None:
        request = asking(tools=(WEATHER,), tool_choice="none")
        heard = hear(chunk({"text": "So:"}, call(), finish="STOP"), request=request)
        assert (heard.finish.reason, heard.message.calls, heard.text) == ("stop", (), "So:")

    @pytest.mark.parametrize(
        ("word", "reason"),
        [
            ("MAX_TOKENS", "length"),
            ("CONTINUATION", "length"),
            ("SAFETY", "content_filter"),
            ("RECITATION", "content_filter"),
            ("BLOCKLIST", "content_filter"),
            ("PROHIBITED_CONTENT", "content_filter"),
            ("SPII", "content_filter"),
            ("MODEL_ARMOR", "content_filter"),
            ("IMAGE_SAFETY", "content_filter"),
            ("MALFORMED_FUNCTION_CALL", "malformed"),
            ("UNEXPECTED_TOOL_CALL", "malformed"),
            ("MALFORMED_RESPONSE", "malformed"),
            ("TOO_MANY_TOOL_CALLS", "error"),
            ("LANGUAGE", "other"),
            ("OTHER", "other"),
            ("BRAND_NEW", "other"),
        ],
    )
    def test_are_dropped_however_whole_they_look_unless_the_answer_just_stopped(self, word: str, reason: str) -> None:
        heard = hear(chunk({"text": "Now:"}), chunk(call(args={"x": 1}, id="a"), finish=word))
        assert (heard.finish.reason, heard.finish.raw) == (reason, word)
        assert heard.message == assistant("Now:")

    def test_that_were_malformed_leave_a_turn_without_content(self) -> None:
        """pydantic-ai#3300"""
        body = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(default_api.x)"}]}
        heard = hear(body)
        assert (heard.finish.reason, heard.message.parts) == ("malformed", ())


class TestArgumentsInPieces:
    def piece(self, *partial: dict[str, Any], more: bool = True) -> dict[str, Any]:
        return chunk(call(None, partialArgs=list(partial), **({"willContinue": True} if more else {})))

    def test_grow_by_path(self) -> None:
        heard = hear(
            chunk(call("book", id="a", willContinue=True, signature="s1")),
            self.piece({"jsonPath": "$.city", "stringValue": "Bos", "willContinue": True}),
            self.piece({"jsonPath": "$.city", "stringValue": "ton"}, {"jsonPath": "$.nights", "numberValue": 3.0}),
            self.piece({"jsonPath": "$.rooms[0].size", "numberValue": 2.5}, {"jsonPath": "$.vip", "boolValue": False}),
            self.piece({"jsonPath": "$.rooms[1]['the view']", "nullValue": "NULL_VALUE"}),
            self.piece({"jsonPath": '$["city"]', "stringValue": "Boston!"}),
            chunk(call(None)),
            chunk(finish="STOP"),
        )
        wanted = {"city": "Boston!", "nights": 3, "rooms": [{"size": 2.5}, {"the view": None}], "vip": False}
        assert heard.calls == [("a", "book", wanted)]
        assert heard.message.calls[0].opaque == {"provider_id": "a", "thoughtSignature": "s1"}
        shown = [event for event in heard.events if isinstance(event, ToolCallDelta)]
        assert [(event.name, bool(event.arguments)) for event in shown] == [("book", False), ("book", True)]

    def test_may_end_with_their_last_piece(self) -> None:
        last = self.piece({"jsonPath": "$.x", "numberValue": 1}, more=False)
        assert hear(chunk(call(willContinue=True)), last, chunk(finish="STOP")).calls[0][2] == {"x": 1}

    def test_without_a_closing_piece_are_a_cut_stream(self) -> None:
        grown = self.piece({"jsonPath": "$.x", "stringValue": "whole?"})
        with pytest.raises(ProviderError) as caught:
            hear(chunk(call(willContinue=True)), grown, chunk(finish="STOP"))
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)

    def test_without_a_closing_piece_do_not_hide_why_the_answer_ended(self) -> None:
        heard = hear(chunk(call(willContinue=True), finish="MAX_TOKENS"))
        assert (heard.finish.reason, heard.message.parts) == ("length", ())

    @pytest.mark.parametrize("path", ["", "$", "$..x", "$.x[", "$[99999999999]", "$.a.b", "$.a[0]", "$[0]"])
    def test_with_a_path_that_leads_nowhere_are_refused(self, path: str) -> None:
        with pytest.raises(ProviderError) as caught:
            hear(
                chunk(call(args={"a": "text"}, willContinue=True)),
                self.piece({"jsonPath": path, "stringValue": "x"}),
            )
        assert caught.value.kind == "malformed"

    def test_that_belong_to_no_call_are_passed_over(self) -> None:
        assert hear(chunk(call(None)), chunk({"text": "Hi"}, finish="STOP")).message == assistant("Hi")


class TestSignatures:
    def test_stay_on_the_very_part_they_came_on(self) -> None:
        heard = hear(
            chunk({"text": "Hm", "thought": True}),
            chunk({"text": ".", "thought": True}),
            chunk({"text": "So", "thought": True, "thoughtSignature": "s0"}),
            chunk({"text": "Hel"}),
            chunk({"text": "lo"}),
            chunk({"text": "!", "thoughtSignature": "s1"}),
            chunk({"text": "More"}),
            chunk({"text": "", "thoughtSignature": "s2"}, finish="STOP"),
        )
        assert heard.message.parts == (
            Reasoning("Hm.", "google"),
            Reasoning("So", "google", {"text": "So", "thought": True, "thoughtSignature": "s0"}),
            Text("Hello"),
            Text("!", "google", {"thoughtSignature": "s1"}),
            Text("More"),
            Text("", "google", {"thoughtSignature": "s2"}),
        )
        assert (heard.text, heard.reasoning) == ("Hello!More", "Hm.So")

    def test_bear_the_name_of_the_provider_that_gave_them(self) -> None:
        events = parse_payloads([chunk({"text": "Hi", "thoughtSignature": "s"}, finish="STOP")], asking(), "vertex")
        assert Heard(events).message.parts == (Text("Hi", "vertex", {"thoughtSignature": "s"}),)

    def test_of_a_part_of_the_servers_own_are_kept_with_it(self) -> None:
        code = {"executableCode": {"language": "PYTHON", "code": "1 + 1"}, "thoughtSignature": "s"}
        heard = hear(chunk(code), chunk({"text": "2"}, finish="STOP"))
        assert heard.message.parts == (Reasoning("", "google", code), Text("2"))


class TestTheEnd:
    def test_is_missing_without_a_finish_reason(self) -> None:
        for word in (None, "FINISH_REASON_UNSPECIFIED"):
            with pytest.raises(ProviderError, match="finishReason") as caught:
                hear(chunk({"text": "All of it."}, finish=word))
            assert (caught.value.kind, caught.value.retryable) == ("cut", True)

    @pytest.mark.parametrize("body", ["", "\r\n", "[]", ": nothing\n\n"])
    def test_is_missing_when_the_stream_is_empty(self, body: str) -> None:
        with pytest.raises(ProviderError) as caught:
            read(body)
        assert caught.value.kind == "cut"

    @pytest.mark.parametrize("word", ["SAFETY", "OTHER", "JAILBREAK", "MODEL_ARMOR"])
    def test_of_a_blocked_prompt_is_a_filter(self, word: str) -> None:
        """pydantic-ai#4315"""
        heard = hear({"promptFeedback": {"blockReason": word}, "usageMetadata": {"promptTokenCount": 4}})
        assert (heard.finish.reason, heard.finish.raw, heard.message.parts) == ("content_filter", word, ())
        assert heard.usage == Usage(input_tokens=4)

    @pytest.mark.parametrize("content", [None, {}, {"role": "model"}, {"parts": None}, {"parts": [{}, {"text": ""}]}])
    def test_may_come_without_any_content(self, content: Any) -> None:
        heard = hear({"candidates": [{"content": content, "finishReason": "STOP"}]})
        assert (heard.finish.reason, heard.message.parts) == ("stop", ())

    def test_that_is_said_again_with_each_chunk_counts_as_last_said(self) -> None:
        heard = hear(chunk({"text": "A"}, finish="STOP"), chunk({"text": "B"}, finish="SAFETY"))
        assert heard.finish.reason == "content_filter"

    def test_of_another_candidate_is_not_ours(self) -> None:
        other = {"index": 1, "content": {"parts": [{"text": "Other"}]}, "finishReason": "SAFETY"}
        assert hear(chunk({"text": "A"}, finish="STOP"), {"candidates": [other]}).text == "A"


class TestTheStream:
    @pytest.mark.parametrize("form", [str, as_array])
    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_may_be_cut_inside_a_character(self, form: Any, size: int) -> None:
        body = form(sse(chunk({"text": "Grüße \u2028 🦜"}), chunk({"text": " «}]»"}, finish="STOP")))
        assert read(body, size).text == "Grüße \u2028 🦜 «}]»"

    def test_gives_each_piece_as_it_comes(self) -> None:
        body = as_array(sse(chunk({"text": "Hm", "thought": True}), chunk({"text": "Hi"}), chunk(finish="STOP")))
        half = body.index('"Hi"') + 40
        chunks = iter([body[:half].encode(), body[half:].encode()])
        events = parse_payloads(read_payloads(chunks), asking())
        assert next(events) == ReasoningDelta("Hm")
        assert next(events) == TextDelta("Hi")

    def test_may_end_as_openai_streams_do(self) -> None:
        assert read(sse(chunk({"text": "Hi"}, finish="STOP")) + "data: [DONE]\n\n").text == "Hi"

    @pytest.mark.parametrize("form", ["event", "array", "bare"])
    def test_shows_an_error_before_any_content(self, form: str) -> None:
        error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
        body = {
            "event": sse(chunk({"text": "Half"}), {**chunk({"text": "never"}), **error}),
            "array": json.dumps([chunk({"text": "Half"}), error]),
            "bare": json.dumps(error),
        }[form]
        seen: list[object] = []
        with pytest.raises(ProviderError, match="overloaded") as caught:
            seen.extend(parse_payloads(read_payloads(cut_in(body, 3)), asking()))
        assert caught.value.kind == "overloaded"

    @pytest.mark.parametrize("body", ["data: {oops\n\n", "data: [1]\n\n", "{oops}"])
    def test_that_is_no_json_is_malformed(self, body: str) -> None:
        with pytest.raises(ProviderError) as caught:
            read(body)
        assert caught.value.kind == "malformed"

    @pytest.mark.parametrize("part", [{"functionCall": 1}, {"text": None}, {"functionCall": {"name": 3}}, {"text": 4}])
    def test_survives_values_of_other_types(self, part: dict[str, Any]) -> None:
        heard = hear(chunk(part), chunk({"text": "Hi"}, finish="STOP"), {"candidates": None, "usageMetadata": [1]})
        assert heard.text == "Hi"
        assert heard.message.calls == ()


class TestUsage:
    def test_counts_thoughts_in_and_is_that_of_the_last_chunk(self) -> None:
        heard = hear(
            chunk(
                {"text": "A"}, usageMetadata={"promptTokenCount": 9, "candidatesTokenCount": 1, "thoughtsTokenCount": 5}
            ),
            chunk(
                {"text": "B"},
                finish="STOP",
                usageMetadata={"candidatesTokenCount": 4, "cachedContentTokenCount": 7, "thoughtsTokenCount": None},
            ),
        )
        assert heard.usage == Usage(input_tokens=9, output_tokens=9, cache_read_tokens=7, reasoning_tokens=5)

    def test_counts_in_what_the_servers_own_tools_read(self) -> None:
        heard = hear(chunk(finish="STOP", usageMetadata={"promptTokenCount": 9, "toolUsePromptTokenCount": 20}))
        assert heard.usage == Usage(input_tokens=29)
