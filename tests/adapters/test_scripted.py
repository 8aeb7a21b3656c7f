"""The scripted model: it follows its script, knows its place from the conversation, and speaks as real ones do."""

from __future__ import annotations

import pytest

from flask_instruct.adapters import scripted
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import ProviderError
from flask_instruct.events import TextDelta
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult

from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import assistant
from .hearing import results
from .hearing import user

TWO_TURNS: Script = [[Say("Let me see."), Use("weather", city="Rome")], [Say("Sunny.")]]


@pytest.fixture(autouse=True)
def own_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "_scripts", {})


def play(script: Script, request: ModelRequest | None = None) -> tuple[Heard, list[float]]:
    """Play a turn of a script; gives what was heard and the pauses that were made."""
    register_script("story", script)
    pauses: list[float] = []
    return Heard(Scripted(sleep=pauses.append).stream(request or asking(model="story"))), pauses


def test_the_first_turn_is_said_in_pieces_and_calls_the_tool() -> None:
    heard, pauses = play(TWO_TURNS)
    assert [event.text for event in heard.events if isinstance(event, TextDelta)] == ["Let me", " see."]
    assert pauses == [0.02, 0.02]
    assert [(call[1], call[2]) for call in heard.calls] == [("weather", {"city": "Rome"})]
    assert heard.finish.reason == "tool_calls"
    assert heard.message.text == "Let me see."


def test_the_next_turn_follows_from_the_conversation() -> None:
    history = (user("?"), assistant(ToolCall("a", "weather")), results(ToolResult("a", "weather", "sun")))
    heard, _ = play(TWO_TURNS, asking(*history, model="story"))
    assert (heard.text, heard.finish.reason) == ("Sunny.", "stop")
    again, _ = play(TWO_TURNS, asking(*history, assistant("Sunny."), user("Sure?"), model="story"))
    assert again.text == "Let me see."


def test_a_conversation_past_the_script_ends() -> None:
    heard, _ = play([], asking(user("?"), assistant("Sunny."), model="story"))
    assert (heard.text, heard.finish.reason) == ("Done.", "stop")


def test_a_script_may_be_a_function_of_the_request() -> None:
    def echo(request: ModelRequest) -> Turn:
        return [Say(f"You said {request.messages[-1].text}.", every=0)]

    heard, pauses = play(echo, asking(user("boo"), model="story"))
    assert (heard.text, pauses) == ("You said boo.", [])


def test_forbidden_tools_are_not_used_and_the_text_says_so() -> None:
    heard, _ = play(TWO_TURNS, asking(model="story", tools=(WEATHER,), tool_choice="none"))
    assert heard.message.calls == ()
    assert "tools are switched off" in heard.text
    assert heard.finish.reason == "stop"


def test_arguments_may_be_any_text() -> None:
    heard, _ = play([[Use("weather", raw='{"city": oops')]])
    assert heard.message.calls[0].raw == '{"city": oops'


def test_a_failure_comes_at_its_place() -> None:
    register_script("story", [[Say("Half", every=0), Fail("overloaded", "Too busy")]])
    stream = Scripted().stream(asking(model="story"))
    assert next(stream) == TextDelta("Half")
    with pytest.raises(ProviderError, match="Too busy") as caught:
        next(stream)
    assert caught.value.kind == "overloaded"


def test_a_stop_ends_the_turn_and_drops_its_calls() -> None:
    heard, _ = play([[Say("Half", every=0), Use("weather"), Stop("length"), Say("never")]])
    assert (heard.finish.reason, heard.message.calls, heard.text) == ("length", (), "Half")


def test_thinking_and_waiting() -> None:
    heard, pauses = play([[Think("Hm.", every=0), Wait(3), Say("Hi", every=0)]])
    assert (heard.reasoning, heard.text, pauses) == ("Hm.", "Hi", [3])


def test_tokens_are_estimated() -> None:
    heard, _ = play([[Say("12345678", every=0)]], asking(user("1234"), model="story"))
    assert heard.usage is not None
    assert (heard.usage.input_tokens, heard.usage.output_tokens) == (1, 2)


def test_closing_the_stream_ends_the_talking() -> None:
    register_script("story", [[Say("A long text that is not heard to its end")]])
    pauses: list[float] = []
    stream = Scripted(sleep=pauses.append).stream(asking(model="story"))
    next(stream)
    stream.close()
    assert len(pauses) == 1


def test_an_unknown_script_is_refused_with_the_known_ones() -> None:
    register_script("story", TWO_TURNS)
    with pytest.raises(ConfigurationError, match=r"'tale'.*known: story"):
        Scripted().stream(asking(model="tale"))
