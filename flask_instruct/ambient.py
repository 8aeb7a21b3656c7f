"""What a model call outside of any run is made with: the settings of the current app, else those of the environment.

Prompts know no Flask, so the extension tells this module where to look when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .adapters.registry import Credentials
from .config import Config


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings, and the app's own rule for keys where it has one."""

    config: Config
    credentials: Credentials | None = None


Finder = Callable[[], Surroundings | None]
_finders: list[Finder] = []


def look_with(finder: Finder) -> None:
    """Ask ``finder`` from now on; it answers ``None`` where there is no app."""
    _finders.append(finder)


def surroundings() -> Surroundings:
    """Return what the current app has, or what the environment says.

    :raises ConfigurationError: for a setting of the wrong type.
    """
    found = (finder() for finder in _finders)
    return next((each for each in found if each is not None), None) or Surroundings(Config.from_app({}))
