"""From a model's name to its adapter, and what is told to a developer when something is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from flask_instruct.adapters import registry
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.registry import preferred
from flask_instruct.adapters.registry import preferred_reason
from flask_instruct.adapters.registry import resolve
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.config import Config
from flask_instruct.errors import ConfigurationError


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("INSTRUCT_DEFAULT_MODEL", raising=False)
    monkeypatch.delenv("INSTRUCT_PROVIDERS", raising=False)


def with_providers(**providers: dict[str, Any]) -> Config:
    return Config(providers=providers)


def without_package(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == package else find_spec(name))


@pytest.mark.parametrize(
    ("model", "adapter", "bare"),
    [
        ("openai:gpt-5.4", OpenAIResponses, "gpt-5.4"),
        ("openai:ft:gpt-4o:org", OpenAIResponses, "ft:gpt-4o:org"),
        ("gpt-5.4", OpenAIResponses, "gpt-5.4"),
        ("o3-mini", OpenAIResponses, "o3-mini"),
        ("anthropic:claude-sonnet-5", Anthropic, "claude-sonnet-5"),
        ("claude-sonnet-5", Anthropic, "claude-sonnet-5"),
        ("scripted:story", Scripted, "story"),
    ],
)
def test_a_name_leads_to_its_adapter(monkeypatch: pytest.MonkeyPatch, model: str, adapter: type, bare: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-2")
    found = resolve(model, Config())
    assert (type(found.adapter), found.name) == (adapter, bare)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-1\n")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("INSTRUCT_DEFAULT_MODEL", "openai:gpt-5.4")
    monkeypatch.setenv("INSTRUCT_MODEL_TIMEOUT", "7")
    found = resolve(None)
    adapter, model = found.adapter, found.name
    assert isinstance(adapter, OpenAIChat)
    assert (adapter.settings.api_key, adapter.settings.base_url) == ("sk-1", "http://127.0.0.1:1/v1")
    assert (adapter.settings.timeout, model) == (7.0, "gpt-5.4")


def test_an_own_provider_speaks_a_known_protocol_and_needs_no_key() -> None:
    config = with_providers(
        ollama={"protocol": "openai_chat", "base_url": "http://localhost:11434/v1", "headers": {"x-team": "blue"}}
    )
    found = resolve("ollama:llama3:8b", config)
    adapter, model = found.adapter, found.name
    assert isinstance(adapter, OpenAIChat)
    assert model == "llama3:8b"
    assert (adapter.settings.name, adapter.settings.base_url) == ("ollama", "http://localhost:11434/v1")
    assert adapter.settings.headers == (("x-team", "blue"),)


def test_an_own_provider_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTRUCT_PROVIDERS", '{"near": {"protocol": "anthropic", "base_url": "http://near"}}')
    assert isinstance(resolve("near:m").adapter, Anthropic)


def test_an_own_setting_changes_a_built_in_provider() -> None:
    config = with_providers(anthropic={"api_key": "sk-own", "base_url": "http://proxy"})
    adapter = resolve("claude-sonnet-5", config).adapter
    assert isinstance(adapter, Anthropic)
    assert (adapter.settings.api_key, adapter.settings.base_url) == ("sk-own", "http://proxy")


def test_a_key_is_in_no_representation() -> None:
    config = with_providers(openai={"api_key": "sk-secret"})
    adapter = resolve("gpt-5.4", config).adapter
    assert isinstance(adapter, OpenAIResponses)
    assert "sk-secret" not in repr(adapter.settings)


@pytest.mark.parametrize(
    ("model", "config", "said"),
    [
        ("openai:gpt-5.4", Config(), "OPENAI_API_KEY"),
        ("claude-sonnet-5", Config(), "ANTHROPIC_API_KEY"),
        ("mystery", Config(), "google-openai, scripted"),
        ("mystery:m", Config(), "INSTRUCT_PROVIDERS"),
        ("openai:", Config(), "openai:MODEL"),
        (None, Config(), "INSTRUCT_DEFAULT_MODEL"),
        (
            "near:m",
            with_providers(near={"base_url": "http://near"}),
            "openai_chat, openai_responses",
        ),
        ("near:m", with_providers(near={"protocol": "smoke"}), "'smoke'"),
        ("near:m", with_providers(near={"protocol": "anthropic", "url": "x"}), "'url'"),
        ("near:m", with_providers(near={"protocol": "anthropic", "base_url": "near:80"}), "http://"),
        ("near:m", with_providers(near={"protocol": "anthropic", "api_key": "sk-…"}), "copy it again"),
    ],
)
def test_what_is_missing_or_wrong_is_named(model: str | None, config: Config, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(model, config)
    assert said in str(caught.value)


@pytest.mark.parametrize(("model", "package"), [("gpt-5.4", "openai"), ("claude-sonnet-5", "anthropic")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, model: str, package: str) -> None:
    without_package(monkeypatch, package)
    config = with_providers(openai={"api_key": "sk-1"}, anthropic={"api_key": "sk-2"})
    with pytest.raises(ConfigurationError, match=rf"pip install 'flask-instruct\[{package}\]'"):
        resolve(model, config)


def test_preferred_is_the_setting_then_the_first_provider_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preferred(Config()) is None
    assert "OPENAI_API_KEY is not set" in preferred_reason(Config())
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-2")
    assert preferred(Config()) == "anthropic:claude-sonnet-5"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert str(preferred(Config())).startswith("openai:")
    assert preferred(Config(default_model="scripted:story")) == "scripted:story"
    assert "INSTRUCT_DEFAULT_MODEL" in preferred_reason(Config(default_model="scripted:story"))
    own = with_providers(near={"protocol": "anthropic", "base_url": "http://near", "model": "small"})
    assert preferred(own) == "near:small"


def test_preferred_passes_over_a_provider_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    without_package(monkeypatch, "openai")
    assert preferred(Config()) is None
    assert "flask-instruct[openai]" in preferred_reason(Config())


def test_only_a_used_sdk_is_imported() -> None:
    code = (
        "import sys\n"
        "from flask_instruct.adapters import resolve\n"
        "from flask_instruct.adapters.registry import preload\n"
        "resolve('scripted:x'), resolve('openai:x')\n"
        "assert not {'openai', 'anthropic', 'google.genai', 'httpx2'} & sys.modules.keys()\n"
        "assert preload() == ('openai',)\n"
        "assert 'openai' in sys.modules and 'anthropic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"OPENAI_API_KEY": "sk-1", "PATH": ""}, timeout=60)
