"""A model call that goes nowhere: it makes a process load and lay out all that the first real one would have to."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from ..config import Config
from ..errors import ConfigurationError
from ..errors import ProviderError
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Text
from ..messages import ToolSpec
from .base import ProviderSettings
from .registry import ADAPTERS
from .registry import resolve

SDKS = {
    "openai_chat": ("openai", "OpenAI", "httpx2"),
    "openai_responses": ("openai", "OpenAI", "httpx2"),
    "anthropic": ("anthropic", "Anthropic", "httpx2"),
}
"""By protocol: the SDK, its class of clients, and the HTTP library beneath. Google's SDK is not rehearsed."""


def rehearse_call(config: Config) -> None:
    """Ask the preferred model at an address of this machine where nobody listens; no proxy, key or name is used."""
    try:
        adapter: Any = resolve(None, config).adapter
    except ConfigurationError:
        # Each run that names no model says so.
        return
    if adapter.name not in SDKS:
        return
    with socket.socket() as taken:
        # Bound and not listened on: whoever connects is refused at once.
        taken.bind(("127.0.0.1", 0))
        settings = replace(adapter.settings, api_key="none", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        client = _client(adapter.name, settings)
        request = ModelRequest(
            "rehearsal",
            (Message("system", (Text("…"),)), Message("user", (Text("…"),))),
            (ToolSpec("rehearse", "…", {"type": "object", "properties": {}}),),
        )
        with client, suppress(ProviderError):
            for _ in ADAPTERS[adapter.name](replace(settings, client=client)).stream(request):
                pass


def _client(protocol: str, settings: ProviderSettings) -> Any:
    sdk, kind, http = SDKS[protocol]
    plain = import_module(http).Client(trust_env=False, verify=False)
    make = getattr(import_module(sdk), kind)
    return make(api_key=settings.api_key, base_url=settings.base_url, max_retries=0, http_client=plain)
