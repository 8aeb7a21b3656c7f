"""How much a model may reason, in the words of each maker's models; a model that takes no such word is told nothing.

Sources are the makers' documentation; where a model cannot stop reasoning, ``off`` is the least that it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..messages import Effort


@dataclass(frozen=True, slots=True)
class Efforts:
    """The words of one family of models.

    :param models: a pattern for the beginning of their names, in lower case.
    :param off: the word for each of our levels; an empty one is not sent.
    :param by_effort: takes ``reasoning_effort`` even from a server that takes another field from other models.
    """

    models: str = ""
    off: str = "none"
    low: str = "low"
    medium: str = "medium"
    high: str = "high"
    by_effort: bool = False

    def word(self, level: Effort) -> str:
        """Return the word for a level, or an empty text."""
        word: str = getattr(self, level)
        return word


def efforts_of(families: tuple[Efforts, ...], model: str) -> Efforts | None:
    """Return the words for a model, or ``None`` when it takes none; without any table, the protocol's own."""
    if not families:
        return Efforts()
    return next((family for family in families if re.match(family.models, model.lower())), None)


NOT_TOLD = ""

OPENAI_EFFORTS = (
    Efforts(r"(ft:)?gpt-5-chat", NOT_TOLD, NOT_TOLD, NOT_TOLD, NOT_TOLD),
    # openai/codex#6647 and anomalyco/opencode#3474: these reason always, each with its own least effort.
    Efforts(r"gpt-5-pro", "high", "high", "high", "high"),
    Efforts(r"gpt-\d+\.\d+-pro", off="medium", low="medium"),
    Efforts(r"gpt-[\d.]+-codex|codex-", off="low"),
    # egoist/chatwise-releases#1257: these take medium only.
    Efforts(r"gpt-\d+\.\d+-chat|o\d[a-z0-9-]*-deep-research", "medium", "medium", "medium", "medium"),
    # openai/openai-agents-python#2089: knows none, and no longer minimal.
    Efforts(r"(ft:)?gpt-5\.\d"),
    Efforts(r"(ft:)?gpt-5", off="minimal"),
    # GPT-6 Astra no longer takes "none"; its guide names "low" in its place.
    Efforts(r"(ft:)?gpt-([6-9]|\d\d)|gpt-oss|(ft:)?o\d", off="low"),
)
"""For both of OpenAI's protocols."""

XAI_EFFORTS = (
    Efforts(r"grok-3-mini", off="low", medium="high"),
    Efforts(r"grok-4\.20-multi-agent", off="low"),
    # Whether these reason is said by their name.
    Efforts(r"grok-4\.20", NOT_TOLD, NOT_TOLD, NOT_TOLD, NOT_TOLD),
    Efforts(r"grok-4\.3|grok-latest"),
    Efforts(r"grok-4\.[4-9]|grok-[5-9]", off="low"),
)

GROQ_EFFORTS = (
    Efforts(r"openai/gpt-oss", off="low"),
    Efforts(r"qwen/qwen3", low="default", medium="default", high="default"),
)

MISTRAL_EFFORTS = (
    Efforts(r"mistral-(small|medium)-latest|mistral-small-(4|26\d\d)|mistral-medium-3[-.]5", low="high", medium="high"),
    Efforts(r"mistral-large-4"),
)

GEMINI_EFFORTS = (
    Efforts(r"(models/)?gemini-2\.5-flash"),
    Efforts(r"(models/)?gemini-(2\.5|[3-9]|flash|pro)", off="minimal"),
)

DEEPSEEK_EFFORTS = (Efforts(medium="high"),)

TEMPLATE_EFFORTS = (Efforts(r"(.*/)?gpt-oss", off="low", by_effort=True), Efforts())

OLLAMA_EFFORTS = (Efforts(r"(.*/)?gpt-oss", off="low"), Efforts())
