"""What a worker does once, before it forks, so that no work-horse has to: a run is rehearsed, statements are compiled.

The rehearsal has a database of its own in memory and no Redis. Of the app's database it takes the dialect and the
caches only; nothing is read or written there, and its tables need not exist.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING
from typing import Any
from typing import NoReturn

import sqlalchemy as sa
from flask import current_app
from sqlalchemy.orm import Mapper
from sqlalchemy.orm import Session
from sqlalchemy.orm import configure_mappers
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql.compiler import WARN_LINTING

from ..adapters.registry import preload
from ..adapters.rehearsal import rehearse_call
from ..events import Finish
from ..events import RoundStarted
from ..events import TextDelta
from ..events import Usage
from ..events import UsageReported
from ..handlers import record_classes
from ..prices import load_prices
from ..prompt import Message
from ..prompt import Text
from ..prompt import ToolCall
from .bounds import BOUNDS
from .bounds import LOWER
from .claim import claim
from .history import transcript
from .journal import Journal
from .ledger import Ledger
from .models import Run
from .offline import NoPages
from .points import unheard
from .prepared import compile_all
from .unit import ledger_engine
from .watch import Watch

if TYPE_CHECKING:
    from ..state import State

logger = logging.getLogger("flask_instruct")

HANDLER = "instruct://Rehearsal/1"
"""Nobody's: the rehearsal ends before a tool or a callback would be called."""


def warm(state: State) -> None:
    """Load, compile and rehearse what each run needs; whatever fails is said in the log, and is done by each run then.

    Call it in the process that forks, in an app context; no connection and no thread is left behind.
    """
    for part in (_load, _rehearse_for_app, _read_records):
        try:
            part(state)
        except Exception as error:
            logger.warning("The worker starts cold, its first steps will be slow: %s: %s", type(error).__name__, error)
    # What is there now is shared with the work-horses for as long as nobody writes to it: the collector would.
    gc.collect()
    gc.freeze()


def _load(state: State) -> None:
    # What a job of the queue names, and RQ would import in each work-horse.
    import_module(f"{__package__}.job")
    preload(state.config)
    load_prices()
    configure_mappers()


def rehearse(state: State) -> None:
    """Walk a run from its claim to its first tool call, and make a model call that goes nowhere."""
    _walk(state, lambda *statement: None)
    rehearse_call(state.config)


def _rehearse_for_app(state: State) -> None:
    """Rehearse, and compile each statement for the app's database too."""
    rehearse_call(state.config)
    engine = ledger_engine(state.db)
    _meet(engine)
    _walk(state, lambda *statement: _compile(engine, *statement))
    compile_all(engine.dialect)
    if engine.dialect.name == "postgresql":  # No rehearsal's database has such bounds.
        _compile(engine, None, LOWER, [], dict.fromkeys(BOUNDS), {})


def _walk(state: State, hear: Callable[..., object]) -> None:
    stage = copy.copy(state)
    stage.hold = None
    stage.live = replace(state.live, bus=NoPages(lambda: state.bus_redis, state.config))
    with unheard(), _scratch(hear) as scratch, current_app.test_request_context():
        with Session(scratch) as session:
            session.add(run := Run(handler=HANDLER, handler_name="Rehearsal", status="queued", user_prompt="…"))
            session.commit()
            run_id = run.id
        try:
            _play(stage, scratch, run_id)
        finally:
            state.db.session.remove()


def _play(stage: State, scratch: sa.Engine, run_id: str) -> None:
    claimed = claim(stage, scratch, run_id)
    if claimed is None:
        raise LookupError("The rehearsed run could not be claimed.")
    run = claimed.run
    journal = Journal(stage, scratch, run, Watch(stage, scratch, scratch, run), claimed.notices)
    transcript(run)
    journal.round_started(RoundStarted(1, "rehearsal", "rehearsal"))
    journal.streamed(TextDelta("…"))
    journal.usage(UsageReported(Usage(1, 1)))
    turn = Message("assistant", (Text("…"), ToolCall("1", "rehearse", "{}")))
    journal.round_finished(Finish("tool_calls", "", turn))
    journal.close()


def _read_records(state: State) -> None:
    """Compile the statements by which the records of the app's handlers are read, without sending them."""
    for model in record_classes():
        mapper: Mapper[Any] = sa.inspect(model)
        engine = state.db.session().get_bind(mapper)
        key = (0,) * len(mapper.primary_key)

        def compile_only(*statement: Any, engine: Any = engine) -> NoReturn:
            _compile(engine, *statement)
            raise _Compiled

        with _scratch(compile_only) as scratch, Session(scratch) as session, suppress(_Compiled):
            session.get(model, key)
    state.db.session.remove()


class _Compiled(Exception):
    """Ends a statement that was to be compiled only."""


def _meet(engine: sa.Engine) -> None:
    """Let the dialect learn which server it speaks to, as its statements depend on that; nothing stays open."""
    with engine.connect():
        pass
    engine.dispose()


@contextmanager
def _scratch(hear: Callable[..., object]) -> Iterator[sa.Engine]:
    """Give an engine over an empty ledger in memory; ``hear`` is told of each statement before it is executed."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    try:
        Ledger.metadata.create_all(engine)
        sa.event.listen(engine, "before_execute", hear)
        yield engine
    finally:
        engine.dispose()


def _compile(
    engine: sa.Engine,
    connection: sa.Connection | None,
    statement: Any,
    several: list[dict[str, Any]],
    parameters: dict[str, Any],
    options: Any,
) -> None:
    """Compile a statement into the cache where the same statement will be looked for, once it is executed for real."""
    if not hasattr(statement, "_compile_w_cache"):
        return
    dialect = engine.dialect
    first = several[0] if several else parameters
    statement._compile_w_cache(
        dialect,
        compiled_cache=options.get("compiled_cache", engine._compiled_cache),
        column_keys=sorted(first),
        for_executemany=len(several) > 1,
        schema_translate_map=None,
        linting=dialect.compiler_linting | WARN_LINTING,
    )
