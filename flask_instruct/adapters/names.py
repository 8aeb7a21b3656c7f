"""Tool names that every provider takes, and the way back from them to ours."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..messages import ToolSpec

LONGEST = 64


def legal_name(name: str) -> str:
    """Return a name of letters, digits, ``_`` and ``-``, at most 64, that begins with a letter or ``_``.

    These rules are OpenAI's, Anthropic's and Gemini's together. A name invented by the model stands in the history
    for good, where it would make every later call fail (home-assistant/core#147760).
    """
    legal = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    return (legal if re.match(r"[a-zA-Z_]", legal) else f"_{legal}")[:LONGEST]


class ToolNames:
    """The names of one request's tools on the wire, each its own.

    :param tools: those of the request; other names are only made legal.
    """

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._sent: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        # Legal names first: they are sent as they are, whatever others become.
        for tool in sorted(tools, key=lambda tool: legal_name(tool.name) != tool.name):
            sent = self._free(legal_name(tool.name))
            self._sent[tool.name], self._ours[sent] = sent, tool.name

    def sent(self, name: str) -> str:
        """Return the name on the wire."""
        return self._sent.get(name) or legal_name(name)

    def ours(self, sent: str) -> str:
        """Return the tool that a model means by a name; one that it made up stays as it is."""
        return self._ours.get(sent, sent)

    def _free(self, name: str) -> str:
        number, free = 2, name
        while free in self._ours:
            ending = f"_{number}"
            number, free = number + 1, name[: LONGEST - len(ending)] + ending
        return free
