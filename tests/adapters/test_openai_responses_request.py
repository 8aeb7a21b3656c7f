"""OpenAI Responses: what is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from string import ascii_letters
from string import digits
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from flask_instruct.adapters.cache_key import cache_key
from flask_instruct.adapters.openai_responses import render_request
from flask_instruct.adapters.openai_responses_answer import parse_events
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.profiles import Quirks
from flask_instruct.adapters.sse import read_events
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.errors import ProviderError
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
from .responses_wire import answer
from .responses_wire import call_item
from .responses_wire import reasoning_item
from .responses_wire import streamed_response
from .responses_wire import text_item
from .sdk_types import assert_is

OPENAI = settings("openai", quirks=BUILT_IN["openai"].quirks)
PNG = Image.from_bytes(b"\x89PNG\r\n\x1a\n", name="dot.png")
PDF = Document.from_bytes(b"%PDF-1.7", name="bill.pdf")
SHAPE = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def body_of(*messages: Message, **fields: Any) -> dict[str, Any]:
    return render_request(asking(*messages, **fields), OPENAI)


def sent(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body_of(*messages, **fields)["input"]
    return items


def turn(*items: dict[str, Any], **fields: Any) -> Message:
    """The turn that our adapter makes of these items."""
    return Heard(parse_events(read_events([answer(*items).encode()]), asking(**fields))).message


def encrypted(secret: str = "secret") -> Reasoning:
    return Reasoning("", "openai", reasoning_item(secret))


def rich_conversation() -> tuple[Message, ...]:
    return (
        system("Be brief."),
        Message("user", (Text("What is this?"), PNG, PDF, Image.from_url("https://example.org/a.png"))),
        turn(
            reasoning_item("s1", "Hm."),
            text_item("I look.", "commentary"),
            call_item("call_a"),
            call_item("call_b", arguments="nonsense"),
        ),
        results(ToolResult("call_a", "weather", "", error=True), ToolResult("call_b", "weather", "")),
        assistant(Reasoning("…", "anthropic", {"type": "thinking", "signature": "x"}), ToolCall("toolu/1", "a b")),
        results(ToolResult("toolu/1", "a b", "found")),
        turn(reasoning_item("s2"), text_item("A bill.", "final_answer")),
        user("Thanks"),
    )


class TestTheBody:
    def test_of_a_rich_conversation_is_of_the_sdks_own_type(self) -> None:
        options = {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False}
        body = body_of(
            *rich_conversation(),
            model="gpt-5.4",
            tools=(WEATHER, ToolSpec("ü", "Unclear.", {"type": "object", "additionalProperties": {"type": "string"}})),
            tool_choice="required",
            options={**options, "text": {"verbosity": "low"}, "metadata": {"site": "1"}},
            effort="high",
            output=OutputSpec("Answer of it", SHAPE, "The answer."),
        )
        # The type demands an id of every reasoning item; recorded traffic shows that encrypted ones need none.
        typed = [{**item, "id": "rs"} if item.get("type") == "reasoning" else item for item in body["input"]]
        assert_is(ResponseCreateParamsStreaming, {**body, "input": typed})

    def test_leaves_nothing_with_the_provider(self) -> None:
        body = body_of(user("Hi"), model="gpt-5.4")
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]
        assert "previous_response_id" not in body

    def test_says_the_instructions_apart(self) -> None:
        body = body_of(system("Be brief."), user("Hi"), system("Be kind."))
        assert body["instructions"] == "Be brief.\n\nBe kind."
        assert body["input"] == [{"role": "user", "content": "Hi"}]

    def test_ends_with_what_grows_so_that_a_longer_one_starts_with_the_same_bytes(self) -> None:
        messages = rich_conversation()
        bodies = [
            json.dumps(body_of(*messages[:count], tools=(WEATHER,), model="gpt-5.4"))
            for count in range(2, len(messages))
        ]
        asked = [body for body, message in zip(bodies, messages[1:], strict=False) if message.role in ("user", "tool")]
        assert len(asked) == 3
        for before, after in pairwise(asked):
            assert after.startswith(before.removesuffix("]}"))

    def test_passes_on_what_only_the_provider_knows(self) -> None:
        options = {"service_tier": "flex", "include": ["message.output_text.logprobs"], "store": True}
        body = body_of(user("Hi"), model="gpt-5.4", options=options)
        assert (body["service_tier"], body["store"]) == ("flex", True)
        assert body["include"] == ["message.output_text.logprobs", "reasoning.encrypted_content"]

    def test_says_that_stop_sequences_are_not_sent(self, caplog: pytest.LogCaptureFixture) -> None:
        assert "stop" not in body_of(user("Hi"), options={"stop": "END"})
        assert "'END' is not sent" in caplog.text


class TestTools:
    def test_always_say_whether_they_are_strict(self) -> None:
        """The API takes a schema for strict where nothing is said."""
        for options in ({}, {"strict": False}):
            tool = body_of(user("Hi"), tools=(WEATHER,), options=options)["tools"][0]
            assert isinstance(tool["strict"], bool)
        assert tool == {
            "type": "function",
            "name": "weather",
            "description": "Tell the weather.",
            "parameters": WEATHER.parameters,
            "strict": False,
        }

    def test_and_calls_have_legal_names(self) -> None:
        tools = (ToolSpec("shop.find", "", WEATHER.parameters),)
        body = body_of(user("?"), assistant(ToolCall("call_1", "shop.find")), tools=tools)
        assert body["tools"][0]["name"] == body["input"][1]["name"] == "shop_find"

    def test_are_not_forced_where_there_are_none(self) -> None:
        body = body_of(user("Hi"), tool_choice="required", options={"parallel_tool_calls": False})
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)

    def test_can_be_forbidden(self) -> None:
        assert body_of(user("Hi"), tools=(WEATHER,), tool_choice="none")["tool_choice"] == "none"


class TestReasoning:
    @pytest.mark.parametrize(
        ("model", "off", "low", "high"),
        [
            ("gpt-5.4-mini", "none", "low", "high"),
            ("openai/gpt-5.4", "none", "low", "high"),
            ("gpt-5-mini", "minimal", "low", "high"),
            ("gpt-5-pro", "high", "high", "high"),
            ("gpt-5.1-codex", "low", "low", "high"),
            ("gpt-6-astra", "low", "low", "high"),
            ("o4-mini", "low", "low", "high"),
            ("gpt-4o", None, None, None),
            ("gpt-4.1-mini", None, None, None),
            ("gpt-5-chat-latest", None, None, None),
            ("chatgpt-4o-latest", None, None, None),
        ],
    )
    def test_is_asked_for_in_the_models_words(self, model: str, off: str | None, low: str | None, high: str) -> None:
        """pydantic-ai#2865: a model that does not reason refuses even to be asked for encrypted reasoning."""
        for effort, word in (("off", off), ("low", low), ("high", high)):
            body = body_of(user("Hi"), model=model, effort=effort)
            assert body.get("reasoning") == (None if word is None else {"effort": word})
        assert ("include" in body) == (off is not None)

    def test_is_the_models_choice_when_nothing_is_said(self) -> None:
        assert "reasoning" not in body_of(user("Hi"), model="gpt-5.4")

    def test_is_not_asked_for_where_a_server_takes_no_such_field(self) -> None:
        silent = replace(OPENAI, quirks=Quirks(effort="none"))
        assert "reasoning" not in render_request(asking(model="gpt-5.4", effort="high"), silent)

    def test_is_summed_up_only_when_the_app_says_so(self) -> None:
        """BerriAI/litellm#16032: accounts that OpenAI does not know by name are refused."""
        body = body_of(user("Hi"), model="gpt-5.4", effort="low", options={"reasoning": {"summary": "auto"}})
        assert body["reasoning"] == {"summary": "auto", "effort": "low"}


class TestOutput:
    def test_is_a_strict_shape(self) -> None:
        body = body_of(user("Hi"), output=OutputSpec("My answer", SHAPE), options={"text": {"verbosity": "low"}})
        shape = body["text"]["format"]
        assert body["text"]["verbosity"] == "low"
        assert (shape["type"], shape["name"]) == ("json_schema", "My_answer")
        assert set(shape["schema"]["properties"]) == {"ok"}
        assert isinstance(shape["strict"], bool)


class TestReplay:
    def test_keeps_each_reasoning_before_what_it_led_to(self) -> None:
        items = (reasoning_item("s1"), call_item("call_a"), reasoning_item("s2"), call_item("call_b"))
        replayed = sent(user("?"), turn(*items))[1:]
        assert [item.get("encrypted_content") or item["call_id"] for item in replayed] == [
            *("s1", "call_a", "s2", "call_b"),
            *("call_a", "call_b"),
        ]
        assert replayed[0] == {"type": "reasoning", "summary": [], "encrypted_content": "s1"}

    @pytest.mark.parametrize(
        "message",
        [
            assistant(encrypted()),
            assistant("Hi", encrypted()),
            assistant(encrypted(), Text("edited")),
            assistant(Reasoning("", "azure", reasoning_item()), Text("Hi", "openai")),
            assistant(Reasoning("", "openai", {"reasoning_content": "Hm."}), Text("Hi", "openai")),
            assistant(Reasoning("", "openai", reasoning_item("")), Text("Hi", "openai")),
            assistant(Reasoning("Hm."), Text("Hi", "openai")),
        ],
    )
    def test_never_sends_reasoning_alone_or_to_strangers(self, message: Message) -> None:
        """The API refuses reasoning without its following item; vercel/ai#7543: it refuses one that it did not keep."""
        assert not [item for item in sent(user("?"), message, user("!")) if item.get("type") == "reasoning"]

    def test_drops_the_reasoning_of_a_call_that_was_dropped(self) -> None:
        """openai/openai-agents-python#3207."""
        message = turn(reasoning_item("s1"), call_item("call_a"), tool_choice="none")
        assert sent(user("?"), message, user("!")) == [
            {"role": "user", "content": "?"},
            {"role": "user", "content": "!"},
        ]

    def test_keeps_the_phase_of_a_message(self) -> None:
        message = turn(text_item("I look.", "commentary"), text_item("It rains.", "final_answer"))
        assert sent(user("?"), message)[1:] == [
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {"role": "assistant", "content": "It rains.", "phase": "final_answer"},
        ]

    def test_leaves_out_the_phase_of_another_provider(self) -> None:
        message = assistant(Text("Hi", "elsewhere", {"phase": "final_answer"}))
        assert sent(user("?"), message)[1] == {"role": "assistant", "content": "Hi"}

    def test_carries_neither_ids_nor_states(self) -> None:
        """langchain-ai/langchain#38372: nobody finds what was not stored. pydantic-ai#3245: vLLM refuses a status."""
        for item in sent(*rich_conversation()):
            assert not {"id", "status"} & set(item)

    def test_names_open_reasoning_for_the_servers_that_check(self) -> None:
        thought = {"id": "rs_1", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
        message = assistant(Reasoning("Hm.", "openai", {**thought, "status": None}), Text("Hi", "openai"))
        assert sent(user("?"), message)[1] == {**thought, "summary": []}

    def test_puts_calls_last_so_that_nothing_stands_before_their_outputs(self) -> None:
        """pydantic-ai#7448: DeepSeek takes nothing between calls and outputs."""
        recorded = recordings.exchange("openai-responses/deepseek_rejects_interleaved_calls")["request"]["input"]
        texts = [item["content"] for item in recorded if item.get("role") == "assistant"]
        message = assistant(texts[0], ToolCall("call-a", "read"), texts[1], ToolCall("call-b", "view"))
        kinds = [item.get("type", item.get("role")) for item in sent(user("?"), message)[1:]]
        assert kinds == ["assistant"] * 2 + ["function_call"] * 2 + ["function_call_output"] * 2

    def test_answers_each_call_once_and_in_order(self) -> None:
        message = assistant(ToolCall("call_a", "weather"), ToolCall("call_b", "weather"), ToolCall("call_c", "weather"))
        given = results(ToolResult("call_c", "weather", " "), ToolResult("call_a", "weather", "No.", error=True))
        outputs = [item for item in sent(user("?"), message, given) if item.get("type") == "function_call_output"]
        assert [item["call_id"] for item in outputs] == ["call_a", "call_b", "call_c"]
        assert outputs[0]["output"] == "Error: No."
        assert "interrupted" in outputs[1]["output"]
        assert outputs[2]["output"] == "(no output)"

    @pytest.mark.parametrize("call_id", ["", "a b", "call_" + "x" * 90, "call__thought__" + "é" * 90])
    def test_makes_each_call_id_one_that_the_api_takes(self, call_id: str) -> None:
        call, output = sent(user("?"), assistant(ToolCall(call_id, "weather")))[1:]
        assert call["call_id"] == output["call_id"]
        assert 0 < len(call["call_id"]) <= 64
        assert set(call["call_id"]) <= set(ascii_letters + digits + "_-")

    def test_sends_what_is_no_json_as_json(self) -> None:
        call = sent(user("?"), assistant(ToolCall("call_a", "weather", "{bad")))[1]
        assert json.loads(call["arguments"]) == {"invalid_arguments": "{bad"}


class TestRecordedReplay:
    @pytest.mark.parametrize(
        "name",
        ["nonstream_encrypted_round_trip", "nonstream_interleaved_reasoning", "nonstream_parallel_with_reasoning"],
    )
    def test_has_the_shape_of_the_recorded_next_request(self, name: str) -> None:
        messages = [user(recordings.exchange(f"openai-responses/{name}")["request"]["input"][0]["content"])]
        place = 0
        while True:
            recorded = recordings.exchange(f"openai-responses/{name}", place)
            assert shape_of(sent(*messages)) == shape_of(recorded["request"]["input"])
            stream = read_events([streamed_response(json.loads(recorded["body"])).encode()])
            heard = Heard(parse_events(stream, asking(*messages)))
            if not heard.message.calls or len(heard.message.calls) == 5:
                break
            place += 1
            outputs = output_by_call(recordings.exchange(f"openai-responses/{name}", place)["request"]["input"])
            given = (ToolResult(call.id, call.name, outputs[call.id]) for call in heard.message.calls)
            messages += [heard.message, results(*given)]
        assert place >= 1


def shape_of(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without the ids of reasoning, which some peers send, and with arguments as what they mean."""
    return [
        {
            key: json.loads(value) if key == "arguments" else value
            for key, value in item.items()
            if key != "id" and value != []
        }
        for item in items
    ]


def output_by_call(items: list[dict[str, Any]]) -> dict[str, str]:
    return {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}


class TestAttachments:
    def test_are_sent_as_bytes_or_by_address(self) -> None:
        attached = (
            *(Text("What is this?"), PNG, PDF),
            *(Image.from_url("https://example.org/a.png"), Document.from_url("https://example.org/a.pdf")),
        )
        assert sent(Message("user", attached))[0]["content"] == [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG.base64}"},
            {"type": "input_file", "filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{PDF.base64}"},
            {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        ]

    @pytest.mark.parametrize(
        ("part", "quirks", "said"),
        [
            (PNG, Quirks(images=False), "openai takes no image"),
            (PDF, Quirks(documents=False), "openai takes no document"),
            (Image.from_url("https://example.org/a.png"), Quirks(image_urls=False), "Image.from_bytes"),
            (Document.from_url("https://example.org/a.pdf"), Quirks(documents=True), "Document.from_bytes"),
            (PNG, Quirks(max_image_bytes=4), "make it smaller"),
        ],
    )
    def test_that_a_provider_does_not_take_are_refused_before_anything_is_sent(
        self, part: Image | Document, quirks: Quirks, said: str
    ) -> None:
        with pytest.raises(ProviderError, match=said) as caught:
            render_request(asking(Message("user", (part,))), replace(OPENAI, quirks=quirks))
        assert caught.value.kind == "unsupported"

    def test_have_a_size_together(self) -> None:
        heavy = Document.from_bytes(b"%PDF-" + bytes(26_000_000))
        with pytest.raises(ProviderError, match=r"52\.0 MB together") as caught:
            sent(Message("user", (heavy,)), assistant("Yes?"), Message("user", (heavy,)))
        assert caught.value.kind == "unsupported"


class TestTheCacheKey:
    FIRST = asking(system("Be brief."), user("Hi"), tools=(WEATHER,))

    def test_is_one_for_a_whole_conversation(self) -> None:
        later = replace(self.FIRST, messages=(*self.FIRST.messages, assistant("Yes?"), user("Thanks")), effort="low")
        assert cache_key(later) == cache_key(self.FIRST)
        assert render_request(later, OPENAI)["prompt_cache_key"] == cache_key(self.FIRST)
        assert len(cache_key(self.FIRST)) <= 64

    @pytest.mark.parametrize(
        "other",
        [
            replace(FIRST, model="n"),
            replace(FIRST, tools=()),
            replace(FIRST, messages=(system("Be kind."), user("Hi"))),
            replace(FIRST, messages=(system("Be brief."), user("Ho"))),
        ],
    )
    def test_differs_where_the_beginning_does(self, other: ModelRequest) -> None:
        assert cache_key(other) != cache_key(self.FIRST)

    def test_is_only_sent_to_servers_that_know_it(self) -> None:
        assert "prompt_cache_key" not in render_request(self.FIRST, replace(OPENAI, quirks=Quirks()))

    def test_can_be_the_apps_own(self) -> None:
        assert body_of(user("Hi"), options={"prompt_cache_key": "mine"})["prompt_cache_key"] == "mine"
