"""What one app has of the package: settings, database, live pages and its own rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask import has_request_context
from flask_sqlalchemy import SQLAlchemy
from redis import Redis

from .config import Config
from .connections import connect
from .connections import connect_bus
from .embedded import embedded_url
from .handlers import AiResponseHandler
from .limits import Limits
from .live import Live
from .live.model_broadcasts import ModelBroadcast
from .live.servers import Cluster
from .runs import models
from .runs.approval import Approval
from .runs.grace import Hold
from .runs.layouts import Layouts
from .runs.notices import RunObserver

Authorize = Callable[[Any, AiResponseHandler], bool]
AuthorizeStream = Callable[[str, str], bool]
AuthorizeDashboard = Callable[[Any], bool]
Actor = Callable[[], Any]
Credentials = Callable[[str, models.Run | None], Any]
Quota = Callable[[str | None, str | None], Limits | None]
RemindApproval = Callable[[Approval], object]
ActorName = Callable[[str], str | None]


@dataclass(slots=True)
class Hooks:
    """The app's own rules."""

    authorize: Authorize | None = None
    authorize_stream: AuthorizeStream | None = None
    authorize_dashboard: AuthorizeDashboard | None = None
    actor: Actor | None = None
    credentials: Credentials | None = None
    quota: Quota | None = None
    remind_approval: RemindApproval | None = None
    actor_name: ActorName | None = None
    broadcasts: list[ModelBroadcast] = field(default_factory=list)
    """What the pages are told of models."""


class State:
    """What one app has: settings, database, live pages, hooks. At ``app.extensions["instruct"]``."""

    models = models

    def __init__(self, app: Flask, db: SQLAlchemy, config: Config, hooks: Hooks) -> None:
        self.app = app
        self.db = db
        self.config = config
        self.hooks = hooks
        self.observers: list[RunObserver] = []
        self.live: Live
        self.hold: Hold | None = None
        """In a worker: what it shares with its work-horses."""
        self._redis: tuple[int, Redis] | None = None
        self._layouts: dict[str, Layouts] = {}
        self._bus_redis: tuple[int, Redis | Cluster] | None = None

    def redis_url(self) -> str:
        """Return the address of Redis: the setting, or in development the embedded server's.

        :raises ConfigurationError: when there is neither.
        """
        return self.config.redis_url or embedded_url(self.app)

    @property
    def redis(self) -> Redis:
        """This process's client for writes; it never retries."""
        if self._redis is None or self._redis[0] != os.getpid():
            self._redis = (os.getpid(), connect(self.redis_url()))
        return self._redis[1]

    @property
    def bus_redis(self) -> Redis | Cluster:
        """This process's client for broadcasts: the same, unless they have a Redis or a cluster of their own."""
        if self.config.live_url is None:
            return self.redis
        if self._bus_redis is None or self._bus_redis[0] != os.getpid():
            self._bus_redis = (os.getpid(), connect_bus(self.config.live_url))
        return self._bus_redis[1]

    def actor(self) -> Any:
        """Return who is acting: what ``@instruct.actor`` says, else Flask-Login's user; outside a request None."""
        if not has_request_context():
            return None
        if self.hooks.actor is not None:
            return self.hooks.actor()
        login = self.app.extensions.get("login_manager") or getattr(self.app, "login_manager", None)
        if login is None:
            return None
        from flask import g

        user = getattr(g, "_login_user", None) or login._load_user() or getattr(g, "_login_user", None)
        return user if getattr(user, "is_authenticated", False) else None

    def layouts(self, dialect: sa.Dialect) -> Layouts:
        """Return how the app's rows are written down, on a kind of database."""
        if dialect.name not in self._layouts:
            self._layouts[dialect.name] = Layouts(self.db, dialect, self.config.redact)
        return self._layouts[dialect.name]

    def run(self, run_id: str) -> models.Run | None:
        """Return a run by its id, in the current session."""
        return self.db.session.get(models.Run, run_id)


def actor_id(actor: Any) -> str | None:
    """Return how an actor is written down: its ``get_id()``, its ``id``, or its text."""
    if actor is None:
        return None
    if callable(getattr(actor, "get_id", None)):
        return str(actor.get_id())
    return str(getattr(actor, "id", actor))
