"""Anthropic Messages on recorded traffic: whole answers read as streams, and what a recorded peer sent next."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings
from tests.wire import Reply
from tests.wire import WireServer

from .anthropic_wire import body_of
from .anthropic_wire import hear
from .anthropic_wire import rendered
from .hearing import Heard
from .hearing import asking
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user
from .sdk_types import assert_is

ROUND_TRIPS = (
    "stream_parallel_tools",
    "stream_thinking_tool_replay",
    "nonstream_three_parallel",
    "nonstream_parallel_pydantic",
    "nonstream_thinking_with_tool",
)


def heard_of(name: str, place: int, size: int = 65536) -> Heard:
    recorded = recordings.exchange(f"anthropic/{name}", place)
    return hear(recordings.as_stream("anthropic", recorded["body"]), size=size)


@pytest.mark.parametrize("name", [name for name in ROUND_TRIPS if name.startswith("nonstream")])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("size", [1, 7, 65536])
def test_a_whole_answer_means_the_same_as_a_stream(name: str, place: int, size: int) -> None:
    heard = heard_of(name, place, size)
    wanted = recordings.expected(f"anthropic/{name}", place)
    assert (heard.text, heard.finish.raw) == (wanted["text"], wanted["finish"])
    assert heard.message.text == heard.text
    assert heard.calls == recordings.arguments_of(wanted)
    assert bool(heard.reasoning) == wanted["thinking"]
    assert heard.usage is not None
    assert [heard.usage.input_tokens, heard.usage.output_tokens] == wanted["usage"]


@pytest.mark.parametrize(("name", "place"), recordings.streamed("anthropic"))
def test_an_answer_that_breaks_off_after_any_event_is_none(name: str, place: int) -> None:
    events = recordings.exchange(name, place)["body"].strip().split("\n\n")
    assert events[-1].startswith("event: message_stop")
    for count in range(len(events)):
        with pytest.raises(ProviderError) as caught:
            hear("".join(f"{event}\n\n" for event in events[:count]))
        assert caught.value.kind == "cut"


@pytest.mark.parametrize(("name", "place"), recordings.streamed("anthropic"))
@pytest.mark.parametrize("piece", [7, 0])
def test_an_answer_served_in_pieces_means_what_was_recorded(name: str, place: int, piece: int) -> None:
    recorded, wanted = recordings.exchange(name, place), recordings.expected(name, place)
    with WireServer.playing(Reply(recorded["body"], piece=piece)) as server:
        heard = Heard(Anthropic(settings("anthropic", server.base_url("anthropic"))).stream(asking(user("Hi"))))
    assert (heard.finish.raw, heard.message.text) == (wanted["finish"], heard.text)
    assert heard.calls == ([] if wanted["open_blocks"] else recordings.arguments_of(wanted))


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_the_next_request_is_the_one_that_the_recorded_peer_sent(name: str) -> None:
    """Thinking with its signature stands before the calls, and all results stand in one message of the user."""
    asked = recordings.exchange(f"anthropic/{name}", 1)["request"]
    body = body_of(*history_of(name, asked), tools=tuple(tool_of(tool) for tool in asked["tools"]))
    assert body["messages"] == [plain(message) for message in asked["messages"]]
    assert [tool["name"] for tool in body["tools"]] == [tool["name"] for tool in asked["tools"]]
    assert [tool["input_schema"] for tool in body["tools"]] == [tool["input_schema"] for tool in asked["tools"]]
    assert_is(MessageCreateParamsStreaming, body)


def test_which_model_stepped_in_is_kept_as_it_came_and_told_to_requests_that_ask_for_stand_ins() -> None:
    heard = heard_of("stream_fallback_block", 0)
    answer = (user("Hi"), heard.message, user("And?"))
    with_stand_ins = rendered(*answer, options={"fallbacks": [{"model": "claude-sonnet-4-5"}]})
    (block, text) = with_stand_ins[1]["content"]
    assert (block["from"], block["to"]) == ({"model": "claude-opus-4-7"}, {"model": "claude-sonnet-4-5"})
    assert rendered(*answer)[1]["content"] == [text] == [{"type": "text", "text": "Hello there!"}]


def history_of(name: str, asked: dict[str, Any]) -> list[Message]:
    """The first answer, as our adapter reads it, between the question and the results that were recorded."""
    turn = heard_of(name, 0).message
    question = plain(asked["messages"][0])["content"][0]["text"]
    given = {block["tool_use_id"]: block["content"] for block in plain(asked["messages"][2])["content"]}
    answers = results(*(ToolResult(call.id, call.name, given[call.id]) for call in turn.calls))
    return [system("Be brief."), user(question), turn, answers]


def tool_of(declared: dict[str, Any]) -> ToolSpec:
    return ToolSpec(declared["name"], declared["description"], declared["input_schema"])


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """The recorded message without what peers write differently and the API reads alike."""
    blocks = []
    for block in message["content"]:
        if block["type"] == "tool_result":
            content = block["content"]
            said = content if isinstance(content, str) else "".join(part["text"] for part in content)
            block = {**{key: value for key, value in block.items() if key != "is_error"}, "content": said}
        # One peer fills turns without a text with a blank, which the API refuses where it stands alone.
        if block["type"] != "text" or block["text"].strip():
            blocks.append(block)
    return {"role": message["role"], "content": blocks}
