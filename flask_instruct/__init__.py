"""Let an AI edit your Flask app's records with your own methods, in the background, on live pages."""

from __future__ import annotations

from .attachments import Document
from .attachments import Image
from .errors import ConfigurationError
from .errors import ConversationBusy
from .errors import DeclarationError
from .errors import HandlerError
from .errors import InstructError
from .errors import OutputError
from .errors import ProviderError
from .errors import RecordGone
from .errors import ToolError
from .errors import Uncertain
from .extension import Instruct
from .extension import generate_for
from .handlers import AiResponseHandler
from .limits import Limits
from .live.alone import publish
from .live.turbo_stream import dom_id
from .live.turbo_stream import turbo_stream
from .orchestrator import Orchestrator
from .prompt import Prompt
from .prompt import gen
from .tools import Tool
from .tools import ai_tool
from .tools import ai_tools_from

__all__ = [
    "AiResponseHandler",
    "ConfigurationError",
    "ConversationBusy",
    "DeclarationError",
    "Document",
    "HandlerError",
    "Image",
    "Instruct",
    "InstructError",
    "Limits",
    "Orchestrator",
    "OutputError",
    "Prompt",
    "ProviderError",
    "RecordGone",
    "Tool",
    "ToolError",
    "Uncertain",
    "ai_tool",
    "ai_tools_from",
    "dom_id",
    "gen",
    "generate_for",
    "publish",
    "turbo_stream",
]
