"""Errors that end a turn in truth: what Groq says of a call it did not take, and prompts that Azure filters."""

from __future__ import annotations

import json
from typing import Any
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.adapters.names import ToolNames
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_chat import parse_events
from flask_instruct.adapters.rejections import NAMELESS
from flask_instruct.adapters.rejections import rejected_call
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.messages import ToolSpec
from tests.wire import Reply
from tests.wire import WireServer
from tests.wire_format import openai_chunk

from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import cut_in
from .hearing import settings


def rejection(**body: Any) -> ProviderError:
    return ProviderError("malformed", "x", body={"code": "tool_use_failed", **body})


class TestARejectedCall:
    @pytest.mark.parametrize(
        ("written", "name", "arguments"),
        [
            ('{"name": "weather", "arguments": {"city": 1}}', "weather", {"city": 1}),
            ('{"name": "weather", "parameters": {"city": 1}}', "weather", {"city": 1}),
            ('[{"name": "weather", "arguments": "{\\"city\\": 1}"}]', "weather", {"city": 1}),
            ('{"tool_calls": 1, "function": {"name": "weather", "arguments": {"city": 1}}}', "weather", {"city": 1}),
            ('<function=weather>{"city": 1}</function>', "weather", {"city": 1}),
            ('Let me look. <function=weather {"city": 1} </function>', "weather", {"city": 1}),
            ('<function(weather){"city": 1}', "weather", {"city": 1}),
            ('<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>', "weather", {}),
            ('{"name": "weather"}', "weather", {}),
            ("", NAMELESS, {}),
        ],
    )
    def test_is_read_in_each_of_the_ways_that_models_write_calls(self, written: str, name: str, arguments: Any) -> None:
        call = rejected_call(rejection(failed_generation=written, message="No."), ToolNames([WEATHER]), "groq")
        assert call is not None
        assert (call.name, json.loads(call.raw), call.provider) == (name, arguments, "groq")
        assert "No." in call.refusal

    @pytest.mark.parametrize("written", ["The weather is fine.", '{"name": "weather", "argu', '{"a": 1}', "<function="])
    def test_that_cannot_be_read_keeps_what_was_written(self, written: str) -> None:
        call = rejected_call(rejection(failed_generation=written), ToolNames([WEATHER]), "groq")
        assert call is not None
        assert (call.name, call.raw) == (NAMELESS, written)
        assert call.refusal

    def test_names_the_tool_as_the_app_does(self) -> None:
        tool = ToolSpec("wetter heute", "", {"type": "object", "properties": {}})
        written = '{"name": "wetter_heute", "arguments": {}}'
        call = rejected_call(rejection(failed_generation=written), ToolNames([tool]), "groq")
        assert call is not None
        assert call.name == "wetter heute"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        )
    )
    def test_never_breaks_whatever_was_written(self, written: Any) -> None:
        call = rejected_call(rejection(failed_generation=written, message=written), ToolNames([WEATHER]), "groq")
        assert call is not None
        assert call.name
        assert call.refusal

    def test_ends_the_turn_with_the_reasoning_before_it(self) -> None:
        error = {"error": {"message": "No.", "code": "tool_use_failed", "failed_generation": '{"name": "weather"}'}}
        body = openai_chunk({"reasoning": "Hm."}) + f"event: error\ndata: {json.dumps(error)}\n\n"
        heard = Heard(parse_events(read_events(cut_in(body, 5)), asking(tools=(WEATHER,)), "groq"))
        assert (heard.finish.reason, heard.reasoning, len(heard.message.calls)) == ("tool_calls", "Hm.", 1)

    @pytest.mark.parametrize("fields", [{}, {"tools": (WEATHER,), "tool_choice": "none"}])
    def test_stays_an_error_where_no_call_was_asked_for(self, fields: dict[str, Any]) -> None:
        error = {"error": {"message": "No.", "code": "tool_use_failed", "failed_generation": '{"name": "weather"}'}}
        events = parse_events(read_events([f"data: {json.dumps(error)}\n\n".encode()]), asking(**fields), "groq")
        with pytest.raises(ProviderError, match="weather"):
            Heard(events)


class TestAFilteredPrompt:
    AZURE: ClassVar[dict[str, Any]] = {
        "error": {
            "message": "The response was filtered due to the prompt triggering Azure's content management policy.",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}},
        }
    }

    def test_is_a_filtered_turn_and_no_unreadable_request(self) -> None:
        reply = Reply(json.dumps(self.AZURE), 400, "application/json")
        with WireServer.playing(reply) as server:
            heard = Heard(OpenAIChat(settings("azure", server.base_url("openai"))).stream(asking()))
        assert (heard.finish.reason, heard.finish.raw) == ("content_filter", "content_filter")
        assert heard.message.parts == ()

    def test_is_known_by_the_inner_error_too(self) -> None:
        error = {"error": {**self.AZURE["error"], "code": "400"}}
        body = openai_chunk({"content": "Half"}) + f"data: {json.dumps(error)}\n\n"
        heard = Heard(parse_events(read_events([body.encode()]), asking(), "azure"))
        assert (heard.finish.reason, heard.message.text) == ("content_filter", "Half")

    def test_differs_from_any_other_refused_request(self) -> None:
        reply = Reply('{"error": {"message": "bad", "code": "invalid_value"}}', 400, "application/json")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            Heard(OpenAIChat(settings("azure", server.base_url("openai"))).stream(asking()))
        assert caught.value.kind == "bad_request"
