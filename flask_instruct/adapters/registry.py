"""From a model's name to the adapter that speaks to it: ``openai:gpt-…``, ``anthropic:claude-…``, ``scripted:…``.

Works without an app too: then the settings come from the environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ..config import Config
from ..errors import ConfigurationError
from ..generation import models_of
from . import anthropic
from . import anthropic_models
from . import google
from . import google_transport
from . import openai_chat
from .anthropic import Anthropic
from .base import Adapter
from .base import Model
from .base import ProviderSettings
from .clients import may_be_client
from .google import Google
from .openai_chat import OpenAIChat
from .openai_responses import OpenAIResponses
from .profiles import ALIASES
from .profiles import BUILT_IN
from .profiles import OWN_HOSTS
from .profiles import STRANGER
from .profiles import NativeOutput
from .profiles import Provider
from .profiles import Quirks
from .profiles import context_window
from .profiles import quirks_at
from .scripted import Scripted

logger = logging.getLogger("flask_instruct")

ADAPTERS: dict[str, Callable[[ProviderSettings], Adapter]] = {
    "openai_chat": OpenAIChat,
    "openai_responses": OpenAIResponses,
    "anthropic": Anthropic,
    "google": Google,
}
"""The adapter of each protocol."""

OUTPUT_BY_MODEL: dict[str, Callable[[str], NativeOutput]] = {
    "anthropic": anthropic_models.native_output,
    "google": google.native_output,
}
"""Protocols in which the model decides whether its answers can be held to a shape, and not the server."""

CLIENTS = {
    "openai_chat": openai_chat.clients,
    "openai_responses": openai_chat.clients,
    "anthropic": anthropic.clients,
    "google": google_transport.clients,
}
"""Where the clients of each protocol are kept."""

PACKAGES = {"openai_chat": "openai", "openai_responses": "openai", "anthropic": "anthropic", "google": "google.genai"}
"""The SDK of each protocol."""

EXTRAS = {"google.genai": "google"}
"""The extra that installs an SDK, where it is not named like it."""

NO_KEY = "none"
"""Sent to an own server that was given no key; the SDKs refuse an empty one."""

Credentials = Callable[[str], Any]
"""The app's rule ``provider name -> key, settings, client or None``, asked before each model call."""

WANTED = {
    **dict.fromkeys(("profile", "protocol", "base_url", "api_key", "model"), "it must be text"),
    "headers": "it must map names to texts",
    "client": "it must be a client of the provider's SDK, or a function that gives one",
    "context_window": "it must be a whole number of tokens",
}
_SETTINGS = frozenset({"profile", "protocol", "base_url", "api_key", "model", "headers", "client", "context_window"})
_CHANGES = frozenset({"api_key", "base_url", "headers", "client"})


def resolve(model: str | None, config: Config | None = None, credentials: Credentials | None = None) -> Model:
    """Return the model that a name means, with the adapter to speak to it.

    :param model: ``provider:model``, or a bare name such as ``claude-…``; unset: the preferred one.
    :param credentials: the app's own keys by provider; see ``Instruct.credentials``.
    :raises ConfigurationError: for an unknown provider, a missing key or package; says what to set.
    """
    config = config or Config.from_app({})
    chosen = model or next(iter(models_of(preferred(config))), None)
    if not chosen:
        raise ConfigurationError(preferred_reason(config))
    providers = _providers(config)
    name, bare = _split(chosen, providers, config)
    label = f"{name}:{bare}"
    if name == Scripted.name:
        return Model(Scripted(), bare, label, name)
    provider = _entitled(name, providers[name], credentials)
    settings, provider = _spoken_to(name, provider, config)
    adapter = ADAPTERS[provider.protocol](settings)
    window = provider.context_window or context_window(bare.rpartition("/")[2])
    return Model(
        adapter,
        bare,
        label,
        name,
        base_url=settings.base_url,
        window=window,
        native_output=_native_output(provider, bare),
    )


def _spoken_to(name: str, provider: Provider, config: Config) -> tuple[ProviderSettings, Provider]:
    settings = _settings(name, provider, config)
    provider = _as_spoken(provider, _address(settings))
    return replace(settings, quirks=provider.quirks), provider


def _native_output(provider: Provider, model: str) -> NativeOutput:
    by_model = OUTPUT_BY_MODEL.get(provider.protocol)
    return by_model(model) if by_model else provider.quirks.native_output


def _entitled(name: str, provider: Provider, credentials: Credentials | None) -> Provider:
    """Ask the app's rule for this call's key, address or client."""
    given = _asked(credentials, name) if credentials is not None else None
    if given is None:
        return provider
    if isinstance(given, str):
        given = {"api_key": given}
    if not isinstance(given, Mapping):
        given = {"client": given}
    if unknown := sorted(set(given) - _CHANGES):
        raise ConfigurationError(
            f"@instruct.credentials gave {unknown[0]!r} for {name!r}; it may give {', '.join(sorted(_CHANGES))}."
        )
    if "api_key" in given and not str(given["api_key"] or "").strip():
        raise ConfigurationError(
            f"@instruct.credentials gave an empty key for {name!r}: give None where the site's own key may be used."
        )
    _require_types(given, f"What @instruct.credentials gave for {name!r}")
    # The site's own client would speak with the site's own key.
    return _changed(replace(provider, client=None) if given else provider, given)


def _asked(credentials: Credentials, name: str) -> Any:
    try:
        return credentials(name)
    except Exception as error:
        # Its text is for the log only: it may hold what the rule was about to give.
        logger.exception("@instruct.credentials failed for %s", name)
        raise ConfigurationError(
            f"@instruct.credentials raised {type(error).__name__} for {name!r}; the log has it."
        ) from error


def _address(settings: ProviderSettings) -> str | None:
    """Where the calls go: a ready client knows it itself, of one that a function gives it is not known."""
    client = settings.client
    if settings.base_url is not None or client is None:
        return settings.base_url
    return str(getattr(client, "base_url", None) or "unknown")


def _as_spoken(provider: Provider, address: str | None) -> Provider:
    """OpenAI's newer protocol is spoken with OpenAI itself; servers that imitate it speak the older one."""
    if provider.protocol == "openai_chat" and provider.quirks is STRANGER:
        return replace(provider, quirks=quirks_at(address))
    if not provider.follows_url or address is None or OWN_HOSTS.match(address) or callable(provider.client):
        return provider
    return replace(provider, protocol="openai_chat", quirks=quirks_at(address))


def preferred(config: Config | None = None) -> str | None:
    """Return the model of a run that names none: the setting, else that of the first provider with key and package."""
    return _preference(config or Config.from_app({}))[0]


def preferred_reason(config: Config | None = None) -> str:
    """Return why :func:`preferred` answers what it does."""
    return _preference(config or Config.from_app({}))[1]


def preload(config: Config | None = None) -> tuple[str, ...]:
    """Import the SDKs of all usable providers, make their clients, and return the SDKs' names.

    Slow, so done before a worker forks; nothing connects yet.
    """
    config = config or Config.from_app({})
    chosen = {name.partition(":")[0] for name in models_of(config.default_model)}
    usable = {
        name: provider
        for name, provider in _providers(config).items()
        if (name in chosen or _is_set_up(name, provider, config)) and _lack(name, provider) is None
    }
    packages = tuple(dict.fromkeys(PACKAGES[provider.protocol] for provider in usable.values()))
    for package in packages:
        import_module(package)
    for name, given in usable.items():
        settings, provider = _spoken_to(name, given, config)
        CLIENTS[provider.protocol].prepare(settings)
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
    if provider.client is None and not _key(provider):
        return f"{_variables(provider)} is not set"
    return _missing_package(provider)


def _missing_package(provider: Provider) -> str | None:
    package = PACKAGES[provider.protocol]
    parent, _, _ = package.rpartition(".")
    there = (not parent or find_spec(parent) is not None) and find_spec(package) is not None
    return None if there else f"pip install 'flask-instruct[{EXTRAS.get(package, package)}]'"


def _variables(provider: Provider) -> str:
    return " or ".join(provider.key_variables)


def _split(model: str, providers: Mapping[str, Provider], config: Config) -> tuple[str, str]:
    name, colon, bare = model.partition(":")
    name = name if name in providers else ALIASES.get(name, name)
    if colon and (name in providers or name == Scripted.name):
        if not bare:
            raise ConfigurationError(f"The model {model!r} names a provider but no model: write {name}:MODEL.")
        return name, bare
    for known, provider in providers.items():
        if provider.models is not None and provider.models.match(model):
            return known, model
    ready = [known for known, provider in providers.items() if _is_set_up(known, provider, config)]
    raise ConfigurationError(
        f"No provider is known for the model {model!r}: write PROVIDER:MODEL with one of "
        f"{', '.join([*providers, Scripted.name])}, or add the provider to INSTRUCT_PROVIDERS. "
        f"Set up here: {', '.join(ready) or 'none'}."
    )


def _is_set_up(name: str, provider: Provider, config: Config) -> bool:
    """Whether somebody means to use a provider: a server that needs no key is not in use for that."""
    return name in (config.providers or {}) or _key(provider) not in ("", NO_KEY)


def _settings(name: str, provider: Provider, config: Config) -> ProviderSettings:
    key = _key(provider)
    if provider.client is None:
        _require_key(name, provider, key)
    missing = _missing_package(provider)
    if missing:
        raise ConfigurationError(f"The provider {name!r} needs the package {PACKAGES[provider.protocol]!r}: {missing}.")
    return ProviderSettings(
        name,
        key,
        _base_url(name, provider),
        config.model_timeout,
        config.model_call_timeout,
        provider.headers,
        client=provider.client,
    )


def _require_key(name: str, provider: Provider, key: str) -> None:
    if not key:
        raise ConfigurationError(
            f"The provider {name!r} has no key: set the environment variable {_variables(provider)}, or "
            f'INSTRUCT_PROVIDERS = {{"{name}": {{"api_key": …}}}}.'
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"The key of provider {name!r} holds characters that no key has: copy it again.")


def _base_url(name: str, provider: Provider) -> str | None:
    url = (os.environ.get(provider.url_variable or "") or "").strip() or provider.base_url
    if url is None:
        if provider.url_needed and provider.client is None:
            raise ConfigurationError(
                f"The provider {name!r} has no address: set the environment variable {provider.url_variable}, or "
                f'INSTRUCT_PROVIDERS = {{"{name}": {{"base_url": …}}}}.'
            )
        return None
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"The base_url of provider {name!r} must begin with http:// or https://.")
    suffix = provider.url_suffix
    # People write the bare address of a server, or the whole one as its documentation has it.
    bare = provider.url_needed or urlsplit(url).path in ("", "/")
    return url.rstrip("/") + suffix if suffix and bare and suffix not in url else url


def _key(provider: Provider) -> str:
    keys = (provider.api_key, *(os.environ.get(variable) for variable in provider.key_variables))
    key = next((key.strip() for key in keys if key and key.strip()), "")
    return key or ("" if provider.key_needed and provider.key_variables else NO_KEY)


def _providers(config: Config) -> dict[str, Provider]:
    """The app's own providers first, then the built-in ones; an own setting of a built-in name changes that one."""
    own = {ALIASES.get(name, name): _own(name, setting) for name, setting in (config.providers or {}).items()}
    return {**own, **{name: provider for name, provider in BUILT_IN.items() if name not in own}}


def _own(name: str, setting: Mapping[str, Any]) -> Provider:
    if unknown := sorted(set(setting) - _SETTINGS):
        raise ConfigurationError(
            f"INSTRUCT_PROVIDERS[{name!r}] has the unknown setting {unknown[0]!r}; "
            f"the settings are {', '.join(sorted(_SETTINGS))}."
        )
    _require_types(setting, f"INSTRUCT_PROVIDERS[{name!r}]")
    return _changed(_base(name, setting), setting)


def _base(name: str, setting: Mapping[str, Any]) -> Provider:
    """The profile that a setting starts from: the one it names, else that of its own name, else a stranger's."""
    profile = setting.get("profile", name)
    profile = ALIASES.get(profile, profile)
    base = BUILT_IN.get(profile)
    if base is None and "profile" in setting:
        raise ConfigurationError(
            f"INSTRUCT_PROVIDERS[{name!r}] names the unknown profile {profile!r}; known: {', '.join(BUILT_IN)}."
        )
    protocol = setting.get("protocol", base.protocol if base else None)
    if protocol not in ADAPTERS:
        raise ConfigurationError(
            f"INSTRUCT_PROVIDERS[{name!r}] needs a protocol, one of {', '.join(ADAPTERS)}; got {protocol!r}."
        )
    if base is None:
        return Provider(protocol, quirks=_protocol_quirks(protocol))
    quirks = STRANGER if protocol == "openai_chat" != base.protocol else base.quirks
    follows = base.follows_url and "protocol" not in setting
    return replace(base, protocol=protocol, quirks=quirks, follows_url=follows)


def _protocol_quirks(protocol: str) -> Quirks:
    own = (provider.quirks for provider in BUILT_IN.values() if provider.protocol == protocol != "openai_chat")
    return next(own, STRANGER)


def _require_types(setting: Mapping[str, Any], where: str) -> None:
    """Name the setting that is of a wrong type: a forgotten await, bytes, a number."""
    for name, value in setting.items():
        if value is None:
            continue
        if name == "client":
            right = may_be_client(value)
        elif name == "headers":
            right = isinstance(value, Mapping) and all(isinstance(text, str) for text in (*value, *value.values()))
        elif name == "context_window":
            right = isinstance(value, int) and value > 0
        else:
            right = isinstance(value, str)
        if not right:
            raise ConfigurationError(f"{where} has a {name!r} of type {type(value).__name__}; {WANTED[name]}.")


def _changed(provider: Provider, setting: Mapping[str, Any]) -> Provider:
    plain = ("model", "base_url", "api_key", "client", "context_window")
    changes = {key: setting[key] for key in plain if setting.get(key)}
    # An address that is set here counts, whatever the environment says.
    aside: dict[str, Any] = {"url_variable": None} if "base_url" in changes else {}
    headers = tuple(sorted({**dict(provider.headers), **(setting.get("headers") or {})}.items()))
    return replace(provider, headers=headers, **changes, **aside)
