"""The table of providers: complete, consistent, and with models that the makers' own SDKs know."""

from __future__ import annotations

from typing import Any
from typing import get_args
from urllib.parse import urlsplit

import pytest
from anthropic.types import Model as AnthropicModel
from openai.types.shared import ChatModel

from flask_instruct.adapters.efforts import OPENAI_EFFORTS
from flask_instruct.adapters.efforts import efforts_of
from flask_instruct.adapters.profiles import ALIASES
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.profiles import context_window
from flask_instruct.adapters.profiles import quirks_at
from flask_instruct.adapters.registry import ADAPTERS
from flask_instruct.adapters.registry import PACKAGES


def names_in(declared: Any) -> set[str]:
    """The texts that a ``Literal`` allows, also inside a union."""
    return {name for part in get_args(declared) for name in (names_in(part) or {part}) if isinstance(name, str)}


def google_models() -> set[str]:
    from google.genai._gaos.types.interactions.model import Model

    return names_in(Model)


@pytest.mark.parametrize(
    ("provider", "models"),
    [("openai", names_in(ChatModel)), ("anthropic", names_in(AnthropicModel)), ("google", google_models())],
)
def test_the_default_models_are_known_to_their_makers_sdks(provider: str, models: set[str]) -> None:
    assert BUILT_IN[provider].model in models


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_provider_can_be_reached(name: str) -> None:
    provider = BUILT_IN[name]
    assert provider.protocol in ADAPTERS
    assert provider.protocol in PACKAGES
    assert provider.key_variables
    if provider.base_url is not None:
        assert urlsplit(provider.base_url).scheme == ("http" if "localhost" in provider.base_url else "https")
        assert not provider.base_url.endswith("/")
    if provider.protocol == "openai_chat":
        assert provider.base_url or provider.url_needed
    assert name not in ALIASES


def test_each_alias_means_a_provider() -> None:
    assert set(ALIASES.values()) <= BUILT_IN.keys()


@pytest.mark.parametrize(
    ("name", "provider"), [("gpt-5.4", "openai"), ("o3", "openai"), ("claude-sonnet-5", "anthropic"), ("gpt-oss", None)]
)
def test_bare_names_mean_one_provider_at_most(name: str, provider: str | None) -> None:
    found = [known for known, row in BUILT_IN.items() if row.models is not None and row.models.match(name)]
    assert found == ([provider] if provider else [])


@pytest.mark.parametrize("name", sorted(names_in(ChatModel)))
def test_every_model_of_openai_has_a_window_and_known_efforts(name: str) -> None:
    assert context_window(name)
    efforts = efforts_of(OPENAI_EFFORTS, name)
    reasons = not name.startswith(("gpt-3", "gpt-4", "chatgpt", "gpt-audio", "gpt-5-chat"))
    assert bool(efforts and efforts.high) == reasons


@pytest.mark.parametrize("name", sorted(names_in(AnthropicModel) | google_models()))
def test_every_model_for_text_of_the_other_makers_has_a_window(name: str) -> None:
    if name.startswith(("claude-", "gemini-")):
        assert context_window(name)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("gpt-5.4", 1_000_000),
        ("gpt-5.4-mini-2026-03-17", 400_000),
        ("gpt-5.3-chat-latest", 128_000),
        ("gpt-4", 8_192),
        ("claude-sonnet-5", 1_000_000),
        ("claude-3-7-sonnet-latest", 200_000),
        ("claude-haiku-4-5", 200_000),
        ("grok-4-fast-reasoning", 2_000_000),
        ("llama3", None),
    ],
)
def test_windows_are_those_of_the_family(name: str, tokens: int | None) -> None:
    assert context_window(name) == tokens


@pytest.mark.parametrize("name", [name for name, row in BUILT_IN.items() if row.base_url])
def test_a_known_address_has_its_providers_quirks(name: str) -> None:
    own = name in ("vllm", "llamacpp")
    assert (quirks_at(BUILT_IN[name].base_url) == BUILT_IN[name].quirks) != own
