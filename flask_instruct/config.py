"""Every ``INSTRUCT_*`` setting once: its type, its default and what it does.

The docs and the doctor print this table; nothing else in the package reads ``app.config`` for them.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from decimal import Decimal
from difflib import get_close_matches
from typing import Any
from typing import get_type_hints

from .errors import ConfigurationError

logger = logging.getLogger("flask_instruct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one app. A field ``redis_url`` is the key ``INSTRUCT_REDIS_URL``.

    Read from ``app.config`` first, then from the environment variable of the same name.
    """

    default_model: str | None = None
    """Model of a run that names none, as ``provider:model``, or several with commas in the order they are tried;
    unset: the first provider with a key."""
    providers: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)
    """Own providers by name: ``{"name": {"protocol": …, "base_url": …, "api_key": …}}``; see the docs on providers."""
    redis_url: str | None = None
    """Redis or Valkey for jobs and live pages; unset in development: an embedded server is started."""
    live_url: str | None = None
    """Redis or Valkey for broadcasts alone, also a cluster (``redis+cluster://…``); unset: the one above."""
    embedded: bool = False
    """Start that embedded server outside debug mode too; ``flask instruct dev`` sets it."""
    key_prefix: str = "instruct"
    """Prefix of every Redis key and channel."""
    queue: str = "instruct"
    """Name of the RQ queue that runs are put on."""
    url_prefix: str = "/instruct"
    """Where the package's own routes live."""
    max_rounds: int = 8
    """Tool rounds of a run; after them the model answers once without tools, then the run is limited."""
    max_tool_calls: int | None = None
    """Tool calls of a run that are carried out; a turn that would pass the limit is refused whole."""
    max_seconds: float | None = None
    """Seconds that a run may take from its start, over all its workers; asked before each model call."""
    max_tokens: int | None = None
    """Tokens that a run may use, sent and received, failed model calls too."""
    max_cost: Decimal | None = None
    """Dollars that a run may cost, as far as prices are known."""
    actor_tokens_per_day: int | None = None
    """Tokens that the runs of one person may use in a day of UTC."""
    actor_cost_per_day: Decimal | None = None
    """Dollars that the runs of one person may cost in a day of UTC."""
    tenant_tokens_per_day: int | None = None
    """Tokens that the runs of one tenant may use in a day of UTC."""
    tenant_cost_per_day: Decimal | None = None
    """Dollars that the runs of one tenant may cost in a day of UTC."""
    model_timeout: float = 120.0
    """Seconds a provider may stay silent before a model call counts as timed out."""
    model_call_timeout: float = 900.0
    """Seconds that one answer of a model may take in all, however lively its line."""
    retries: int = 3
    """How often a model call that failed for a passing reason is tried again."""
    retry_wait: float = 60.0
    """Longest wait before such a try, in seconds; a provider that asks for more is not waited for."""
    max_tool_retries: int = 3
    """How often in a row one tool may fail again before the model must answer without tools."""
    runs_per_actor: int | None = None
    """Runs of one person that may be at work at once; further ones wait. Unset: any number."""
    run_timeout: float = 1800.0
    """Seconds a single job of a run may take."""
    lease: float = 60.0
    """Seconds after which a run whose worker went silent is taken up by another."""
    grace: float = 25.0
    """Seconds that a worker which is told to end has for the run in hand; then the run goes back to the queue."""
    stop_interval: float = 0.5
    """Seconds between two looks whether a person has stopped a run in hand."""
    no_worker_notice: float = 10.0
    """Seconds that a request waits before its page says that no worker is running, where that is so."""
    sweep_interval: float = 15.0
    """Seconds between two looks for lost or forgotten runs, in every worker."""
    max_attempts: int = 10
    """How often a run is taken up again after its worker died, before it fails."""
    text_interval: float = 0.05
    """Seconds over which streamed text is gathered before it is stored and sent."""
    text_bytes: int = 1024
    """Characters of streamed text that are sent without waiting for the interval."""
    approval_expiry: float = 604800.0
    """Seconds after which a call that waits for a person's approval counts as not approved; 0: never."""
    approval_reminder: float = 86400.0
    """Seconds after which ``@instruct.remind_approval`` hears of an approval that nobody has decided; 0: never."""
    argument_bytes: int = 65536
    """Largest argument text of a tool call, in bytes; longer ones are refused."""
    result_chars: int = 65536
    """Longest tool result told to a model, in characters; longer ones are cut with a note."""
    redact: tuple[str, ...] = ()
    """Columns, as ``table.column`` with ``*`` for anything, whose values are not kept in the record of changes."""
    stream_maxlen: int = 1000
    """Broadcasts kept for replay in each stream."""
    stream_ttl: float = 86400.0
    """Seconds that an idle stream is kept for replay."""
    broadcast_bytes: int = 1048576
    """Largest broadcast, in bytes."""
    token_max_age: float = 86400.0
    """Seconds that a signed stream name or panel form stays valid."""
    allowed_origins: tuple[str, ...] = ()
    """Origins besides the site's own that may open the live socket."""
    ping_interval: float = 25.0
    """Seconds between pings on the live socket; keep below the proxy's idle timeout."""
    socket_queue: int = 1000
    """Frames waiting for one slow page before its socket is closed to resume by replay."""
    allow_scripts: bool = False
    """Whether scripts and event handlers in fragments run; nothing a model wrote may get into one unescaped then."""
    max_sockets: int = 10000
    """Open pages of one web process; further ones are told to try again later."""
    max_sockets_per_viewer: int = 200
    """Open pages of one signed-in person in one web process; further ones are told to try again later."""
    handshakes_per_minute: int = 600
    """Live pages that may come from one address at once, and then in a minute; further ones are told to come later."""

    @classmethod
    def from_app(cls, config: Mapping[str, Any]) -> Config:
        """Read the settings of an app.

        :raises ConfigurationError: for a value of the wrong type, or an ``INSTRUCT_*`` key that does not exist.
        """
        hints = get_type_hints(cls)
        known = {f"INSTRUCT_{field.name.upper()}": field.name for field in fields(cls)}
        _refuse_unknown(config, known)
        _warn_of_typos(os.environ, known)
        values: dict[str, Any] = {}
        for key, name in known.items():
            if config.get(key) is not None:
                values[name] = _coerce(key, config[key], hints[name])
            elif key in os.environ:
                values[name] = _coerce(key, os.environ[key], hints[name])
        return cls(**values)


def _refuse_unknown(config: Mapping[str, Any], known: Mapping[str, str]) -> None:
    unknown = sorted(key for key in config if key.startswith("INSTRUCT_") and key not in known)
    if unknown:
        meant = _closest(unknown[0], known, cutoff=0.6)
        guess = f", did you mean {meant}?" if meant else "."
        raise ConfigurationError(f"Unknown setting {unknown[0]}{guess} The settings are {', '.join(sorted(known))}.")


def _warn_of_typos(environment: Iterable[str], known: Iterable[str]) -> None:
    """Name what looks like a mistyped setting; other variables of the environment may be anybody's."""
    for key in environment:
        if key.startswith("INSTRUCT_") and key not in known and (meant := _closest(key, known, cutoff=0.75)):
            logger.warning("The environment variable %s is no setting, did you mean %s?", key, meant)


def _closest(key: str, known: Iterable[str], *, cutoff: float) -> str | None:
    """Return the known key most like this one, by what follows the prefix that all have in common."""
    names = {name.removeprefix("INSTRUCT_"): name for name in known}
    found = get_close_matches(key.removeprefix("INSTRUCT_"), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


_REQUIRED: dict[Any, type] = {int | None: int, float | None: float, Decimal | None: Decimal}


def _coerce(key: str, value: Any, hint: Any) -> Any:
    hint = _REQUIRED.get(hint, hint)
    try:
        if hint is bool:
            return value.lower() in ("1", "true", "yes", "on") if isinstance(value, str) else bool(value)
        if hint in (int, float, Decimal):
            return _number(key, value, hint)
        if hint == tuple[str, ...]:
            return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{key} must be of type {hint.__name__}, got {value!r}.") from None
    if hint == (Mapping[str, Mapping[str, Any]] | None):
        return _read_mapping(key, value)
    if hint in (str, str | None) and not isinstance(value, str):
        raise ConfigurationError(f"{key} must be text, got {value!r}.")
    return value


MAY_BE_ZERO = frozenset(
    {"INSTRUCT_RETRIES", "INSTRUCT_RETRY_WAIT", "INSTRUCT_MAX_ROUNDS", "INSTRUCT_MAX_TOOL_RETRIES"}
    | {"INSTRUCT_TEXT_INTERVAL", "INSTRUCT_MAX_ATTEMPTS", "INSTRUCT_MAX_TOOL_CALLS"}
    | {"INSTRUCT_APPROVAL_EXPIRY", "INSTRUCT_APPROVAL_REMINDER"}
)
"""Numbers for which none is an amount; a time-out or a limit of 0 would let nothing through."""


def _number(key: str, value: Any, kind_of: type) -> Any:
    number, whole = float(value), kind_of is int
    if not math.isfinite(number) or number < 0 or (number == 0 and key not in MAY_BE_ZERO) or (whole and number % 1):
        kind = "a whole number" if whole else "a number"
        least = "of at least 0" if key in MAY_BE_ZERO else "above 0"
        raise ConfigurationError(f"{key} must be {kind} {least}, got {value!r}.")
    # By way of its text: "0.1" means a tenth of a dollar, which no float is.
    return kind_of(str(value) if kind_of is Decimal else number)


def _read_mapping(key: str, value: Any) -> Any:
    """An environment variable holds a mapping as JSON."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        read = None
    if not isinstance(read, Mapping) or not all(isinstance(inner, Mapping) for inner in read.values()):
        raise ConfigurationError(f"{key} must be a mapping of mappings (as JSON in the environment), got {value!r}.")
    return read
