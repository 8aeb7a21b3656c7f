"""One POST through a provider's official client, its answer as raw bytes.

Plain dicts go out and bytes come in, which costs a tenth of the typed calls; keys, proxies and error classes stay the
SDK's. Both SDKs come from one generator, so one function serves both. The SDK's retries are off: a run retries itself.
"""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigurationError
from ..errors import ProviderError
from ..events import Event
from ..events import Finish
from ..messages import JsonObject
from .base import ProviderSettings
from .clients import Client
from .clients import Clients
from .failures import failure
from .keep_alive import read_to_its_end

__all__ = [
    "Client",
    "Clients",
    "beginning",
    "bounded",
    "client_options",
    "exchanged",
    "missing_package",
    "no_stream",
    "posted",
    "remove_keys",
]

HEADERS = {
    "Accept": "text/event-stream",
    # A proxy that compresses can hold events back for seconds: crmne/ruby_llm#771.
    "Accept-Encoding": "identity",
}
CONNECT_TIMEOUT = 10.0
MOST_BYTES = 256_000_000
"""Of one answer, whatever it is made of; the longest ones of today's models have a tenth of it."""
_LONGEST_PAGE = 65536
_SHORTEST_KEY = 8

Sdk = Any
"""The module ``openai`` or ``anthropic``."""


def client_options(sdk: Sdk, settings: ProviderSettings) -> dict[str, Any]:
    """Return what both SDKs' clients are made with."""
    return {
        "api_key": settings.api_key,
        "base_url": settings.base_url,
        "timeout": _timeout(sdk, settings),
        "max_retries": 0,
        "default_headers": dict(settings.headers),
    }


def _timeout(sdk: Sdk, settings: ProviderSettings) -> Any:
    return sdk.Timeout(settings.timeout, connect=min(settings.timeout, CONNECT_TIMEOUT))


def missing_package(name: str) -> ConfigurationError:
    """Return the error for an SDK that is not installed."""
    return ConfigurationError(f"The package {name!r} is not installed: pip install 'flask-instruct[{name}]'.")


def exchanged(
    sdk: Sdk,
    client: Client,
    settings: ProviderSettings,
    path: str,
    payload: JsonObject,
    parse: Callable[[Iterator[bytes]], Iterator[Event]],
) -> Iterator[Event]:
    """POST and give the events that ``parse`` reads in the answer; its ``Finish`` once the connection is free again.

    :raises ProviderError: as :func:`posted` and ``parse`` do.
    """
    finish: Finish | None = None
    with posted(sdk, client, settings, path, payload) as pieces:
        for event in parse(pieces):
            if isinstance(event, Finish):
                finish = event
            else:
                yield event
    if finish is not None:
        yield finish


@contextmanager
def posted(
    sdk: Sdk, client: Client, settings: ProviderSettings, path: str, payload: JsonObject
) -> Iterator[Iterator[bytes]]:
    """POST and give the pieces of the answer's body; the response is closed at the end of the block.

    A block that ends well has read the terminal event; then the connection is kept for the next call.

    :raises ProviderError: when the call or the reading fails; its text never holds the key.
    """
    try:
        stream = _open(sdk, client, settings, path, payload)
        try:
            _require_event_stream(stream.response)
            pieces = bounded(_read(stream.response), settings.longest)
            yield pieces
            read_to_its_end(stream.response, pieces)
        finally:
            stream.close()
    except ProviderError as error:
        remove_keys(error, settings.api_key, getattr(client, "api_key", None), *dict(settings.headers).values())
        raise


def _open(sdk: Sdk, client: Client, settings: ProviderSettings, path: str, payload: JsonObject) -> Any:
    try:
        return client.post(
            path,
            cast_to=object,
            body=payload,
            # A client that the app gave has other habits: patience and retries are ours all the same.
            options={
                "headers": {**HEADERS, **dict(settings.headers)},
                "max_retries": 0,
                "timeout": _timeout(sdk, settings),
            },
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
    except _http_errors("TimeoutException") as error:
        raise ProviderError("timeout", f"The error's text never came: {type(error).__name__} {error}") from error
    except _http_errors("RequestError") as error:
        raise ProviderError("connection", f"The answer broke off: {type(error).__name__} {error}") from error


def _with_cause(error: Exception) -> str:
    return f"{error} {error.__cause__}" if error.__cause__ is not None else str(error)


def _require_event_stream(response: Any) -> None:
    """Refuse an answer that is no stream, such as the web page of a wrong address, with what it says."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("text/html") and "json" not in kind:
        return
    text = beginning(_read(response))
    if "json" in kind and '"error"' in text:
        raise failure(text, headers=response.headers, fallback=text)
    raise no_stream(kind, text)


def bounded(pieces: Iterator[bytes], longest: float) -> Iterator[bytes]:
    """Give the pieces of an answer, of which nothing else limits the size or the time: comments keep a line alive.

    :param longest: seconds.
    :raises ProviderError: ``malformed`` when it is too large, ``timeout`` when it takes too long.
    """
    end, size = time.monotonic() + longest, 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_BYTES:
            raise ProviderError("malformed", f"The answer is larger than {MOST_BYTES} bytes.")
        if time.monotonic() > end:
            raise ProviderError("timeout", f"The answer took longer than INSTRUCT_MODEL_CALL_TIMEOUT, {longest:g} s.")
        yield piece


def beginning(pieces: Iterator[bytes]) -> str:
    """Return the beginning of a body that was not expected, as text."""
    page = bytearray()
    for piece in pieces:
        page += piece
        if len(page) > _LONGEST_PAGE:
            break
    return page[:_LONGEST_PAGE].decode("utf-8", "replace")


def no_stream(kind: str, text: str) -> ProviderError:
    """Return the error for a good answer of another content type."""
    return ProviderError("malformed", f"Expected text/event-stream, got {kind}: {text[:500]}", status=200)


def _read(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes()
    except _http_errors("TimeoutException") as error:
        raise ProviderError("timeout", f"The stream stayed silent: {type(error).__name__} {error}") from error
    except _http_errors("RequestError", ssl.SSLError) as error:
        raise ProviderError("cut", f"The stream broke off: {type(error).__name__} {error}") from error


def _http_errors(name: str, *others: type[Exception]) -> tuple[type[Exception], ...]:
    """An exception of the HTTP library beneath the SDK; a client of the app's own may sit on the one before."""
    return (*others, *(getattr(sys.modules[module], name) for module in ("httpx2", "httpx") if module in sys.modules))


def remove_keys(error: ProviderError, *keys: object) -> None:
    """Take keys out of an error's text: some gateways repeat the key they refuse."""
    for key in keys:
        if isinstance(key, str) and len(key) >= _SHORTEST_KEY and key in error.technical:
            error.technical = error.technical.replace(key, "[key]")
            error.args = (error.technical,)
