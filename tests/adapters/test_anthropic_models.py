"""Families of Claude models: the effort, sampling and forced calls that each is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from flask_instruct.adapters.anthropic_models import FAMILIES
from flask_instruct.adapters.anthropic_models import abilities_of
from flask_instruct.adapters.anthropic_models import native_output
from flask_instruct.messages import Reasoning
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult

from .anthropic_wire import SIGNED
from .anthropic_wire import body_of
from .hearing import WEATHER
from .hearing import assistant
from .hearing import results
from .hearing import user
from .sdk_types import assert_is

THOUGHT = Reasoning("Hm.", "anthropic", SIGNED)
CALL = ToolCall("a", "weather", '{"city": "Bonn"}')
ANSWER = ToolResult("a", "weather", "Rain")
IN_ITS_LOOP = (user("Hi"), assistant(CALL), results(ANSWER))


class TestFamilies:
    @pytest.mark.parametrize(
        "name",
        [
            "claude-opus-4-6",
            "claude-opus-4-6-20260205",
            "anthropic/claude-opus-4.6",
            "us.anthropic.claude-opus-4-6-v1:0",
            "claude-opus-4-6@20260205",
        ],
    )
    def test_are_known_under_the_names_that_gateways_use(self, name: str) -> None:
        assert abilities_of(name) is dict(FAMILIES)["claude-opus-4-6"]

    @pytest.mark.parametrize(
        ("name", "family"),
        [
            ("claude-sonnet-4-20250514", "claude-sonnet-4"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("claude-opus-5-20260724", "claude-opus-5"),
            ("claude-opus-5-5", "claude-opus-5-5"),
            ("claude-3-7-sonnet-latest", "claude-3-7"),
            ("claude-fable-5-2", "claude-fable"),
            ("claude-sonnet-9", "claude"),
        ],
    )
    def test_are_told_apart_by_the_longer_name(self, name: str, family: str) -> None:
        assert abilities_of(name) == dict(FAMILIES)[family]

    def test_hold_answers_to_a_schema_from_four_five_on(self) -> None:
        assert native_output("claude-haiku-4-5") == native_output("claude-opus-5-5") == "always"
        assert native_output("claude-opus-4-1") == native_output("kimi-k3") == "never"


class TestEffort:
    @pytest.mark.parametrize(
        ("model", "effort", "thinking", "told"),
        [
            ("claude-fable-5", "high", {"type": "adaptive", "display": "summarized"}, "high"),
            ("claude-fable-5", "off", None, "low"),
            ("claude-sonnet-5-5", "off", {"type": "between_tools"}, None),
            ("claude-sonnet-5", "off", {"type": "disabled"}, None),
            ("claude-sonnet-5", "low", {"type": "adaptive", "display": "summarized"}, "low"),
            ("claude-opus-4-8", "off", None, None),
            ("claude-opus-4-6", "medium", {"type": "adaptive"}, "medium"),
            ("claude-opus-4-5", "low", {"type": "enabled", "budget_tokens": 2_000}, "low"),
            ("claude-haiku-4-5", "high", {"type": "enabled", "budget_tokens": 16_000}, None),
            ("claude-haiku-4-5", "off", {"type": "disabled"}, None),
            ("claude-3-5-haiku-latest", "high", None, None),
            ("claude-sonnet-5", None, None, None),
        ],
    )
    def test_becomes_what_the_family_takes(
        self, model: str, effort: Any, thinking: dict[str, Any] | None, told: str | None
    ) -> None:
        body = body_of(model=model, effort=effort)
        assert body.get("thinking") == thinking
        assert body.get("output_config") == (None if told is None else {"effort": told})
        assert_is(MessageCreateParamsStreaming, body)

    @pytest.mark.parametrize("limit", [1_025, 1_500, 4_000, 64_000])
    @pytest.mark.parametrize("effort", ["low", "medium", "high"])
    def test_asks_for_less_thinking_than_the_whole_answer_may_have(self, limit: int, effort: Any) -> None:
        body = body_of(model="claude-haiku-4-5", effort=effort, options={"max_tokens": limit})
        assert 1_024 <= body["thinking"]["budget_tokens"] < body["max_tokens"] == limit

    def test_does_not_ask_for_thinking_that_has_no_room(self) -> None:
        assert "thinking" not in body_of(model="claude-haiku-4-5", effort="high", options={"max_tokens": 1_024})

    def test_leaves_room_for_the_answer_and_stays_within_what_the_model_writes(self) -> None:
        assert body_of(model="claude-opus-5-5", effort="high")["max_tokens"] == 48_000
        assert body_of(model="claude-opus-4-1", effort="high")["max_tokens"] == 32_000

    def test_does_not_begin_to_think_within_a_turn_that_began_without(self) -> None:
        """A turn whose results are awaited must begin with thinking where thinking is on."""
        assert "thinking" not in body_of(*IN_ITS_LOOP, model="claude-haiku-4-5", effort="high")
        thought = (user("Hi"), assistant(THOUGHT, CALL), results(ANSWER))
        assert body_of(*thought, model="claude-haiku-4-5", effort="high")["thinking"]["type"] == "enabled"
        assert body_of(*IN_ITS_LOOP, model="claude-opus-5-5", effort="high")["thinking"]["type"] == "adaptive"

    def test_gives_way_to_what_the_caller_says_in_the_providers_own_words(self) -> None:
        own = {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}}
        body = body_of(model="claude-opus-5-5", effort="low", options=own)
        assert (body["thinking"], body["output_config"]) == (own["thinking"], own["output_config"])


class TestSampling:
    @pytest.mark.parametrize(
        ("model", "effort", "kept"),
        [
            ("claude-opus-5-5", None, set()),
            ("claude-opus-4-7", None, set()),
            ("claude-opus-4-6", None, {"temperature", "top_k"}),
            ("claude-opus-4-6", "low", set()),
            ("claude-haiku-4-5", "high", set()),
            ("claude-3-5-haiku-latest", None, {"temperature", "top_p", "top_k"}),
            ("kimi-k3", None, {"temperature", "top_p", "top_k"}),
        ],
    )
    def test_is_left_out_where_the_model_refuses_it(self, model: str, effort: Any, kept: set[str]) -> None:
        options = {"temperature": 0.2, "top_p": 0.9, "top_k": 5}
        body = body_of(model=model, effort=effort, options=options)
        assert {key for key in options if key in body} == kept

    def test_by_top_p_alone_stays(self) -> None:
        assert body_of(model="claude-haiku-4-5", options={"top_p": 0.9})["top_p"] == 0.9


class TestAForcedCall:
    @pytest.mark.parametrize(
        ("model", "effort", "choice", "thinking"),
        [
            ("claude-haiku-4-5", None, "any", None),
            ("claude-haiku-4-5", "low", "auto", "enabled"),
            ("claude-opus-4-7", None, "any", None),
            ("claude-opus-4-7", "low", "auto", "adaptive"),
            ("claude-sonnet-5", None, "any", "disabled"),
            ("claude-sonnet-5", "off", "any", "disabled"),
            ("claude-sonnet-5", "low", "auto", "adaptive"),
            ("claude-opus-5-5", None, "auto", None),
            ("claude-sonnet-5-5", None, "auto", None),
            ("claude-fable-5-1", None, "auto", None),
        ],
    )
    def test_is_asked_for_only_where_the_model_does_not_think(
        self, model: str, effort: Any, choice: str, thinking: str | None
    ) -> None:
        body = body_of(model=model, effort=effort, tools=(WEATHER,), tool_choice="required")
        assert body["tool_choice"] == {"type": choice}
        assert body.get("thinking", {}).get("type") == thinking
