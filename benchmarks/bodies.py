"""The workload in the three streaming formats, with the fields that the real services send around each piece."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .workload import TOOL
from .workload import Task
from .workload import argument_pieces
from .workload import look_up
from .workload import text_pieces

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """One protocol: how a turn is streamed, and which results a request carries."""

    events: Callable[[Task, int], Iterator[str]]
    results: Callable[[Json], list[str]]


def turn_of(form: Format, task: Task, request: Json) -> int:
    """Return which turn a request asks for: the one behind the results that it carries.

    :raises ValueError: when the results are not those of the turns before, so that nobody skips work.
    """
    results = form.results(request)
    wanted = [look_up(turn, _field(task, turn)) for turn in range(len(results))]
    if results != wanted:
        raise ValueError(f"The results of {len(results)} turns are not what the tool returned.")
    tools = json.dumps(request.get("tools"))
    if f'"{TOOL}"' not in tools:
        raise ValueError(f"The tool {TOOL!r} is not declared.")
    return len(results)


def _field(task: Task, turn: int) -> str:
    field: str = json.loads("".join(argument_pieces(task, turn)))["field"]
    return field


@lru_cache(maxsize=1000)
def encoded(form: Format, task: Task, turn: int) -> tuple[bytes, ...]:
    """Return the events of a turn as bytes."""
    return tuple(event.encode() for event in form.events(task, turn))


def _event(data: Json, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n"


# --- OpenAI Chat Completions ---------------------------------------------------------------------------------------


def _chat_chunk(delta: Json | None, finish: str | None = None, usage: Json | None = None) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return _event(
        {
            "id": "chatcmpl-CoDWtmOB2DZI2l0bK84UVJEMpo63W",
            "object": "chat.completion.chunk",
            "created": 1766084443,
            "model": "gpt-4o-2024-08-06",
            "service_tier": "default",
            "system_fingerprint": "fp_deacdd5f6f",
            "choices": choices,
            "usage": usage,
            "obfuscation": "f02z1qtPwBJj",
        }
    )


def _chat_events(task: Task, turn: int) -> Iterator[str]:
    yield _chat_chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in text_pieces(task, turn):
        yield _chat_chunk({"content": piece})
    arguments = argument_pieces(task, turn)
    if arguments:
        head = {"index": 0, "id": f"call_{turn:024}", "type": "function"}
        yield _chat_chunk({"tool_calls": [{**head, "function": {"name": TOOL, "arguments": ""}}]})
    for piece in arguments:
        yield _chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield _chat_chunk({}, "tool_calls" if arguments else "stop")
    yield _chat_chunk(None, usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
    yield "data: [DONE]\n\n"


def _chat_results(request: Json) -> list[str]:
    return [_text(message["content"]) for message in request["messages"] if message["role"] == "tool"]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- OpenAI Responses ----------------------------------------------------------------------------------------------


def _responses_events(task: Task, turn: int) -> Iterator[str]:
    text, arguments = "".join(text_pieces(task, turn)), "".join(argument_pieces(task, turn))
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    message: Json = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    said = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    done: Json = {**message, "status": "completed", "content": [said]}
    events: list[Json] = [
        {"type": "response.created", "response": _response([], "in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **place, "part": {**said, "text": ""}},
    ]
    for piece in text_pieces(task, turn):
        events.append(
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": [], "obfuscation": "MBnKLz2x"}
        )
    events.append({"type": "response.output_text.done", **place, "text": text, "logprobs": []})
    events.append({"type": "response.content_part.done", **place, "part": said})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": done})
    output = [done]
    if arguments:
        call: Json = {"id": f"fc_{turn}", "type": "function_call", "call_id": f"call_{turn:024}", "name": TOOL}
        output.append({**call, "status": "completed", "arguments": arguments})
        where = {"item_id": call["id"], "output_index": 1}
        opened = {**call, "status": "in_progress", "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": 1, "item": opened})
        for piece in argument_pieces(task, turn):
            events.append(
                {"type": "response.function_call_arguments.delta", **where, "delta": piece, "obfuscation": "b4U"}
            )
        events.append({"type": "response.function_call_arguments.done", **where, "arguments": arguments})
        events.append({"type": "response.output_item.done", "output_index": 1, "item": output[1]})
    events.append({"type": "response.completed", "response": _response(output, "completed")})
    for number, event in enumerate(events):
        yield _event({"type": event["type"], "sequence_number": number, **event}, event["type"])


def _response(output: list[Json], status: str) -> Json:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 120,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1766084443,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-4o-2024-08-06",
        "output": output,
        "usage": usage if status == "completed" else None,
    }


def _responses_results(request: Json) -> list[str]:
    return [_text(item["output"]) for item in request["input"] if item.get("type") == "function_call_output"]


# --- Anthropic Messages --------------------------------------------------------------------------------------------


def _anthropic_events(task: Task, turn: int) -> Iterator[str]:
    arguments = argument_pieces(task, turn)
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": task.model, "content": []}
    events: list[Json] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for piece in text_pieces(task, turn):
        events.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    events.append({"type": "content_block_stop", "index": 0})
    if arguments:
        block = {"type": "tool_use", "id": f"toolu_{turn:022}", "name": TOOL, "input": {}}
        events.append({"type": "content_block_start", "index": 1, "content_block": block})
        for piece in arguments:
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": 1, "delta": delta})
        events.append({"type": "content_block_stop", "index": 1})
    stop = {"stop_reason": "tool_use" if arguments else "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}})
    events.append({"type": "message_stop"})
    yield from (_event(event, event["type"]) for event in events)


def _anthropic_results(request: Json) -> list[str]:
    blocks = (block for message in request["messages"] if message["role"] == "user" for block in _blocks(message))
    return [_text(block["content"]) for block in blocks if block["type"] == "tool_result"]


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


FORMATS = {
    "/chat/completions": Format(_chat_events, _chat_results),
    "/responses": Format(_responses_events, _responses_results),
    "/messages": Format(_anthropic_events, _anthropic_results),
}
"""By the end of the path that is asked."""
