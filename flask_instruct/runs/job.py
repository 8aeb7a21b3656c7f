"""What a worker does when the door bell rings: take the run, and carry it out to its end or to the next crash."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from typing import Any
from typing import cast

import sqlalchemy as sa
from flask import Flask
from flask import current_app
from flask import has_app_context
from flask.cli import ScriptInfo

from ..adapters.registry import Credentials
from ..adapters.registry import preferred
from ..handlers import locate
from ..orchestrator import Ending
from ..orchestrator import Orchestrator
from ..prompt import Gen
from .again import carry_out_asked
from .claim import Claimed
from .claim import claim
from .grace import give_back
from .history import last_word
from .history import transcript
from .interruption import PASSING
from .interruption import Interrupted
from .journal import Journal
from .logs import naming
from .models import Run
from .points import reach
from .quotas import limits_of
from .strays import look_out
from .unit import ledger_engine
from .watch import Parked
from .watch import Watch

if TYPE_CHECKING:
    from ..adapters.base import Adapter
    from ..messages import Effort
    from ..state import State

logger = logging.getLogger("flask_instruct")


def generate(run_id: str) -> None:
    """Carry out a run: the one function that a job of ours may name.

    A run that is already held by a living worker, has ended or is gone is left alone.
    """
    if not isinstance(run_id, str):
        logger.warning("A job of the queue names no run, but %.80r: it was not made by this package", run_id)
        return
    app = _app()
    with app.app_context(), naming(run_id):
        state: State = app.extensions["instruct"]
        engine = ledger_engine(state.db)
        look_out()
        reach("before claim")
        try:
            claimed = claim(state, engine, run_id)
        except Interrupted as interruption:
            logger.warning("%s", interruption)
            return
        if claimed is None:
            if not carry_out_asked(state, engine, run_id):
                _say_why_not(engine, run_id)
            return
        run = claimed.run
        reach("claimed")
        watch = Watch(state, engine, state.db.engine, run)
        parked = False
        with request_of(app, run), watch.beside():
            try:
                carry_out(state, engine, claimed, watch)
            except Parked:
                parked = True
            except Interrupted as interruption:
                logger.warning("Run %s was left for another worker: %s", run_id, interruption)
            finally:
                state.db.session.remove()
        if parked:
            give_back(state, engine, run_id, run.attempt)


def _say_why_not(engine: sa.Engine, run_id: str) -> None:
    with engine.connect() as connection:
        known = connection.scalar(sa.select(Run.id).where(Run.id == run_id))
    if known is not None:
        logger.info("Run %s is not waiting for a worker", run_id)
        return
    logger.warning(
        "Run %s is not in the database of this app: it was deleted, or another app uses the same Redis. Give each app "
        "its own INSTRUCT_QUEUE and INSTRUCT_KEY_PREFIX.",
        run_id,
    )


def carry_out(
    state: State,
    engine: sa.Engine,
    claimed: Claimed,
    watch: Watch,
    *,
    journal: Journal | None = None,
    adapter: Adapter | None = None,
) -> Ending | None:
    """Drive a claimed run to its end, recording every step.

    :param adapter: speaks in the place of the run's model; ``journal`` records in the place of the usual one.
    """
    run = claimed.run
    if journal is None:
        journal = Journal(state, engine, run, watch, claimed.notices)
    else:
        claimed.notices.flush(engine)
    try:
        ending = _talk(state, journal, claimed, adapter)
    except Interrupted:
        raise
    except PASSING as error:
        raise Interrupted(f"The database failed as run {run.id} was about to begin.") from error
    except Exception as error:
        # Before the loop has begun (the record is gone, the handler unknown) it has no one to report to.
        ending = Ending(error=error)
        logger.exception("Run %s could not be started", run.id)
        journal.ended(ending)
    journal.close()
    return ending


def _talk(state: State, journal: Journal, claimed: Claimed, adapter: Adapter | None) -> Ending:
    run = claimed.run
    if run.attempt > 1:
        journal.take_up(run)
    handler = locate(run.handler)
    offered = handler.ai_tools()
    tools = tuple(tool.spec() for tool in offered)
    journal.attach(handler, offered, heard=claimed.heard)
    state.db.session.remove()
    gen = Gen(
        model=run.model or state.config.default_model or preferred(state.config),
        tools=tools,
        max_rounds=state.config.max_rounds,
        limits=limits_of(state.config, run),
        effort=cast("Effort | None", run.effort),
        max_tool_retries=state.config.max_tool_retries,
    )
    return Orchestrator(
        handler,
        transcript(run, claimed.earlier),
        gen,
        recorder=journal,
        config=state.config,
        adapter=adapter,
        credentials=_credentials(state, run),
    ).start(last_word(run))


def _credentials(state: State, run: Run) -> Credentials | None:
    rule = state.hooks.credentials
    if rule is None:
        return None

    def ask(provider: str) -> Any:
        try:
            return rule(provider, run)
        finally:
            # Whatever the rule looked up: no transaction stays open while the model is waited for (G5).
            state.db.session.remove()

    return ask


@contextmanager
def request_of(app: Flask, run: Run) -> Iterator[None]:
    """Push a request context like the one that asked for the run: with its links, language and time zone."""
    with run.reader.looking(app):
        yield


def _app() -> Flask:
    """Return the app: the worker's, or under a plain ``rq worker`` the one that FLASK_APP names."""
    if has_app_context():
        return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]
    # Flask reads the variable in its own command only.
    return ScriptInfo(os.environ.get("FLASK_APP")).load_app()
