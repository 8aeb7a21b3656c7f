"""Those whose cost is measured, each in the way its documentation shows: ours, the floor below it, and the SDK.

The floor is what a person would write by hand: one POST through the official client, lines, ``json.loads``.
"""

from __future__ import annotations

import json
import os
from abc import ABC
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .workload import QUESTION
from .workload import SYSTEM
from .workload import TOOL
from .workload import Task

KEY = "sk-benchmark-0123456789"
WINDOW = 400_000

Hear = Callable[[str], object]
LookUp = Callable[..., str]

PARAMETERS: Any = {
    "type": "object",
    "properties": {
        "record": {"type": "integer", "description": "The number of the record."},
        "field": {"type": "string", "description": 'The name of the field, such as "history".'},
    },
    "required": ["record", "field"],
}
DECLARED: Any = {"name": TOOL, "description": "Return one field of a record.", "parameters": PARAMETERS}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contender talks to: the server's address and the path before the protocol's own."""

    address: str
    path: str = ""

    @property
    def openai(self) -> str:
        return f"{self.address}{self.path}/v1"

    @property
    def anthropic(self) -> str:
        return f"{self.address}{self.path}"


class Contender(ABC):
    """One way to talk to a model. Clients, agents and tools are made once and stay, as in a server's process."""

    name = ""
    package = ""
    """What must be importable, and ``distribution`` what is to be installed for it."""
    distribution = ""

    @abstractmethod
    def __init__(self, place: Place, look_up: LookUp) -> None: ...

    @abstractmethod
    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        """Stream a talk to its end, running the tool; each piece is told to ``hear`` as it comes."""

    def close(self) -> None:  # noqa: B027
        """Give back what was opened; most keep nothing open."""


class Ours(Contender):
    """A prompt, run as the documentation shows it: the provider is a setting, the tool is a class."""

    name = "flask-instruct"
    package = "flask_instruct"
    distribution = "flask-instruct"
    protocol = "openai_chat"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        from flask_instruct import Tool

        url = place.anthropic if self.protocol == "anthropic" else place.openai
        self._provider = f"bench-{self.protocol}{place.path.replace('/', '-')}"
        settings = json.loads(os.environ.get("INSTRUCT_PROVIDERS", "{}"))
        # With a window, as known models have one, so that fitting the history into it is counted too.
        settings[self._provider] = {
            "protocol": self.protocol,
            "base_url": url,
            "api_key": KEY,
            "context_window": WINDOW,
        }
        os.environ["INSTRUCT_PROVIDERS"] = json.dumps(settings)

        class LookUpTool(Tool):
            identifier = TOOL

            def call(self, record: int, field: str) -> str:
                """Return one field of a record.

                Args:
                    record: The number of the record.
                    field: The name of the field, such as "history".
                """
                return look_up(record, field)

        self._tool = LookUpTool
        self._look_up = look_up

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        from flask_instruct import Prompt
        from flask_instruct import gen
        from flask_instruct.arguments import parse_arguments
        from flask_instruct.events import TextDelta
        from flask_instruct.events import ToolCallDelta
        from flask_instruct.events import ToolCallRequest

        model = f"{self._provider}:{task.model}"
        prompt = Prompt().system(SYSTEM).user(QUESTION) + gen(model, tools=[self._tool], max_rounds=task.rounds + 1)
        for event in prompt.stream():
            match event:
                case TextDelta(text):
                    hear(text)
                case ToolCallDelta():
                    hear_arguments(event.arguments)
                case ToolCallRequest():
                    arguments = self._tool.check(parse_arguments(event.call.raw)).keywords
                    event.respond(self._look_up(**arguments))


class OursOverResponses(Ours):
    protocol = "openai_responses"


class OursOverAnthropic(Ours):
    protocol = "anthropic"


class RawChat(Contender):
    """The floor, for Chat Completions: a whole tool loop by hand, without any check of what comes in."""

    name = "raw SSE + json"
    package = distribution = "openai"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        import openai

        self._client = openai.OpenAI(base_url=place.openai, api_key=KEY, max_retries=0)
        self._stream: Any = openai.Stream[object]
        self._look_up = look_up

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": QUESTION},
        ]
        while call := self._turn(task, messages, hear, hear_arguments):
            result = self._look_up(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def _turn(self, task: Task, messages: list[dict[str, Any]], hear: Hear, hear_arguments: Hear) -> Any:
        body = {
            "model": task.model,
            "messages": messages,
            "tools": [{"type": "function", "function": DECLARED}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text: list[str] = []
        call: dict[str, Any] = {}
        arguments: list[str] = []
        with self._client.post(
            "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=self._stream
        ) as stream:
            for line in stream.response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    delta = choice["delta"]
                    if piece := delta.get("content"):
                        text.append(piece)
                        hear(piece)
                    for fragment in delta.get("tool_calls", ()):
                        call = call or fragment
                        arguments.append(fragment["function"]["arguments"])
                        hear_arguments(arguments[-1])
        message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
        if call:
            call = {**call, "function": {"name": call["function"]["name"], "arguments": "".join(arguments)}}
            message["tool_calls"] = [call]
        messages.append(message)
        return call


class RawResponses(Contender):
    """The floor of one streamed text over Responses."""

    name = "raw SSE + json"
    package = distribution = "openai"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        import openai

        self._client = openai.OpenAI(base_url=place.openai, api_key=KEY, max_retries=0)
        self._stream: Any = openai.Stream[object]

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        body = {
            "model": task.model,
            "input": [{"role": "user", "content": QUESTION}],
            "tools": [{"type": "function", **DECLARED}],
            "stream": True,
        }
        text: list[str] = []
        with self._client.post("/responses", cast_to=object, body=body, stream=True, stream_cls=self._stream) as stream:
            for line in stream.response.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if event["type"] == "response.output_text.delta":
                        text.append(event["delta"])
                        hear(event["delta"])


class RawAnthropic(Contender):
    """The floor of one streamed text over Anthropic's Messages."""

    name = "raw SSE + json"
    package = distribution = "anthropic"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        import anthropic

        self._client = anthropic.Anthropic(base_url=place.anthropic, api_key=KEY, max_retries=0)
        self._stream: Any = anthropic.Stream[object]

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        tool = {"name": TOOL, "description": DECLARED["description"], "input_schema": PARAMETERS}
        body = {
            "model": task.model,
            "max_tokens": 16000,
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [tool],
            "stream": True,
        }
        text: list[str] = []
        with self._client.post(
            "/v1/messages", cast_to=object, body=body, stream=True, stream_cls=self._stream
        ) as stream:
            for line in stream.response.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if event["type"] == "content_block_delta":
                        text.append(event["delta"]["text"])
                        hear(event["delta"]["text"])


class TypedSdk(Contender):
    """The openai SDK as its readme shows it: typed chunks, the history a list of typed messages."""

    name = "openai SDK, typed"
    package = distribution = "openai"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        import openai

        self._client = openai.OpenAI(base_url=place.openai, api_key=KEY, max_retries=0)
        self._look_up = look_up

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        while call := self._turn(task, messages, hear, hear_arguments):
            result = self._look_up(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def _turn(self, task: Task, messages: list[Any], hear: Hear, hear_arguments: Hear) -> Any:
        text, arguments, name, call_id = [], [], "", ""
        stream = self._client.chat.completions.create(
            model=task.model,
            messages=messages,
            tools=[{"type": "function", "function": DECLARED}],
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.content:
                    text.append(choice.delta.content)
                    hear(choice.delta.content)
                for fragment in choice.delta.tool_calls or ():
                    call_id = fragment.id or call_id
                    if fragment.function is not None:
                        name = fragment.function.name or name
                        arguments.append(fragment.function.arguments or "")
                        hear_arguments(arguments[-1])
        message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
        messages.append(message)
        if not call_id:
            return None
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "".join(arguments)}}
        message["tool_calls"] = [call]
        return call
