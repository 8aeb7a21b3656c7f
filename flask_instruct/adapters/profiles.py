"""The providers known by name, as data: where they are, what they speak, and what they do otherwise than the protocol.

A new compatible server is a row here or in ``INSTRUCT_PROVIDERS``, never a branch in an adapter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal

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
    :param effort: the field that takes the reasoning effort.
    :param images: takes images, and ``documents`` PDFs; ``image_urls`` and ``document_urls``: by address too.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    developer_role: bool = False
    strict: bool = False
    native_output: NativeOutput = "never"
    cache_key: bool = False
    usage_option: bool = True
    call_id_length: int = 0
    effort: EffortField = "reasoning_effort"
    images: bool = True
    image_urls: bool = True
    documents: bool = False
    document_urls: bool = False


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
    documents=True,
)
OWN_HOSTS = re.compile(r"https://([a-z0-9-]+\.)*api\.openai\.com(/|$)")
"""OpenAI's own addresses; ``openai`` at any other speaks Chat Completions with the quirks of a stranger."""

BUILT_IN: dict[str, Provider] = {
    "openai": Provider(
        "openai_responses",
        model="gpt-5.4-mini",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        follows_url=True,
        models=re.compile(r"(gpt-|chatgpt-|o\d)"),
        quirks=OPENAI,
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
        model="gemini-3-flash-preview",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variable="GOOGLE_GEMINI_BASE_URL",
        models=re.compile(r"gemini-"),
        quirks=Quirks(documents=True),
    ),
    "azure": Provider(
        "openai_chat",
        key_variables=("AZURE_OPENAI_API_KEY",),
        url_variable="AZURE_OPENAI_ENDPOINT",
        url_suffix="/openai/v1",
        url_needed=True,
        quirks=OPENAI,
    ),
    "ollama": Provider(
        "openai_chat",
        base_url="http://localhost:11434/v1",
        key_needed=False,
        url_variable="OLLAMA_BASE_URL",
        quirks=Quirks(image_urls=False, native_output="without_tools"),
    ),
    "vllm": Provider(
        "openai_chat",
        base_url="http://localhost:8000/v1",
        key_variables=("VLLM_API_KEY",),
        key_needed=False,
        url_variable="VLLM_BASE_URL",
        quirks=Quirks(effort="chat_template_kwargs", native_output="without_tools"),
    ),
    "llamacpp": Provider(
        "openai_chat",
        base_url="http://localhost:8080/v1",
        key_variables=("LLAMA_API_KEY",),
        key_needed=False,
        url_variable="LLAMACPP_BASE_URL",
        quirks=Quirks(effort="chat_template_kwargs", native_output="without_tools"),
    ),
    "groq": Provider(
        "openai_chat",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        quirks=Quirks(max_tokens_field="max_completion_tokens"),
    ),
    "mistral": Provider(
        "openai_chat",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        quirks=Quirks(call_id_length=9, usage_option=False, native_output="without_tools"),
    ),
    "openrouter": Provider(
        "openai_chat",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        quirks=Quirks(effort="reasoning", documents=True),
    ),
    "deepseek": Provider(
        "openai_chat",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        quirks=Quirks(effort="thinking", images=False),
    ),
    "xai": Provider(
        "openai_chat",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        quirks=Quirks(native_output="always"),
    ),
    "google-openai": Provider(
        "openai_chat",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        quirks=Quirks(image_urls=False, native_output="without_tools"),
    ),
}
"""Providers that need no setting but their key, in order of preference."""

ALIASES = {"gemini": "google", "llama.cpp": "llamacpp", "azure-openai": "azure"}

STRANGER = Quirks(image_urls=False)
"""A compatible server that no profile describes: only what nearly all of them do is taken for granted."""

CONTEXT_WINDOWS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"gpt-(4\.1|5\.[45])"), 1_000_000),
    (re.compile(r"gpt-5"), 400_000),
    (re.compile(r"gpt-4o|gpt-4-turbo|chatgpt-4o"), 128_000),
    (re.compile(r"gpt-4"), 8_192),
    (re.compile(r"gpt-3\.5"), 16_385),
    (re.compile(r"o\d"), 200_000),
    (re.compile(r"claude-"), 200_000),
    (re.compile(r"gemini-"), 1_000_000),
)
"""Tokens that a model takes, by the start of its name; makers' documentation, rounded down. Others are not trimmed."""


def context_window(model: str) -> int | None:
    """Return how many tokens a model takes, or ``None`` where it is not known."""
    return next((size for pattern, size in CONTEXT_WINDOWS if pattern.match(model)), None)
