"""Our own streamed answers, written by hand for each protocol, and what each of them means.

They have the shapes that are recorded from real providers, for machines without the recordings, and those that no
recording shows: overload in mid-stream, calls beside a filter or a limit, one index for two calls, corrected usage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flask_instruct.events import FinishReason
from tests.wire_format import DONE
from tests.wire_format import anthropic_delta
from tests.wire_format import anthropic_end
from tests.wire_format import anthropic_event
from tests.wire_format import anthropic_start
from tests.wire_format import openai_chunk
from tests.wire_format import openai_usage
from tests.wire_google import google_chunk

from .responses_wire import USAGE
from .responses_wire import answer
from .responses_wire import call_item
from .responses_wire import ended
from .responses_wire import event
from .responses_wire import reasoning_item
from .responses_wire import streamed_item
from .responses_wire import text_item

CITY = {"city": "Zürich"}
TEXT = "Grüße aus 東京 🎌"
SPENT = (100, 20)
SPENT_ON_RESPONSES = (10, 5)
"""What ``responses_wire`` says."""

Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Body:
    """A streamed answer.

    :param shape: what is special about it; the same words for the same thing in each protocol.
    :param text: the body as it is sent.
    :param says: the text that is shown and kept.
    :param error: the kind of error that it is instead of an answer.
    :param ends: whether the terminal signal is in it.
    """

    protocol: str
    shape: str
    text: str
    says: str = ""
    thinks: str = ""
    calls: Calls = ()
    reason: FinishReason = "stop"
    usage: tuple[int | None, int | None] | None = SPENT
    error: str = ""
    ends: bool = True

    @property
    def id(self) -> str:
        return f"{self.protocol}: {self.shape}"


def _plain(value: Any) -> str:
    """JSON whose characters stand for themselves, as the providers send it."""
    return json.dumps(value, ensure_ascii=False)


def _unescaped(body: str) -> str:
    """The same body with characters instead of escapes, so that the network can cut them."""
    lines = (
        f"data: {_plain(json.loads(line[5:]))}" if line.startswith("data:") and line[5:].strip()[:1] == "{" else line
        for line in body.split("\n")
    )
    return "\n".join(lines)


# -- Chat Completions --------------------------------------------------------------------------------------------------


def _said(*texts: str, field: str = "content") -> str:
    return "".join(openai_chunk({field: text}) for text in texts)


def _asked(*calls: dict[str, Any]) -> str:
    return "".join(openai_chunk({"tool_calls": [call]}) for call in calls)


def _fragment(arguments: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {**({"name": name} if name else {}), "arguments": arguments}}


def _ended(word: str | None, *after: str) -> str:
    return openai_chunk({}, word) + openai_usage() + "".join(after or (DONE,))


WHOLE = _fragment(_plain(CITY), "weather", index=0, id="call_a")
OTHER = _fragment('{"to": 3}', "count", index=1, id="call_b")
BOTH: Calls = (("weather", CITY), ("count", {"to": 3}))
ONE: Calls = (("weather", CITY),)


def chat_bodies() -> Iterator[Body]:
    def body(shape: str, text: str, **means: Any) -> Body:
        return Body("openai", shape, _unescaped(text), **means)

    yield body("a text", _said("Grüße ", "aus 東京", " 🎌") + _ended("stop"), says=TEXT)
    yield body(
        "reasoning, then two calls",
        _said("Hm. ", "Würfel.", field="reasoning_content") + _asked(WHOLE, OTHER) + _ended("tool_calls"),
        thinks="Hm. Würfel.",
        calls=BOTH,
        reason="tool_calls",
    )
    pieces = [_fragment("", "weather", index=0, id="call_a"), *(_fragment(part, index=0) for part in '{"city":"Ü"}')]
    yield body(
        "a call in pieces",
        _asked(*pieces) + _ended("tool_calls"),
        calls=(("weather", {"city": "Ü"}),),
        reason="tool_calls",
    )
    for shape, arguments in (("empty", ""), ("null", None)):
        call = {"index": 0, "id": "call_a", "function": {"name": "weather", "arguments": arguments}}
        yield body(
            f"a call whose arguments are {shape}",
            _asked(call) + _ended("tool_calls"),
            calls=(("weather", {}),),
            reason="tool_calls",
        )
    yield body(
        "two calls of one index",
        _asked(WHOLE, {**OTHER, "index": 0}) + _ended("tool_calls"),
        calls=BOTH,
        reason="tool_calls",
    )
    yield body(
        "a call whose index starts at 1", _asked({**WHOLE, "index": 1}) + _ended("stop"), calls=ONE, reason="tool_calls"
    )
    for word, reason in (
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("function_call_filter", "malformed"),
    ):
        yield body(
            f"a whole call beside {word}", _said("Half") + _asked(WHOLE) + _ended(word), says="Half", reason=reason
        )
    yield body("a word that nobody knows", _said("Half") + _asked(WHOLE) + _ended("tired"), says="Half", reason="other")
    yield body("a refusal", _said("I can't.", field="refusal") + _ended("stop"), says="I can't.", reason="refusal")
    signed = {**WHOLE, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    yield body("a call with a signature", _asked(signed) + _ended("tool_calls"), calls=ONE, reason="tool_calls")
    yield body("[DONE] alone after a text", _said("Whole.") + DONE, says="Whole.", usage=None)
    yield body("[DONE] alone after a call", _asked(WHOLE) + DONE, calls=ONE, reason="tool_calls", usage=None)
    half = _fragment('{"city": ', "weather", index=0, id="call_a")
    yield body("[DONE] alone after half a call", _asked(half) + DONE, error="cut")
    yield body("[DONE] alone", DONE, error="cut")
    error = {"message": "Overloaded", "type": "overloaded_error", "code": 503}
    yield body("overload in mid-stream", _said("Half") + f"data: {_plain({'error': error})}\n\n", error="overloaded")
    beside = openai_chunk({"content": ""}, "error", error=error) + openai_usage() + DONE
    yield body("overload beside choices", _said("Half") + beside, error="overloaded")
    yield body("an error that is but a text", 'data: {"error": "No more."}\n\n' + DONE, error="server")
    corrected = openai_chunk(usage={"prompt_tokens": 101, "completion_tokens": 21})
    yield body("corrected usage", _said("Hi") + _ended("stop", corrected, DONE), says="Hi", usage=(101, 21))
    yield body("no end", _said("Half"), error="cut", ends=False)
    strange = openai_chunk(choices=None) + openai_chunk() + openai_chunk(choices=[{"index": 0, "delta": None}])
    yield body("comments and empty chunks", ": PROCESSING\n\n" + strange + _said("Hi") + _ended("stop"), says="Hi")


# -- Responses ---------------------------------------------------------------------------------------------------------


def responses_bodies() -> Iterator[Body]:
    def body(shape: str, text: str, **means: Any) -> Body:
        return Body("openai_responses", shape, _unescaped(text), **{"usage": SPENT_ON_RESPONSES, **means})

    weather, count = call_item("call_a", arguments=_plain(CITY)), call_item("call_b", "count", '{"to": 3}')
    yield body("a text", answer(text_item(TEXT)), says=TEXT)
    yield body(
        "reasoning, then two calls",
        answer(reasoning_item("s", "Hm. Würfel."), weather, count),
        thinks="Hm. Würfel.",
        calls=BOTH,
        reason="tool_calls",
    )
    yield body(
        "a call whose arguments are empty",
        answer(call_item("call_a", arguments="")),
        calls=(("weather", {}),),
        reason="tool_calls",
    )
    both = "".join("".join(streamed_item(item, 0)) for item in (weather, count))
    yield body("two calls of one index", both + ended(), calls=BOTH, reason="tool_calls")
    for word, reason in (("max_output_tokens", "length"), ("content_filter", "content_filter")):
        end = ended("incomplete", incomplete_details={"reason": word})
        yield body(
            f"a whole call beside {word}", answer(text_item("Half"), weather, end=end), says="Half", reason=reason
        )
    cut_call = call_item("call_a", arguments='{"city": ', status="incomplete")
    yield body("a call that is incomplete", answer(text_item("Half"), cut_call), says="Half", reason="malformed")
    tired = event("response.completed", response={"status": "tired", "usage": USAGE, "output": []})
    yield body("a word that nobody knows", answer(text_item("Half"), weather, end=tired), says="Half", reason="other")
    refusal = text_item("", content=[{"type": "refusal", "refusal": "I can't."}])
    yield body("a refusal", answer(refusal), says="I can't.", reason="refusal")
    yield body("[DONE] alone after a text", answer(text_item("Whole."), end=DONE), error="cut")
    flat = event("error", code="server_is_overloaded", message="Overloaded", param=None)
    yield body("a flat error in mid-stream", answer(text_item("Half"), end=flat), error="overloaded")
    nested = event("error", error={"type": "overloaded_error", "code": "overloaded", "message": "Overloaded"})
    yield body("overload in mid-stream", answer(text_item("Half"), end=nested), error="overloaded")
    failed = event("response.failed", response={"status": "failed", "error": {"code": "server_error", "message": "No"}})
    yield body("a failed response", answer(text_item("Half"), end=failed), error="server")
    yield body("no end", answer(text_item("Half"), end=""), error="cut", ends=False)


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def _block(index: int, kind: str, *deltas: tuple[str, dict[str, str]], **fields: Any) -> str:
    grown = "".join(anthropic_delta(index, name, **said) for name, said in deltas)
    start = anthropic_event("content_block_start", index=index, content_block={"type": kind, **fields})
    return start + grown + anthropic_event("content_block_stop", index=index)


def _text(text: str, index: int = 0) -> str:
    halves = (text[: len(text) // 2], text[len(text) // 2 :])
    return _block(index, "text", *(("text_delta", {"text": half}) for half in halves), text="")


def _use(index: int, call_id: str, name: str, *pieces: str) -> str:
    deltas = (("input_json_delta", {"partial_json": piece}) for piece in pieces)
    return _block(index, "tool_use", *deltas, id=call_id, name=name, input={})


def anthropic_bodies() -> Iterator[Body]:
    def body(shape: str, *parts: str, **means: Any) -> Body:
        return Body("anthropic", shape, _unescaped(anthropic_start() + "".join(parts)), **means)

    weather, count = (
        _use(1, "toolu_a", "weather", "", '{"city": "Z', 'ürich"}'),
        _use(2, "toolu_b", "count", '{"to": 3}'),
    )
    thought = _block(
        0,
        "thinking",
        ("thinking_delta", {"thinking": "Hm. Würfel."}),
        ("signature_delta", {"signature": "signed"}),
        thinking="",
    )
    yield body("a text", anthropic_event("ping"), _text(TEXT), anthropic_end(), says=TEXT)
    yield body(
        "reasoning, then two calls",
        *(thought, weather, count, anthropic_end("tool_use")),
        thinks="Hm. Würfel.",
        calls=BOTH,
        reason="tool_calls",
    )
    for pieces in ((), ("",), ("{}",)):
        yield body(
            f"a call whose arguments are {pieces}",
            _use(0, "toolu_a", "weather", *pieces) + anthropic_end("tool_use"),
            calls=(("weather", {}),),
            reason="tool_calls",
        )
    for word, reason in (
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "context_window"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("tired", "other"),
    ):
        yield body(
            f"a whole call beside {word}", _text("Half"), weather, anthropic_end(word), says="Half", reason=reason
        )
    open_call = weather.replace(anthropic_event("content_block_stop", index=1), "")
    yield body("a call without its end", _text("Half"), open_call, anthropic_end("tool_use"), error="cut")
    yield body(
        "a call cut by the limit", _text("Half"), open_call, anthropic_end("max_tokens"), says="Half", reason="length"
    )
    overload = anthropic_event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    yield body("overload in mid-stream", _text("Half"), overload, error="overloaded")
    yield body("two answers mixed", _text("Half"), anthropic_start("msg_2"), error="malformed", ends=False)
    again = _use(1, "toolu_b", "count", '{"to": 3}')
    yield body("two calls of one index", weather, again, anthropic_end("tool_use"), calls=BOTH, reason="tool_calls")
    begun = anthropic_event(
        "content_block_start",
        index=1,
        content_block={"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {}},
    )
    yield body("the start of a call twice", begun, weather, anthropic_end("tool_use"), calls=ONE, reason="tool_calls")
    strange = _block(0, "verse", ("text_delta", {"text": "Half"}), text="")
    yield body("a text in a block that nobody knows", strange, anthropic_end(), says="Half")
    yield body("the start twice", anthropic_start(), _text("Hi"), anthropic_end(), says="Hi")
    yield body(
        "corrected usage", _text("Hi"), anthropic_end(input_tokens=61, output_tokens=2), says="Hi", usage=(61, 2)
    )
    cached: dict[str, Any] = {"cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
    yield body("cached input", _text("Hi"), anthropic_end(input_tokens=10, **cached), says="Hi", usage=(55, 20))
    yield body("no end", _text("Half"), error="cut", ends=False)


# -- Gemini ------------------------------------------------------------------------------------------------------------


def _call(name: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **fields}}


def google_bodies() -> Iterator[Body]:
    def body(shape: str, *chunks: str, **means: Any) -> Body:
        return Body("google", shape, _unescaped("".join(chunks).replace("\r\n", "\n")), **means)

    weather, count = _call("weather", args=CITY), _call("count", args={"to": 3})
    end = google_chunk({"text": ""}, finish="STOP")
    half = google_chunk({"text": "Half"})
    yield body("a text", google_chunk({"text": "Grüße "}), google_chunk({"text": "aus 東京 🎌"}), end, says=TEXT)
    yield body(
        "reasoning, then two calls",
        google_chunk({"text": "Hm. Würfel.", "thought": True}),
        google_chunk({**weather, "thoughtSignature": "c2ln"}, count),
        end,
        thinks="Hm. Würfel.",
        calls=BOTH,
        reason="tool_calls",
    )
    yield body(
        "a call whose arguments are missing",
        google_chunk(_call("weather")),
        end,
        calls=(("weather", {}),),
        reason="tool_calls",
    )
    same = [{"functionCall": {**call["functionCall"], "id": "call_0"}} for call in (weather, count)]
    yield body("two calls of one id", google_chunk(*same), end, calls=BOTH, reason="tool_calls")
    for word, reason in (
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
        ("UNEXPECTED_TOOL_CALL", "malformed"),
        ("TOO_MANY_TOOL_CALLS", "error"),
        ("TIRED", "other"),
    ):
        yield body(f"a whole call beside {word}", half, google_chunk(weather, finish=word), says="Half", reason=reason)
    empty = {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": {"promptTokenCount": 9}}
    yield body("the limit before a word", f"data: {_plain(empty)}\n\n", reason="length", usage=(9, None))
    error = {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}
    yield body("overload in mid-stream", half, f"data: {_plain(error)}\n\n", error="overloaded")
    corrected = {"promptTokenCount": 61, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}
    yield body(
        "corrected usage",
        google_chunk({"text": "Hi"}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 1}),
        google_chunk({"text": ""}, finish="STOP", usageMetadata=corrected),
        says="Hi",
        usage=(61, 5),
    )
    yield body("no end", half, error="cut", ends=False)
    parts = [json.loads(chunk[5:]) for chunk in (google_chunk({"text": TEXT}), google_chunk(weather), end)]
    array = json.dumps(parts, ensure_ascii=False, indent=2)
    yield Body("google", "a JSON array", array, says=TEXT, calls=ONE, reason="tool_calls")
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
    yield body("a blocked prompt", f"data: {_plain(blocked)}\n\n", reason="content_filter", usage=(9, None))


BODIES: tuple[Body, ...] = (*chat_bodies(), *responses_bodies(), *anthropic_bodies(), *google_bodies())
