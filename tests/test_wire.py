"""The test server itself: one story told over each protocol and by the scripted adapter means the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flask_instruct.adapters import anthropic
from flask_instruct.adapters import google_transport
from flask_instruct.adapters import openai_chat
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.base import Adapter
from flask_instruct.adapters.google import Google
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.profiles import Quirks
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.errors import ProviderError
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import OutputSpec
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.messages import ToolSpec

from .adapters.hearing import Heard
from .adapters.hearing import settings
from .support import Process
from .wire import WireServer

ADD = ToolSpec("add", "Add up.", {"type": "object", "properties": {"x": {"type": "integer"}}})


def judge(request: ModelRequest) -> Turn:
    """A story that looks at the last result."""
    answers = request.messages[-1].results
    if not answers:
        return [Say("Ünd so", every=0), Use("add", x=1), Use("add", raw="{oops")]
    return [Say(" and ".join(f"{answer.content} {answer.error}" for answer in answers), every=0)]


STORY: Script = judge
ADAPTERS: dict[str, Callable[[Any], Adapter]] = {
    "openai": OpenAIChat,
    "openai_responses": OpenAIResponses,
    "anthropic": Anthropic,
    "google": Google,
}
LISTED: Script = [[Use("add", x=1)], [Say("Done.", every=0)]]


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    openai_chat.clients.close()
    anthropic.clients.close()
    google_transport.clients.close()


@pytest.fixture(params=[*ADAPTERS, "scripted"])
def teller(request: pytest.FixtureRequest) -> Iterator[Callable[[Script], Adapter]]:
    """Make a story into a model: over each protocol, and scripted."""
    servers: list[WireServer] = []

    def tell(story: Script) -> Adapter:
        if request.param == "scripted":
            register_script("m", story)
            return Scripted()
        servers.append(WireServer.telling(story, piece=11).__enter__())
        base_url = servers[-1].base_url(request.param)
        return ADAPTERS[request.param](settings(request.param, base_url, quirks=Quirks(documents=True)))

    yield tell
    for server in servers:
        server.__exit__()


def converse(adapter: Adapter, *, tool_choice: Any = "auto") -> list[Message]:
    messages = [Message("system", (Text("Be."),)), Message("user", (Text("Go"),))]
    while messages[-1].role != "assistant":
        request = ModelRequest("m", tuple(messages), (ADD,), tool_choice)
        message = Heard(adapter.stream(request)).message
        messages.append(message)
        if message.calls:
            answers = [
                ToolResult(call.id, call.name, str(place), place == 1) for place, call in enumerate(message.calls)
            ]
            messages.append(Message("tool", tuple(answers)))
    return messages


def test_a_story_means_the_same_on_every_protocol(teller: Callable[[Script], Adapter]) -> None:
    _, _, first, _, last = converse(teller(judge))
    assert first.text == "Ünd so"
    # Gemini's arguments are JSON, so what is none can only come as a text.
    assert [(call.name, call.raw.strip('"')) for call in first.calls] == [("add", '{"x": 1}'), ("add", "{oops")]
    assert len({call.id for call in first.calls}) == 2
    assert last.text in ("0 False and 1 True", "0 False and Error: 1 True")


def test_forbidden_tools_are_talked_about_on_every_protocol(teller: Callable[[Script], Adapter]) -> None:
    (*_, last) = converse(teller(LISTED), tool_choice="none")
    assert (last.text, last.calls) == ("I would now use add, but tools are switched off for this answer.", ())


@pytest.mark.parametrize(
    "kind",
    [
        "authentication",
        "bad_request",
        "context_window",
        "rate_limited",
        "overloaded",
        "server",
        "timeout",
        "connection",
        "cut",
    ],
)
def test_a_failure_has_its_kind_on_every_protocol(teller: Callable[[Script], Adapter], kind: Any) -> None:
    with pytest.raises(ProviderError) as caught:
        converse(teller([[Fail(kind, "Their words")]]))
    assert caught.value.kind == kind


@pytest.mark.parametrize("kind", ["overloaded", "server", "cut", "malformed"])
def test_a_failure_in_mid_answer_has_its_kind_on_every_protocol(teller: Callable[[Script], Adapter], kind: Any) -> None:
    with pytest.raises(ProviderError) as caught:
        converse(teller([[Say("Half", every=0), Fail(kind, "Their words")]]))
    assert caught.value.kind == kind


@pytest.mark.parametrize("reason", ["length", "stop", "refusal"])
def test_an_ending_has_its_reason_on_every_protocol(teller: Callable[[Script], Adapter], reason: Any) -> None:
    adapter = teller([[Say("Half", every=0), Stop(reason)]])
    heard = Heard(adapter.stream(ModelRequest("m", (Message("user", (Text("Go"),)),))))
    assert heard.finish.reason in (reason, "content_filter" if reason == "refusal" else reason)
    assert heard.text == "Half"


def test_a_story_sees_what_was_asked_as_it_was_asked(teller: Callable[[Script], Adapter]) -> None:
    image, document = Image.from_bytes(b"\x89PNG\r\n\x1a\n1"), Document.from_bytes(b"%PDF-1.7", name="a.pdf")
    output = OutputSpec("answer", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    seen: list[ModelRequest] = []

    def look(request: ModelRequest) -> Turn:
        seen.append(request)
        return [Think("Hm.", every=0), Say('{"x": 1}', every=0)]

    asked = Message("user", (image, document, Text("What is it?")))
    Heard(teller(look).stream(ModelRequest("m", (asked,), (ADD,), "required", output=output)))
    (read,) = seen
    assert [type(part) for part in read.messages[0].parts] == [Image, Document, Text]
    assert [part.data for part in read.messages[0].parts[:2]] == [image.data, document.data]  # type: ignore[union-attr]
    assert (read.messages[0].text, read.tools[0].name) == ("What is it?", "add")
    assert read.tool_choice == "required"
    assert read.output is not None
    assert read.output.schema["required"] == ["x"]


@pytest.mark.parametrize("protocol", ADAPTERS)
def test_a_process_tells_a_story(protocol: str, start: Callable[..., Process], tmp_path: Path) -> None:
    log = tmp_path / "bodies"
    command = [sys.executable, "-m", "tests.wire", "--protocol", protocol, "--story", "tests.test_wire:LISTED"]
    process = start([*command, "--log", str(log)], cwd=Path(__file__).parents[1])
    ready = process.wait_for_output("Ready: http")
    messages = converse(ADAPTERS[protocol](settings(protocol, ready.partition("Ready: ")[2].strip())))
    assert messages[-1].text == "Done."
    assert isinstance(messages[2].parts[0], ToolCall)
    assert len(log.read_text().splitlines()) == 2
