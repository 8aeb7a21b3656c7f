"""``/instruct/health`` for probes: whether this process can reach its database and Redis, and with ``?workers=1``
whether a worker is there. It needs no sign-in, tells no more than that, and answers in time whatever hangs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa
from flask import Blueprint
from flask import Flask
from flask import Response
from flask import current_app
from flask import jsonify
from flask import request
from redis.exceptions import RedisError

from .errors import ConfigurationError
from .runs.crew import count_of_queue
from .runs.models import Run

if TYPE_CHECKING:
    from .state import State

logger = logging.getLogger("flask_instruct")

IN_TIME = 2.0
"""Seconds in which database and Redis must have answered."""

OK = "ok"
FAILED = "failed"
LATE = f"no answer within {IN_TIME:g} s"


class Question:
    """Something asked in a thread of its own, so that who asks need not wait for the whole answer."""

    def __init__(self, name: str, ask: Callable[[], object]) -> None:
        self._name = name
        self._ask = ask
        self._answer = LATE
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"instruct-health-{name}", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> bool:
        return self._thread.is_alive()

    def answer(self, deadline: float) -> str:
        """Wait for the answer until a moment of ``time.monotonic()``: ``ok``, or what is wrong in a few words."""
        self._answered.wait(max(0.0, deadline - time.monotonic()))
        return self._answer

    def _run(self) -> None:
        try:
            self._ask()
            self._answer = OK
        except Exception as error:
            self._answer = FAILED
            logger.warning("The health probe could not use the %s: %s", self._name, type(error).__name__)
        finally:
            self._answered.set()


class Health:
    """The probes of one app in one process: of each kind one is under way at most, however many ask."""

    def __init__(self, app: Flask, state: State) -> None:
        self._app = app
        self._state = state
        self._lock = threading.Lock()
        self._questions: dict[str, Question] = {}

    def look(self) -> dict[str, str]:
        """Ask database and Redis at once, and return each one's answer."""
        asked = {"database": self._ask_database, "redis": self._ask_redis}
        deadline = time.monotonic() + IN_TIME
        questions = {name: self._question(name, ask) for name, ask in asked.items()}
        return {name: question.answer(deadline) for name, question in questions.items()}

    def workers(self) -> int:
        """Return how many workers take this app's runs; none where Redis does not say."""
        try:
            return count_of_queue(self._state)
        except (RedisError, ConfigurationError):
            return 0

    def _question(self, name: str, ask: Callable[[], object]) -> Question:
        with self._lock:
            known = self._questions.get(name)
            if known is None or not known.pending:
                known = self._questions[name] = Question(name, ask)
            return known

    def _ask_database(self) -> None:
        with self._app.app_context(), self._state.db.engine.connect() as connection:
            connection.execute(sa.select(Run.id).limit(1))

    def _ask_redis(self) -> None:
        self._state.redis.ping()


def init_health(app: Flask, state: State) -> None:
    """Give an app the route, under ``INSTRUCT_URL_PREFIX``."""
    blueprint = Blueprint("instruct_health", __name__)
    blueprint.add_url_rule("/health", view_func=health)
    app.register_blueprint(blueprint, url_prefix=state.config.url_prefix)
    app.extensions["instruct_health"] = Health(app, state)


def health() -> Response:
    """Answer 200 when all is well, else 503; the body says what is not."""
    asked: Health = current_app.extensions["instruct_health"]
    found: dict[str, str | int] = dict(asked.look())
    well = all(answer == OK for answer in found.values())
    if request.args.get("workers") == "1":
        found["workers"] = asked.workers() if found["redis"] == OK else 0
        well = well and bool(found["workers"])
    response = jsonify(status=OK if well else "unavailable", **found)
    response.status_code = 200 if well else 503
    response.headers["Cache-Control"] = "no-store"
    return response
