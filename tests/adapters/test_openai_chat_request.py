"""What is sent to a Chat Completions server, by what its quirks say; for OpenAI, checked against its SDK's types."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any
from typing import ClassVar

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from flask_instruct.adapters.efforts import OPENAI_EFFORTS
from flask_instruct.adapters.fragments import Fragment
from flask_instruct.adapters.fragments import GrowingCalls
from flask_instruct.adapters.openai_chat import render_request
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.profiles import OPENAI
from flask_instruct.adapters.profiles import Quirks
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

from .hearing import WEATHER
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user
from .sdk_types import assert_is

PNG = Image.from_bytes(b"\x89PNG\r\n\x1a\n....", name="shot.png")
PDF = Document.from_bytes(b"%PDF-1.7", name="bill.pdf")
FREE = ToolSpec("set it!", "Set.", {"type": "object", "properties": {"to": {}}, "additionalProperties": True})
SHAPE = OutputSpec("the answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "It.")
LITELLM_ID = "call_1__thought__" + "A+b/" * 60


def to(provider: str, request: ModelRequest, **changes: Any) -> dict[str, Any]:
    quirks = OPENAI if provider == "openai" else BUILT_IN[provider].quirks
    body: dict[str, Any] = render_request(request, settings(provider, quirks=replace(quirks, **changes)))
    return body


def rich(**fields: Any) -> ModelRequest:
    """A conversation with one of everything."""
    parts = (Text("Look:"), PNG, PDF, Image.from_url("https://example.org/a.jpg"), Text(" "))
    calls = (
        ToolCall("call_a", "weather", '{"city": "Rome"}', {"extra_content": {"x": 1}}, "openai"),
        ToolCall("toolu/b", "set it!", "[1]", {"signature": "s"}, "anthropic"),
        ToolCall("call_c", "made up", "", refusal="The AI service rejected this call: no."),
    )
    answers = (ToolResult("toolu/b", "set it!", "broken", error=True), ToolResult("call_a", "weather", " "))
    conversation = (
        system("Be brief."),
        Message("user", parts),
        assistant(Reasoning("Hm.", "anthropic", {"signature": "s"}), Text("Wait."), *calls),
        results(*answers, ToolResult("orphan", "x", "y")),
        assistant(""),
        assistant("Done."),
        user("And?"),
    )
    options = {"max_tokens": 9, "temperature": 1.0, "stop": ["x"], "parallel_tool_calls": True, "seed": 1}
    return asking(*conversation, tools=(WEATHER, FREE), options=options, model="gpt-5.4", **fields)


class TestTheTypesOfOpenAI:
    @pytest.mark.parametrize("strict", [True, False, None])
    @pytest.mark.parametrize("effort", ["off", "low", "high", None])
    @pytest.mark.parametrize("output", [SHAPE, None])
    def test_hold_for_a_rich_conversation(self, strict: bool | None, effort: Any, output: OutputSpec | None) -> None:
        request = rich(effort=effort, output=output)
        options = request.options if strict is None else {**request.options, "strict": strict}
        body = to("openai", replace(request, options=options))
        for call in body["messages"][2]["tool_calls"]:
            # Gemini's extension; OpenAI's type does not know it.
            call.pop("extra_content", None)
        assert_is(CompletionCreateParamsStreaming, body)

    def test_hold_without_anything_but_a_question(self) -> None:
        body = to("openai", asking(options={"parallel_tool_calls": True, "strict": True}))
        assert_is(CompletionCreateParamsStreaming, body)
        assert not {"tools", "tool_choice", "parallel_tool_calls", "strict", "response_format"} & body.keys()

    def test_let_each_turn_begin_with_the_bytes_of_the_one_before(self) -> None:
        whole = rich(effort="low", output=SHAPE)
        bodies = [
            json.dumps(to("openai", replace(whole, messages=whole.messages[:count])))
            for count in (2, 4, len(whole.messages))
        ]
        for shorter, longer in pairwise(bodies):
            assert longer.startswith(shorter[: -len("]}")])


class TestTools:
    def test_say_that_they_are_strict_only_where_that_is_known(self) -> None:
        for provider, options, said in (
            ("openai", {}, [True, False]),
            ("openai", {"strict": False}, [False, False]),
            ("groq", {}, [None, None]),
            ("groq", {"strict": True}, [True, False]),
        ):
            body = to(provider, asking(tools=(WEATHER, FREE), options=options))
            assert [tool["function"].get("strict") for tool in body["tools"]] == said
            assert "strict" not in body

    def test_have_one_legal_name_each_here_and_in_the_history(self) -> None:
        twin = ToolSpec("set_it_", "Twin.", {"type": "object", "properties": {}})
        turn = assistant(ToolCall("a", "set it!", "{}"), ToolCall("b", "set_it_", "{}"))
        body = to("openai", asking(user("?"), turn, tools=(FREE, twin)))
        declared = [tool["function"]["name"] for tool in body["tools"]]
        called = [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
        assert declared == called == ["set_it__2", "set_it_"]

    def test_cannot_be_demanded_of_deepseek_while_it_thinks(self) -> None:
        request = asking(tools=(WEATHER,), tool_choice="required")
        assert "tool_choice" not in to("deepseek", request)
        assert to("deepseek", replace(request, effort="off"))["tool_choice"] == "required"
        assert to("openai", request)["tool_choice"] == "required"


class TestCallIds:
    def told(self, provider: str, *calls: ToolCall) -> list[tuple[str, str]]:
        answers = results(*(ToolResult(call.id, call.name, "ok") for call in calls))
        messages = to(provider, asking(user("?"), assistant(*calls), answers))["messages"]
        sent = [call["id"] for call in messages[1]["tool_calls"]]
        return list(zip(sent, [message["tool_call_id"] for message in messages[2:]], strict=True))

    def test_are_nine_letters_and_digits_for_mistral_and_match_their_results(self) -> None:
        calls = [ToolCall(f"call_{number}", "f", "{}") for number in range(50)]
        told = self.told("mistral", *calls, ToolCall("g6fVbXS8K", "f", "{}"))
        assert all(sent == answered and len(sent) == 9 and sent.isalnum() for sent, answered in told)
        assert len({sent for sent, _ in told}) == 51
        assert told[-1][0] == "g6fVbXS8K"
        assert told[:50] == self.told("mistral", *calls)

    def test_of_another_provider_are_made_legal_and_short(self) -> None:
        ((sent, answered),) = self.told("openai", ToolCall(LITELLM_ID, "f", "{}", None, "gateway"))
        assert sent == answered
        assert len(sent) <= 40
        assert sent.replace("_", "").isalnum()

    def test_that_carry_a_signature_go_back_whole_to_the_gateway_that_made_them(self) -> None:
        """openai-agents: LiteLLM hangs Gemini's signature on the id and looks for it there."""
        growing = GrowingCalls((), "openai")
        growing.add(Fragment(id=LITELLM_ID, index=0, name="f", arguments="{}"))
        (call,) = growing.finished()
        assert len(call.id) <= 64
        assert self.told("openai", call) == [(LITELLM_ID, LITELLM_ID)]
        ((sent, _),) = self.told("groq", call)
        assert sent == call.id

    def test_that_a_server_repeats_go_back_as_ours(self) -> None:
        call = ToolCall("call_ours", "f", "{}", {"provider_id": "call_0"}, "openai")
        assert self.told("openai", call) == [("call_ours", "call_ours")]


class TestWhatOnlyOneProviderMayHaveBack:
    SIGNED: ClassVar[dict[str, Any]] = {"extra_content": {"google": {"thought_signature": "s"}}}

    @pytest.mark.parametrize(("provider", "kept"), [("google-openai", True), ("openai", False)])
    def test_signatures(self, provider: str, kept: bool) -> None:
        turn = assistant(ToolCall("a", "f", "{}", self.SIGNED, "google-openai"))
        (call,) = to(provider, asking(user("?"), turn))["messages"][1]["tool_calls"]
        assert ("extra_content" in call) == kept

    @pytest.mark.parametrize(("provider", "kept"), [("deepseek", True), ("vllm", False), ("groq", False)])
    def test_reasoning(self, provider: str, kept: bool) -> None:
        """continuedev/continue#10193 wants it back, karthink/gptel#774 must not get it."""
        owner = "deepseek" if provider == "vllm" else provider
        turn = assistant(Reasoning("Hm.", owner, {"reasoning_content": "Hm."}), ToolCall("a", "f", "{}"))
        message = to(provider, asking(user("?"), turn))["messages"][1]
        assert ("reasoning_content" in message) == kept

    def test_mistrals_thinking_as_the_parts_it_came_in(self) -> None:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
        turn = assistant(Reasoning("Hm.", "mistral", {"content": [thinking]}), "So:", ToolCall("a", "f", "{}"))
        message = to("mistral", asking(user("?"), turn))["messages"][1]
        assert message["content"] == [thinking, {"type": "text", "text": "So:"}]


class TestEffort:
    @pytest.mark.parametrize(
        ("provider", "model", "level", "fields"),
        [
            ("openai", "gpt-5.4", "off", {"reasoning_effort": "none"}),
            ("openai", "gpt-5-mini", "off", {"reasoning_effort": "minimal"}),
            ("openai", "gpt-6-astra", "off", {"reasoning_effort": "low"}),
            ("azure", "o3", "high", {"reasoning_effort": "high"}),
            ("azure", "gpt-4o", "high", {}),
            ("openai", "gpt-5-chat-latest", "high", {}),
            ("openrouter", "anthropic/claude-sonnet-5", "off", {"reasoning": {"effort": "none"}}),
            ("deepseek", "deepseek-flash", "off", {"thinking": {"type": "disabled"}}),
            ("deepseek", "deepseek-flash", "medium", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
            ("vllm", "Qwen/Qwen3-8B", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
            ("vllm", "openai/gpt-oss-20b", "off", {"reasoning_effort": "low"}),
            ("llamacpp", "qwen3", "low", {"chat_template_kwargs": {"enable_thinking": True}}),
            ("groq", "qwen/qwen3-32b", "low", {"reasoning_effort": "default"}),
            ("groq", "openai/gpt-oss-120b", "off", {"reasoning_effort": "low"}),
            ("groq", "llama-3.3-70b-versatile", "high", {}),
            ("mistral", "mistral-small-latest", "low", {"reasoning_effort": "high"}),
            ("mistral", "magistral-medium-latest", "high", {}),
            ("xai", "grok-3-mini", "medium", {"reasoning_effort": "high"}),
            ("xai", "grok-4.3", "off", {"reasoning_effort": "none"}),
            ("xai", "grok-4.5", "off", {"reasoning_effort": "low"}),
            ("xai", "grok-4-fast-reasoning", "high", {}),
            ("ollama", "qwen3", "off", {"reasoning_effort": "none"}),
            ("ollama", "gpt-oss:20b", "off", {"reasoning_effort": "low"}),
            ("google-openai", "gemini-2.5-flash", "off", {"reasoning_effort": "none"}),
            ("google-openai", "gemini-3.1-pro-preview", "off", {"reasoning_effort": "minimal"}),
            ("google-openai", "gemini-2.0-flash", "high", {}),
            ("openai", "gpt-5.4", None, {}),
        ],
    )
    def test_is_said_in_the_models_own_words(self, provider: str, model: str, level: Any, fields: Any) -> None:
        body = to(provider, asking(model=model, effort=level))
        told = ("reasoning_effort", "reasoning", "thinking", "chat_template_kwargs")
        assert {field: body[field] for field in told if field in body} == fields

    def test_gives_way_to_what_the_app_sends_itself(self) -> None:
        assert (
            to("openai", asking(model="o3", effort="low", options={"reasoning_effort": "max"}))["reasoning_effort"]
            == "max"
        )

    def test_has_words_that_the_sdk_knows(self) -> None:
        words = {word for family in OPENAI_EFFORTS for word in (family.off, family.low, family.medium, family.high)}
        assert words <= {"", "none", "minimal", "low", "medium", "high"}


class TestAttachments:
    def content(self, provider: str, *parts: Any) -> Any:
        return to(provider, asking(Message("user", parts)))["messages"][0]["content"]

    def test_stand_where_they_were_said(self) -> None:
        content = self.content("openai", Text("A"), PNG, Text("B"), PDF)
        assert [part["type"] for part in content] == ["text", "image_url", "text", "file"]
        assert content[1]["image_url"]["url"] == f"data:image/png;base64,{PNG.base64}"
        assert content[3]["file"] == {"filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{PDF.base64}"}

    def test_go_by_address_where_the_provider_fetches(self) -> None:
        (part,) = self.content("openai", Image.from_url("https://example.org/a.png"))
        assert part["image_url"] == {"url": "https://example.org/a.png"}
        (part,) = self.content("openrouter", Document.from_url("https://example.org/a.pdf"))
        assert part["file"]["file_data"] == "https://example.org/a.pdf"

    @pytest.mark.parametrize(
        ("provider", "part", "said"),
        [
            ("deepseek", PNG, "'deepseek' does not take an image"),
            ("azure", PDF, "application/pdf"),
            ("ollama", Image.from_url("https://example.org/a.png"), "attach its bytes"),
            ("openai", Document.from_url("https://example.org/a.pdf"), "attach its bytes"),
            ("groq", Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(3_000_000)), "make it smaller"),
        ],
    )
    def test_that_a_provider_cannot_take_are_refused_before_anything_leaves(
        self, provider: str, part: Any, said: str
    ) -> None:
        with pytest.raises(ProviderError) as caught:
            self.content(provider, part)
        assert caught.value.kind == "unsupported"
        assert said in caught.value.technical


class TestQuirks:
    def test_name_the_limit_of_the_answer(self) -> None:
        request = asking(options={"max_tokens": 5})
        assert to("openai", request)["max_completion_tokens"] == 5
        assert to("mistral", request)["max_tokens"] == 5

    def test_leave_out_what_a_server_refuses(self) -> None:
        body = to("mistral", asking(system("S"), user("?"), model="o3"))
        assert body.keys() == {"model", "stream", "messages"}
        assert body["messages"][0]["role"] == "system"

    def test_give_a_conversation_one_cache_key(self) -> None:
        first, later = asking(user("A")), asking(user("A"), assistant("B"), user("C"))
        assert to("openai", first)["prompt_cache_key"] == to("openai", later)["prompt_cache_key"]
        assert to("openai", asking(user("X")))["prompt_cache_key"] != to("openai", first)["prompt_cache_key"]
        assert to("openai", asking(options={"prompt_cache_key": "own"}))["prompt_cache_key"] == "own"
        assert "prompt_cache_key" not in to("groq", first)

    def test_hold_the_answer_to_a_shape(self) -> None:
        wanted = to("openai", asking(output=SHAPE))["response_format"]["json_schema"]
        assert (wanted["name"], wanted["strict"], wanted["description"]) == ("the_answer", True, "It.")
        assert wanted["schema"]["additionalProperties"] is False

    def test_can_stand_in_a_set(self) -> None:
        assert len({Quirks(), OPENAI, *(provider.quirks for provider in BUILT_IN.values())}) > 5
