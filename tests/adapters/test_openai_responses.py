"""OpenAI Responses: what each kind of streamed answer means."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.openai_responses_answer import parse_events
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.events import TextDelta
from flask_instruct.events import Usage
from flask_instruct.events import UsageReported
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolSpec
from tests import recordings
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import WireServer

from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import cut_in
from .hearing import settings
from .hearing import user
from .responses_wire import answer
from .responses_wire import call_item
from .responses_wire import ended
from .responses_wire import event
from .responses_wire import reasoning_item
from .responses_wire import streamed_item
from .responses_wire import streamed_response
from .responses_wire import text_item

ANYTHING = {"type": "object", "properties": {}}
TOOLS = (WEATHER, ToolSpec("cityAttractions", "", ANYTHING))


def hear(body: str, request: ModelRequest | None = None, size: int = 65536) -> Heard:
    return Heard(parse_events(read_events(cut_in(body, size)), request or asking(tools=TOOLS)))


def failure_of(body: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        hear(body)
    return caught.value


def recorded_body(name: str, place: int) -> str:
    body: str = recordings.exchange(name, place)["body"]
    return streamed_response(json.loads(body)) if body.lstrip().startswith("{") else body


class TestRecordedAnswers:
    @pytest.mark.parametrize(("name", "place"), recordings.answered("openai-responses"))
    @pytest.mark.parametrize("size", [1, 7, 65536])
    def test_mean_the_same_however_the_network_cuts_them(self, name: str, place: int, size: int) -> None:
        wanted = recordings.expected(name, place)
        heard = hear(recorded_body(name, place), asking(), size)
        assert heard.text == (wanted["text"] or wanted["refusal"])
        assert heard.message.text == heard.text
        assert heard.calls == recordings.arguments_of(wanted)
        assert {call: json.loads(raw) for call, (_, raw) in heard.shown_calls.items()} == {
            call: arguments for call, _, arguments in heard.calls
        }
        assert any(isinstance(part, Reasoning) for part in heard.message.parts) == wanted["thinking"]
        assert heard.finish.raw == wanted["finish"]
        assert heard.usage is not None
        assert [heard.usage.input_tokens, heard.usage.output_tokens] == wanted["usage"]

    @pytest.mark.parametrize(("name", "place"), recordings.answered("openai-responses"))
    def test_cut_after_any_event_are_no_answers(self, name: str, place: int) -> None:
        events = recorded_body(name, place).strip().split("\n\n")
        for count in range(len(events)):
            assert failure_of("\n\n".join(events[:count]) + "\n\n").kind == "cut"

    def test_show_the_summary_of_the_reasoning(self) -> None:
        heard = hear(recorded_body("openai-responses/error_reasoning_without_following_item", 0))
        assert heard.reasoning.startswith("**Considering perspectives on meaning**")
        assert heard.message.parts[0] == Reasoning(heard.reasoning, "openai", heard.message.parts[0].opaque)  # type: ignore[union-attr]

    def test_keep_the_encrypted_reasoning_of_the_finished_item(self) -> None:
        """simonw/llm 0.32: the encrypted text differs between the events of one item."""
        heard = hear(recorded_body("openai-responses/stream_reasoning_and_tool", 0))
        reasoning = heard.message.parts[0]
        assert isinstance(reasoning, Reasoning)
        assert reasoning.opaque is not None
        assert len(reasoning.opaque["encrypted_content"]) == 3896


class TestItems:
    def test_are_found_by_their_place_when_their_id_differs_in_each_event(self) -> None:
        """vercel/ai's fixture of GitHub Copilot."""
        first, second = call_item("call_a", id="fc_3"), call_item("call_b", arguments='{"city": "Rome"}', id="fc_9")
        body = "".join(
            event("response.output_item.added", output_index=place, item={**item, "id": f"x{place}", "arguments": ""})
            + event("response.function_call_arguments.delta", output_index=place, item_id="y", delta=item["arguments"])
            + event("response.output_item.done", output_index=place, item=item)
            for place, item in enumerate((first, second))
        )
        heard = hear(body + ended())
        assert heard.calls == [("call_a", "weather", {"city": "Paris"}), ("call_b", "weather", {"city": "Rome"})]
        assert heard.shown_calls["call_b"] == ("weather", '{"city": "Rome"}')

    def test_that_share_one_place_are_told_apart(self) -> None:
        items = [call_item("call_a"), call_item("call_b", arguments="{}"), text_item("Looking.")]
        one_after_another = "".join("".join(streamed_item(item)) for item in items)
        opened, grown, more, closed = (list(parts) for parts in zip(*map(streamed_item, items[:2]), strict=True))
        at_once = "".join([*opened, *grown, *more, *reversed(closed)])
        for body in (one_after_another, at_once):
            calls = [("call_a", "weather", {"city": "Paris"}), ("call_b", "weather", {})]
            assert hear(body + ended()).calls == calls
        assert hear(one_after_another + ended()).message.text == "Looking."

    def test_that_come_whole_are_shown(self) -> None:
        items = [reasoning_item("s", "Hm."), text_item("Hi."), call_item("call_a")]
        body = "".join(
            event("response.output_item.done", output_index=place, item=item) for place, item in enumerate(items)
        )
        heard = hear(body + ended())
        assert (heard.reasoning, heard.text) == ("Hm.", "Hi.")
        assert heard.shown_calls == {"call_a": ("weather", '{"city": "Paris"}')}

    def test_of_a_server_that_streams_only_the_end_are_read_from_it(self) -> None:
        heard = hear(ended(output=[text_item("Hi."), call_item("call_a")]))
        assert heard.text == heard.message.text == "Hi."
        assert [call[0] for call in heard.calls] == ["call_a"]

    def test_of_unknown_kinds_are_left_out_with_the_reasoning_that_led_to_them(self) -> None:
        search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
        kinds = event("response.output_item.done", output_index=1, item=search) + event("response.news", delta="?")
        body = "".join(streamed_item(reasoning_item())) + kinds + "".join(streamed_item(text_item("Found."), 2))
        assert hear(body + ended()).message.parts == (Text("Found.", "openai"),)

    def test_messages_are_kept_apart_by_a_blank_line(self) -> None:
        heard = hear(answer(text_item("One."), text_item("Two.")))
        assert heard.text == heard.message.text == "One.\n\nTwo."

    def test_paragraphs_of_a_summary_are_kept_apart_by_a_blank_line(self) -> None:
        heard = hear(answer(reasoning_item("s", "One.", "Two."), text_item("Hi.")))
        assert heard.reasoning == "One.\n\nTwo."
        assert heard.message.parts[0] == Reasoning("One.\n\nTwo.", "openai", reasoning_item("s", "One.", "Two."))

    def test_open_reasoning_is_shown_and_kept(self) -> None:
        item = {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        }
        body = event("response.output_item.added", output_index=0, item={**item, "content": []})
        body += event("response.reasoning_text.delta", output_index=0, content_index=0, delta="Hm.")
        body += event("response.output_item.done", output_index=0, item=item)
        heard = hear(body + "".join(streamed_item(text_item("Hi."), 1)) + ended())
        assert heard.reasoning == "Hm."
        assert heard.message.parts == (Reasoning("Hm.", "openai", item), Text("Hi.", "openai"))


class TestPhases:
    def test_beside_a_final_answer_commentary_is_shown_but_no_part_of_the_text(self) -> None:
        heard = hear(answer(text_item("I look.", "commentary"), text_item('{"ok": true}', "final_answer")))
        assert heard.text == 'I look.\n\n{"ok": true}'
        assert heard.message.text == '{"ok": true}'
        assert heard.message.parts == (
            Reasoning("I look.", "openai", {"type": "message", "phase": "commentary"}),
            Text('{"ok": true}', "openai", {"phase": "final_answer"}),
        )

    def test_before_calls_commentary_is_the_text_of_the_turn(self) -> None:
        heard = hear(answer(text_item("I look.", "commentary"), call_item("call_a")))
        assert heard.message.parts[0] == Text("I look.", "openai", {"phase": "commentary"})
        assert heard.finish.reason == "tool_calls"

    def test_commentary_alone_is_better_than_nothing(self) -> None:
        assert hear(answer(text_item("I look.", "commentary"))).message.text == "I look."


class TestCalls:
    def test_with_an_id_that_was_used_before_get_another(self) -> None:
        before = assistant(ToolCall("call_0", "weather"))
        heard = hear(answer(call_item("call_0"), call_item("call_0"), call_item("")), asking(user("?"), before))
        ids = [call.id for call in heard.message.calls]
        assert len({*ids, "call_0"}) == 4
        assert [(call.opaque or {})["provider_id"] for call in heard.message.calls] == ["call_0", "call_0", ""]
        assert set(heard.shown_calls) == set(ids)

    @pytest.mark.parametrize(("arguments", "raw"), [("", "{}"), (None, "{}"), ({"city": "Rome"}, '{"city": "Rome"}')])
    def test_keep_their_arguments_as_text(self, arguments: Any, raw: str) -> None:
        item = event("response.output_item.done", output_index=0, item=call_item("call_a", arguments=arguments))
        assert hear(item + ended()).message.calls[0].raw == raw

    def test_get_our_name_back(self) -> None:
        request = asking(tools=(ToolSpec("shop.find", "", ANYTHING),))
        heard = hear(answer(call_item("call_a", "shop_find")), request)
        assert heard.message.calls[0].name == "shop.find"
        assert heard.shown_calls["call_a"][0] == "shop.find"

    def test_are_dropped_with_their_reasoning_where_none_was_allowed(self) -> None:
        body = answer(text_item("Hi."), reasoning_item(), call_item("call_a"))
        heard = hear(body, asking(tools=TOOLS, tool_choice="none"))
        assert heard.finish.reason == "stop"
        assert heard.message.parts == (Text("Hi.", "openai"),)

    def test_that_were_never_done_make_a_completed_answer_a_cut_one(self) -> None:
        opened = next(streamed_item(call_item("call_a")))
        assert failure_of(opened + ended()).kind == "cut"

    def test_that_are_incomplete_never_run(self) -> None:
        heard = hear(answer(call_item("call_a", status="incomplete")))
        assert (heard.finish.reason, heard.message.calls) == ("malformed", ())


class TestTheParallelWrapper:
    """gpt-5.4 may hand in several calls as one named ``parallel``: vercel/ai#19098."""

    USES = (
        {"recipient_name": "functions.weather", "parameters": {"location": "San Francisco"}},
        {"recipient_name": "functions.cityAttractions", "parameters": {"city": "Rome"}},
    )
    BODY = answer(call_item("call_parallel", "parallel", json.dumps({"tool_uses": USES})))

    @pytest.mark.parametrize("recorded", [True, False])
    def test_is_unpacked_into_calls_with_ids_of_their_own(self, recorded: bool) -> None:
        heard = hear(recorded_body("openai-responses/parallel_wrapper_call", 0) if recorded else self.BODY)
        assert [(name, arguments) for _, name, arguments in heard.calls] == [
            ("weather", {"location": "San Francisco"}),
            ("cityAttractions", {"city": "Rome"}),
        ]
        assert len({call.id for call in heard.message.calls}) == 2
        assert [(call.opaque or {})["provider_id"] for call in heard.message.calls] == ["call_parallel"] * 2
        assert [name for name, _ in heard.shown_calls.values()] == ["weather", "cityAttractions"]

    def test_is_a_call_like_any_other_when_a_tool_has_its_name(self) -> None:
        tools = (*TOOLS, ToolSpec("parallel", "", ANYTHING))
        heard = hear(self.BODY, asking(tools=tools))
        assert [call[:2] for call in heard.calls] == [("call_parallel", "parallel")]

    @pytest.mark.parametrize(
        "uses",
        [
            [],
            "none",
            [{"recipient_name": "functions.weather", "parameters": {}}, {"recipient_name": "functions.sell"}],
            [{"recipient_name": "weather", "parameters": {}}],
            [{"recipient_name": "functions.weather", "parameters": "Paris"}],
        ],
    )
    def test_stays_as_it_is_unless_all_that_it_holds_is_declared(self, uses: Any) -> None:
        heard = hear(answer(call_item("call_p", "parallel", json.dumps({"tool_uses": uses}))))
        assert [call[:2] for call in heard.calls] == [("call_p", "parallel")]
        assert heard.shown_calls["call_p"][0] == "parallel"


class TestTheEnd:
    @pytest.mark.parametrize(
        ("end", "reason", "raw"),
        [
            (ended("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length", "max_output_tokens"),
            (ended("incomplete", incomplete_details={"reason": "content_filter"}), "content_filter", "content_filter"),
            (ended("incomplete", incomplete_details={"reason": "max_messages"}), "other", "max_messages"),
            (ended("incomplete", incomplete_details={"reason": "steered"}), "other", "steered"),
        ],
    )
    def test_of_an_incomplete_answer_keeps_the_text_and_runs_nothing(self, end: str, reason: str, raw: str) -> None:
        """openai/openai-agents-python#4516: a call that looks complete may still be cut."""
        heard = hear(answer(text_item("Hi."), reasoning_item(), call_item("call_a"), end=end))
        assert (heard.finish.reason, heard.finish.raw) == (reason, f"incomplete:{raw}")
        assert heard.message.parts == (Text("Hi.", "openai"),)

    def test_of_an_incomplete_answer_keeps_what_was_shown_of_an_open_message(self) -> None:
        shown = "".join(list(streamed_item(text_item("Half a tale")))[:2])
        assert hear(shown + ended("incomplete")).message.text == "Half "

    def test_of_an_unknown_kind_is_told_and_runs_nothing(self) -> None:
        heard = hear(answer(call_item("call_a"), end=event("response.completed", response={"status": "expired"})))
        assert (heard.finish.reason, heard.finish.raw, heard.message.calls) == ("other", "expired", ())

    def test_without_a_status_is_what_its_event_says(self) -> None:
        assert hear(answer(text_item("Hi."), end=event("response.completed"))).finish.reason == "stop"

    @pytest.mark.parametrize("status", ["cancelled", "queued", "in_progress"])
    def test_of_a_response_that_cannot_have_ended_is_an_error(self, status: str) -> None:
        end = event("response.completed", response={"status": status})
        assert failure_of(answer(text_item("Hi."), end=end)).kind == "cut"
        assert failure_of(answer(text_item("Hi."), end=event("response.cancelled", response={}))).kind == "cut"

    def test_by_done_alone_is_a_cut(self) -> None:
        assert failure_of(answer(text_item("Hi."), end="data: [DONE]\n\n")).kind == "cut"

    def test_of_a_refusal_shows_it_and_runs_nothing(self) -> None:
        item = text_item("", content=[{"type": "refusal", "refusal": "I can't."}])
        heard = hear(answer(item, call_item("call_a")))
        assert (heard.text, heard.message.text, heard.finish.reason) == ("I can't.", "I can't.", "refusal")
        assert heard.message.calls == ()

    def test_reports_the_usage_of_the_last_event_only(self) -> None:
        begun = event("response.in_progress", response={"usage": {"input_tokens": 999}})
        heard = hear(begun + answer(text_item("Hi.")))
        assert heard.usage == Usage(10, 5, 4, 2, 3)
        assert sum(isinstance(event, UsageReported) for event in heard.events) == 1


class TestErrorsInTheStream:
    @pytest.mark.parametrize(
        "error",
        [
            event("error", code="server_error", message="Oops", param=None, sequence_number=3),
            event("error", error={"type": "server_error", "code": "server_error", "message": "Oops"}),
            'data: {"type": "error", "code": "server_error", "message": "Oops"}\n\n',
            event(
                "response.failed", response={"status": "failed", "error": {"code": "server_error", "message": "Oops"}}
            ),
            event("response.completed", response={"status": "completed", "error": {"message": "Oops"}}),
        ],
    )
    def test_are_errors_in_each_shape_wherever_they_come(self, error: str) -> None:
        """vercel/ai#15922."""
        for body in (error, "".join(streamed_item(call_item("call_a"))) + error + ended()):
            found = failure_of(body)
            assert found.kind == "server"
            assert "Oops" in found.technical

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("rate_limit_exceeded", "rate_limited"),
            ("invalid_prompt", "bad_request"),
            ("image_content_policy_violation", "bad_request"),
            ("context_length_exceeded", "context_window"),
            ("something_new", "server"),
        ],
    )
    @pytest.mark.parametrize("named", [True, False])
    def test_have_the_kind_of_their_code(self, code: str, kind: str, named: bool) -> None:
        error = {"code": code, "message": "No."}
        body = event("error", **error) if named else event("response.failed", response={"error": error})
        assert failure_of(body).kind == kind

    def test_a_failure_without_a_word_is_one(self) -> None:
        assert "does not say why" in failure_of(event("response.failed", response={"status": "failed"})).technical

    def test_a_failure_is_paid_for(self) -> None:
        stream = parse_events(read_events([ended("failed").encode()]), asking())
        assert next(stream) == UsageReported(Usage(10, 5, 4, 2, 3))
        with pytest.raises(ProviderError):
            next(stream)

    def test_what_is_no_event_is_malformed(self) -> None:
        assert failure_of("data: oops\n\n").kind == "malformed"


class TestOverTheWire:
    def ask(self, server: WireServer, **changes: Any) -> Generator[Any, None, None]:
        adapter = OpenAIResponses(settings("openai", server.base_url("openai"), **changes))
        return adapter.stream(asking(model="gpt-5.4"))

    @pytest.mark.parametrize(
        ("name", "place", "kind", "word"),
        [
            ("error_context_length", 0, "context_window", "context_length_exceeded"),
            ("error_reasoning_without_following_item", 1, "bad_request", "required following item"),
            ("deepseek_rejects_interleaved_calls", 0, "bad_request", "No tool output found"),
        ],
    )
    def test_a_recorded_refusal_has_its_kind(self, name: str, place: int, kind: str, word: str) -> None:
        recorded = recordings.exchange(f"openai-responses/{name}", place)
        reply = Reply(recorded["body"], status=recorded["status"], content_type="application/json")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError, match=word) as caught:
            Heard(self.ask(server))
        assert (caught.value.kind, caught.value.status) == (kind, 400)
        assert len(server.seen) == 1, "the SDK must not retry"

    def test_a_recorded_answer_comes_through_whole(self) -> None:
        body = recordings.exchange("openai-responses/stream_tool_then_answer", 1)["body"]
        with WireServer.playing(body, piece=5) as server:
            heard = Heard(self.ask(server))
        assert heard.message.text == "1231 × 2331 = **2,869,461**"
        assert server.seen[0].path == "/v1/responses"
        assert server.bodies[0]["store"] is False

    def test_closing_the_stream_hangs_up(self) -> None:
        first = "".join(list(streamed_item(text_item("Hi.")))[:2])
        with WireServer.playing(Reply(first + ended(), stall_after=len(first))) as server:
            stream = self.ask(server)
            assert next(stream) == TextDelta("H")
            stream.close()
            assert wait_for(server.seen[0].hung_up.is_set)

    def test_a_silent_server_times_out(self) -> None:
        with WireServer.playing(Reply(ended(), stall_after=0)) as server, pytest.raises(ProviderError) as caught:
            Heard(self.ask(server, timeout=0.2))
        assert caught.value.kind == "timeout"

    def test_a_connection_cut_in_mid_stream_is_cut(self) -> None:
        body = answer(text_item("Hi."))
        with (
            WireServer.playing(Reply(body, cut_after=len(body) - 20)) as server,
            pytest.raises(ProviderError) as caught,
        ):
            Heard(self.ask(server))
        assert caught.value.kind == "cut"
