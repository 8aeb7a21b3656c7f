"""From a model's name to its adapter, and what is told to a developer when something is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from flask_instruct.adapters import registry
from flask_instruct.adapters.anthropic import Anthropic
from flask_instruct.adapters.base import Model
from flask_instruct.adapters.base import ProviderSettings
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_responses import OpenAIResponses
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.profiles import OPENAI
from flask_instruct.adapters.profiles import STRANGER
from flask_instruct.adapters.registry import NO_KEY
from flask_instruct.adapters.registry import models_of
from flask_instruct.adapters.registry import preferred
from flask_instruct.adapters.registry import preferred_reason
from flask_instruct.adapters.registry import resolve
from flask_instruct.adapters.scripted import Scripted
from flask_instruct.config import Config
from flask_instruct.errors import ConfigurationError


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in BUILT_IN.values():
        for name in (*provider.key_variables, provider.url_variable):
            monkeypatch.delenv(name or "", raising=False)
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


def test_a_server_without_a_key_counts_only_where_it_is_chosen() -> None:
    code = (
        "from flask_instruct.adapters.registry import preload\n"
        "from flask_instruct.config import Config\n"
        "assert preload() == ()\n"
        "assert preload(Config(default_model='ollama:qwen3')) == ('openai',)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": ""}, timeout=60)


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


def spoken(found: Model) -> tuple[type, ProviderSettings]:
    """The adapter of a model, and the settings that it speaks with."""
    settings: ProviderSettings = found.adapter.settings  # type: ignore[attr-defined]
    return type(found.adapter), settings


class TestCompatibleServers:
    @pytest.mark.parametrize(
        "name", [name for name, provider in BUILT_IN.items() if provider.protocol == "openai_chat"]
    )
    def test_need_no_more_than_a_key(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        for variable in BUILT_IN[name].key_variables:
            monkeypatch.setenv(variable, "sk-1")
        if BUILT_IN[name].url_needed:
            monkeypatch.setenv(str(BUILT_IN[name].url_variable), "https://us.openai.azure.com")
        kind, settings = spoken(resolve(f"{name}:org/model:1b", Config()))
        assert kind is OpenAIChat
        assert (settings.name, settings.quirks) == (name, BUILT_IN[name].quirks)
        assert str(settings.base_url).startswith("http")

    @pytest.mark.parametrize("name", ["ollama", "vllm", "llama.cpp"])
    def test_of_ones_own_need_no_key(self, name: str) -> None:
        _, settings = spoken(resolve(f"{name}:m", Config()))
        assert settings.api_key == NO_KEY

    @pytest.mark.parametrize(
        ("alias", "name"), [("gemini", "google"), ("llama.cpp", "llamacpp"), ("azure-openai", "azure"), ("grok", "xai")]
    )
    def test_have_other_names(self, monkeypatch: pytest.MonkeyPatch, alias: str, name: str) -> None:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://us.openai.azure.com")
        for variable in BUILT_IN[name].key_variables:
            monkeypatch.setenv(variable, "sk-1")
        found = resolve(f"{alias}:m", Config())
        assert (found.provider, found.label) == (name, f"{name}:m")

    def test_take_the_first_key_that_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_API_KEY", "second")
        assert spoken(resolve("google-openai:m", Config()))[1].api_key == "second"
        monkeypatch.setenv("GEMINI_API_KEY", "first")
        assert spoken(resolve("google-openai:m", Config()))[1].api_key == "first"

    @pytest.mark.parametrize(
        ("provider", "given", "address"),
        [
            ("azure", "https://us.openai.azure.com/", "https://us.openai.azure.com/openai/v1"),
            ("azure", "https://us.openai.azure.com/openai/v1/", "https://us.openai.azure.com/openai/v1/"),
            ("ollama", "http://gpu:11434", "http://gpu:11434/v1"),
            ("ollama", "http://gpu/ollama/v1", "http://gpu/ollama/v1"),
            ("vllm", "http://gpu:8000/", "http://gpu:8000/v1"),
        ],
    )
    def test_may_be_named_by_their_bare_address(
        self, monkeypatch: pytest.MonkeyPatch, provider: str, given: str, address: str
    ) -> None:
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv(str(BUILT_IN[provider].url_variable), given)
        assert spoken(resolve(f"{provider}:m", Config()))[1].base_url == address


class TestWhatStandsAtAnAddress:
    @pytest.mark.parametrize(
        ("address", "adapter", "quirks"),
        [
            ("https://api.openai.com/v1", OpenAIResponses, BUILT_IN["openai"].quirks),
            ("https://eu.api.openai.com/v1", OpenAIResponses, BUILT_IN["openai"].quirks),
            ("https://api.openai.com.evil.example/v1", OpenAIChat, STRANGER),
            ("http://127.0.0.1:1/v1", OpenAIChat, STRANGER),
            ("https://api.mistral.ai/v1", OpenAIChat, BUILT_IN["mistral"].quirks),
            ("https://us.openai.azure.com/openai/v1", OpenAIChat, BUILT_IN["azure"].quirks),
            ("http://localhost:11434/v1", OpenAIChat, BUILT_IN["ollama"].quirks),
            ("http://localhost:8000/v1", OpenAIChat, STRANGER),
        ],
    )
    def test_says_how_openai_is_spoken_to(
        self, monkeypatch: pytest.MonkeyPatch, address: str, adapter: type, quirks: Any
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        kind, settings = spoken(resolve("openai:m", Config()))
        assert (kind, settings.quirks) == (adapter, quirks)

    def test_says_what_an_own_provider_does(self) -> None:
        config = with_providers(
            near={"protocol": "openai_chat", "base_url": "http://near/v1"},
            fast={"protocol": "openai_chat", "base_url": "https://api.groq.com/openai/v1", "api_key": "gsk-1"},
            own={"protocol": "openai_chat", "api_key": "sk-1"},
        )
        quirks = [spoken(resolve(f"{name}:m", config))[1].quirks for name in ("near", "fast", "own")]
        assert quirks == [STRANGER, BUILT_IN["groq"].quirks, OPENAI]

    def test_counts_for_a_ready_client_too(self) -> None:
        near = SimpleNamespace(base_url="http://near/v1/")
        here = SimpleNamespace(base_url="https://api.openai.com/v1/")
        kinds = [spoken(resolve("openai:m", with_providers(openai={"client": client})))[0] for client in (near, here)]
        assert kinds == [OpenAIChat, OpenAIResponses]


class TestOwnSettings:
    def test_may_start_from_a_profile(self) -> None:
        config = with_providers(
            eu={"profile": "groq", "base_url": "https://eu.example/v1", "api_key": "k", "context_window": 9}
        )
        found = resolve("eu:m", config)
        kind, settings = spoken(found)
        assert (kind, settings.quirks, settings.name) == (OpenAIChat, BUILT_IN["groq"].quirks, "eu")
        assert found.window == 9

    def test_may_choose_the_older_protocol_for_openai(self) -> None:
        config = with_providers(openai={"protocol": "openai_chat", "api_key": "sk-1"})
        kind, settings = spoken(resolve("gpt-5.4", config))
        assert (kind, settings.quirks) == (OpenAIChat, OPENAI)

    def test_beside_an_address_of_the_environment_count_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OLLAMA_BASE_URL", "http://elsewhere/v1")
        config = with_providers(ollama={"base_url": "http://here/v1"})
        assert spoken(resolve("ollama:m", config))[1].base_url == "http://here/v1"

    def test_with_a_client_need_no_key_and_no_address(self) -> None:
        client = object()
        _, settings = spoken(resolve("azure:m", with_providers(azure={"client": client})))
        assert settings.client is client

    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            ({"protocol": "openai_chat", "url": "x"}, "unknown setting 'url'"),
            ({"profile": "nobody"}, "unknown profile 'nobody'"),
            ({"protocol": "telepathy"}, "needs a protocol"),
            ({"profile": "groq", "api_key": "k", "base_url": "near"}, "http://"),
            ({"profile": "groq"}, "GROQ_API_KEY"),
        ],
    )
    def test_that_are_wrong_are_named(self, setting: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            resolve("near:m", with_providers(near=setting))
        assert said in str(caught.value)

    def test_are_listed_for_a_name_that_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XAI_API_KEY", "xai-1")
        with pytest.raises(ConfigurationError, match=r"Set up here: near, xai\.$"):
            resolve("mystery:m", with_providers(near={"protocol": "anthropic"}))
        with pytest.raises(ConfigurationError, match=r"Set up here: near, xai\.$"):
            resolve("mystery", with_providers(near={"protocol": "anthropic"}))


class TestTheAppsRuleForKeys:
    def asked(self, given: Any, **openai: Any) -> ProviderSettings:
        return spoken(resolve("openai:m", with_providers(openai={"api_key": "sk-site", **openai}), lambda name: given))[
            1
        ]

    def test_is_asked_by_the_providers_name(self) -> None:
        asked: list[str] = []
        resolve("grok:m", with_providers(xai={"api_key": "x"}), asked.append)
        assert asked == ["xai"]

    def test_may_give_a_key(self) -> None:
        assert self.asked("sk-tenant").api_key == "sk-tenant"

    def test_may_give_several_settings(self) -> None:
        given = self.asked({"api_key": "sk-tenant", "base_url": "http://tenant/v1", "headers": {"x-tenant": "7"}})
        assert (given.api_key, given.base_url, given.headers) == ("sk-tenant", "http://tenant/v1", (("x-tenant", "7"),))

    def test_may_give_a_client(self) -> None:
        client = SimpleNamespace(base_url="http://tenant/v1")
        assert self.asked(client).client is client

    def test_may_give_nothing(self) -> None:
        assert self.asked(None).api_key == "sk-site"

    @pytest.mark.parametrize("given", ["sk-tenant", {"api_key": "sk-tenant"}])
    def test_counts_more_than_the_sites_own_client(self, given: Any) -> None:
        settings = self.asked(given, client=SimpleNamespace(base_url="http://site/v1"))
        assert (settings.api_key, settings.client) == ("sk-tenant", None)

    @pytest.mark.parametrize("given", ["", "  ", {"api_key": ""}, {"api_key": None}])
    def test_never_falls_back_to_the_sites_key_for_an_empty_one(self, given: Any) -> None:
        with pytest.raises(ConfigurationError, match="empty key"):
            self.asked(given)

    def test_may_give_no_other_setting(self) -> None:
        with pytest.raises(ConfigurationError, match="'model'"):
            self.asked({"model": "m"})


def test_several_models_are_read_in_their_order() -> None:
    assert models_of("a:x, b:y,") == ("a:x", "b:y")
    assert models_of(["a:x", "b:y,c:z"]) == ("a:x", "b:y", "c:z")
    assert models_of(None) == ()


class TestWhatAnAppGivesWrongly:
    @pytest.mark.parametrize("given", [b"sk-1", 5, {"api_key": 5}, {"headers": "x"}, {"client": "sk-1"}, ["sk-1"]])
    def test_is_named_with_its_type(self, given: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"credentials gave for 'openai'.*of type"):
            resolve("openai:gpt-5.4", Config(), lambda provider: given)

    @pytest.mark.filterwarnings("ignore:coroutine")
    def test_a_rule_that_is_not_awaited_is_no_client(self) -> None:
        async def rule(provider: str) -> str:
            return "sk-1"

        with pytest.raises(ConfigurationError, match="coroutine"):
            resolve("openai:gpt-5.4", Config(), rule)

    def test_a_rule_that_fails_is_told_without_its_secrets(self) -> None:
        def rule(provider: str) -> str:
            raise LookupError("no sk-secret here")

        with pytest.raises(ConfigurationError, match="LookupError") as caught:
            resolve("openai:gpt-5.4", Config(), rule)
        assert "sk-secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "setting", [{"api_key": 5}, {"headers": "abc"}, {"context_window": "big"}, {"model": ["m"]}]
    )
    def test_in_the_settings_is_named_with_its_type(self, setting: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r"INSTRUCT_PROVIDERS\['openai'\] has a .* of type"):
            resolve("openai:gpt-5.4", with_providers(openai=setting))
