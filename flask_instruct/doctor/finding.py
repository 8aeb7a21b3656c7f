"""What a check found: how bad it is, a sentence about it, and what to do. No secret is ever part of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from urllib.parse import unquote
from urllib.parse import urlsplit

from ..adapters.profiles import BUILT_IN

if TYPE_CHECKING:
    from ..state import State

Level = Literal["ok", "warning", "error"]

HIDDEN = "…"
SHORTEST_SECRET = 4
"""Characters; a shorter text stands in too many words to be taken out of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found; ``fix`` is empty where all is well."""

    level: Level
    sentence: str
    fix: str = ""
    check: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    :param look: gives what it finds; what it raises becomes a finding.
    :param needs: checks that must have found no error before.
    """

    name: str
    look: Callable[[State], Iterator[Finding]]
    needs: tuple[str, ...] = ()


def ok(sentence: str) -> Finding:
    return Finding("ok", sentence)


def warning(sentence: str, fix: str) -> Finding:
    return Finding("warning", sentence, fix)


def error(sentence: str, fix: str) -> Finding:
    return Finding("error", sentence, fix)


def without_secrets(finding: Finding, secrets: tuple[str, ...]) -> Finding:
    """Return the finding with each secret replaced."""
    sentence, fix = finding.sentence, finding.fix
    for secret in secrets:
        sentence, fix = sentence.replace(secret, HIDDEN), fix.replace(secret, HIDDEN)
    return replace(finding, sentence=sentence, fix=fix)


def secrets_of(state: State) -> tuple[str, ...]:
    """Return all texts of an app that nobody may read, the longest first."""
    config = state.app.config
    addresses = [state.config.redis_url, state.config.live_url, config.get("SQLALCHEMY_DATABASE_URI")]
    addresses += [bind.get("url") if isinstance(bind, dict) else bind for bind in _values(config, "SQLALCHEMY_BINDS")]
    given: list[Any] = [config.get("SECRET_KEY"), *(config.get("SECRET_KEY_FALLBACKS") or ())]
    given += [password for address in addresses for password in _passwords(str(address or ""))]
    for provider in (state.config.providers or {}).values():
        given += [provider.get("api_key"), *dict(provider.get("headers") or {}).values()]
    given += [os.environ.get(variable) for profile in BUILT_IN.values() for variable in profile.key_variables]
    texts = {_text(each) for each in given if each}
    return tuple(sorted((text for text in texts if len(text) >= SHORTEST_SECRET), key=len, reverse=True))


def _values(config: Any, name: str) -> list[Any]:
    return list((config.get(name) or {}).values())


def _passwords(address: str) -> list[str]:
    """The password of a URL as written and as meant, and all before the @ where it cannot be told from the rest."""
    before, at, _ = address.partition("://")[2].rpartition("@")
    if not at:
        return []
    try:
        password = urlsplit(address).password or ""
    except ValueError:
        password = ""
    written = before.partition(":")[2]
    return [before, written, unquote(written), password, unquote(password)]


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
