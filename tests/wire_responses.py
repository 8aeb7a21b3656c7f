"""OpenAI Responses for the test server: from a script's turn to a streamed body, and from a request to ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Part
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

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

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
USAGE = {
    "input_tokens": INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def responses_event(kind: str, **fields: Any) -> str:
    """Return one event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def responses_end(reason: str = "stop") -> str:
    """Return the event that ends a response."""
    status = "incomplete" if reason in INCOMPLETE else "completed"
    why = {"incomplete_details": {"reason": INCOMPLETE[reason]}} if reason in INCOMPLETE else {}
    known = reason in ("stop", "tool_calls", "refusal", "malformed", *INCOMPLETE)
    response = {"id": "resp_1", "status": status if known else reason, "usage": USAGE, "output": [], **why}
    return responses_event(f"response.{status}", response=response)


def responses_error(step: Fail) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refused request."""
    status, code, _ = ERRORS.get(step.kind, ERRORS["server"])
    return status, {"error": {"message": step.technical, "type": "invalid_request_error", "code": code}}


def responses_body(turn: Turn, *, first_call: int = 1) -> Iterator[Frame]:
    """Return the streamed body of a turn, with usage in its last event."""
    yield responses_event("response.created", response={"id": "resp_1", "status": "in_progress", "output": []})
    reason = reason_of(turn)
    place = calls = 0
    for step in turn:
        match step:
            case Wait():
                yield float(step.seconds)
                continue
            case Fail():
                _, code, _ = ERRORS.get(step.kind, ERRORS["server"])
                yield from broken(step, {"type": "error", "code": code, "message": step.technical, "param": None})
                return
            case Stop():
                break
            case Use():
                calls += 1
                yield from _call(step, place, f"call_{first_call + calls - 1}", cut=reason == "malformed")
            case Think():
                yield from _thought(step, place)
            case Say():
                yield from _message(step, place, "refusal" if reason == "refusal" else "output_text")
        place += 1
    yield responses_end(reason)


def _item(kind: str, place: int, item: dict[str, Any]) -> str:
    return responses_event(f"response.output_item.{kind}", output_index=place, item=item)


def _call(step: Use, place: int, call_id: str, *, cut: bool) -> Iterator[Frame]:
    head = {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": step.tool}
    yield _item("added", place, {**head, "status": "in_progress", "arguments": ""})
    for half in halves(step.raw):
        yield responses_event("response.function_call_arguments.delta", output_index=place, delta=half)
    yield responses_event("response.function_call_arguments.done", output_index=place, arguments=step.raw)
    yield _item("done", place, {**head, "status": "incomplete" if cut else "completed", "arguments": step.raw})


def _thought(step: Think, place: int) -> Iterator[Frame]:
    head = {"id": f"rs_{place}", "type": "reasoning", "encrypted_content": f"secret-{place}"}
    yield _item("added", place, {**head, "summary": []})
    for every, piece in pieces(step):
        yield from [every] if every else []
        delta = {"output_index": place, "summary_index": 0, "delta": piece}
        yield responses_event("response.reasoning_summary_text.delta", **delta)
    yield _item("done", place, {**head, "summary": [{"type": "summary_text", "text": step.text}]})


def _message(step: Say, place: int, kind: str) -> Iterator[Frame]:
    head = {"id": f"msg_{place}", "type": "message", "role": "assistant"}
    yield _item("added", place, {**head, "status": "in_progress", "content": []})
    for every, piece in pieces(step):
        yield from [every] if every else []
        yield responses_event(f"response.{kind}.delta", output_index=place, content_index=0, delta=piece)
    field = "refusal" if kind == "refusal" else "text"
    yield _item("done", place, {**head, "status": "completed", "content": [{"type": kind, field: step.text}]})


def read_responses(body: dict[str, Any]) -> ModelRequest:
    """Return a Responses request as our own."""
    instructions = body.get("instructions")
    messages: list[Message] = [Message("system", (Text(instructions),))] if instructions else []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            messages = grown(messages, "assistant", ToolCall(item["call_id"], item["name"], item["arguments"]))
        elif kind == "function_call_output":
            error = item["output"].lower().startswith("error")
            messages = grown(messages, "tool", ToolResult(item["call_id"], "", item["output"], error))
        elif kind == "message":
            messages = grown(messages, item["role"], *_read_content(item["content"]))
    tools = tuple(ToolSpec(tool["name"], tool["description"], tool["parameters"]) for tool in body.get("tools", ()))
    shape = body.get("text", {}).get("format")
    output = OutputSpec(shape["name"], shape["schema"]) if shape else None
    choice = body.get("tool_choice", "auto")
    return ModelRequest(body["model"], named(messages), tools, choice, output=output)


def _read_content(content: str | list[dict[str, Any]]) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content:
        if part["type"] == "input_text":
            yield Text(part["text"])
        elif part["type"] == "input_image":
            yield attached(Image, part["image_url"])
        else:
            yield attached(Document, part.get("file_data") or part["file_url"], part.get("filename"))
