"""Hand-written streams of OpenAI Responses, in the shape that the recordings have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 15,
}


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def text_item(text: str, phase: str | None = None, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
    phased = {"phase": phase} if phase else {}
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        **phased,
        "content": content,
    } | (fields)


def call_item(
    call_id: str, name: str = "weather", arguments: Any = '{"city": "Paris"}', **fields: Any
) -> dict[str, Any]:
    call = {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return {**call, "status": "completed", **fields}


def reasoning_item(secret: str = "secret", *summary: str) -> dict[str, Any]:
    texts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": f"rs_{secret}", "type": "reasoning", "encrypted_content": secret, "summary": texts}


def streamed_item(item: dict[str, Any], place: int = 0) -> Iterator[str]:
    """An item as the API streams it: opened empty, grown in pieces, finished whole."""
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    kind = item["type"]
    yield event("response.output_item.added", output_index=place, item={**item, "status": "in_progress", **empty[kind]})
    yield from (event(name, output_index=place, **fields) for name, fields in _deltas(item))
    yield event("response.output_item.done", output_index=place, item=item)


def _deltas(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if item["type"] == "function_call":
        yield from (
            ("response.function_call_arguments.delta", {"delta": piece}) for piece in _halves(item["arguments"])
        )
    for number, part in enumerate(item.get("content") or []):
        name, text = ("refusal", part["refusal"]) if part["type"] == "refusal" else ("output_text", part["text"])
        for piece in _halves(text):
            yield f"response.{name}.delta", {"content_index": number, "delta": piece}
    for number, part in enumerate(item.get("summary") or []):
        for piece in _halves(part["text"]):
            yield "response.reasoning_summary_text.delta", {"summary_index": number, "delta": piece}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def ended(status: str = "completed", **fields: Any) -> str:
    return event(f"response.{status}", response={"status": status, "usage": USAGE, "output": [], **fields})


def answer(*items: dict[str, Any], end: str | None = None) -> str:
    """A whole stream of these items, completed unless told otherwise."""
    begun = event("response.created", response={"status": "in_progress", "usage": None, "output": []})
    parts = (part for place, item in enumerate(items) for part in streamed_item(item, place))
    return begun + "".join(parts) + (ended() if end is None else end)


def streamed_response(response: dict[str, Any]) -> str:
    """A recorded answer that was not streamed, as the API would have streamed it."""
    end = event(f"response.{response['status']}", response=response)
    return answer(*response["output"], end=end)
