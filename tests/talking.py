"""A real talk with a model of each protocol: one server tells a story in the protocol that it is asked in.

Each request is read back into our own words, so that what the model was told can be looked at without knowing the
protocol; the calls are answered by a real handler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from typing import Any
from typing import Literal

import pytest
from pydantic import BaseModel

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import next_turn
from flask_instruct.adapters.scripted import register_script
from flask_instruct.attempts import Patience
from flask_instruct.calls import ToolContext
from flask_instruct.calls import run_tool
from flask_instruct.config import Config
from flask_instruct.errors import ProviderError
from flask_instruct.errors import ToolError
from flask_instruct.events import Event
from flask_instruct.events import ToolCallRequest
from flask_instruct.generation import gen
from flask_instruct.handlers import AiResponseHandler
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import ToolResult
from flask_instruct.talk import converse
from flask_instruct.tools import ai_tool
from tests.adapters.hearing import system
from tests.adapters.hearing import user
from tests.wire import Reply
from tests.wire import Seen
from tests.wire import WireServer
from tests.wire import told_reply
from tests.wire_format import FORMATS
from tests.wire_format import protocol_of

MODELS = {
    "openai_chat": "openai_chat:gpt-5.4",
    "openai_responses": "openai_responses:gpt-5.4-mini",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "google": "google:gemini-2.5-flash",
    "scripted": "scripted:story",
}
PROFILES = {
    "openai_chat": {"profile": "azure"},
    "openai_responses": {"profile": "openai", "protocol": "openai_responses"},
    "anthropic": {"profile": "anthropic"},
    "google": {"profile": "google"},
}
TWINS = {f"{protocol}_twin": MODELS[protocol].replace(":", "_twin:") for protocol in PROFILES}
"""Another provider of each protocol: an account whose secrets are not the first one's."""
PROTOCOLS = pytest.mark.parametrize("protocol", MODELS)
OVER_HTTP = pytest.mark.parametrize("protocol", PROFILES)
TEXT = "Grüße aus 東京 🎌, und noch viel mehr."
SECRETS = ("signed", "secret-0", "c2lnbmVk")
"""What the told answers carry that only their own protocol may get back."""
PNG = b"\x89PNG\r\n\x1a\n1"
PDF = b"%PDF-1.7"


class Desk(AiResponseHandler, name="tests.talking.Desk"):
    """A handler that writes down what reaches it."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @ai_tool
    def weather(self, city: str) -> str:
        """Tell the weather."""
        self.ran.append(city)
        return f"Sunny in {city}"

    @ai_tool
    def nothing(self, kind: Literal["none", "text", "list"] = "none") -> Any:
        """Give nothing."""
        self.ran.append(kind)
        return {"none": None, "text": "", "list": []}[kind]

    @ai_tool
    def refuse(self) -> str:
        """Refuse."""
        self.ran.append("refuse")
        raise ToolError("Closed today.")


class Verdict(BaseModel):
    """A judgement."""

    word: Literal["good", "bad"]
    score: int


class Talk:
    """What came of a talk with one model, or with several."""

    def __init__(self, messages: Sequence[Message], desk: Desk | None = None) -> None:
        self.messages = list(messages)
        self.events: list[Event] = []
        self.error: ProviderError | None = None
        self.output: Any = None
        self.desk = desk or Desk()

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return self.messages[-1].text

    @property
    def results(self) -> list[ToolResult]:
        return [result for message in self.messages for result in message.results]

    @property
    def call_ids(self) -> list[str]:
        return [call.id for message in self.messages for call in message.calls]

    @property
    def rows(self) -> str:
        """The conversation as it is stored, with ids as places: those are the providers' or made up."""
        stored = json.dumps([message.to_json() for message in self.messages], ensure_ascii=False)
        for place, call_id in enumerate(self.call_ids):
            stored = stored.replace(call_id, f"id {place}")
        return stored


class Stage:
    """Tells a story in every protocol, and remembers each request in our own words.

    :param before: replies that are given first, whatever is asked.
    """

    def __init__(self, story: Script, *before: Reply, timeout: float = 20.0, first_call: int | None = None) -> None:
        self.asked: list[ModelRequest] = []
        self.waits: list[float] = []
        self._story = story
        self._before = iter(before)
        self._first_call = first_call
        self.server = WireServer(self._answer)
        register_script("story", self._remember)
        providers = {
            name: {**profile, "base_url": self.server.base_url(protocol), "api_key": "k"}
            for protocol, profile in PROFILES.items()
            for name in (protocol, f"{protocol}_twin")
        }
        self.config = Config.from_app({"INSTRUCT_PROVIDERS": providers, "INSTRUCT_MODEL_TIMEOUT": timeout})

    def _remember(self, request: ModelRequest) -> Turn:
        self.asked.append(request)
        return next_turn(self._story, request)

    def _answer(self, seen: Seen) -> Reply:
        made = next(self._before, None)
        if made is not None:
            return made
        if self._first_call is None:
            return told_reply(self._remember, seen, piece=50)
        spoken = FORMATS[protocol_of(seen.path)]
        return Reply(list(spoken.write(self._remember(spoken.read(seen.body, seen.path)), first_call=self._first_call)))

    def talk(
        self,
        *protocols: str,
        messages: Sequence[Message] = (system("Be brief."), user("Go.")),
        desk: Desk | None = None,
        retries: int = 1,
        **options: Any,
    ) -> Talk:
        """Talk to the model of a protocol, with the others to fall back on; calls are answered by a real handler."""
        talk = Talk(messages, desk)
        options.setdefault("tools", talk.desk.ai_tools())
        events = converse(
            talk.messages,
            gen([(MODELS | TWINS)[protocol] for protocol in protocols], **options),
            config=self.config,
            patience=Patience(retries, wait=self.waits.append),
        )
        try:
            while True:
                talk.events.append(next(events))
                if isinstance(request := talk.events[-1], ToolCallRequest):
                    answer(talk.desk, request)
        except StopIteration as end:
            talk.output = end.value
        except ProviderError as error:
            talk.error = error
        return talk


def answer(desk: Desk, request: ToolCallRequest) -> None:
    context = ToolContext(request.id, None, request.tool_name, 1, request.id)
    outcome = run_tool(desk, request.call, context)
    (request.respond_error if outcome.error else request.respond)(outcome.content)


@contextmanager
def theatre() -> Iterator[Callable[..., Stage]]:
    """Give a function that puts a story on a stage; all of them close at the end."""
    with ExitStack() as stages:

        def tell(story: Script, *before: Reply, **how: Any) -> Stage:
            stage = Stage(story, *before, **how)
            stages.enter_context(stage.server)
            return stage

        yield tell


def told_turn(protocol: str, *steps: Any) -> Reply:
    """A turn as the protocol's server sends it, whatever was asked."""
    return Reply(list(FORMATS[wire_of(protocol)].write(steps)))


def refused(protocol: str, kind: Any, **headers: str) -> Reply:
    """An error status as the protocol's server sends it."""
    status, error = FORMATS[wire_of(protocol)].error(Fail(kind, "Their words"))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(error), status=status, content_type="application/json", headers=named)


def wire_of(protocol: str) -> str:
    return "openai" if protocol == "openai_chat" else protocol


def say(text: str, size: int = 6) -> Say:
    return Say(text, every=0, size=size)


def think(text: str) -> Think:
    return Think(text, every=0)


def echo(request: ModelRequest) -> Turn:
    """Use two tools at once, then say what came back."""
    results = request.messages[-1].results
    if not results:
        return [think("Hm."), say("Let me see."), Use("weather", city="Zürich"), Use("weather", city="東京")]
    return [say(" | ".join(f"{result.name}: {result.content}" for result in results))]
