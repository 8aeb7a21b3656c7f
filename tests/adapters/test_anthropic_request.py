"""Requests of Anthropic Messages: names, histories, shapes, attachments and the prompt cache."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from flask_instruct.adapters import anthropic_messages
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.anthropic import render_request
from flask_instruct.adapters.profiles import Quirks
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Reasoning
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec
from tests.wire import WireServer
from tests.wire_format import anthropic_end
from tests.wire_format import anthropic_start

from .anthropic_wire import OFFICIAL
from .anthropic_wire import SIGNED
from .anthropic_wire import body_of
from .anthropic_wire import called
from .anthropic_wire import hear
from .anthropic_wire import rendered
from .anthropic_wire import said
from .anthropic_wire import text_block
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import settings
from .hearing import system
from .hearing import user
from .sdk_types import assert_is

MARK = {"type": "ephemeral"}
THOUGHT = Reasoning("Hm.", "anthropic", SIGNED)
CALL = ToolCall("a", "weather", '{"city": "Bonn"}')
ANSWER = ToolResult("a", "weather", "Rain")
PNG = b"\x89PNG\r\n\x1a\n"
FREE_KEYS = {"type": "object", "properties": {"notes": {"type": "object", "additionalProperties": True}}}
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


class TestNames:
    def test_of_tools_are_legal_on_the_wire_and_ours_again_in_the_answer(self) -> None:
        tools = (ToolSpec("shop.buy", "Buy.", WEATHER.parameters), ToolSpec("shop_buy", "Old.", WEATHER.parameters))
        body = body_of(user("Hi"), assistant(ToolCall("a", "shop.buy")), results(ANSWER), tools=tools)
        sent = [tool["name"] for tool in body["tools"]]
        assert sent == ["shop_buy_2", "shop_buy"]
        assert body["messages"][1]["content"][0]["name"] == "shop_buy_2"
        heard = hear(
            anthropic_start(), called("{}", name="shop_buy_2"), anthropic_end("tool_use"), request=asking(tools=tools)
        )
        assert heard.calls == [("toolu_a", "shop.buy", {})]
        assert heard.shown_calls["toolu_a"][0] == "shop.buy"

    def test_invented_by_a_model_that_become_one_are_declared_apart(self) -> None:
        """tailcallhq/forgecode#892: the API refuses two tools of one name."""
        calls = assistant(ToolCall("a", "do it"), ToolCall("b", "do_it"))
        body = body_of(user("Hi"), calls, results(ToolResult("a", "do it", "1"), ToolResult("b", "do_it", "2")))
        declared = {tool["name"] for tool in body["tools"]}
        assert declared == {block["name"] for block in body["messages"][1]["content"]} == {"do_it", "do_it_2"}


class TestHistories:
    def test_that_were_cut_or_interrupted_are_answered_call_by_call(self) -> None:
        """567-labs/instructor#2485, openai-agents#4324."""
        orphan = results(ToolResult("gone", "weather", "Sun"))
        messages = rendered(user("Hi"), orphan, assistant(CALL, ToolCall("b", "weather")), results(ANSWER), user("So?"))
        answered = messages[2]["content"]
        assert [block.get("tool_use_id") for block in answered] == ["a", "b", None]
        assert answered[1]["is_error"] is True

    def test_of_other_providers_keep_only_what_can_be_told(self) -> None:
        foreign = assistant(
            Reasoning("Hm.", "openai", {"type": "reasoning", "encrypted_content": "x"}),
            Text("So: ", "openai", {"phase": "commentary"}),
            ToolCall("call|x", "weather", "{}", {"thought_signature": "y"}, "google", refusal="The call was bad."),
        )
        blocks = rendered(user("Hi"), foreign)[1]["content"]
        assert [set(block) for block in blocks] == [{"type", "text"}, {"type", "id", "name", "input"}]


class TestStrictTools:
    def test_are_off_unless_asked_for(self) -> None:
        assert "strict" not in body_of(tools=(WEATHER,))["tools"][0]

    def test_are_asked_for_by_an_option_or_by_the_profile(self) -> None:
        wanted = {
            "name": "weather",
            "description": WEATHER.description,
            "input_schema": {**WEATHER.parameters, "additionalProperties": False, "required": []},
            "strict": True,
        }
        assert body_of(tools=(WEATHER,), options={"strict": True})["tools"] == [wanted]
        by_profile = settings("anthropic", quirks=Quirks(strict=True))
        assert render_request(asking(tools=(WEATHER,)), by_profile)["tools"][0]["strict"] is True

    def test_whose_schema_has_no_strict_form_are_told_plainly(self) -> None:
        tool = body_of(tools=(ToolSpec("store", "Store.", FREE_KEYS),), options={"strict": True})["tools"][0]
        assert (tool["input_schema"], "strict" in tool) == (FREE_KEYS, False)


class TestAShapedAnswer:
    def test_is_asked_for_beside_the_effort(self) -> None:
        body = body_of(model="claude-opus-5-5", effort="low", output=OutputSpec("sum", SCHEMA))
        schema = {**SCHEMA, "additionalProperties": False}
        assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
        assert_is(MessageCreateParamsStreaming, body)

    def test_without_a_strict_form_is_asked_for_in_words(self) -> None:
        body = body_of(system("Be."), user("Hi"), model="claude-opus-5-5", output=OutputSpec("notes", FREE_KEYS))
        assert "output_config" not in body
        assert body["system"][0] == text_block("Be.")
        assert json.dumps(FREE_KEYS) in body["system"][1]["text"]

    def test_is_asked_for_only_when_wanted(self) -> None:
        assert "output_config" not in body_of(model="claude-opus-5-5")


class TestAttachments:
    def test_become_blocks_where_they_stand(self) -> None:
        asked = Message(
            "user",
            (
                Text("Compare"),
                Image.from_bytes(PNG),
                Image.from_url("https://example.com/a.jpg"),
                Document.from_bytes(b"%PDF-1.7", name="offer.pdf"),
                Document.from_url("https://example.com/b.pdf"),
            ),
        )
        assert rendered(asked)[0]["content"] == [
            text_block("Compare"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.jpg"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
                "title": "offer.pdf",
            },
            {"type": "document", "source": {"type": "url", "url": "https://example.com/b.pdf"}},
        ]

    def test_alone_need_no_text(self) -> None:
        assert [block["type"] for block in rendered(Message("user", (Image.from_bytes(PNG),)))[0]["content"]] == [
            "image"
        ]

    def test_are_measured_in_base64(self) -> None:
        """lobehub/lobehub#14711: the API counts the characters of base64, a third more than the bytes."""
        largest = anthropic_messages.LARGEST["image"] // 4 * 3
        assert rendered(Message("user", (Image.from_bytes(PNG.ljust(largest)),)))
        with pytest.raises(ProviderError, match="make it smaller") as caught:
            rendered(Message("user", (Image.from_bytes(PNG.ljust(largest + 3)),)))
        assert caught.value.kind == "unsupported"

    @pytest.mark.parametrize(
        ("part", "quirks", "words"),
        [
            (Image.from_bytes(PNG), Quirks(images=False), "takes none of its kind"),
            (Image.from_url("https://example.com/a.png"), Quirks(image_urls=False), "from_bytes"),
            (Document.from_bytes(b"%PDF-1"), Quirks(), "takes none of its kind"),
            (Document.from_url("https://example.com/a.pdf"), Quirks(documents=True), "from_bytes"),
        ],
    )
    def test_that_a_server_does_not_take_leave_no_request(
        self, part: Image | Document, quirks: Quirks, words: str
    ) -> None:
        with WireServer.playing(anthropic_start()) as server:
            adapter = Anthropic(settings("anthropic", server.base_url("anthropic"), quirks=quirks))
            with pytest.raises(ProviderError, match=words) as caught:
                list(adapter.stream(asking(Message("user", (part,)))))
        assert caught.value.kind == "unsupported"
        assert not server.seen


class TestCaching:
    def marked(self, body: dict[str, Any]) -> list[str]:
        """The texts, names and results that are marked, in the order the API reads them."""
        blocks = [*body.get("tools", []), *body.get("system", [])]
        blocks += [block for message in body["messages"] for block in message["content"]]
        marked = (block for block in blocks if "cache_control" in block)
        return [block.get("name") or block.get("text") or block["content"] for block in marked]

    def test_marks_the_tools_the_instructions_and_the_last_two_turns_of_the_user(self) -> None:
        talk = (system("Be."), user("One"), assistant("1"), user("Two"), assistant(THOUGHT, CALL), results(ANSWER))
        body = render_request(asking(*talk, tools=(ToolSpec("first", "", {"type": "object"}), WEATHER)), OFFICIAL)
        assert self.marked(body) == ["weather", "Be.", "Two", "Rain"]
        assert all(block.get("cache_control", MARK) == MARK for block in body["tools"])
        assert_is(MessageCreateParamsStreaming, body)

    def test_marks_again_where_the_call_before_marked_last(self) -> None:
        bodies = [render_request(asking(*talk, tools=(WEATHER,)), OFFICIAL) for talk in growing_talk()]
        for before, after in pairwise(bodies):
            assert self.marked(before)[-1] in self.marked(after)
            assert len(self.marked(after)) <= 4

    def test_apart_each_request_begins_with_the_bytes_of_the_one_before(self) -> None:
        bodies = [render_request(asking(*talk, tools=(WEATHER,)), OFFICIAL) for talk in growing_talk()]
        assert_each_begins_with_the_one_before([json.dumps(without_marks(body)) for body in bodies])

    def test_switched_off_each_request_begins_with_the_bytes_of_the_one_before(self) -> None:
        with WireServer.playing(anthropic_start() + said("Hi") + anthropic_end()) as server:
            adapter = Anthropic(settings("anthropic", server.base_url("anthropic")))
            for talk in growing_talk():
                Heard(adapter.stream(asking(*talk, tools=(WEATHER,), options={"cache": False})))
        assert_each_begins_with_the_one_before([json.dumps(body) for body in server.bodies])

    def test_can_be_switched_off(self) -> None:
        body = render_request(asking(system("Be."), user("Hi"), tools=(WEATHER,), options={"cache": False}), OFFICIAL)
        assert "cache_control" not in json.dumps(body)
        assert "cache" not in body

    def test_leaves_the_moving_mark_to_the_api_when_the_caller_asks_it_to(self) -> None:
        body = render_request(asking(system("Be."), options={"cache_control": MARK}, tools=(WEATHER,)), OFFICIAL)
        assert self.marked(body) == ["weather", "Be."]
        assert body["cache_control"] == MARK

    def test_changes_nothing_that_belongs_to_the_caller(self) -> None:
        search = {"type": "web_search_20250305", "name": "web_search"}
        own = {"tools": [search]}
        assert render_request(asking(options=own), OFFICIAL)["tools"] == [{**search, "cache_control": MARK}]
        assert own == {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}


class TestARichConversation:
    @pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5", "claude-3-5-haiku-latest", "kimi-k3"])
    @pytest.mark.parametrize("effort", [None, "off", "high"])
    @pytest.mark.parametrize("strict", [True, False])
    def test_is_a_request_of_the_sdks_own_type(self, model: str, effort: Any, strict: bool) -> None:
        calls = assistant(
            Reasoning("Hm.", "openai", {"id": "rs_1"}),
            THOUGHT,
            Reasoning("", "anthropic", {"type": "redacted_thinking", "data": "xyz"}),
            "Both.",
            CALL,
            ToolCall("call|b", "we ather!", "[1]", {"thought_signature": "x"}, "google"),
        )
        asked = Message(
            "user", (Image.from_bytes(PNG), Document.from_bytes(b"%PDF-1.7", name="a.pdf"), Text("Look at these."))
        )
        answers = results(ToolResult("call|b", "we ather!", "", error=True), ANSWER)
        options = {"strict": strict, "stop": "END", "parallel_tool_calls": False}
        talk = (system("Be brief."), asked, calls, answers, user("And?"))
        fields: dict[str, Any] = {"tools": (WEATHER,), "effort": effort, "output": OutputSpec("sum", SCHEMA)}
        body = render_request(asking(*talk, model=model, options=options, **fields), OFFICIAL)
        assert_is(MessageCreateParamsStreaming, body)
        assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
        assert list(body)[-1] == "messages"


def growing_talk() -> list[tuple[Message, ...]]:
    """A conversation as it stands at each call of the model."""
    turns: list[tuple[Message, ...]] = [(system("Be brief."), user("Hi"))]
    for number in range(4):
        calls = tuple(ToolCall(f"call_{number}_{place}", "weather", '{"city": "Bonn"}') for place in range(12))
        answers = results(*(ToolResult(call.id, call.name, f"Rain {call.id}") for call in calls))
        turns.append((*turns[-1], assistant(THOUGHT, "I look.", *calls), answers))
    turns.append((*turns[-1], assistant("It rains."), user("Thanks.")))
    return turns


def without_marks(body: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(
        json.dumps(body), object_hook=lambda block: {key: block[key] for key in block if key != "cache_control"}
    )
    return plain


def assert_each_begins_with_the_one_before(bodies: list[str]) -> None:
    assert len(bodies) > 3
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix("]}"))
