"""The two wire formats for the test server: from a script's turn to a streamed body, and from a request to ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import next_turn
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Part
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolChoice
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

Frame = str | bytes | float
"""A part of a body, or seconds of silence."""

OPENAI_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter"}
ANTHROPIC_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "context_window": "model_context_window_exceeded",
    "pause": "pause_turn",
}

ERRORS: dict[str, tuple[int, str, str]] = {
    "authentication": (401, "invalid_api_key", "authentication_error"),
    "permission": (403, "permission_denied", "permission_error"),
    "not_found": (404, "model_not_found", "not_found_error"),
    "bad_request": (400, "invalid_request_error", "invalid_request_error"),
    "context_window": (400, "context_length_exceeded", "request_too_large"),
    "rate_limited": (429, "rate_limit_exceeded", "rate_limit_error"),
    "overloaded": (529, "overloaded", "overloaded_error"),
    "server": (500, "server_error", "api_error"),
    "timeout": (504, "timeout", "timeout_error"),
}
"""Kind of failure: HTTP status, OpenAI's code, Anthropic's type."""


def protocol_of(path: str) -> str:
    return "openai" if path.endswith("/chat/completions") else "anthropic"


def told(story: Script, path: str, body: dict[str, Any]) -> tuple[list[Frame], int]:
    """Return the next turn of a story as a body and a status; status 0 stands for a refused connection."""
    protocol = protocol_of(path)
    request = read_openai(body) if protocol == "openai" else read_anthropic(body)
    turn = next_turn(story, request)
    if turn and isinstance(turn[0], Fail) and turn[0].kind not in ("cut", "malformed"):
        return _refused(protocol, turn[0])
    used = sum(len(message.calls) for message in request.messages)
    make = openai_body if protocol == "openai" else anthropic_body
    return list(make(turn, first_call=used + 1)), 200


def _refused(protocol: str, step: Fail) -> tuple[list[Frame], int]:
    if step.kind == "connection":
        return [], 0
    return [json.dumps(_error(protocol, step))], ERRORS[step.kind][0]


def _error(protocol: str, step: Fail) -> dict[str, Any]:
    _, code, type_ = ERRORS.get(step.kind, ERRORS["server"])
    if protocol == "openai":
        return {"error": {"message": step.technical, "type": "invalid_request_error", "code": code}}
    return {"type": "error", "error": {"type": type_, "message": step.technical}}


def _pieces(step: Say | Think) -> Iterator[tuple[float, str]]:
    for start in range(0, len(step.text), step.size):
        yield float(step.every), step.text[start : start + step.size]


def _reason(turn: Sequence[Step]) -> str:
    stop = next((step.reason for step in turn if isinstance(step, Stop)), None)
    return stop or ("tool_calls" if any(isinstance(step, Use) for step in turn) else "stop")


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


# --- OpenAI Chat Completions ---------------------------------------------------------------------------------------


def openai_chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **extra: Any) -> str:
    """Return one chunk as an event."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "story", "choices": choices, **extra}
    return f"data: {json.dumps(chunk)}\n\n"


DONE = "data: [DONE]\n\n"


def openai_body(turn: Turn, *, first_call: int = 1) -> Iterator[Frame]:
    """Return the streamed body of a turn, with usage at its end."""
    yield openai_chunk({"role": "assistant", "content": ""})
    index = 0
    for step in turn:
        match step:
            case Say() | Think():
                field = "content" if isinstance(step, Say) else "reasoning_content"
                for every, piece in _pieces(step):
                    yield from [every] if every else []
                    yield openai_chunk({field: piece})
            case Use():
                yield from _openai_call(step, index, f"call_{first_call + index}")
                index += 1
            case Wait():
                yield float(step.seconds)
            case Fail():
                yield from _broken("openai", step)
                return
            case Stop():
                break
    reason = _reason(turn)
    yield openai_chunk({}, OPENAI_FINISH.get(reason, reason))
    yield openai_chunk(usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
    yield DONE


def _openai_call(step: Use, index: int, call_id: str) -> Iterator[Frame]:
    head: dict[str, Any] = {"index": index, "id": call_id, "type": "function"}
    yield openai_chunk({"tool_calls": [{**head, "function": {"name": step.tool, "arguments": ""}}]})
    for half in _halves(step.raw):
        yield openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})


def _broken(protocol: str, step: Fail) -> Iterator[Frame]:
    if step.kind == "malformed":
        yield "data: {this is no JSON\n\n"
    elif step.kind not in ("cut", "connection"):
        yield f"event: error\ndata: {json.dumps(_error(protocol, step))}\n\n"


def read_openai(body: dict[str, Any]) -> ModelRequest:
    """Return a Chat Completions request as our own."""
    messages: list[Message] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            result = ToolResult(message["tool_call_id"], "", content, content.lower().startswith("error"))
            earlier = messages.pop().parts if messages and messages[-1].role == "tool" else ()
            messages.append(Message("tool", (*earlier, result)))
            continue
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        )
        texts = (Text(content),) if content else ()
        messages.append(Message("system" if role == "developer" else role, (*texts, *calls)))
    tools = tuple(ToolSpec.from_json(tool) for tool in body.get("tools", ()))
    return ModelRequest(body["model"], _named(messages), tools, body.get("tool_choice", "auto"))


def _named(messages: list[Message]) -> tuple[Message, ...]:
    """Give each result the name of its tool, which neither protocol repeats."""
    names = {call.id: call.name for message in messages for call in message.calls}

    def named(part: Part) -> Part:
        return replace(part, name=names.get(part.call_id, "")) if isinstance(part, ToolResult) else part

    return tuple(replace(message, parts=tuple(map(named, message.parts))) for message in messages)


# --- Anthropic Messages --------------------------------------------------------------------------------------------


def anthropic_event(type_: str, **fields: Any) -> str:
    """Return one event."""
    return f"event: {type_}\ndata: {json.dumps({'type': type_, **fields})}\n\n"


def anthropic_start(message_id: str = "msg_1") -> str:
    """Return the event that opens a message."""
    usage = {"input_tokens": 100, "output_tokens": 1}
    return anthropic_event(
        "message_start", message={"id": message_id, "role": "assistant", "content": [], "usage": usage}
    )


def anthropic_end(reason: str = "end_turn", **usage: int) -> str:
    """Return the two events that close a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return anthropic_event("message_delta", delta=delta, usage={"output_tokens": 20, **usage}) + anthropic_event(
        "message_stop"
    )


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
                yield from _broken("anthropic", step)
                return
            case Stop():
                break
            case Use():
                calls += 1
        yield from _anthropic_block(step, index, f"toolu_{first_call + calls - 1}")
        yield anthropic_event("ping")
        index += 1
    reason = _reason(turn)
    yield anthropic_end(ANTHROPIC_STOP.get(reason, reason))


def _anthropic_block(step: Say | Think | Use, index: int, call_id: str) -> Iterator[Frame]:
    if isinstance(step, Use):
        yield anthropic_event(
            "content_block_start",
            index=index,
            content_block={"type": "tool_use", "id": call_id, "name": step.tool, "input": {}},
        )
        for piece in ("", *_halves("" if step.raw == "{}" else step.raw)):
            yield anthropic_delta(index, "input_json_delta", partial_json=piece)
    else:
        field = "text" if isinstance(step, Say) else "thinking"
        yield anthropic_event("content_block_start", index=index, content_block={"type": field, field: ""})
        for every, piece in _pieces(step):
            yield from [every] if every else []
            yield anthropic_delta(index, f"{field}_delta", **{field: piece})
        if field == "thinking":
            yield anthropic_delta(index, "signature_delta", signature="signed")
    yield anthropic_event("content_block_stop", index=index)


def anthropic_delta(index: int, type_: str, **fields: Any) -> str:
    """Return a delta of a content block as an event."""
    return anthropic_event("content_block_delta", index=index, delta={"type": type_, **fields})


_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "any": "required"}


def read_anthropic(body: dict[str, Any]) -> ModelRequest:
    """Return a Messages request as our own."""
    messages: list[Message] = [Message("system", (Text(body["system"]),))] if body.get("system") else []
    for message in body["messages"]:
        blocks = message["content"]
        results = tuple(_read_result(block) for block in blocks if block["type"] == "tool_result")
        if results:
            messages.append(Message("tool", results))
        calls = (
            ToolCall(block["id"], block["name"], json.dumps(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        )
        texts = (Text(block["text"]) for block in blocks if block["type"] == "text")
        parts: tuple[Part, ...] = (*texts, *calls)
        if parts:
            messages.append(Message(message["role"], parts))
    tools = tuple(ToolSpec(tool["name"], tool["description"], tool["input_schema"]) for tool in body.get("tools", ()))
    choice = _CHOICES[body.get("tool_choice", {"type": "auto"})["type"]]
    return ModelRequest(body["model"], _named(messages), tools, choice)


def _read_result(block: dict[str, Any]) -> ToolResult:
    return ToolResult(block["tool_use_id"], "", block["content"], block.get("is_error", False))
