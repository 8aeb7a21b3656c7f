"""Gemini generateContent for the test server: from a script's turn to a streamed body, and from a request to ours."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from flask_instruct.adapters.base import parse_object
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
from flask_instruct.messages import ToolChoice
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

from .wire_parts import INPUT_TOKENS
from .wire_parts import OUTPUT_TOKENS
from .wire_parts import Frame
from .wire_parts import broken
from .wire_parts import grown
from .wire_parts import named
from .wire_parts import pieces
from .wire_parts import reason_of

GOOGLE_FINISH = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "PROHIBITED_CONTENT",
    "malformed": "MALFORMED_FUNCTION_CALL",
    "error": "TOO_MANY_TOOL_CALLS",
}
GOOGLE_ERRORS: dict[str, tuple[int, str]] = {
    "authentication": (401, "UNAUTHENTICATED"),
    "permission": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "bad_request": (400, "INVALID_ARGUMENT"),
    "context_window": (400, "INVALID_ARGUMENT"),
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "UNAVAILABLE"),
    "server": (500, "INTERNAL"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
}
TOO_LONG = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
"""Only these words tell a prompt that is too long from any other wrong request."""

_THOUGHTS = 5
_CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}


def google_chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> str:
    """Return one response object as an event, with the whole usage where the answer ends."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
        usage = {"candidatesTokenCount": OUTPUT_TOKENS - _THOUGHTS, "thoughtsTokenCount": _THOUGHTS}
        fields.setdefault("usageMetadata", {"promptTokenCount": INPUT_TOKENS, **usage})
    return f"data: {json.dumps({'candidates': [candidate], 'modelVersion': 'story', **fields})}\r\n\r\n"


def google_error(step: Fail) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refused request."""
    status, word = GOOGLE_ERRORS.get(step.kind, GOOGLE_ERRORS["server"])
    said = f"{step.technical} {TOO_LONG}" if step.kind == "context_window" else step.technical
    return status, {"error": {"code": status, "message": said, "status": word}}


def google_body(turn: Turn, *, first_call: int = 1) -> Iterator[Frame]:
    """Return the streamed body of a turn: each call whole in one part, the first of them signed."""
    calls = 0
    for step in turn:
        match step:
            case Say() | Think():
                thought = {"thought": True} if isinstance(step, Think) else {}
                for every, piece in pieces(step):
                    yield from [every] if every else []
                    yield google_chunk({"text": piece, **thought})
            case Use():
                signed = {} if calls else {"thoughtSignature": "c2lnbmVk"}
                yield google_chunk({**google_call(step, f"call_{first_call + calls}"), **signed})
                calls += 1
            case Wait():
                yield float(step.seconds)
            case Fail():
                yield from broken(step, google_error(step)[1])
                return
            case Stop():
                break
    reason = reason_of(turn)
    yield google_chunk({"text": ""}, finish=GOOGLE_FINISH.get(reason, reason.upper()))


def google_call(step: Use, call_id: str = "") -> dict[str, Any]:
    """Return a call as a part; arguments that are no object go as the text they are."""
    arguments = parse_object(step.raw)
    call = {"name": step.tool, "args": step.raw if arguments is None else arguments}
    return {"functionCall": {**call, **({"id": call_id} if call_id else {})}}


def read_google(body: dict[str, Any], path: str) -> ModelRequest:
    """Return a generateContent request as our own; the model stands in the path."""
    model = path.rpartition("/")[2].partition(":")[0]
    said = body.get("systemInstruction", {}).get("parts", ())
    messages: list[Message] = [Message("system", tuple(Text(part["text"]) for part in said))] if said else []
    calls: list[ToolCall] = []
    answered = 0
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                calls.append(ToolCall(call.get("id") or f"call_{len(calls)}", call["name"], json.dumps(call["args"])))
                messages = grown(messages, "assistant", calls[-1])
            elif "functionResponse" in part:
                messages = grown(messages, "tool", _read_result(part["functionResponse"], calls[answered]))
                answered += 1
            elif not part.get("thought"):
                role = "assistant" if content["role"] == "model" else "user"
                messages = grown(messages, role, _read_part(part))  # type: ignore[arg-type]
    generation = body.get("generationConfig", {})
    schema = generation.get("responseJsonSchema")
    output = OutputSpec("answer", schema) if schema else None
    return ModelRequest(model, named(messages), _read_tools(body), _read_choice(body), output=output)


def _read_part(part: dict[str, Any]) -> Part:
    if "text" in part:
        return Text(part["text"])
    inline, file = part.get("inlineData", {}), part.get("fileData", {})
    media_type = inline.get("mimeType") or file["mimeType"]
    kind = Image if media_type.startswith("image/") else Document
    data = base64.b64decode(inline["data"], validate=True) if inline else None
    return kind(media_type, data, file.get("fileUri"))


def _read_result(response: dict[str, Any], call: ToolCall) -> ToolResult:
    """Results come in the order of the calls, with an id only where the call had one."""
    ((kind, content),) = response["response"].items()
    return ToolResult(response.get("id") or call.id, response["name"], content, kind == "error")


def _read_tools(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    declared = (tool for group in body.get("tools", ()) for tool in group.get("functionDeclarations", ()))
    return tuple(ToolSpec(tool["name"], tool["description"], tool["parametersJsonSchema"]) for tool in declared)


def _read_choice(body: dict[str, Any]) -> ToolChoice:
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "AUTO")
    return _CHOICES[mode]
