"""The wire formats of the test server: which one a request is in, and those of Chat Completions and of Anthropic.

From a script's turn to a streamed body, and from a request to ours; the two other formats have files of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import next_turn
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Part
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolChoice
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

from .wire_google import google_body
from .wire_google import google_error
from .wire_google import read_google
from .wire_parts import ERRORS
from .wire_parts import INPUT_TOKENS
from .wire_parts import OUTPUT_TOKENS
from .wire_parts import Frame
from .wire_parts import attached
from .wire_parts import broken
from .wire_parts import grown
from .wire_parts import halves
from .wire_parts import named
from .wire_parts import pieces
from .wire_parts import reason_of
from .wire_responses import read_responses
from .wire_responses import responses_body
from .wire_responses import responses_error

OPENAI_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "stop",
    "malformed": "function_call_filter",
}
ANTHROPIC_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "context_window": "model_context_window_exceeded",
    "pause": "pause_turn",
}


@dataclass(frozen=True)
class Format:
    """One wire format.

    :param read: reads a request, from its body and its path.
    :param write: makes the streamed body of a turn; ids of calls are counted from ``first_call``.
    :param error: makes the status and the body of a refused request.
    """

    read: Callable[[dict[str, Any], str], ModelRequest]
    write: Callable[..., Iterator[Frame]]
    error: Callable[[Fail], tuple[int, dict[str, Any]]]


def protocol_of(path: str) -> str:
    """Return the protocol that is spoken at a path."""
    if path.endswith("/chat/completions"):
        return "openai"
    if path.endswith("/responses"):
        return "openai_responses"
    return "google" if ":streamGenerateContent" in path else "anthropic"


def told(story: Script, path: str, body: dict[str, Any]) -> tuple[list[Frame], int]:
    """Return the next turn of a story as a body and a status; status 0 stands for a refused connection."""
    spoken = FORMATS[protocol_of(path)]
    request = spoken.read(body, path)
    turn = next_turn(story, request)
    if turn and isinstance(turn[0], Fail) and turn[0].kind not in ("cut", "malformed"):
        if turn[0].kind == "connection":
            return [], 0
        status, error = spoken.error(turn[0])
        return [json.dumps(error)], status
    used = sum(len(message.calls) for message in request.messages)
    return list(spoken.write(turn, first_call=used + 1)), 200


# --- OpenAI Chat Completions ---------------------------------------------------------------------------------------


def openai_chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **extra: Any) -> str:
    """Return one chunk as an event."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "story", "choices": choices, **extra}
    return f"data: {json.dumps(chunk)}\n\n"


DONE = "data: [DONE]\n\n"


def openai_error(step: Fail) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refused request."""
    status, code, _ = ERRORS.get(step.kind, ERRORS["server"])
    return status, {"error": {"message": step.technical, "type": "invalid_request_error", "code": code}}


def openai_usage() -> str:
    """Return the chunk that tells the usage, without choices."""
    total = INPUT_TOKENS + OUTPUT_TOKENS
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}
    return openai_chunk(usage=usage)


def openai_body(turn: Turn, *, first_call: int = 1) -> Iterator[Frame]:
    """Return the streamed body of a turn, with usage at its end."""
    yield openai_chunk({"role": "assistant", "content": ""})
    reason = reason_of(turn)
    index = 0
    for step in turn:
        match step:
            case Say() | Think():
                said = "refusal" if reason == "refusal" else "content"
                field = said if isinstance(step, Say) else "reasoning_content"
                for every, piece in pieces(step):
                    yield from [every] if every else []
                    yield openai_chunk({field: piece})
            case Use():
                yield from _openai_call(step, index, f"call_{first_call + index}")
                index += 1
            case Wait():
                yield float(step.seconds)
            case Fail():
                yield from broken(step, openai_error(step)[1])
                return
            case Stop():
                break
    yield openai_chunk({}, OPENAI_FINISH.get(reason, reason))
    yield openai_usage()
    yield DONE


def _openai_call(step: Use, index: int, call_id: str) -> Iterator[Frame]:
    head: dict[str, Any] = {"index": index, "id": call_id, "type": "function"}
    yield openai_chunk({"tool_calls": [{**head, "function": {"name": step.tool, "arguments": ""}}]})
    for half in halves(step.raw):
        yield openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})


def read_openai(body: dict[str, Any], path: str = "") -> ModelRequest:
    """Return a Chat Completions request as our own."""
    messages: list[Message] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            result = ToolResult(message["tool_call_id"], "", content, content.lower().startswith("error"))
            messages = grown(messages, "tool", result)
            continue
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        )
        messages.append(Message("system" if role == "developer" else role, (*_read_content(content), *calls)))
    tools = tuple(ToolSpec.from_json(tool) for tool in body.get("tools", ()))
    shape = body.get("response_format", {}).get("json_schema")
    output = OutputSpec(shape["name"], shape["schema"]) if shape else None
    return ModelRequest(body["model"], named(messages), tools, body.get("tool_choice", "auto"), output=output)


def _read_content(content: str | list[dict[str, Any]]) -> Iterator[Part]:
    if isinstance(content, str):
        yield from [Text(content)] if content else []
        return
    for part in content:
        if part["type"] == "text":
            yield Text(part["text"])
        elif part["type"] == "image_url":
            yield attached(Image, part["image_url"]["url"])
        elif part["type"] == "file":
            yield attached(Document, part["file"]["file_data"], part["file"]["filename"])


# --- Anthropic Messages --------------------------------------------------------------------------------------------


def anthropic_event(type_: str, **fields: Any) -> str:
    """Return one event."""
    return f"event: {type_}\ndata: {json.dumps({'type': type_, **fields})}\n\n"


def anthropic_error(step: Fail) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refused request."""
    status, _, kind = ERRORS.get(step.kind, ERRORS["server"])
    return status, {"type": "error", "error": {"type": kind, "message": step.technical}}


def anthropic_start(message_id: str = "msg_1") -> str:
    """Return the event that opens a message."""
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
    return anthropic_event(
        "message_start", message={"id": message_id, "role": "assistant", "content": [], "usage": usage}
    )


def anthropic_end(reason: str = "end_turn", **usage: int) -> str:
    """Return the two events that close a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    total = {"output_tokens": OUTPUT_TOKENS, **usage}
    return anthropic_event("message_delta", delta=delta, usage=total) + anthropic_event("message_stop")


def anthropic_body(turn: Turn, *, first_call: int = 1) -> Iterator[Frame]:
    """Return the streamed body of a turn."""
    yield anthropic_start()
    index = calls = 0
    for step in turn:
        match step:
            case Wait():
                yield float(step.seconds)
                continue
            case Fail():
                yield from broken(step, anthropic_error(step)[1])
                return
            case Stop():
                break
            case Use():
                calls += 1
        yield from _anthropic_block(step, index, f"toolu_{first_call + calls - 1}")
        yield anthropic_event("ping")
        index += 1
    reason = reason_of(turn)
    yield anthropic_end(ANTHROPIC_STOP.get(reason, reason))


def _anthropic_block(step: Say | Think | Use, index: int, call_id: str) -> Iterator[Frame]:
    if isinstance(step, Use):
        yield anthropic_event(
            "content_block_start",
            index=index,
            content_block={"type": "tool_use", "id": call_id, "name": step.tool, "input": {}},
        )
        for piece in ("", *halves("" if step.raw == "{}" else step.raw)):
            yield anthropic_delta(index, "input_json_delta", partial_json=piece)
    else:
        field = "text" if isinstance(step, Say) else "thinking"
        yield anthropic_event("content_block_start", index=index, content_block={"type": field, field: ""})
        for every, piece in pieces(step):
            yield from [every] if every else []
            yield anthropic_delta(index, f"{field}_delta", **{field: piece})
        if field == "thinking":
            yield anthropic_delta(index, "signature_delta", signature="signed")
    yield anthropic_event("content_block_stop", index=index)


def anthropic_delta(index: int, type_: str, **fields: Any) -> str:
    """Return a delta of a content block as an event."""
    return anthropic_event("content_block_delta", index=index, delta={"type": type_, **fields})


_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "any": "required"}


def read_anthropic(body: dict[str, Any], path: str = "") -> ModelRequest:
    """Return a Messages request as our own."""
    instructions = tuple(Text(block["text"]) for block in body.get("system", ()))
    messages: list[Message] = [Message("system", instructions)] if instructions else []
    for message in body["messages"]:
        blocks = message["content"]
        results = tuple(_read_result(block) for block in blocks if block["type"] == "tool_result")
        if results:
            messages.append(Message("tool", results))
        parts = tuple(part for block in blocks if (part := _read_block(block)) is not None)
        if parts:
            messages.append(Message(message["role"], parts))
    tools = tuple(ToolSpec(tool["name"], tool["description"], tool["input_schema"]) for tool in body.get("tools", ()))
    choice = _CHOICES[body.get("tool_choice", {"type": "auto"})["type"]]
    shape = body.get("output_config", {}).get("format")
    output = OutputSpec("answer", shape["schema"]) if shape else None
    return ModelRequest(body["model"], named(messages), tools, choice, output=output)


def _read_block(block: dict[str, Any]) -> Part | None:
    if block["type"] == "text":
        return Text(block["text"])
    if block["type"] == "tool_use":
        return ToolCall(block["id"], block["name"], json.dumps(block["input"]))
    if block["type"] not in ("image", "document"):
        return None
    source, kind = block["source"], Image if block["type"] == "image" else Document
    inline = f"data:{source.get('media_type')};base64,{source.get('data')}"
    return attached(kind, source.get("url") or inline, block.get("title"))


def _read_result(block: dict[str, Any]) -> ToolResult:
    return ToolResult(block["tool_use_id"], "", block["content"], block.get("is_error", False))


FORMATS = {
    "openai": Format(read_openai, openai_body, openai_error),
    "openai_responses": Format(lambda body, path: read_responses(body), responses_body, responses_error),
    "anthropic": Format(read_anthropic, anthropic_body, anthropic_error),
    "google": Format(read_google, google_body, google_error),
}
"""The wire formats by protocol; ``openai`` is Chat Completions."""
