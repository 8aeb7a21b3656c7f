"""Gemini generateContent."""

from __future__ import annotations

from collections.abc import Generator

from ..events import Event
from ..messages import ModelRequest
from .base import ProviderSettings


class Google:
    """Speak Gemini generateContent with one provider."""

    name = "google"

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    def stream(self, request: ModelRequest) -> Generator[Event, None, None]:
        """Make the call and give off its events; see :class:`~flask_instruct.adapters.base.Adapter`."""
        raise NotImplementedError
