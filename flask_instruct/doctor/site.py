"""Is the site set up: its secret, its models, and the way by which pages stay live?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from ..adapters.profiles import BUILT_IN
from ..adapters.registry import preferred
from ..adapters.registry import resolve
from ..errors import ConfigurationError
from ..generation import models_of
from .finding import Finding
from .finding import error
from .finding import ok
from .finding import warning

if TYPE_CHECKING:
    from ..state import State

LONG_ENOUGH = 32
TOO_SHORT = 16
"""Bytes of a secret key."""

SOCKET = "instruct_live.socket"
OTHER_SERVERS = ("waitress", "uwsgi", "gevent", "eventlet", "uvicorn", "hypercorn")


def secret_key(state: State) -> Iterator[Finding]:
    key = state.app.secret_key or ""
    size = len(key if isinstance(key, bytes) else key.encode(errors="replace"))
    fix = "Make one and keep it out of the code: python -c 'import secrets; print(secrets.token_hex())'"
    if size >= LONG_ENOUGH:
        yield ok("SECRET_KEY is set and long.")
    elif size >= TOO_SHORT or state.app.debug or state.app.testing:
        yield warning(f"SECRET_KEY has {size} bytes, and stream names and forms are signed with it.", fix)
    else:
        yield error(f"SECRET_KEY has only {size} bytes: signatures of stream names and forms can be guessed.", fix)


def default_model(state: State) -> Iterator[Finding]:
    chosen = preferred(state.config)
    if chosen is None:
        yield _no_model(state)
        return
    rule = state.hooks.credentials
    for name in models_of(chosen):
        try:
            model = resolve(name, state.config, None if rule is None else lambda provider: rule(provider, None))
        except ConfigurationError as lack:
            yield error(f"The default model {name} cannot be used.", str(lack))
            continue
        if model.provider == "scripted" and not (state.app.debug or state.app.testing):
            yield warning(f"The default model {name} is scripted, for tests.", "Set INSTRUCT_DEFAULT_MODEL.")
        else:
            yield ok(f"The default model {name} can be used.")


def _no_model(state: State) -> Finding:
    if state.hooks.credentials is not None:
        fix = "Name a model in each generate_for, or set INSTRUCT_DEFAULT_MODEL."
        return warning("No default model is set; keys come from @instruct.credentials.", fix)
    # No error: only a run that names no model fails.
    return warning(
        "No default model is set, and no provider has key and package: a run that names no model fails.",
        "Name a model in each generate_for; or set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY and install "
        "what it needs (pip install 'flask-instruct[openai]'); or set INSTRUCT_DEFAULT_MODEL.",
    )


def providers(state: State) -> Iterator[Finding]:
    """A key without its package, or an own provider that lacks something."""
    own = dict(state.config.providers or {})
    by_key = [name for name, each in BUILT_IN.items() if any(os.environ.get(key) for key in each.key_variables)]
    named = list(dict.fromkeys([*own, *by_key]))
    ready = []
    for name in named:
        try:
            resolve(f"{name}:any", state.config)
        except ConfigurationError as lack:
            yield warning(f"The provider {name} is named and cannot be used.", str(lack))
        else:
            ready.append(name)
    if ready:
        yield ok(f"Set up: {', '.join(ready)}.")
    elif not named:
        yield ok("No provider has a key in the environment or a place in INSTRUCT_PROVIDERS.")


def socket(state: State) -> Iterator[Finding]:
    path = f"{state.config.url_prefix}/socket"
    adapter = state.app.url_map.bind(state.app.config.get("SERVER_NAME") or "localhost")
    try:
        endpoint = adapter.match(path, websocket=True)[0]
    except (HTTPException, RequestRedirect):
        endpoint = None
    if endpoint != SOCKET:
        by = f"the app's own route {endpoint}" if endpoint else "nothing"
        yield error(
            f"The web-socket path {path} is answered by {by}: pages cannot be live.",
            "Free the path, or set another INSTRUCT_URL_PREFIX.",
        )
    else:
        yield ok(f"The web-socket path is {path}; a proxy must pass Upgrade on for it.")


def web_server(state: State) -> Iterator[Finding]:
    there = [name for name in OTHER_SERVERS if find_spec(name) is not None]
    if find_spec("gunicorn") is not None:
        yield ok("gunicorn is installed; run it with -k gthread --threads 100.")
    elif state.app.debug or state.app.testing or not there:
        yield ok("Live pages work on Flask's own server here; to deploy: pip install gunicorn.")
    else:
        yield warning(
            f"{there[0]} is installed and gunicorn is not; live pages need gunicorn (gthread) or Flask's own server.",
            "pip install gunicorn, then: gunicorn -k gthread --threads 100 …",
        )
