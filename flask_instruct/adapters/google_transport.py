"""One POST to Gemini through the official client, its answer as raw bytes, its errors as ours.

google-genai has no public way to an unparsed stream: even its streaming helper parses each chunk, and leaves the
connection open when it is abandoned. So two private methods are used, checked before each call: ``_build_request``
(address, version, headers of the client) and ``_request_once`` (credentials, sending, the SDK's error classes, and no
retry, whatever the client says). They are the same in all of google-genai 3.0 to 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from ..errors import SAFE_TEXTS
from ..errors import ConfigurationError
from ..errors import ProviderError
from ..errors import ProviderErrorKind
from ..messages import JsonObject
from .base import ProviderSettings
from .failures import failure
from .transport import CONNECT_TIMEOUT
from .transport import HEADERS
from .transport import Client
from .transport import Clients
from .transport import beginning
from .transport import bounded
from .transport import missing_package
from .transport import no_stream
from .transport import remove_keys
from .wire_values import as_object
from .wire_values import as_objects
from .wire_values import as_text

CHARACTERS_A_TOKEN = 4
"""Google's own rule of thumb for how long a token is."""

_VERSIONED = re.compile(r"/v\d\w*/?$")
_NETWORK_PACKAGES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"})


def _make_client(settings: ProviderSettings) -> Client:
    try:
        from google import genai
    except ImportError:
        raise missing_package("google") from None
    versioned = _VERSIONED.search(settings.base_url or "")
    options = genai.types.HttpOptions(
        base_url=settings.base_url,
        api_version="" if versioned else None,
        # The key is in a header of its own, which a redirect would take along to another host.
        client_args={"follow_redirects": False},
    )
    return genai.Client(api_key=settings.api_key, http_options=options)


clients = Clients(_make_client)


@contextmanager
def posted(settings: ProviderSettings, model: str, payload: JsonObject) -> Iterator[Iterator[bytes]]:
    """POST and give the pieces of the answer's body; the response is closed at the end of the block.

    :raises ProviderError: when the call or the reading fails; its text never holds the key.
    """
    client = clients.get(settings)
    try:
        response = _open(client, settings, _path(model, vertex=bool(client.vertexai)), payload)
        try:
            _refuse_page(response)
            yield bounded(_read(response), settings.longest)
        finally:
            response.close()
    except ProviderError as error:
        _refine(error, payload)
        own = getattr(client._api_client, "api_key", None)
        remove_keys(error, settings.api_key, own, *dict(settings.headers).values())
        raise


def _path(model: str, *, vertex: bool) -> str:
    """Where a model is; names that say their place (``tunedModels/…``, ``publishers/…``) are kept."""
    if ".." in model:
        raise ConfigurationError(f"The model {model!r} is no name of a model.")
    known = ("projects/", "models/", "publishers/") if vertex else ("models/", "tunedModels/")
    if model.startswith(known):
        place = model
    elif not vertex:
        place = f"models/{model}"
    else:
        publisher, _, name = model.rpartition("/")
        place = f"publishers/{publisher or 'google'}/models/{name}"
    return f"{quote(place, safe='/@:')}:streamGenerateContent?alt=sse"


def _open(client: Client, settings: ProviderSettings, path: str, payload: JsonObject) -> Any:
    from google.genai import errors
    from google.genai import types

    api = _part(client, "_api_client")
    build, send = _part(api, "_build_request"), _part(api, "_request_once")
    # A client that the app gave has other habits: patience and retries are ours all the same.
    request = build("post", path, payload, types.HttpOptions(headers={**HEADERS, **dict(settings.headers)}))
    # The SDK's own option would also ask the server to stop after that time, however well it streams.
    request.timeout = _timeout(api, settings)
    try:
        answer = send(request, stream=True)
    except errors.APIError as error:
        headers = getattr(error.response, "headers", None)
        raise failure(error.details, status=error.code, headers=headers, fallback=f"HTTP {error.code}") from error
    except Exception as error:
        _raise_network_failure(error, "connection")
        raise
    return _part(answer, "response_stream")


def _part(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        from google.genai import version

        raise ConfigurationError(
            f"google-genai {version.__version__} has no {type(owner).__name__}.{name}, which reading its streams "
            "needs: install 'google-genai>=3.0,<=3.6.1', or give a client of such a version."
        ) from None


def _timeout(api: Any, settings: ProviderSettings) -> tuple[float, ...]:
    """Seconds to connect, of silence, to write and for a free connection; with client certificates only the first two.

    With certificates the SDK sends through ``requests``, which takes no more.
    """
    silence = settings.timeout
    uses_requests: Callable[[], bool] = getattr(api, "_use_google_auth_sync", bool)
    both = (min(silence, CONNECT_TIMEOUT), silence)
    return both if uses_requests() else (*both, silence, silence)


def _refuse_page(response: Any) -> None:
    """Refuse the web page of a wrong address, with what it says."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("text/html"):
        return
    raise no_stream(kind, beginning(_read(response)))


def _read(response: Any) -> Iterator[bytes]:
    try:
        if hasattr(response, "iter_bytes"):
            yield from response.iter_bytes()
        else:
            yield from response.iter_content(chunk_size=None)
    except Exception as error:
        _raise_network_failure(error, "cut")
        raise


def _raise_network_failure(error: Exception, otherwise: ProviderErrorKind) -> None:
    """Raise what a failure on the way means; do nothing about one that is none of the network's.

    Told by the names of the classes: the SDK sends through httpx2, httpx or requests, as it finds them.
    """
    package = type(error).__module__.partition(".")[0]
    names = " ".join(cls.__name__ for cls in type(error).__mro__)
    said = f"{type(error).__name__} {error}"
    if package == "google" and "GoogleAuthError" in names:
        kind: ProviderErrorKind = "connection" if "TransportError" in names else "authentication"
        raise ProviderError(kind, f"Google's credentials could not be used: {said}") from error
    if package not in _NETWORK_PACKAGES and not isinstance(error, OSError):
        return
    if "Timeout" in names or "timed out" in said:
        raise ProviderError("timeout", f"The provider stayed silent: {said}") from error
    raise ProviderError(otherwise, f"The connection failed: {said}") from error


def _refine(error: ProviderError, payload: JsonObject) -> None:
    """Set the kind right where only the body tells it: Gemini answers 400 and 429 to very different things."""
    body = as_object(error.body)
    details = list(as_objects(body.get("details")))
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        error.kind = "authentication"
    elif error.kind == "rate_limited" and _exceeds_quota(details, payload):
        error.kind = "context_window"
    else:
        return
    error.safe, error.again = SAFE_TEXTS[error.kind], None


def _exceeds_quota(details: list[Mapping[str, Any]], payload: JsonObject) -> bool:
    """Tell whether this one request is more than a whole minute's input, so that waiting is of no use.

    Prompts beyond the context window are answered so; the same answer to a small request means: wait.
    """
    violations = (violation for detail in details for violation in as_objects(detail.get("violations")))
    quotas = [
        int(value)
        for violation in violations
        if "input_token" in as_text(violation.get("quotaMetric"))
        and (value := as_text(violation.get("quotaValue"))).isdecimal()
    ]
    return bool(quotas) and _characters(payload) > min(quotas) * CHARACTERS_A_TOKEN


def _characters(value: Any) -> int:
    """The characters of all texts; the bytes of attachments are not counted as text."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(item) for key, item in value.items() if key != "inlineData")
    return sum(map(_characters, value)) if isinstance(value, list) else 0
