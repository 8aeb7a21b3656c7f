"""What the families of Claude models take and refuse, as one table by the start of a model's name.

Sources: the migration guides and the pages on thinking, effort and structured outputs of platform.claude.com, and the
error texts in simstudioai/sim#4771, NousResearch/hermes-agent#11137, pydantic/pydantic-ai#7989.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from typing import Literal

from .profiles import NativeOutput

Thinking = Literal["none", "budget", "adaptive"]
Off = Literal["nothing", "disabled", "between_tools", "lowest"]
Sampling = Literal["free", "one", "none"]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a family of models can do.

    :param answer: tokens asked for when the caller names no limit; the API demands one.
    :param most: tokens that the model writes at most, thinking included.
    :param thinking: ``budget``: as many tokens as it is told; ``adaptive``: as much as it likes, by effort.
    :param off: how thinking is turned off; ``nothing``: it is off unless asked for; ``lowest``: it cannot be.
    :param effort: takes ``output_config.effort``.
    :param hidden: sends the text of its thinking only when asked to.
    :param sampling: takes ``temperature``, ``top_p`` and ``top_k`` together, one of the first two, or none of them.
    :param forced: can be made to call a tool, while it does not think.
    :param prefill: goes on where the last message of the assistant ends.
    :param output: holds an answer to a JSON Schema, also beside tools.
    """

    answer: int = 16_000
    most: int = 64_000
    thinking: Thinking = "budget"
    off: Off = "disabled"
    effort: bool = False
    hidden: bool = False
    sampling: Sampling = "one"
    forced: bool = True
    prefill: bool = True
    output: bool = True


NEWEST = Abilities(
    # They think without being asked, and what they think counts as answer.
    answer=32_000,
    most=128_000,
    thinking="adaptive",
    off="lowest",
    effort=True,
    hidden=True,
    sampling="none",
    forced=False,
    prefill=False,
)
STRANGER = Abilities(sampling="free", output=False)
"""A model of another maker behind a server that speaks this protocol."""

_CLAUDE_5 = replace(NEWEST, off="disabled", forced=True)
_CLAUDE_4_7 = replace(_CLAUDE_5, answer=16_000, off="nothing")
_CLAUDE_4_6 = replace(_CLAUDE_4_7, hidden=False, sampling="one")
_CLAUDE_4 = Abilities(sampling="free", output=False)

FAMILIES: tuple[tuple[str, Abilities], ...] = (
    ("claude-fable", NEWEST),
    ("claude-mythos", NEWEST),
    ("claude-opus-5-5", NEWEST),
    ("claude-sonnet-5-5", replace(NEWEST, off="between_tools")),
    ("claude-haiku-5", _CLAUDE_5),
    ("claude-opus-5", _CLAUDE_5),
    ("claude-sonnet-5", _CLAUDE_5),
    ("claude-opus-4-8", _CLAUDE_4_7),
    ("claude-opus-4-7", _CLAUDE_4_7),
    ("claude-opus-4-6", _CLAUDE_4_6),
    ("claude-sonnet-4-6", _CLAUDE_4_6),
    ("claude-opus-4-5", Abilities(effort=True)),
    ("claude-sonnet-4-5", Abilities()),
    ("claude-haiku-4-5", Abilities()),
    ("claude-opus-4-1", Abilities(most=32_000, output=False)),
    ("claude-opus-4", replace(_CLAUDE_4, most=32_000)),
    ("claude-sonnet-4", _CLAUDE_4),
    ("claude-3-7", _CLAUDE_4),
    ("claude-3-5", replace(_CLAUDE_4, answer=8_192, most=8_192, thinking="none", off="nothing")),
    ("claude-3", replace(_CLAUDE_4, answer=4_096, most=4_096, thinking="none", off="nothing")),
    ("claude-2", replace(_CLAUDE_4, answer=4_096, most=4_096, thinking="none", off="nothing")),
    ("claude", NEWEST),
)
"""The first match counts; a Claude that no row names is taken for one newer than this table."""


def abilities_of(model: str) -> Abilities:
    """Return what a model can do; gateways write ``vendor/claude-opus-4.6`` or ``eu.anthropic.claude-opus-4-6``."""
    _, found, rest = model.lower().replace(".", "-").partition("claude")
    name = found + rest
    return next((abilities for start, abilities in FAMILIES if name.startswith(start)), STRANGER)


def native_output(model: str) -> NativeOutput:
    """Return whether the API holds this model's answers to a JSON Schema."""
    return "always" if abilities_of(model).output else "never"
