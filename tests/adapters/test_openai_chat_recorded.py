"""Real conversations with Chat Completions servers: what was answered means the same here, and goes back in its shape.

Answers that were recorded whole are turned into a stream first.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_chat import parse_events
from flask_instruct.adapters.openai_chat import render_request
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Text
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings
from tests.wire import Reply
from tests.wire import WireServer

from .hearing import Heard
from .hearing import cut_in
from .hearing import settings

PROVIDERS = {"openrouter": "openrouter", "groq": "groq", "mistral": "mistral", "ollama": "ollama", "azure": "azure"}
CALL_ID = "id of a call"


def answers(*, good: bool = False, with_calls: bool = False) -> list[Any]:
    """Every recorded answer of the protocol, streamed or not, as name and place."""

    def wanted(name: str, place: int) -> bool:
        answer = recordings.expected(name, place)
        # What the peer did with the calls stands in the next request.
        told = answer["calls"] and recordings.exchange(name, place)["request"] and recordings.exists(name, place + 1)
        return not (good and answer["error"]) and (not with_calls or bool(told))

    found = recordings.answered("openai-chat", "openai-compatible")
    return [one for one in found if one.marks or wanted(*one.values)]


def provider_of(name: str) -> str:
    start = name.partition("/")[2].partition("_")[0]
    return "google-openai" if start == "gemini" else PROVIDERS.get(start, "openai")


def settings_of(name: str, base_url: str | None = None) -> Any:
    provider = provider_of(name)
    return settings(provider, base_url, quirks=BUILT_IN[provider].quirks)


def as_stream(body: str) -> str:
    return recordings.as_stream("openai-chat", body)


def read_request(body: dict[str, Any] | None) -> ModelRequest:
    """Enough of a recorded request to be answered: its tools and what was asked last."""
    tools = [ToolSpec.from_json({**tool, "type": "function"}) for tool in (body or {}).get("tools") or ()]
    return ModelRequest("m", (Message("user", (Text("?"),)),), tuple(tools))


@pytest.mark.parametrize(("name", "place"), answers())
@pytest.mark.parametrize("size", [1, 7, 65536])
def test_every_recorded_answer_means_what_it_should(name: str, place: int, size: int) -> None:
    exchange, wanted = recordings.exchange(name, place), recordings.expected(name, place)
    request = ModelRequest("m", (Message("user", (Text("?"),)),))
    events = parse_events(read_events(cut_in(as_stream(exchange["body"]), size)), request, provider_of(name))
    if wanted["error"]:
        with pytest.raises(ProviderError, match=wanted["error"]["message"][:40]):
            Heard(events)
        return
    heard = Heard(events)
    assert heard.message.text == heard.text == (wanted["text"] or wanted["refusal"])
    assert [call[1:] for call in heard.calls] == [call[1:] for call in recordings.arguments_of(wanted)]
    assert all(call.id and call.provider == provider_of(name) for call in heard.message.calls)
    assert bool(heard.reasoning) == wanted["thinking"]
    assert heard.finish.raw == (wanted["finish"] or "")
    assert (heard.usage and [heard.usage.input_tokens, heard.usage.output_tokens]) == wanted["usage"]


@pytest.mark.parametrize(("name", "place"), answers(good=True))
def test_an_answer_that_the_network_cuts_never_counts_as_one(name: str, place: int) -> None:
    exchange = recordings.exchange(name, place)
    body = as_stream(exchange["body"])
    # From the finish_reason on nothing of the answer is lost any more.
    signal = body.find('"finish_reason": "' if '"finish_reason": "' in body else '"finish_reason":"')
    end = signal if signal >= 0 else body.index("data: [DONE]")
    for cut in range(0, end, max(1, end // 40)):
        events = parse_events(read_events(cut_in(body[:cut], 4096)), read_request(exchange["request"]), "p")
        with pytest.raises(ProviderError):
            Heard(events)


@pytest.mark.parametrize(("name", "place"), answers(with_calls=True))
def test_an_answer_goes_back_in_the_shape_that_the_provider_took(name: str, place: int) -> None:
    here, following = recordings.exchange(name, place), recordings.exchange(name, place + 1)["request"]
    asked = read_request(here["request"])
    heard = Heard(parse_events(read_events(cut_in(as_stream(here["body"]), 4096)), asked, provider_of(name)))
    ids = [call.id for call in heard.message.calls]
    told = [message for message in following["messages"] if message["role"] == "tool"][-len(ids) :]
    answers = tuple(
        ToolResult(call.id, call.name, result["content"])
        for call, result in zip(heard.message.calls, told, strict=True)
    )
    history = (*asked.messages, heard.message, Message("tool", answers))
    ours = render_request(ModelRequest("m", history, asked.tools), settings_of(name))["messages"][1:]
    theirs = following["messages"][-len(ours) :]
    assert [shape(message) for message in ours] == [shape(message) for message in theirs]


def shape(message: dict[str, Any]) -> dict[str, Any]:
    """What matters of a message: ids differ where the server sent none, and reasoning is each library's own matter."""
    calls = [
        {"type": call["type"], "name": call["function"]["name"], **json.loads(call["function"]["arguments"] or "{}")}
        for call in message.get("tool_calls") or ()
    ]
    content = message.get("content")
    said = None if message["role"] == "assistant" else content
    return {"role": message["role"], "calls": calls, "said": said, "answers": bool(message.get("tool_call_id"))}


@pytest.mark.parametrize("place", [0, 2])
def test_mistrals_own_ids_go_back_as_they_came(place: int) -> None:
    name = "openai-compatible/mistral_stream_tool"
    exchange = recordings.exchange(name, place)
    heard = Heard(parse_events(read_events(cut_in(exchange["body"], 4096)), read_request(None), "mistral"))
    (sent,) = [call["id"] for call in recordings.expected(name, place)["calls"]]
    messages = render_request(ModelRequest("m", (heard.message,)), settings_of(name))["messages"]
    assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"] == sent


class TestGroqRejectsACall:
    """``tool_use_failed``: the model is told, and the conversation goes on."""

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("openai-compatible/groq_tool_use_failed_400", {"foo": "bar"}),
            ("openai-compatible/groq_tool_use_failed_mid_stream", {"invalid_param": "value"}),
        ],
    )
    def test_and_the_model_hears_why(self, name: str, arguments: dict[str, str]) -> None:
        first, second = recordings.exchange(name, 0), recordings.exchange(name, 1)
        replies = [
            Reply(first["body"], first["status"], first["content_type"]),
            Reply(as_stream(second["body"])),
        ]
        with WireServer.playing(*replies) as server:
            adapter = OpenAIChat(settings_of(name, server.base_url("openai")))
            asked = read_request(first["request"])
            heard = Heard(adapter.stream(asked))
            (call,) = heard.message.calls
            assert (heard.finish.reason, heard.finish.raw) == ("tool_calls", "tool_use_failed")
            assert (call.name, json.loads(call.raw)) == ("get_something_by_name", arguments)
            assert "did not match schema" in call.refusal
            told = Message("tool", (ToolResult(call.id, call.name, call.refusal, error=True),))
            again = Heard(adapter.stream(ModelRequest("m", (*asked.messages, heard.message, told), asked.tools)))
        assert [call[1] for call in again.calls] == ["get_something_by_name"]
        _, assistant, result = server.bodies[1]["messages"]
        assert "reasoning" not in assistant
        assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == arguments
        assert result["tool_call_id"] == assistant["tool_calls"][0]["id"]
        assert "did not match schema" in result["content"]
