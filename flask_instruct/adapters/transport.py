"""One POST through a provider's official client, its answer as raw bytes.

Plain dicts go out and bytes come in, which costs a tenth of the typed calls; keys, proxies and error classes stay the
SDK's. Both SDKs come from one generator, so one function serves both. The SDK's retries are off: a run retries itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigurationError
from ..errors import ProviderError
from ..messages import JsonObject
from .base import ProviderSettings
from .failures import failure

HEADERS = {
    "Accept": "text/event-stream",
    # A proxy that compresses can hold events back for seconds: crmne/ruby_llm#771.
    "Accept-Encoding": "identity",
}
CONNECT_TIMEOUT = 10.0
_LONGEST_PAGE = 65536

Sdk = Any
"""The module ``openai`` or ``anthropic``."""
Client = Any
"""A client of that module."""


class Clients:
    """The clients of one SDK: made when first used, one a process and settings.

    A forked child makes its own; the parent's stay referenced, so that their sockets are not closed under it.
    """

    def __init__(self, make: Callable[[ProviderSettings], Client]) -> None:
        self._make = make
        self._clients: dict[tuple[int, ProviderSettings], Client] = {}
        self._lock = threading.Lock()

    def get(self, settings: ProviderSettings) -> Client:
        """Return the client for these settings."""
        key = (os.getpid(), settings)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(settings)
            return self._clients[key]

    def close(self) -> None:
        """Close the clients of this process and forget them."""
        with self._lock:
            mine = [key for key in self._clients if key[0] == os.getpid()]
            for key in mine:
                self._clients.pop(key).close()


def client_options(sdk: Sdk, settings: ProviderSettings) -> dict[str, Any]:
    """Return what both SDKs' clients are made with."""
    return {
        "api_key": settings.api_key,
        "base_url": settings.base_url,
        "timeout": sdk.Timeout(settings.timeout, connect=min(settings.timeout, CONNECT_TIMEOUT)),
        "max_retries": 0,
        "default_headers": dict(settings.headers),
    }


def missing_package(name: str) -> ConfigurationError:
    """Return the error for an SDK that is not installed."""
    return ConfigurationError(f"The package {name!r} is not installed: pip install 'flask-instruct[{name}]'.")


@contextmanager
def posted(
    sdk: Sdk, client: Client, settings: ProviderSettings, path: str, payload: JsonObject
) -> Iterator[Iterator[bytes]]:
    """POST and give the pieces of the answer's body; the response is closed at the end of the block.

    :raises ProviderError: when the call or the reading fails; its text never holds the key.
    """
    try:
        stream = _open(sdk, client, path, payload)
        try:
            _require_event_stream(stream.response)
            yield _read(stream.response)
        finally:
            stream.close()
    except ProviderError as error:
        _remove_key(error, settings.api_key)
        raise


def _open(sdk: Sdk, client: Client, path: str, payload: JsonObject) -> Any:
    try:
        return client.post(
            path,
            cast_to=object,
            body=payload,
            options={"headers": HEADERS},
            stream=True,
            stream_cls=sdk.Stream[object],
        )
    except sdk.APITimeoutError as error:
        raise ProviderError("timeout", _with_cause(error)) from error
    except sdk.APIConnectionError as error:
        raise ProviderError("connection", _with_cause(error)) from error
    except sdk.APIStatusError as error:
        body = error.body if error.body is not None else error.response.text
        raise failure(
            body, status=error.status_code, headers=error.response.headers, fallback=f"HTTP {error.status_code}"
        ) from error


def _with_cause(error: Exception) -> str:
    return f"{error} {error.__cause__}" if error.__cause__ is not None else str(error)


def _require_event_stream(response: Any) -> None:
    """Refuse an answer that is no stream, such as the web page of a wrong address, with what it says."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("text/html") and "json" not in kind:
        return
    page = bytearray()
    for piece in _read(response):
        page += piece
        if len(page) > _LONGEST_PAGE:
            break
    text = page.decode("utf-8", "replace")
    if "json" in kind and '"error"' in text:
        raise failure(text, fallback=text)
    raise ProviderError("malformed", f"Expected text/event-stream, got {kind}: {text[:500]}", status=200)


def _read(response: Any) -> Iterator[bytes]:
    import ssl

    import httpx2

    try:
        yield from response.iter_bytes()
    except httpx2.TimeoutException as error:
        raise ProviderError("timeout", f"The stream stayed silent: {type(error).__name__} {error}") from error
    except (httpx2.RequestError, ssl.SSLError) as error:
        raise ProviderError("cut", f"The stream broke off: {type(error).__name__} {error}") from error


def _remove_key(error: ProviderError, key: str) -> None:
    """Some gateways repeat the key they refuse."""
    if len(key) >= 8 and key in error.technical:
        error.technical = error.technical.replace(key, "[key]")
        error.args = (error.technical,)
