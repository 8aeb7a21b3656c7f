"""Ends of Anthropic Messages: of an answer, of a turn that was refused or paused, and of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from tests.wire_format import anthropic_end
from tests.wire_format import anthropic_event
from tests.wire_format import anthropic_start

from .anthropic_wire import called
from .anthropic_wire import closed
from .anthropic_wire import hear
from .anthropic_wire import opened
from .anthropic_wire import rendered
from .anthropic_wire import said
from .anthropic_wire import text_block
from .hearing import assistant
from .hearing import user

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


class TestEnds:
    def test_without_a_word_are_whole_and_empty(self) -> None:
        heard = hear(anthropic_start(), anthropic_end("end_turn"))
        assert (heard.finish.reason, heard.message.parts) == ("stop", ())

    def test_by_the_token_limit_beside_a_call_that_looks_complete_run_nothing(self) -> None:
        """vercel/ai#19063: a prefix of arguments can be valid and still not be all of them."""
        thinking = opened(0, type="thinking", thinking="Hm.", signature="s1") + closed(0)
        heard = hear(anthropic_start(), thinking, called('{"id": 7}', index=1), anthropic_end("max_tokens"))
        assert (heard.finish.reason, heard.message.parts) == ("length", ())

    def test_without_message_stop_are_cut_though_the_reason_was_given(self) -> None:
        whole = anthropic_start() + called("{}") + anthropic_end("tool_use")
        with pytest.raises(ProviderError) as caught:
            hear(whole.removesuffix(anthropic_event("message_stop")))
        assert caught.value.kind == "cut"

    def test_by_a_reason_that_nobody_knows_keep_the_word(self) -> None:
        heard = hear(anthropic_start(), said("So:"), called("{}", index=1), anthropic_end("brand_new"))
        assert (heard.finish.reason, heard.finish.raw, heard.message.calls) == ("other", "brand_new", ())

    def test_in_a_mixed_up_stream_are_no_answer(self) -> None:
        """vercel/ai#18402: two generations were spliced into one stream."""
        with pytest.raises(ProviderError, match="mixed") as caught:
            hear(anthropic_start(), called('{"x":'), anthropic_start("msg_2"), called("1}"), anthropic_end("tool_use"))
        assert caught.value.kind == "malformed"

    def test_by_overload_within_the_stream_are_errors_that_can_be_tried_again(self) -> None:
        overloaded = anthropic_event("error", error={"type": "overloaded_error", "message": "Overloaded"})
        with pytest.raises(ProviderError) as caught:
            hear(anthropic_start(), said("Hi"), called("{}", index=1), overloaded)
        assert (caught.value.kind, caught.value.retryable, caught.value.status) == ("overloaded", True, None)


class TestARefusedTurn:
    def test_keeps_its_words_and_neither_its_calls_nor_its_thinking(self) -> None:
        heard = hear(
            anthropic_start(),
            opened(0, type="thinking", thinking="Hm.", signature="s1"),
            closed(0),
            said("I looked.", index=1),
            opened(2, **server_call()),
            closed(2),
            called("{}", index=3),
            anthropic_event(
                "message_delta",
                delta={"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "Policy."}},
                usage={"output_tokens": 9},
            ),
            anthropic_event("message_stop"),
        )
        assert (heard.finish.reason, heard.finish.raw) == ("refusal", "refusal")
        assert heard.message.parts == (Text("I looked."),)


class TestTheEndOfAConversation:
    def test_is_left_to_models_that_go_on_from_there(self) -> None:
        ends = (user("Hi"), assistant("The answer is"))
        assert rendered(*ends, model="claude-haiku-4-5")[-1]["role"] == "assistant"

    @pytest.mark.parametrize(
        "fields",
        [
            {"model": "claude-opus-4-6"},
            {"model": "claude-haiku-4-5", "effort": "low"},
            {"model": "claude-haiku-4-5", "output": OutputSpec("sum", SCHEMA)},
        ],
    )
    def test_is_a_word_of_the_user_for_models_that_refuse_another(self, fields: dict[str, Any]) -> None:
        """agenticloops-ai/agentic-ai-engineering#43: this model does not support assistant message prefill."""
        ends = (user("Hi"), assistant("The answer is"))
        assert rendered(*ends, **fields)[-1] == {"role": "user", "content": [text_block("Continue.")]}

    def test_of_a_paused_turn_stays_as_it_is(self) -> None:
        """anthropic-sdk-python#1170: a paused turn is sent back unchanged, without a word of the user."""
        paused = paused_turn()
        assert rendered(user("Hi"), paused, model="claude-opus-5-5")[1:] == [
            {"role": "assistant", "content": [text_block("I look."), server_call()]}
        ]

    def test_of_a_paused_turn_that_was_given_up_loses_the_call_without_its_result(self) -> None:
        assert rendered(user("Hi"), paused_turn(), user("Never mind."))[1]["content"] == [text_block("I look.")]

    def test_of_a_resumed_turn_brings_the_result_behind_its_call(self) -> None:
        found = Reasoning("", "anthropic", {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []})
        messages = rendered(user("Hi"), paused_turn(), assistant(found, "Found."), user("Thanks."))
        assert [block["type"] for block in messages[1]["content"]] == [
            "text",
            "server_tool_use",
            "web_search_tool_result",
            "text",
        ]


def server_call() -> dict[str, Any]:
    return {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}


def paused_turn() -> Message:
    heard = hear(
        anthropic_start(),
        said("I look."),
        opened(1, **server_call()),
        closed(1),
        anthropic_end("pause_turn"),
    )
    assert heard.finish.reason == "pause"
    return heard.message
