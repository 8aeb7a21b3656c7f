"""Gemini generateContent: what is sent."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from google.genai import types
from pydantic import TypeAdapter

from flask_instruct.adapters import google
from flask_instruct.adapters.base import ProviderSettings
from flask_instruct.adapters.google import GENERATION_KEYS
from flask_instruct.adapters.google import NO_SIGNATURE
from flask_instruct.adapters.google import render_request
from flask_instruct.adapters.google_answer import parse_payloads
from flask_instruct.adapters.google_answer import read_payloads
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.dialects import Told
from flask_instruct.errors import ProviderError
from flask_instruct.messages import JsonObject
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests import recordings

from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user

OFFICIAL = settings("google", quirks=BUILT_IN["google"].quirks)
NEW, OLD = "gemini-3.8-flash", "gemini-2.5-flash"
BASE64 = str.maketrans("-_", "+/")
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
SIGNED = {"thoughtSignature": "c2lnbmVk"}
PLACEHOLDER = {"role": "user", "parts": [{"text": "(no text)"}]}


def contents(*messages: Message, model: str = OLD, **fields: Any) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = render_request(asking(*messages, model=model, **fields), OFFICIAL)["contents"]
    return rendered


def body(model: str = OLD, **fields: Any) -> JsonObject:
    return render_request(asking(model=model, **fields), OFFICIAL)


def calling(*calls: ToolCall, model: str = OLD) -> list[dict[str, Any]]:
    """The parts of the model's turn and of the results' turn."""
    answers = results(*(ToolResult(call.id, call.name, "1") for call in calls))
    rendered = contents(user("Hi"), assistant(*calls), answers, model=model)
    return [part for content in rendered[1:] for part in content["parts"]]


def require_valid(payload: JsonObject) -> None:
    """Hold a body to the SDK's own types, which forbid unknown keys; its typed calls send these same fields."""
    known = {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
        "safetySettings": list[types.SafetySetting],
        "cachedContent": str,
    }
    for key, value in payload.items():
        reader: TypeAdapter[Any] = TypeAdapter(known[key])
        read = reader.validate_json(json.dumps(value))
        written = reader.dump_python(read, mode="json", by_alias=True, exclude_unset=True)
        # What a type does not know would be lost; bytes come back in the other alphabet of base64.
        assert json.loads(json.dumps(written).translate(BASE64)) == json.loads(json.dumps(value).translate(BASE64))


class TestTheBody:
    def test_is_of_the_sdks_own_types_for_a_rich_conversation(self) -> None:
        turn = assistant(
            Reasoning("Hm.", "google", {"text": "Hm.", "thought": True, **SIGNED}),
            Reasoning("foreign", "openai", {"reasoning_content": "foreign"}),
            Text("Both.", "google", SIGNED),
            ToolCall("a", "weather", '{"city": "Bonn"}', {"provider_id": "a", **SIGNED}, "google"),
            ToolCall("call_1", "weather", "oops", {"x": 1}, "openai"),
        )
        answers = results(ToolResult("a", "weather", ""), ToolResult("call_1", "weather", "no city", error=True))
        attached = Message("user", (Text("See"), Image.from_bytes(PNG), Document.from_bytes(b"%PDF-1.7")))
        by_url = Message("user", (Image.from_url("https://example.com/a.png"),))
        payload = render_request(
            asking(
                *(system("Be kind."), attached, turn, answers, assistant("Fine."), by_url),
                model=NEW,
                tools=(WEATHER, ToolSpec("no args", "", {"type": "object", "properties": {}})),
                tool_choice="required",
                effort="low",
                output=OutputSpec("answer", {"type": "object", "properties": {"x": {"type": "integer"}}}),
                options={
                    "max_tokens": 9,
                    "top_p": 0.5,
                    "top_k": 4,
                    "temperature": 0.25,
                    "stop": "END",
                    "seed": 7,
                    "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
                    "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
                    "tools": [{"googleSearch": {}}],
                },
            ),
            OFFICIAL,
        )
        require_valid(payload)
        assert list(payload)[-1] == "contents"
        assert [content["role"] for content in payload["contents"]] == ["user", "model", "user", "model", "user"]

    def test_says_as_little_as_it_can(self) -> None:
        assert body() == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}

    def test_of_the_next_turn_begins_with_the_bytes_of_this_one(self) -> None:
        """vercel/ai#16578"""
        call = ToolCall("b", "weather", '{"city": "Bonn"}', SIGNED, "google")
        first = (system("Be."), user("Hi"))
        second = (*first, assistant("Let me see.", call, ToolCall("a", "weather")))
        second = (*second, results(ToolResult("a", "weather", "1"), ToolResult("b", "weather", "2")))
        third = (*second, assistant(Text("Both.", "google", SIGNED)), user("So?"))
        bodies = [
            json.dumps(render_request(asking(*turn, model=NEW, tools=(WEATHER,), options={"seed": 1}), OFFICIAL))
            for turn in (first, second, third)
        ]
        for shorter, longer in pairwise(bodies):
            assert longer.startswith(shorter.removesuffix("]}"))


class TestContents:
    def test_go_from_user_to_user_and_merge_neighbours(self) -> None:
        rendered = contents(user("One"), assistant(" \n"), user("Two"), assistant("", "Yes"), assistant("No"), user(""))
        assert rendered == [
            {"role": "user", "parts": [{"text": "One"}, {"text": "Two"}]},
            {"role": "model", "parts": [{"text": "Yes"}, {"text": "No"}]},
            PLACEHOLDER,
        ]

    def test_are_never_empty_and_never_begin_or_end_with_the_model(self) -> None:
        assert contents(system("Be.")) == [PLACEHOLDER]
        assert [content["role"] for content in contents(assistant("Hi"))] == ["user", "model", "user"]

    def test_have_instructions_apart(self) -> None:
        payload = render_request(asking(system("One."), user("Hi"), system("Two.")), OFFICIAL)
        assert payload["systemInstruction"] == {"parts": [{"text": "One.\n\nTwo."}]}
        assert payload["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]

    def test_answer_all_calls_of_a_turn_in_one_user_turn_in_their_order(self) -> None:
        calls = assistant("Both.", ToolCall("a", "add", '{"x": 1}'), ToolCall("b", "sub"), ToolCall("c", "mul"))
        answers = results(ToolResult("b", "sub", "broken", error=True), ToolResult("a", "add", " "))
        rendered = contents(user("Hi"), calls, answers, user("And?"))
        assert [content["role"] for content in rendered] == ["user", "model", "user"]
        assert rendered[1]["parts"][1] == {"functionCall": {"name": "add", "args": {"x": 1}}}
        responses = [part["functionResponse"] for part in rendered[2]["parts"][:3]]
        assert responses[0] == {"name": "add", "response": {"output": "(no output)"}}
        assert responses[1] == {"name": "sub", "response": {"error": "broken"}}
        assert responses[2]["name"] == "mul"
        assert "interrupted" in responses[2]["response"]["error"]
        assert rendered[2]["parts"][3] == {"text": "And?"}

    @pytest.mark.parametrize("raw", ["[1, 2]", '"text"', '{"x": oops', '{"x": 1e999}'])
    def test_replay_arguments_as_an_object_always(self, raw: str) -> None:
        assert calling(ToolCall("a", "add", raw))[0]["functionCall"]["args"] == {"invalid_arguments": raw}

    def test_replay_names_as_legal_ones_and_the_same_in_call_result_and_declaration(self) -> None:
        tool = ToolSpec("über.tool", "", {"type": "object"})
        history = (user("Hi"), assistant(ToolCall("a", "über.tool"), ToolCall("b", "1st!")))
        payload = render_request(asking(*history, tools=(tool,)), OFFICIAL)
        declared = payload["tools"][0]["functionDeclarations"][0]["name"]
        calls = [part["functionCall"]["name"] for part in payload["contents"][1]["parts"]]
        answers = [part["functionResponse"]["name"] for part in payload["contents"][2]["parts"]]
        assert calls == answers == [declared, "_1st_"]

    def test_replay_characters_that_cannot_be_sent_as_others(self) -> None:
        assert contents(user("Hi\ud83d\x00"))[0]["parts"] == [{"text": "Hi\ufffd"}]


class TestIds:
    def test_go_back_when_the_server_gave_them(self) -> None:
        call, response = calling(ToolCall("x", "add", "{}", {"provider_id": "their"}, "google"))
        assert call["functionCall"]["id"] == response["functionResponse"]["id"] == "their"

    @pytest.mark.parametrize(
        "call", [ToolCall("call_1", "add"), ToolCall("call_1", "add", "{}", {"provider_id": "x"}, "openai")]
    )
    def test_of_our_own_or_of_another_provider_are_not_sent(self, call: ToolCall) -> None:
        """vercel/ai#17902"""
        made, response = calling(call)
        assert "id" not in made["functionCall"]
        assert "id" not in response["functionResponse"]


class TestSignatures:
    def test_go_back_on_the_part_they_came_on(self) -> None:
        """pydantic-ai#3647"""
        turn = assistant(
            Text("Hi", "google", SIGNED),
            Text("", "google", SIGNED),
            ToolCall("a", "add", "{}", SIGNED, "google"),
            ToolCall("b", "add"),
        )
        parts = contents(user("?"), turn, model=NEW)[1]["parts"]
        assert parts == [
            {"text": "Hi", **SIGNED},
            {"text": "", **SIGNED},
            {"functionCall": {"name": "add", "args": {}}, **SIGNED},
            {"functionCall": {"name": "add", "args": {}}},
        ]

    def test_of_thoughts_go_back_with_the_thought_and_unsigned_thoughts_do_not(self) -> None:
        thought = {"text": "Hm.", "thought": True, **SIGNED}
        turn = assistant(Reasoning("Hm.", "google", thought), Reasoning("So.", "google"), "Hi")
        assert contents(user("?"), turn)[1]["parts"] == [thought, {"text": "Hi"}]

    def test_of_another_provider_are_not_sent(self) -> None:
        turn = assistant(Text("Hi", "openai", SIGNED), Reasoning("Hm.", "other", {"text": "Hm."}))
        assert contents(user("?"), turn)[1]["parts"] == [{"text": "Hi"}]

    @pytest.mark.parametrize(
        ("model", "needed"),
        [
            ("gemini-3.8-flash", True),
            ("gemini-3-pro-preview", True),
            ("models/gemini-3.1-pro", True),
            ("publishers/google/models/gemini-4-pro", True),
            ("gemini-flash-latest", True),
            ("gemini-2.5-pro", False),
            ("gemini-2.0-flash", False),
            ("gemini-1.5-flash", False),
        ],
    )
    def test_are_stood_in_for_on_the_first_call_of_each_foreign_step(self, model: str, needed: bool) -> None:
        """pydantic-ai#3647; the word is documented: https://ai.google.dev/gemini-api/docs/thought-signatures"""
        two = assistant("Both.", ToolCall("a", "add"), ToolCall("b", "add"))
        rendered = contents(user("?"), two, assistant(ToolCall("c", "add", "{}", SIGNED, "openai")), model=model)
        signatures = [
            [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
            for content in rendered
            if content["role"] == "model"
        ]
        assert signatures == ([[NO_SIGNATURE, None], [NO_SIGNATURE]] if needed else [[None, None], [None]])


class TestTools:
    def test_are_declared_with_their_json_schema(self) -> None:
        payload = body(tools=(WEATHER,))
        declared = {"name": "weather", "description": WEATHER.description}
        assert payload["tools"] == [
            {"functionDeclarations": [{**declared, "parametersJsonSchema": WEATHER.parameters}]}
        ]
        assert "toolConfig" not in payload

    @pytest.mark.parametrize(
        ("choice", "strict", "model", "mode"),
        [
            ("required", False, NEW, "ANY"),
            ("required", True, NEW, "ANY"),
            ("none", True, NEW, "NONE"),
            ("auto", True, NEW, "VALIDATED"),
            ("auto", True, OLD, "VALIDATED"),
            ("auto", True, "models/gemini-2.5-pro", "VALIDATED"),
            ("auto", True, "gemini-2.0-flash", None),
            ("auto", False, NEW, None),
        ],
    )
    def test_have_a_mode(self, choice: Any, strict: bool, model: str, mode: str | None) -> None:
        payload = body(model, tools=(WEATHER,), tool_choice=choice, options={"strict": strict})
        assert payload.get("toolConfig") == ({"functionCallingConfig": {"mode": mode}} if mode else None)

    def test_are_told_in_the_dialect_strict_when_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[str, bool]] = []

        def told(schema: JsonObject, dialect: str, *, strict: bool) -> Told:
            asked.append((dialect, strict))
            return Told({"told": len(asked)}, strict)

        monkeypatch.setattr(google, "told", told)
        payload = body(tools=(WEATHER,), output=OutputSpec("x", {}), options={"strict": True})
        assert asked == [("google", True), ("google", True)]
        assert payload["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == {"told": 1}
        assert payload["generationConfig"]["responseJsonSchema"] == {"told": 2}
        body(tools=(WEATHER,))
        assert asked[-1] == ("google", False)


class TestOptions:
    def test_have_their_names_on_the_wire(self) -> None:
        options = {"max_tokens": 7, "top_p": 0.5, "stop": ["a", "b"], "temperature": 0, "parallel_tool_calls": False}
        assert body(options=options)["generationConfig"] == {
            "maxOutputTokens": 7,
            "topP": 0.5,
            "stopSequences": ["a", "b"],
            "temperature": 0,
        }

    @pytest.mark.parametrize("name", ["candidateCount", "candidate_count"])
    def test_of_the_generation_stand_there_and_others_beside_it(self, name: str) -> None:
        payload = body(options={name: 1, "cached_content": "c/1", "labels": {"a_b": "c"}})
        assert payload["generationConfig"] == {"candidateCount": 1}
        assert (payload["cachedContent"], payload["labels"]) == ("c/1", {"a_b": "c"})

    def test_of_the_generation_may_be_given_as_a_whole(self) -> None:
        thinking = {"thinkingBudget": 5}
        options = {"generation_config": {"seed": 1, "thinkingConfig": thinking}, "max_tokens": 3}
        payload = body(options=options, effort="high")
        assert payload["generationConfig"] == {"seed": 1, "thinkingConfig": thinking, "maxOutputTokens": 3}

    def test_of_the_generation_are_all_that_the_sdk_knows(self) -> None:
        sdk = {str(field.alias) for field in types.GenerationConfig.model_fields.values()}
        assert sdk == GENERATION_KEYS

    def test_add_the_providers_own_tools_to_ours(self) -> None:
        assert body(options={"tools": [{"googleSearch": {}}]})["tools"] == [{"googleSearch": {}}]
        both = body(tools=(WEATHER,), options={"tools": [{"googleSearch": {}}]})["tools"]
        assert [next(iter(tool)) for tool in both] == ["functionDeclarations", "googleSearch"]


class TestEffort:
    @pytest.mark.parametrize(
        ("model", "off", "medium", "high"),
        [
            ("gemini-2.5-pro", 128, 8_192, 32_768),
            ("gemini-2.5-flash", 0, 8_192, 24_576),
            ("models/gemini-2.5-flash-lite", 0, 8_192, 24_576),
            ("gemini-3-pro-preview", "LOW", "HIGH", "HIGH"),
            ("gemini-3.1-pro-preview", "LOW", "MEDIUM", "HIGH"),
            ("gemini-3-flash-preview", "MINIMAL", "MEDIUM", "HIGH"),
            ("gemini-3.5-flash-lite", "MINIMAL", "MEDIUM", "HIGH"),
            ("gemini-3.8-flash", "LOW", "MEDIUM", "HIGH"),
            ("gemini-pro-latest", "LOW", "MEDIUM", "HIGH"),
        ],
    )
    def test_is_a_budget_or_a_level(self, model: str, off: int | str, medium: int | str, high: int | str) -> None:
        key = "thinkingBudget" if isinstance(off, int) else "thinkingLevel"
        assert body(model, effort="off")["generationConfig"] == {"thinkingConfig": {key: off}}
        for effort, value in (("medium", medium), ("high", high)):
            thinking = {key: value, "includeThoughts": True}
            assert body(model, effort=effort)["generationConfig"] == {"thinkingConfig": thinking}

    @pytest.mark.parametrize(
        "model", ["gemini-2.0-flash", "gemini-1.5-pro", "gemini-2.5-flash-image", "gemma-3-27b-it"]
    )
    def test_is_not_sent_to_a_model_that_does_not_think(self, model: str) -> None:
        assert "generationConfig" not in body(model, effort="high")

    def test_is_not_sent_when_none_is_asked_for(self) -> None:
        assert "generationConfig" not in body(NEW)


class TestAttachments:
    def sent(self, *parts: Any, model: str = NEW, to: ProviderSettings = OFFICIAL) -> list[dict[str, Any]]:
        request = asking(Message("user", parts), model=model)
        found: list[dict[str, Any]] = render_request(request, to)["contents"][0]["parts"]
        return found

    def test_go_inline_beside_the_text(self) -> None:
        pdf = Document.from_bytes(b"%PDF-1.7")
        assert self.sent(Text("See"), pdf) == [
            {"text": "See"},
            {"inlineData": {"mimeType": "application/pdf", "data": pdf.base64}},
        ]

    def test_go_by_address_where_the_model_fetches(self) -> None:
        image = Image.from_url("https://example.com/a.png")
        assert self.sent(image) == [{"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/a.png"}}]
        with pytest.raises(ProviderError, match="Attach the bytes") as caught:
            self.sent(image, model="gemini-2.0-flash")
        assert caught.value.kind == "unsupported"

    def test_of_a_kind_that_gemini_does_not_read_are_refused(self) -> None:
        with pytest.raises(ProviderError, match=r"image/gif.*PNG") as caught:
            self.sent(Image.from_bytes(b"GIF89a" + b"0" * 9, name="a.gif"))
        assert caught.value.kind == "unsupported"
        assert "a.gif" in caught.value.technical

    def test_are_refused_where_the_server_takes_none(self) -> None:
        with pytest.raises(ProviderError):
            self.sent(Document.from_bytes(b"%PDF-1.7"), to=settings("google"))

    def test_of_a_whole_conversation_have_a_cap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        image = Image.from_bytes(PNG + b"0" * 3_000)
        monkeypatch.setattr(google, "MAX_INLINE", 8_000)
        assert self.sent(image)
        with pytest.raises(ProviderError, match="their addresses") as caught:
            self.sent(image, image)
        assert caught.value.kind == "unsupported"


class TestOutput:
    def test_is_held_to_its_schema(self) -> None:
        schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
        generation = body(output=OutputSpec("answer", schema))["generationConfig"]
        assert generation["responseMimeType"] == "application/json"
        assert generation["responseJsonSchema"]["properties"]["x"]["type"] == "integer"


class TestRecordedRequests:
    """What we send after a recorded answer has the shape of what was sent then."""

    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("gemini/nonstream_parallel_no_ids", 0),
            ("gemini/retry_after_validation_error", 0),
            ("gemini/retry_after_validation_error", 1),
            ("gemini/stream_gemini3_signatures", 0),
            ("gemini/stream_tool_with_thought_signature", 0),
            ("gemini/stream_tools_alt_sse", 0),
            ("gemini/stream_tools_json_array", 0),
            ("gemini/stream_tools_json_array", 1),
            ("gemini/stream_multi_turn_tools", 0),
            ("gemini/stream_multi_turn_tools", 2),
        ],
    )
    def test_are_matched_in_shape(self, name: str, place: int) -> None:
        recordings.exchange(name, place)
        request = self.after(name, place)
        rendered = render_request(request, OFFICIAL)["contents"]
        recorded = recordings.exchange(name, place + 1)["request"]["contents"][-2:]
        assert [self.shape(content) for content in rendered[-2:]] == [self.shape(content) for content in recorded]

    def after(self, name: str, place: int) -> ModelRequest:
        found = recordings.exchange(name, place)
        heard = Heard(parse_payloads(read_payloads([found["body"].encode()]), asking()))
        recorded = recordings.exchange(name, place + 1)["request"]["contents"][-1]
        errors = ["error" in self.field(part, "function_response")["response"] for part in recorded["parts"]]
        pairs = zip(heard.message.calls, errors, strict=True)
        answers = results(*(ToolResult(call.id, call.name, "done", error) for call, error in pairs))
        return asking(user("?"), heard.message, answers, model="gemini-2.5-flash")

    def shape(self, content: dict[str, Any]) -> tuple[str, list[Any]]:
        """Role and parts: calls with name, arguments and signature, results with name and whether they are errors."""
        parts: list[Any] = []
        for part in content["parts"]:
            call, response = self.field(part, "function_call"), self.field(part, "function_response")
            signature = (part.get("thoughtSignature") or "").replace("-", "+").replace("_", "/")
            if call:
                parts.append((call["name"], call.get("args", {}), signature if not parts else ""))
            elif response:
                parts.append((response["name"], "error" in response["response"]))
            elif part.get("text"):
                parts.append(part["text"])
        return content["role"], parts

    def field(self, part: dict[str, Any], name: str) -> dict[str, Any]:
        """The field in either of the API's spellings."""
        camel = name.replace("_c", "C").replace("_r", "R")
        found: dict[str, Any] = part.get(name) or part.get(camel) or {}
        return found
