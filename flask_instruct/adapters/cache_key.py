"""The key under which OpenAI keeps a conversation's beginning, so that its next call finds it.

It says which requests begin alike, so it is made of what all requests of one conversation begin with.
"""

from __future__ import annotations

import hashlib
import json

from ..messages import ModelRequest
from .base import system_text

_LENGTH = 32


def cache_key(request: ModelRequest) -> str:
    """Return the same key for each request of one conversation: of its model, instructions, tools and first question.

    Nothing of it can be read back from the key.
    """
    first = next((message.text for message in request.messages if message.role == "user"), "")
    start = [request.model, system_text(request.messages), [tool.name for tool in request.tools], first]
    return hashlib.sha256(json.dumps(start).encode()).hexdigest()[:_LENGTH]
