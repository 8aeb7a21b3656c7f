"""Recorded traffic of real providers, where it lies beside the repository, and whole answers turned into streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.responses_wire import streamed_response
from tests.wire_format import DONE
from tests.wire_format import anthropic_delta
from tests.wire_format import anthropic_event
from tests.wire_format import openai_chunk

FOLDER = Path(__file__).parents[2] / "shared" / "recorded"
ABSENT = f"no recorded traffic at {FOLDER}"

PROTOCOLS = {
    "openai-chat": "openai",
    "openai-compatible": "openai",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic",
    "gemini": "google",
}
"""What is spoken in each folder."""


def streamed(*providers: str) -> list[Any]:
    """Return a test parameter for each streamed answer of these providers (default: all): its name and its place."""
    return _chosen(providers, lambda answer: bool(answer["stream"]))


def beyond_ascii() -> list[Any]:
    """Return the same for each streamed answer that holds characters of more than one byte."""
    return [one for one in streamed() if one.marks or not exchange(*one.values)["body"].isascii()]


def answered(*providers: str) -> list[Any]:
    """Return the same for each answer that is none of HTTP's errors, streamed or not."""
    return _chosen(providers, lambda answer: answer["status"] == 200)


def whole(*providers: str) -> list[Any]:
    """Return the same for each answer that came whole, as JSON, and well."""
    return _chosen(providers, lambda answer: not answer["stream"] and answer["status"] == 200)


def refused(*providers: str) -> list[Any]:
    """Return the same for each request that was answered with an error status."""
    return _chosen(providers, lambda answer: answer["status"] != 200)


def _chosen(providers: tuple[str, ...], wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:
    if not FOLDER.exists():
        return [pytest.param("", 0, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    expected = json.loads((FOLDER / "expected.json").read_text())
    return [
        pytest.param(name, place, id=f"{name}-{place}")
        for name, answers in expected.items()
        if name.partition("/")[0] in (providers or PROTOCOLS)
        for place, answer in enumerate(answers)
        if wanted(answer)
    ]


def exchange(name: str, place: int = 0) -> dict[str, Any]:
    """Return one recorded request and answer; skips the test where there are none."""
    if not FOLDER.exists():
        pytest.skip(ABSENT)
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())["exchanges"][place]
    return found


def expected(name: str, place: int) -> dict[str, Any]:
    """Return what the answer means."""
    found: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())[name][place]
    return found


def exists(name: str, place: int) -> bool:
    """Tell whether a recording has so many answers."""
    return place < len(json.loads((FOLDER / "expected.json").read_text())[name])


def arguments_of(answer: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return the calls of an expected answer as id, name and arguments."""
    return [(call["id"], call["name"], call["arguments"]) for call in answer["calls"]]


def protocol_of(name: str) -> str:
    """Return the protocol of a recording."""
    return PROTOCOLS[name.partition("/")[0]]


# -- whole answers as the provider would have streamed them ------------------------------------------------------------


def as_stream(name: str, body: str) -> str:
    """Return an answer as a stream: as it is where it was streamed or is an error."""
    answer = json.loads(body) if body.lstrip().startswith("{") else None
    return body if answer is None or answer.get("error") else _STREAMED[protocol_of(name)](answer)


def chat_as_stream(answer: dict[str, Any]) -> str:
    """One delta, then the finish, then the usage."""
    (choice,) = answer["choices"]
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls") or ())]
    delta = {**choice["message"], **({"tool_calls": calls} if calls else {})}
    usage = openai_chunk(usage=answer["usage"])
    return openai_chunk(delta) + openai_chunk({}, choice["finish_reason"]) + usage + DONE


def anthropic_as_stream(message: dict[str, Any]) -> str:
    """The message empty, then block by block, then its end."""
    opening = {**message, "content": [], "stop_reason": None}
    blocks = "".join(part for index, block in enumerate(message["content"]) for part in _block(index, block))
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    return (
        anthropic_event("message_start", message=opening)
        + blocks
        + anthropic_event("message_delta", delta=ending, usage=message["usage"])
        + anthropic_event("message_stop")
    )


def _block(index: int, block: dict[str, Any]) -> Iterator[str]:
    kind = block["type"]
    emptied: dict[str, dict[str, Any]] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}
    yield anthropic_event(
        "content_block_start", index=index, content_block={**block, **emptied.get(kind, {"input": {}})}
    )
    if kind == "text":
        yield anthropic_delta(index, "text_delta", text=block["text"])
    elif kind == "thinking":
        yield anthropic_delta(index, "thinking_delta", thinking=block["thinking"])
        yield anthropic_delta(index, "signature_delta", signature=block["signature"])
    else:
        yield anthropic_delta(index, "input_json_delta", partial_json=json.dumps(block["input"]))
    yield anthropic_event("content_block_stop", index=index)


_STREAMED: dict[str, Callable[[dict[str, Any]], str]] = {
    "openai": chat_as_stream,
    "openai_responses": streamed_response,
    "anthropic": anthropic_as_stream,
    # A whole answer is but a stream of one object.
    "google": lambda answer: f"data: {json.dumps(answer)}\r\n\r\n",
}
