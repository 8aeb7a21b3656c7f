"""Real answers of every provider, served by a real server under the real SDK, however the network treats them.

What each one means stands in ``expected.json``; where it is read differently here, :data:`READ_OTHERWISE` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest

from flask_instruct.errors import ProviderError
from flask_instruct.events import Event
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Reasoning
from flask_instruct.messages import ToolSpec
from tests import recordings
from tests.wire import Reply

from .hearing import Heard
from .hearing import asking
from .hearing import user
from .served import CHARACTER
from .served import PARSERS
from .served import SIZES
from .served import Stage
from .served import cuts_between
from .served import cuts_inside
from .served import require_no_success
from .served import signal_of
from .served import slow
from .served import stalled
from .served import torn
from .served import whole

MEANINGS = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "completed", "STOP", "tool_use", "tool_calls", ""), "stop"),
    **dict.fromkeys(("length", "max_tokens", "MAX_TOKENS", "incomplete:max_output_tokens"), "length"),
    "SAFETY": "content_filter",
    "refusal": "refusal",
}
"""The recorded words for the end, in ours; ``stop`` is ``tool_calls`` where there are calls."""

WRAPPED = [("weather", {"location": "San Francisco"}), ("cityAttractions", {"city": "Rome"})]
READ_OTHERWISE: dict[str, dict[str, Any]] = {
    # Arguments that the limit cut: expected.json lists them as unparsed, here the call does not exist.
    "anthropic/stream_max_tokens_inside_tool-0": {"calls": []},
    # expected.json has no text; the provider's own words about the refusal are shown, so that a reader learns why.
    "anthropic/stream_refusal-0": {
        "text": "This request triggered restrictions on violative cyber content and was blocked under Anthropic's "
        "Usage Policy."
    },
    # expected.json has the wrapper as it is on the wire; both tools are declared, so it stands for two calls.
    "openai-responses/parallel_wrapper_call-0": {
        "calls": [{"id": None, "name": name, "arguments": arguments} for name, arguments in WRAPPED]
    },
    # An error on the wire, yet the model wrote a call that Groq refused: it is a turn, whose call is told the refusal.
    "openai-compatible/groq_tool_use_failed_mid_stream-0": {
        "error": None,
        "finish": "tool_use_failed",
        "calls": [{"id": None, "name": "get_something_by_name", "arguments": {"invalid_param": "value"}}],
    },
    "openai-compatible/groq_tool_use_failed_400-0": {
        "error": None,
        "finish": "tool_use_failed",
        "calls": [{"id": None, "name": "get_something_by_name", "arguments": {"foo": "bar"}}],
    },
}
KINDS = {
    "anthropic/error_prompt_too_long": "context_window",
    "gemini/error_429_retry_info": "rate_limited",
    # A request as long as the recorded one would be; a short one is told to wait.
    "gemini/error_context_length_429": "rate_limited",
    "openai-compatible/openrouter_error_mid_stream": "bad_request",
    "openai-responses/deepseek_rejects_interleaved_calls": "bad_request",
    "openai-responses/error_context_length": "context_window",
    "openai-responses/error_reasoning_without_following_item": "bad_request",
}
"""What each recorded error is, in our words."""

OVER_HTTP = (
    ("openai-chat/stream_parallel_tools_then_answer", 0),
    ("openai-compatible/openrouter_args_variant_a", 0),
    ("openai-compatible/mistral_stream_tool", 0),
    ("openai-responses/stream_simple_tool", 0),
    ("anthropic/stream_parallel_tools", 1),
    ("anthropic/stream_thinking_tool_replay", 0),
    ("gemini/stream_no_args_and_parallel", 0),
    ("gemini/stream_tools_json_array", 0),
)
"""Those that are cut after each event by a real server; all others are at the parser, as the same bytes."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.server:
        yield stage


def provider_of(name: str) -> str:
    folder, _, file = name.partition("/")
    if folder == "openai-compatible":
        maker = file.partition("_")[0]
        return {"gemini": "google-openai", "args": "openrouter", "gateway": "llamacpp"}.get(maker, maker)
    return {"openai-chat": "azure", "openai-responses": "openai", "gemini": "google"}.get(folder, folder)


def request_of(name: str, place: int) -> ModelRequest:
    """A request that declares the tools which are called in the answer."""
    names = dict.fromkeys(call["name"] for call in meaning_of(name, place)["calls"])
    tools = tuple(ToolSpec(called, "", {"type": "object", "properties": {}}) for called in names)
    return asking(user("Hi"), tools=tools)


def meaning_of(name: str, place: int) -> dict[str, Any]:
    return {**recordings.expected(name, place), **READ_OTHERWISE.get(f"{name}-{place}", {})}


def body_of(name: str, place: int) -> str:
    return recordings.as_stream(name, recordings.exchange(name, place)["body"])


def require_meaning(name: str, place: int, hear: Callable[[], Heard]) -> None:
    """Require an answer to be what it should be: text, reasoning, calls, end and usage, or the error."""
    wanted = meaning_of(name, place)
    if wanted["error"]:
        with pytest.raises(ProviderError, match=re.escape(wanted["error"]["message"][:40])) as caught:
            hear()
        assert caught.value.kind == KINDS[name]
        return
    heard = hear()
    assert heard.text == heard.message.text == (wanted["text"] or wanted.get("refusal", ""))
    assert (bool(heard.reasoning) or has_hidden_reasoning(heard)) == wanted["thinking"]
    assert [(called, arguments) for _, called, arguments in heard.calls] == [
        (call["name"], call["arguments"]) for call in wanted["calls"]
    ]
    for call, sent in zip(heard.message.calls, wanted["calls"], strict=True):
        assert call.id == (sent["id"] or call.id)
    assert len({call.id for call in heard.message.calls}) == len(heard.message.calls)
    assert heard.finish.raw == (wanted["finish"] or "")
    assert heard.finish.reason == reason_of(wanted)
    usage = heard.usage and [heard.usage.input_tokens, heard.usage.output_tokens or 0]
    assert usage == wanted["usage"]


def has_hidden_reasoning(heard: Heard) -> bool:
    """OpenAI's is encrypted, and shown only where a summary was asked for."""
    return any(
        isinstance(part, Reasoning) and "encrypted_content" in (part.opaque or {}) for part in heard.message.parts
    )


def reason_of(wanted: dict[str, Any]) -> str:
    if wanted["calls"]:
        return "tool_calls"
    return "refusal" if wanted.get("refusal") else MEANINGS[wanted["finish"] or ""]


def stream(stage: Stage, name: str, place: int, reply: Reply, timeout: float = 20.0) -> Iterator[Event]:
    return stage.stream(recordings.protocol_of(name), provider_of(name), request_of(name, place), reply, timeout)


def parsed(name: str, place: int, data: bytes) -> Iterator[Event]:
    """The answer as the parser alone hears it, of a body that just ends."""
    return PARSERS[recordings.protocol_of(name)]([data], request_of(name, place), provider_of(name))


@pytest.mark.parametrize(("name", "place"), recordings.streamed())
@pytest.mark.parametrize("piece", SIZES)
def test_an_answer_means_the_same_in_pieces_of_any_size(stage: Stage, name: str, place: int, piece: str) -> None:
    reply = whole(body_of(name, place), piece)
    require_meaning(name, place, lambda: Heard(stream(stage, name, place, reply)))


@pytest.mark.parametrize(("name", "place"), recordings.whole())
def test_an_answer_that_came_whole_means_the_same_as_a_stream(stage: Stage, name: str, place: int) -> None:
    reply = whole(body_of(name, place), "7 bytes")
    require_meaning(name, place, lambda: Heard(stream(stage, name, place, reply)))


@pytest.mark.parametrize(("name", "place"), recordings.streamed())
def test_an_answer_that_comes_slowly_is_waited_for(stage: Stage, name: str, place: int) -> None:
    """Each event arrives alone, an error too (crmne/ruby_llm 4bf4e03)."""
    reply = slow(body_of(name, place))
    require_meaning(name, place, lambda: Heard(stream(stage, name, place, reply)))


@pytest.mark.parametrize(("name", "place"), recordings.streamed())
@pytest.mark.parametrize("where", ["in the middle", "before the last byte"])
def test_an_answer_that_stops_coming_is_a_timeout(stage: Stage, name: str, place: int, where: str) -> None:
    body = body_of(name, place)
    last = signal_of(recordings.protocol_of(name), body.encode()) - 1
    reply = stalled(body, last // 2 if where == "in the middle" else last)
    require_no_success(stream(stage, name, place, reply, timeout=0.1), "timeout")


@pytest.mark.parametrize(("name", "place"), recordings.streamed())
def test_a_connection_that_breaks_inside_a_line_is_no_answer(stage: Stage, name: str, place: int) -> None:
    body = body_of(name, place)
    end = signal_of(recordings.protocol_of(name), body.encode())
    for cut in (end // 2, end - 1):
        require_no_success(stream(stage, name, place, torn(body, cut)), "cut")


@pytest.mark.parametrize(("name", "place"), recordings.beyond_ascii())
def test_a_connection_that_breaks_inside_a_character_is_no_answer(stage: Stage, name: str, place: int) -> None:
    body = body_of(name, place)
    character = CHARACTER.search(body.encode(), 0, signal_of(recordings.protocol_of(name), body.encode()))
    assert character is not None
    for cut in range(character.start() + 1, character.end()):
        require_no_success(stream(stage, name, place, torn(body, cut)), "cut")


@pytest.mark.parametrize(("name", "place"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in OVER_HTTP])
def test_a_connection_that_breaks_after_any_event_is_no_answer(stage: Stage, name: str, place: int) -> None:
    body = body_of(name, place)
    cuts = cuts_between(recordings.protocol_of(name), body.encode())
    assert cuts
    for cut in cuts:
        require_no_success(stream(stage, name, place, torn(body, cut)), "cut")


@pytest.mark.parametrize(("name", "place"), [*recordings.streamed(), *recordings.whole()])
def test_a_body_that_ends_after_any_event_is_no_answer(name: str, place: int) -> None:
    body = body_of(name, place).encode()
    for cut in [0, *cuts_between(recordings.protocol_of(name), body)]:
        require_no_success(parsed(name, place, body[:cut]), "cut")


@pytest.mark.parametrize(("name", "place"), [*recordings.streamed(), *recordings.whole()])
def test_a_body_that_ends_inside_a_line_or_a_character_is_no_answer(name: str, place: int) -> None:
    body = body_of(name, place).encode()
    for cut in cuts_inside(recordings.protocol_of(name), body):
        require_no_success(parsed(name, place, body[:cut]), "cut")


@pytest.mark.parametrize(("name", "place"), recordings.streamed())
def test_a_body_that_ends_with_its_signal_is_an_answer(name: str, place: int) -> None:
    """What may follow, such as the usage, is lost; nothing of the answer is."""
    body, wanted = body_of(name, place).encode(), meaning_of(name, place)
    heard = Heard(parsed(name, place, body[: signal_of(recordings.protocol_of(name), body)]))
    assert heard.finish.reason == reason_of(wanted)
    assert [called for _, called, _ in heard.calls] == [call["name"] for call in wanted["calls"]]


@pytest.mark.parametrize(("name", "place"), recordings.refused())
def test_a_refused_request_has_the_kind_of_its_error(stage: Stage, name: str, place: int) -> None:
    recorded = recordings.exchange(name, place)
    reply = Reply(recorded["body"], status=recorded["status"], content_type="application/json")
    require_meaning(name, place, lambda: Heard(stream(stage, name, place, reply)))
