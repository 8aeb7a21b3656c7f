"""A conversation as Anthropic Messages wants it: roles in turn, results first, thinking as it came, nothing blank.

Attachments the API does not take are refused here, before any request leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..attachments import MEGABYTE
from ..attachments import Document
from ..attachments import Image
from ..errors import ProviderError
from ..messages import JsonObject
from ..messages import Message
from ..messages import ModelRequest
from ..messages import Part
from ..messages import Reasoning
from ..messages import Text
from ..messages import ToolCall
from .base import ProviderSettings
from .base import clean
from .base import replayed_arguments
from .base import replayed_id
from .base import result_text
from .conversation import well_formed
from .names import ToolNames

PLACEHOLDER = "(no text)"
"""Stands where the API wants a text and there is none."""
CONTINUE = "Continue."
"""Said for the user to models that do not go on where the assistant's message ends."""

LARGEST = {"image": 10 * 1024 * 1024, "document": 32_000_000}
"""Characters of base64, not bytes (lobehub/lobehub#14711): of one image, as the guide on vision says, and of a whole
request, in which a document is sent. Bedrock and Google Cloud take images of half that size and say so themselves."""

_THINKING = frozenset({"thinking", "redacted_thinking"})
_SAID = frozenset({"text", *_THINKING})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_MARK = {"type": "ephemeral"}
_MARKED_TURNS = 2


def render_messages(
    request: ModelRequest, settings: ProviderSettings, names: ToolNames, *, keep_thinking: bool = True
) -> list[JsonObject]:
    """Return the conversation: roles alternate from user on, results of a turn share a message, no text is blank."""
    scribe = _Scribe(request, settings, names, keep_thinking=keep_thinking)
    rendered: list[JsonObject] = []
    for message in well_formed(request.messages):
        if message.role == "assistant":
            _append(rendered, "assistant", scribe.assistant_blocks(message))
        elif message.role == "user":
            _append(rendered, "user", scribe.user_blocks(message) or [_text_block(PLACEHOLDER)])
        elif message.role == "tool":
            _append(rendered, "user", _result_blocks(message))
    if not rendered or rendered[0]["role"] != "user":
        rendered.insert(0, {"role": "user", "content": [_text_block(PLACEHOLDER)]})
    _drop_unanswered(rendered)
    _strip_prefill(rendered)
    return rendered


def with_an_open_end(rendered: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the conversation with a word of the user at its end, unless a paused turn is to be resumed as it is."""
    last = rendered[-1]
    paused = any(block["type"] not in _SAID for block in last["content"])
    if last["role"] == "user" or paused:
        return list(rendered)
    return [*rendered, {"role": "user", "content": [_text_block(CONTINUE)]}]


def thinks_in_its_loop(rendered: Sequence[JsonObject]) -> bool:
    """Tell whether a turn that waits for results began with thinking; true where none waits."""
    last = rendered[-1]
    if last["role"] != "user" or last["content"][0]["type"] != "tool_result":
        return True
    return len(rendered) > 1 and rendered[-2]["content"][0]["type"] in _THINKING


def mark_cached(payload: JsonObject) -> None:
    """Mark the ends of the instructions, of the tools and of the last turns of the user for the prompt cache."""
    turns = [message for message in payload["messages"] if message["role"] == "user"][-_MARKED_TURNS:]
    if "cache_control" in payload:
        # A mark for the whole request is one of the four, and moves by itself.
        turns = []
    for key in ("system", "tools"):
        if isinstance(payload.get(key), list):
            payload[key] = _marked(payload[key])
    for message in turns:
        message["content"] = _marked(message["content"])


def _marked(blocks: list[JsonObject]) -> list[JsonObject]:
    return [*blocks[:-1], *({**block, "cache_control": _MARK} for block in blocks[-1:])]


def _append(rendered: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    if not blocks:
        return
    if rendered and rendered[-1]["role"] == role:
        rendered[-1]["content"].extend(blocks)
    else:
        rendered.append({"role": role, "content": blocks})


def _drop_unanswered(rendered: list[JsonObject]) -> None:
    """A server tool's call without its result is refused, but at the end, where a paused turn is resumed."""
    for message in rendered[:-1]:
        blocks = message["content"]
        answered = {block.get("tool_use_id") for block in blocks}
        kept = [block for block in blocks if block["type"] not in _SERVER_CALLS or block.get("id") in answered]
        message["content"] = kept or [_text_block(PLACEHOLDER)]


def _strip_prefill(rendered: list[JsonObject]) -> None:
    """An assistant message at the end is continued by the model; the API refuses it with blanks at its end."""
    last = rendered[-1]
    if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        block = last["content"][-1]
        last["content"][-1] = {**block, "text": block["text"].rstrip()}


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _result_blocks(message: Message) -> list[JsonObject]:
    blocks = []
    for result in message.results:
        block: JsonObject = {
            "type": "tool_result",
            "tool_use_id": replayed_id(result.call_id),
            "content": result_text(result),
        }
        blocks.append({**block, "is_error": True} if result.error else block)
    return blocks


class _Scribe:
    """Writes the parts of one request's messages as blocks."""

    def __init__(
        self, request: ModelRequest, settings: ProviderSettings, names: ToolNames, *, keep_thinking: bool
    ) -> None:
        self._names = names
        self._settings = settings
        self._skipped = set() if keep_thinking else set(_THINKING)
        # Only a request that asks for stand-ins may hold the mark that one stepped in.
        if not request.options.get("fallbacks"):
            self._skipped.add("fallback")

    def user_blocks(self, message: Message) -> list[JsonObject]:
        return [block for part in message.parts if (block := self._user_block(part)) is not None]

    def assistant_blocks(self, message: Message) -> list[JsonObject]:
        blocks = [block for part in message.parts if (block := self._assistant_block(part)) is not None]
        # A turn that was cut after its thinking would end in it, which the API refuses.
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
        return blocks

    def _user_block(self, part: Part) -> JsonObject | None:
        if isinstance(part, Text):
            text = clean(part.text)
            return _text_block(text) if text.strip() else None
        return self._attachment(part) if isinstance(part, Image | Document) else None

    def _assistant_block(self, part: Part) -> JsonObject | None:
        if isinstance(part, Text):
            text = clean(part.text)
            return _text_block(text) if text.strip() else None
        if isinstance(part, ToolCall):
            return {
                "type": "tool_use",
                "id": replayed_id(part.id),
                "name": self._names.sent(part.name),
                "input": replayed_arguments(part.raw),
            }
        if not isinstance(part, Reasoning) or part.opaque is None or part.provider != self._settings.name:
            return None
        kind = part.opaque.get("type")
        if not isinstance(kind, str):
            # Of another protocol that was spoken under this provider's name.
            return None
        # A block without its signature is refused: pydantic-ai#7601.
        unsigned = kind == "thinking" and not part.opaque.get("signature")
        return None if unsigned or kind in self._skipped else part.opaque

    def _attachment(self, part: Image | Document) -> JsonObject:
        quirks = self._settings.quirks
        is_image = isinstance(part, Image)
        if not (quirks.images if is_image else quirks.documents):
            raise self._unsupported(part, "takes none of its kind: leave it out, or choose another provider")
        if part.url is not None:
            if not (quirks.image_urls if is_image else quirks.document_urls):
                raise self._unsupported(part, "takes no addresses: give its bytes (from_bytes, from_path)")
            source: JsonObject = {"type": "url", "url": part.url}
        else:
            source = {"type": "base64", "media_type": part.media_type, "data": self._coded(part)}
        titled = {"title": clean(part.name)} if not is_image and part.name else {}
        return {"type": part.kind, "source": source, **titled}

    def _coded(self, part: Image | Document) -> str:
        coded = part.base64
        largest = LARGEST[part.kind]
        if isinstance(part, Image):
            largest = min(largest, self._settings.quirks.max_image_bytes * 4 // 3)
        if len(coded) > largest:
            size = f"{len(coded) / MEGABYTE:.1f} MB in base64, more than {largest / MEGABYTE:.1f} MB"
            raise self._unsupported(part, f"does not take it: it has {size}; make it smaller")
        return coded

    def _unsupported(self, part: Image | Document, why: str) -> ProviderError:
        name = f" {part.name}" if part.name else ""
        return ProviderError("unsupported", f"The {part.kind}{name} was not sent: {self._settings.name} {why}.")
