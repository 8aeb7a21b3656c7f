"""Requests that Anthropic Messages refused for one thing in them, and that are sent once more without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Reasoning
from tests.wire import Reply
from tests.wire import Seen
from tests.wire import WireServer
from tests.wire_format import anthropic_end
from tests.wire_format import anthropic_event
from tests.wire_format import anthropic_start

from .anthropic_wire import SIGNED
from .anthropic_wire import said
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import settings
from .hearing import system
from .hearing import user

THOUGHT = Reasoning("Hm.", "anthropic", SIGNED)


REFUSALS = {
    "The compiled grammar is too large, which would cause performance issues.": "strict",
    'tool_choice: type "tool" and "any" are not supported for this model.': "forced_choice",
    "messages.1.content.0: Invalid `signature` in `thinking` block": "thinking_blocks",
    "messages.1.content.0: The block is bound to a different conversation. Remove the block.": "thinking_blocks",
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".': "thinking",
    "`temperature` is deprecated for this model.": "sampling",
    "system.0.cache_control: Extra inputs are not permitted": "cache",
}


class TestASecondChance:
    def refusing(self, *words: str) -> Callable[[Seen], Reply]:
        refusals = iter(words)

        def answer(seen: Seen) -> Reply:
            refusal = next(refusals, None)
            if refusal is None:
                return Reply(anthropic_start() + said("Hi") + anthropic_end())
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": refusal}}
            return Reply(json.dumps(error), status=400, content_type="application/json")

        return answer

    def hear(self, server: WireServer, **fields: Any) -> Heard:
        talk = (system("Be."), user("Hi"), assistant(THOUGHT, "Yes?"), user("Go on."))
        adapter = Anthropic(settings("anthropic", server.base_url("anthropic")))
        return Heard(adapter.stream(asking(*talk, tools=(WEATHER,), tool_choice="required", **fields)))

    @pytest.mark.parametrize("words", REFUSALS)
    def test_leaves_out_what_was_refused(self, words: str) -> None:
        """alphaXiv/agents#49, anomalyco/opencode#48637, Comfy-Org/ComfyUI#13923 and simstudioai/sim#7528."""
        effort = "low" if REFUSALS[words] == "thinking" else None
        with WireServer(self.refusing(words)) as server:
            heard = self.hear(server, effort=effort, options={"strict": True, "temperature": 0.5})
        assert heard.text == "Hi"
        first, second = server.bodies
        assert self.features(first) - self.features(second) == {REFUSALS[words]}

    def test_is_given_once_for_each_reason(self) -> None:
        twice = "The compiled grammar is too large"
        with (
            WireServer(self.refusing(twice, twice, twice)) as server,
            pytest.raises(ProviderError, match="grammar") as caught,
        ):
            self.hear(server, options={"strict": True})
        assert (len(server.seen), caught.value.kind) == (2, "bad_request")

    def test_is_given_for_one_reason_after_another(self) -> None:
        with WireServer(self.refusing(*list(REFUSALS)[:3])) as server:
            assert self.hear(server, options={"strict": True}).text == "Hi"
        assert len(server.seen) == 4

    @pytest.mark.parametrize("words", ["The compiled grammar is too large", "temperature: must be at most 1"])
    def test_is_not_given_where_nothing_could_be_left_out(self, words: str) -> None:
        with WireServer(self.refusing(words)) as server, pytest.raises(ProviderError, match=words):
            self.hear(server, options={"temperature": 3})
        assert len(server.seen) == 1

    def test_is_not_given_within_a_stream(self) -> None:
        error = {"type": "invalid_request_error", "message": "The compiled grammar is too large"}
        body = anthropic_start() + said("Hi") + anthropic_event("error", error=error)
        with WireServer.playing(body) as server, pytest.raises(ProviderError, match="grammar"):
            self.hear(server, options={"strict": True})
        assert len(server.seen) == 1

    def features(self, body: dict[str, Any]) -> set[str]:
        there = {
            "strict": any(tool.get("strict") for tool in body["tools"]),
            "forced_choice": body["tool_choice"]["type"] == "any",
            "thinking": "thinking" in body,
            "thinking_blocks": any(block["type"] == "thinking" for block in body["messages"][1]["content"]),
            "sampling": "temperature" in body,
            "cache": "cache_control" in json.dumps(body),
        }
        return {name for name, found in there.items() if found}
