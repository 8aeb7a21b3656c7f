"""From a model's name to the adapter that speaks to it: ``openai:gpt-…``, ``anthropic:claude-…``, ``scripted:…``.

Works without an app too: then the settings come from the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..config import Config
from ..errors import ConfigurationError
from .anthropic import Anthropic
from .base import Adapter
from .base import ProviderSettings
from .openai_chat import OpenAIChat
from .scripted import Scripted

ADAPTERS: dict[str, Callable[[ProviderSettings], Adapter]] = {"openai_chat": OpenAIChat, "anthropic": Anthropic}
"""The adapter of each protocol."""

PACKAGES = {"openai_chat": "openai", "anthropic": "anthropic"}
"""The SDK of each protocol, which is also the name of the extra that installs it."""

NO_KEY = "none"
"""Sent to an own server that was given no key; the SDKs refuse an empty one."""


@dataclass(frozen=True, slots=True)
class Provider:
    """How a provider is reached.

    :param model: taken when no model is named.
    :param key_variable: environment variable of the key, and ``url_variable`` that of the address.
    :param models: bare model names that mean this provider without its prefix.
    """

    protocol: str
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    key_variable: str | None = None
    url_variable: str | None = None
    models: re.Pattern[str] | None = None


BUILT_IN: dict[str, Provider] = {
    "openai": Provider(
        "openai_chat",
        model="gpt-5.4-mini",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        models=re.compile(r"(gpt-|chatgpt-|o\d)"),
    ),
    "anthropic": Provider(
        "anthropic",
        model="claude-sonnet-5",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        models=re.compile(r"claude-"),
    ),
}
"""Providers that need no setting but their key, in order of preference."""

_SETTINGS = frozenset({"protocol", "base_url", "api_key", "model", "headers"})


def resolve(model: str | None, config: Config | None = None) -> tuple[Adapter, str]:
    """Return the adapter for a model and the model's bare name.

    :param model: ``provider:model``, or a bare name such as ``claude-…``; unset: the preferred one.
    :raises ConfigurationError: for an unknown provider, a missing key or package; says what to set.
    """
    config = config or Config.from_app({})
    chosen = model or preferred(config)
    if not chosen:
        raise ConfigurationError(preferred_reason(config))
    providers = _providers(config)
    name, bare = _split(chosen, providers)
    if name == Scripted.name:
        return Scripted(), bare
    provider = providers[name]
    return ADAPTERS[provider.protocol](_settings(name, provider, config)), bare


def preferred(config: Config | None = None) -> str | None:
    """Return the model of a run that names none: the setting, else that of the first provider with key and package."""
    return _preference(config or Config.from_app({}))[0]


def preferred_reason(config: Config | None = None) -> str:
    """Return why :func:`preferred` answers what it does."""
    return _preference(config or Config.from_app({}))[1]


def preload(config: Config | None = None) -> tuple[str, ...]:
    """Import the SDKs of all usable providers and return their names: slow, so done before a worker forks."""
    config = config or Config.from_app({})
    usable = (provider for name, provider in _providers(config).items() if _lack(name, provider) is None)
    packages = tuple(dict.fromkeys(PACKAGES[provider.protocol] for provider in usable))
    for package in packages:
        import_module(package)
    return packages


def _preference(config: Config) -> tuple[str | None, str]:
    if config.default_model:
        return config.default_model, "INSTRUCT_DEFAULT_MODEL names it."
    lacks = []
    for name, provider in _providers(config).items():
        lack = _lack(name, provider)
        if lack is None and provider.model is not None:
            return f"{name}:{provider.model}", f"It is the model of {name}, the first provider that is set up."
        lacks.append(f"{name}: {lack or 'no model is set for it'}")
    return None, f"No model is chosen: set INSTRUCT_DEFAULT_MODEL, or set up a provider ({'; '.join(lacks)})."


def _lack(name: str, provider: Provider) -> str | None:
    """What keeps a provider from being used, in words."""
    package = PACKAGES[provider.protocol]
    if not _key(provider):
        return f"{provider.key_variable} is not set"
    if find_spec(package) is None:
        return f"pip install 'flask-instruct[{package}]'"
    return None


def _split(model: str, providers: Mapping[str, Provider]) -> tuple[str, str]:
    name, colon, bare = model.partition(":")
    if colon and (name in providers or name == Scripted.name):
        if not bare:
            raise ConfigurationError(f"The model {model!r} names a provider but no model: write {name}:MODEL.")
        return name, bare
    for name, provider in providers.items():
        if provider.models is not None and provider.models.match(model):
            return name, model
    known = ", ".join([*providers, Scripted.name])
    raise ConfigurationError(
        f"No provider is known for the model {model!r}: write PROVIDER:MODEL with one of {known}, "
        "or add the provider to INSTRUCT_PROVIDERS."
    )


def _settings(name: str, provider: Provider, config: Config) -> ProviderSettings:
    key = _key(provider)
    if not key:
        raise ConfigurationError(
            f"The provider {name!r} has no key: set the environment variable {provider.key_variable}, or "
            f'INSTRUCT_PROVIDERS = {{"{name}": {{"api_key": …}}}}.'
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"The key of provider {name!r} holds characters that no key has: copy it again.")
    package = PACKAGES[provider.protocol]
    if find_spec(package) is None:
        raise ConfigurationError(
            f"The provider {name!r} needs the package {package!r}: pip install 'flask-instruct[{package}]'."
        )
    base_url = provider.base_url or os.environ.get(provider.url_variable or "") or None
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ConfigurationError(f"The base_url of provider {name!r} must begin with http:// or https://.")
    return ProviderSettings(name, key, base_url, config.model_timeout, provider.headers)


def _key(provider: Provider) -> str:
    key = provider.api_key or os.environ.get(provider.key_variable or "", "")
    if key.strip():
        return key.strip()
    return NO_KEY if provider.key_variable is None else ""


def _providers(config: Config) -> dict[str, Provider]:
    """The app's own providers first, then the built-in ones; an own setting of a built-in name changes that one."""
    own = {name: _own(name, setting) for name, setting in (config.providers or {}).items()}
    return {**own, **{name: provider for name, provider in BUILT_IN.items() if name not in own}}


def _own(name: str, setting: Mapping[str, Any]) -> Provider:
    base = BUILT_IN.get(name)
    protocol = setting.get("protocol", base.protocol if base else None)
    if protocol not in ADAPTERS:
        raise ConfigurationError(
            f"INSTRUCT_PROVIDERS[{name!r}] needs a protocol, one of {', '.join(ADAPTERS)}; got {protocol!r}."
        )
    unknown = sorted(set(setting) - _SETTINGS)
    if unknown:
        raise ConfigurationError(
            f"INSTRUCT_PROVIDERS[{name!r}] has the unknown setting {unknown[0]!r}; "
            f"the settings are {', '.join(sorted(_SETTINGS))}."
        )
    changes = {key: setting[key] for key in ("model", "base_url", "api_key") if setting.get(key)}
    headers = tuple(sorted((setting.get("headers") or {}).items()))
    return replace(base or Provider(protocol), protocol=protocol, headers=headers, **changes)
