"""The SDKs' clients keep connections; every test here closes its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flask_instruct.adapters import anthropic
from flask_instruct.adapters import google_transport
from flask_instruct.adapters import openai_chat


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    openai_chat.clients.close()
    anthropic.clients.close()
    google_transport.clients.close()
