"""Every log line that is written while a run is carried out names the run, and none holds what people wrote.
Lines of the package outside of a run have the attribute too, so that one format serves them all.

Whoever writes the line need not know the run: a filter on the package's logger adds it, in words and as ``run_id``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy.exc import StatementError

logger = logging.getLogger("flask_instruct")

_current: ContextVar[str | None] = ContextVar("flask_instruct_run", default=None)


NO_RUN = "-"
"""``run_id`` of a record that is about no run."""


def install() -> None:
    """Give every record of the package's logger a ``run_id``; any number of times is once."""
    logger.addFilter(_filter)


@contextmanager
def naming(run_id: str) -> Iterator[None]:
    """Name this run in every line of the package's logger for the length of the block."""
    install()
    token = _current.set(run_id)
    try:
        yield
    finally:
        _current.reset(token)


def current_run() -> str | None:
    """Return the id of the run that is being carried out here, or None."""
    return _current.get()


class RunFilter(logging.Filter):
    """Adds the run to a record, and takes values out of the failed statements that are logged with it.

    At level DEBUG they stay: that is how they are asked for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        run_id = _current.get()
        if run_id is not None:
            _name(record, run_id)
        elif not hasattr(record, "run_id"):
            record.run_id = NO_RUN
        if not logger.isEnabledFor(logging.DEBUG):
            _hide_values(record)
        return True


_filter = RunFilter()


def _name(record: logging.LogRecord, run_id: str) -> None:
    record.run_id = run_id
    if run_id in record.getMessage():
        return
    if isinstance(record.args, tuple) and record.args:
        # The pattern stays one, for whoever counts lines by it.
        record.msg, record.args = f"Run %s: {record.msg}", (run_id, *record.args)
    else:
        record.msg, record.args = f"Run {run_id}: {record.getMessage()}", ()


def _hide_values(record: logging.LogRecord) -> None:
    """Take the values out of failed statements: of the ledger's own these are prompts and answers."""
    given = record.args if isinstance(record.args, tuple) else ()
    raised = record.exc_info[1] if record.exc_info else None
    seen: set[int] = set()
    waiting = [error for error in (raised, *given) if isinstance(error, BaseException)]
    while waiting:
        error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, StatementError):
            error.hide_parameters = True
            _cut_detail(error)
            _cut_detail(error.orig)
        waiting += [other for other in (error.__cause__, error.__context__) if other is not None]


def _cut_detail(error: BaseException | None) -> None:
    """PostgreSQL quotes the whole row that it refuses."""
    if error is not None and error.args and isinstance(error.args[0], str):
        error.args = (error.args[0].partition("\nDETAIL:")[0], *error.args[1:])
