"""The providers known by name, as data: where they are, what they speak, and what they do otherwise than the protocol.

A new compatible server is a row here or in ``INSTRUCT_PROVIDERS``, never a branch in an adapter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import Any
from typing import Literal

from .efforts import DEEPSEEK_EFFORTS
from .efforts import GEMINI_EFFORTS
from .efforts import GROQ_EFFORTS
from .efforts import MISTRAL_EFFORTS
from .efforts import OLLAMA_EFFORTS
from .efforts import OPENAI_EFFORTS
from .efforts import TEMPLATE_EFFORTS
from .efforts import XAI_EFFORTS
from .efforts import Efforts

Protocol = Literal["openai_chat", "openai_responses", "anthropic", "google"]
NativeOutput = Literal["always", "without_tools", "never"]
EffortField = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "none"]


@dataclass(frozen=True, slots=True)
class Quirks:
    """What a server does, of the things that servers of one protocol do not do alike.

    :param max_tokens_field: where Chat Completions takes the limit of the answer.
    :param developer_role: instructions go as ``developer`` to reasoning models.
    :param strict: the server holds a tool's arguments to a strict schema when it is told so.
    :param native_output: the server holds an answer to a JSON Schema, also beside tools or only without.
    :param cache_key: takes ``prompt_cache_key``.
    :param usage_option: takes ``stream_options``; without it some servers refuse the field.
    :param call_id_length: ids of tool calls are of exactly so many letters and digits; 0: any.
    :param effort: the field that takes the reasoning effort, and ``efforts`` the words of its models.
    :param forced_choice: a tool call can be demanded of a model that reasons.
    :param replay_reasoning: takes a turn's reasoning back, or even demands it; others refuse the field.
    :param images: takes images, and ``documents`` PDFs; ``image_urls`` and ``document_urls``: by address too.
    :param max_image_bytes: largest image that is sent as bytes.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    developer_role: bool = False
    strict: bool = False
    native_output: NativeOutput = "never"
    cache_key: bool = False
    usage_option: bool = True
    call_id_length: int = 0
    effort: EffortField = "reasoning_effort"
    efforts: tuple[Efforts, ...] = ()
    forced_choice: bool = True
    replay_reasoning: bool = True
    images: bool = True
    image_urls: bool = True
    documents: bool = False
    document_urls: bool = False
    max_image_bytes: int = 20_000_000


STANDARD = Quirks()


@dataclass(frozen=True, slots=True)
class Provider:
    """How a provider is reached.

    :param model: taken when no model is named.
    :param key_variables: environment variables of the key, the first that is set counts; none: no key is needed.
    :param url_variable: environment variable of the address, which ``url_suffix`` completes.
    :param follows_url: at an address that is not the maker's own, it speaks the protocol that others imitate.
    :param models: bare model names that mean this provider without its prefix.
    :param client: a ready client of the SDK, or a function without arguments that gives one for each call.
    :param context_window: tokens; unset: looked up in :data:`CONTEXT_WINDOWS` by the model's name.
    """

    protocol: Protocol
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    key_variables: tuple[str, ...] = ()
    key_needed: bool = True
    url_variable: str | None = None
    url_suffix: str = ""
    url_needed: bool = False
    follows_url: bool = False
    models: re.Pattern[str] | None = None
    quirks: Quirks = STANDARD
    client: Any = field(default=None, repr=False)
    context_window: int | None = None


OPENAI = Quirks(
    max_tokens_field="max_completion_tokens",
    developer_role=True,
    strict=True,
    native_output="always",
    cache_key=True,
    efforts=OPENAI_EFFORTS,
    documents=True,
)
OWN_HOSTS = re.compile(r"https://([a-z0-9-]+\.)*api\.openai\.com(/|:|$)", re.IGNORECASE)
"""OpenAI's own addresses; ``openai`` at any other speaks Chat Completions with the quirks of whoever is there."""

BUILT_IN: dict[str, Provider] = {
    "openai": Provider(
        "openai_responses",
        model="gpt-5.4-mini",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        follows_url=True,
        models=re.compile(r"(gpt-(?!oss)|chatgpt-|o\d)"),
        quirks=replace(OPENAI, document_urls=True),
    ),
    "anthropic": Provider(
        "anthropic",
        model="claude-sonnet-5",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variable="ANTHROPIC_BASE_URL",
        models=re.compile(r"claude-"),
        quirks=Quirks(documents=True, document_urls=True),
    ),
    "google": Provider(
        "google",
        model="gemini-3.8-flash",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variable="GOOGLE_GEMINI_BASE_URL",
        models=re.compile(r"gemini-"),
        quirks=Quirks(documents=True, document_urls=True),
    ),
    "azure": Provider(
        "openai_chat",
        key_variables=("AZURE_OPENAI_API_KEY",),
        url_variable="AZURE_OPENAI_ENDPOINT",
        url_suffix="/openai/v1",
        url_needed=True,
        # Its Chat Completions refuse PDFs, with the same models: openai/openai-python#2826.
        quirks=replace(OPENAI, documents=False),
    ),
    "ollama": Provider(
        "openai_chat",
        base_url="http://localhost:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        key_needed=False,
        url_variable="OLLAMA_BASE_URL",
        url_suffix="/v1",
        quirks=Quirks(image_urls=False, native_output="without_tools", efforts=OLLAMA_EFFORTS),
    ),
    "vllm": Provider(
        "openai_chat",
        base_url="http://localhost:8000/v1",
        key_variables=("VLLM_API_KEY",),
        key_needed=False,
        url_variable="VLLM_BASE_URL",
        url_suffix="/v1",
        quirks=Quirks(effort="chat_template_kwargs", efforts=TEMPLATE_EFFORTS, native_output="without_tools"),
    ),
    "llamacpp": Provider(
        "openai_chat",
        base_url="http://localhost:8080/v1",
        key_variables=("LLAMA_API_KEY",),
        key_needed=False,
        url_variable="LLAMACPP_BASE_URL",
        url_suffix="/v1",
        quirks=Quirks(effort="chat_template_kwargs", efforts=TEMPLATE_EFFORTS, native_output="without_tools"),
    ),
    "groq": Provider(
        "openai_chat",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        # No shape can be held to in a stream. Reasoning that comes back is refused: karthink/gptel#774, vercel/ai#8057.
        quirks=Quirks(
            max_tokens_field="max_completion_tokens",
            efforts=GROQ_EFFORTS,
            replay_reasoning=False,
            max_image_bytes=3_000_000,
        ),
    ),
    "mistral": Provider(
        "openai_chat",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        # Fields that it does not know are refused: avante-corp/avante.nvim#2347.
        quirks=Quirks(
            call_id_length=9,
            usage_option=False,
            native_output="without_tools",
            efforts=MISTRAL_EFFORTS,
            max_image_bytes=10_000_000,
        ),
    ),
    "openrouter": Provider(
        "openai_chat",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        quirks=Quirks(effort="reasoning", documents=True, document_urls=True),
    ),
    "deepseek": Provider(
        "openai_chat",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        quirks=Quirks(effort="thinking", efforts=DEEPSEEK_EFFORTS, forced_choice=False, images=False),
    ),
    "xai": Provider(
        "openai_chat",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        quirks=Quirks(native_output="always", efforts=XAI_EFFORTS),
    ),
    "google-openai": Provider(
        "openai_chat",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        quirks=Quirks(image_urls=False, native_output="without_tools", efforts=GEMINI_EFFORTS),
    ),
}
"""Providers that need no setting but their key, in order of preference."""

ALIASES = {
    "gemini": "google",
    "gemini-openai": "google-openai",
    "llama.cpp": "llamacpp",
    "azure-openai": "azure",
    "grok": "xai",
}

STRANGER = Quirks(image_urls=False)
"""A compatible server that no profile describes: only what nearly all of them do is taken for granted."""

_AZURE_HOSTS = re.compile(
    r"https://[^/]+\.(openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.com(/|$)", re.IGNORECASE
)


def quirks_at(base_url: str | None) -> Quirks:
    """Return what the Chat Completions server at an address does: a known one's, else a stranger's.

    :param base_url: unset: OpenAI's own.
    """
    url = (base_url or "").lower()
    if base_url is None or OWN_HOSTS.match(url):
        return OPENAI
    if _AZURE_HOSTS.match(url):
        return BUILT_IN["azure"].quirks
    chats = (provider for provider in BUILT_IN.values() if provider.protocol == "openai_chat" and provider.base_url)
    return next((chat.quirks for chat in chats if _same_server(url, str(chat.base_url))), STRANGER)


def _same_server(url: str, known: str) -> bool:
    host = known.partition("://")[2].partition("/")[0]
    # vLLM and llama.cpp listen where anything else may listen too.
    return url.partition("://")[2].partition("/")[0] == host and (host == "localhost:11434" or "localhost" not in host)


CONTEXT_WINDOWS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), size)
    for pattern, size in (
        (r"gpt-5(\.\d+)?-chat|gpt-5\.3$|gpt-audio", 128_000),
        (r"gpt-5\.4-(mini|nano)", 400_000),
        (r"gpt-(4\.1|5\.[4-9]|[6-9])", 1_000_000),
        (r"gpt-5", 400_000),
        (r"gpt-oss", 131_000),
        (r"(chat)?gpt-4o|gpt-4-(turbo|vision|1106|0125)", 128_000),
        (r"gpt-4-32k", 32_000),
        (r"gpt-4", 8_192),
        (r"gpt-3\.5", 16_385),
        (r"o1-(mini|preview)", 128_000),
        (r"o\d|codex-mini", 200_000),
        (r"claude-(opus|sonnet)-4-[6-9]|claude-[a-z]+-([5-9]|\d\d)", 1_000_000),
        (r"claude-", 200_000),
        (r"gemini-", 1_000_000),
        (r"grok-4(-1)?-fast", 2_000_000),
        (r"grok-4\.(20|3)", 1_000_000),
        (r"grok-4\.[4-9]", 500_000),
        (r"grok-(4|code|build)", 256_000),
        (r"grok-3", 131_000),
        (r"deepseek-(flash|v[4-9])", 1_000_000),
        (r"deepseek-v3", 128_000),
        (r"deepseek-(chat|reasoner)", 64_000),
        (r"mistral-large-4", 500_000),
        (r"mistral-(large|medium|small)-(2512|3-5|2603)|codestral|devstral", 256_000),
    )
)
"""Tokens that a model takes, by the start of its name; makers' documentation, rounded down. Others are not trimmed."""


def context_window(model: str) -> int | None:
    """Return how many tokens a model takes, or ``None`` where it is not known."""
    return next((size for pattern, size in CONTEXT_WINDOWS if pattern.match(model)), None)
