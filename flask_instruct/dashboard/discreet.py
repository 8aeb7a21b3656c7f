"""Takes out of what is shown whatever nobody may read: the app's own secrets, and what looks like a key in an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..doctor.finding import HIDDEN
from ..doctor.finding import secrets_of

if TYPE_CHECKING:
    from ..state import State

LONG = 12
"""Characters of a secret that is taken out of everything; a shorter one may be a common word."""

_KEYS = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|key)[-_][A-Za-z0-9_\-*]{8,}|\bAIza[A-Za-z0-9_\-]{10,}|(?<=Bearer )\S+|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",
    re.IGNORECASE,
)
"""Keys as providers make them, what follows ``Bearer``, and the name and password of an address."""


@dataclass(frozen=True, slots=True)
class Discreet:
    """Knows an app's secrets, the longest first."""

    secrets: tuple[str, ...]

    @classmethod
    def of(cls, state: State) -> Discreet:
        return cls(secrets_of(state))

    def text(self, text: str) -> str:
        """Return what a person, a model or a tool wrote, without the app's secrets."""
        for secret in self.secrets:
            if len(secret) >= LONG:
                text = text.replace(secret, HIDDEN)
        return text

    def technical(self, text: str) -> str:
        """Return what an error says: without any secret, and without what looks like one."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return _KEYS.sub(HIDDEN, text)
