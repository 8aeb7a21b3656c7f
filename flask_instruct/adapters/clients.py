"""The clients of one SDK: the app's own where it gave one, else one a process and settings, the latest used kept."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from ..errors import ConfigurationError
from .base import ProviderSettings

logger = logging.getLogger("flask_instruct")

Client = Any
"""A client of ``openai``, ``anthropic`` or ``google.genai``."""

_PLAIN = (str, bytes, int, float, list, tuple, set, dict)

MOST_CLIENTS = 64
"""Keys of tenants come and go; each client holds connections."""


@dataclass(slots=True)
class _Pool:
    """What one process has made."""

    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    clients: OrderedDict[ProviderSettings, Client] = field(default_factory=OrderedDict)


class Clients:
    """Makes clients when they are first used.

    A forked child makes its own; the parent's stay referenced, so that their sockets are not closed under it. A
    client that is no longer kept closes itself as soon as the last stream that holds it is gone.
    """

    def __init__(self, make: Callable[[ProviderSettings], Client], most: int = MOST_CLIENTS) -> None:
        self._make = make
        self._most = most
        self._pool = _Pool()
        self._inherited: list[_Pool] = []
        self._unused: dict[ProviderSettings, Client] = {}

    def prepare(self, settings: ProviderSettings) -> None:
        """Make a client ahead of its use, which takes a tenth of a second; best before a fork.

        It has no connection yet. Whoever first asks for it in a process takes it away, so that no process forked from
        that one has it as well.
        """
        if settings.client is None:
            self._unused[settings] = self._make(settings)

    def get(self, settings: ProviderSettings) -> Client:
        """Return the client for these settings; one that the app gave, or gives by a function, is never kept here."""
        if settings.client is not None:
            return _given(settings)
        pool = self._own()
        with pool.lock:
            if settings not in pool.clients:
                pool.clients[settings] = self._unused.pop(settings, None) or self._make(settings)
            pool.clients.move_to_end(settings)
            while len(pool.clients) > self._most:
                pool.clients.popitem(last=False)
            return pool.clients[settings]

    def close(self) -> None:
        """Close the clients of this process and forget them."""
        pool = self._own()
        with pool.lock:
            clients = list(pool.clients.values())
            pool.clients.clear()
        for client in clients:
            client.close()

    def _own(self) -> _Pool:
        pool = self._pool
        if pool.pid != os.getpid():
            # Its lock may have been held by a thread that did not come along.
            self._inherited.append(pool)
            pool = self._pool = _Pool()
        return pool


def may_be_client(value: object) -> bool:
    """Tell a client, or a function that gives one, from what is surely none: a forgotten await, a key, nothing."""
    return not (value is None or inspect.iscoroutine(value) or isinstance(value, _PLAIN))


def _given(settings: ProviderSettings) -> Client:
    if not callable(settings.client):
        return settings.client
    try:
        client = settings.client()
    except Exception as error:
        logger.exception("The client of provider %s could not be made", settings.name)
        raise ConfigurationError(
            f"The function that gives the client of provider {settings.name!r} raised {type(error).__name__}; "
            "the log has it."
        ) from error
    if not may_be_client(client):
        raise ConfigurationError(
            f"The function that gives the client of provider {settings.name!r} gave a {type(client).__name__}, which "
            "is no client of its SDK."
        )
    return client
