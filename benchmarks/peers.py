"""Other libraries that run tool loops, each as its own documentation shows a streamed run.

The asynchronous ones keep one event loop and are given an asynchronous tool, which is what costs them least.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from collections.abc import Coroutine
from typing import Any

from .contenders import KEY
from .contenders import Contender
from .contenders import Hear
from .contenders import LookUp
from .contenders import Place
from .workload import QUESTION
from .workload import SYSTEM
from .workload import TOOL
from .workload import Task


def _async_tool(look_up: LookUp) -> Callable[[int, str], Coroutine[Any, Any, str]]:
    async def async_look_up(record: int, field: str) -> str:
        return look_up(record, field)

    async_look_up.__name__ = async_look_up.__qualname__ = TOOL
    async_look_up.__doc__ = look_up.__doc__
    return async_look_up


class PydanticAI(Contender):
    name = "pydantic-ai"
    package = "pydantic_ai"
    distribution = "pydantic-ai-slim"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.providers.openai import OpenAIProvider

        self._runner = asyncio.Runner()
        self._provider = OpenAIProvider(base_url=place.openai, api_key=KEY)
        self._agent = Agent(system_prompt=SYSTEM, tools=[_async_tool(look_up)])

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        self._runner.run(self._talk(task, hear, hear_arguments))

    async def _talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        from pydantic_ai.messages import PartDeltaEvent
        from pydantic_ai.messages import PartStartEvent
        from pydantic_ai.messages import TextPart
        from pydantic_ai.messages import TextPartDelta
        from pydantic_ai.messages import ToolCallPartDelta
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.usage import UsageLimits

        async def listen(_: Any, events: Any) -> None:
            async for event in events:
                match event:
                    case PartDeltaEvent(delta=TextPartDelta() as delta):
                        hear(delta.content_delta)
                    case PartStartEvent(part=TextPart() as part):
                        hear(part.content)
                    case PartDeltaEvent(delta=ToolCallPartDelta() as call):
                        hear_arguments(call.args_delta)

        model = OpenAIChatModel(task.model, provider=self._provider)
        limits = UsageLimits(request_limit=None)
        await self._agent.run(QUESTION, model=model, event_stream_handler=listen, usage_limits=limits)

    def close(self) -> None:
        self._runner.run(self._provider.client.close())
        self._runner.close()


class OpenAIAgents(Contender):
    name = "openai-agents"
    package = "agents"
    distribution = "openai-agents"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        from agents import Agent
        from agents import RunConfig
        from agents import function_tool
        from openai import AsyncOpenAI

        self._runner = asyncio.Runner()
        self._client = AsyncOpenAI(base_url=place.openai, api_key=KEY, max_retries=0)
        self._tools = [function_tool(_async_tool(look_up))]
        self._agent = Agent
        # Its traces would be sent to OpenAI.
        self._config = RunConfig(tracing_disabled=True)

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        self._runner.run(self._talk(task, hear, hear_arguments))

    async def _talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        from agents import OpenAIChatCompletionsModel
        from agents import Runner

        model = OpenAIChatCompletionsModel(task.model, openai_client=self._client)
        agent = self._agent(name="Reader", instructions=SYSTEM, tools=list(self._tools), model=model)
        run = Runner.run_streamed(agent, QUESTION, max_turns=task.rounds + 2, run_config=self._config)
        async for event in run.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                hear(event.data.delta)
            elif event.data.type == "response.function_call_arguments.delta":
                hear_arguments(event.data.delta)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


class Llm(Contender):
    """It tells pieces of arguments to plugins only, so they are not heard; between two turns it says a blank."""

    name = "llm"
    package = distribution = "llm"

    def __init__(self, place: Place, look_up: LookUp) -> None:
        # It makes the folder of its settings when it is used.
        self._folder = tempfile.TemporaryDirectory()
        os.environ["LLM_USER_PATH"] = self._folder.name
        from llm.default_plugins.openai_models import Chat

        self._make = Chat
        self._address = place.openai
        self._look_up = look_up

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        model = self._make(task.model, model_name=task.model, api_base=self._address, supports_tools=True)
        conversation = model.conversation(tools=[self._look_up])
        for piece in conversation.chain(QUESTION, system=SYSTEM, chain_limit=0, key=KEY):
            if piece != " ":
                hear(piece)

    def close(self) -> None:
        self._folder.cleanup()


LIBRARIES: tuple[type[Contender], ...] = (PydanticAI, OpenAIAgents, Llm)
