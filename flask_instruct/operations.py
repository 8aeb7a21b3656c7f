"""The commands for whoever keeps an app running: look at runs, start and stop them, tidy up, examine the site.

Each prints lines for a person, or with ``--json`` data for a program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from typing import Any
from typing import get_args

import click
from flask import Flask
from flask.cli import ScriptInfo
from flask.cli import pass_script_info
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from .errors import ConfigurationError
from .errors import InstructError
from .errors import RunEnded
from .loading import lack_of_driver
from .loading import load
from .runs.ages import read_age
from .runs.ages import write_age
from .runs.columns import now
from .runs.models import HELD
from .runs.models import Run
from .runs.models import Status

if TYPE_CHECKING:
    from .state import State

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
run_argument = click.argument("run_id", metavar="RUN")


@click.command("runs")
@click.option("--status", "statuses", multiple=True, type=click.Choice(get_args(Status)), help="Only these; repeat it.")
@click.option("--handler", metavar="NAME", help="Only runs of this handler, or of instruct://NAME/KEY.")
@click.option("--actor", metavar="ID", help="Only runs that this user asked for.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@as_json_option
@pass_script_info
def runs(
    script: ScriptInfo, statuses: tuple[str, ...], handler: str | None, actor: str | None, limit: int, as_json: bool
) -> None:
    """List the latest runs, newest first."""
    from .runs.account import latest

    with opened(script) as state:
        found = latest(state.db.session(), status=statuses, handler=handler, actor=actor, limit=limit)
    _print(found, as_json, _table_of_runs)


@click.command("show")
@run_argument
@click.option("--text", is_flag=True, help="With what was asked, said, called and answered.")
@as_json_option
@pass_script_info
def show(script: ScriptInfo, run_id: str, text: bool, as_json: bool) -> None:
    """Show all of a run; RUN is its id, or enough of its beginning."""
    from .runs.account import account
    from .runs.account import find

    with opened(script) as state:
        found = account(state.db.session(), find(state.db.session(), run_id), text=text)
    _print(found, as_json, _lines_of_run)


@click.command("retry")
@run_argument
@pass_script_info
def retry(script: ScriptInfo, run_id: str) -> None:
    """Start a failed run again where it stopped; what was done stays done."""
    from .extension import Instruct

    with _a_run(script, run_id) as (_, run):
        again = Instruct().retry(run)
        click.echo(f"Run {again.id} is queued again.")


@click.command("cancel")
@run_argument
@pass_script_info
def cancel(script: ScriptInfo, run_id: str) -> None:
    """Stop a run; what was said and done stays."""
    with _a_run(script, run_id) as (state, run):
        identifier, before = run.id, run.status
        if not run.cancel():
            raise RunEnded(f"Run {identifier} has ended before ({before}), so there is nothing to stop.")
        stopped = state.db.session.get_one(Run, identifier)
        click.echo(
            f"Run {identifier} is cancelled."
            if stopped.ended
            else f"Run {identifier} is told to stop; its worker ends it within a second, a tool in hand first."
        )


@click.command("resume")
@run_argument
@pass_script_info
def resume(script: ScriptInfo, run_id: str) -> None:
    """Ring for a run that waits, or whose worker went silent, instead of leaving it to the next sweep."""
    from .runs.queue import is_waiting
    from .runs.queue import ring

    with _a_run(script, run_id) as (state, run):
        _refuse_to_resume(run)
        if is_waiting(state, run):
            click.echo(f"Run {run.id} stands in the queue {state.config.queue} already; a worker takes it in its turn.")
            return
        if not ring(state, run.id, run.attempt):
            raise click.ClickException(f"Redis could not be reached, so nobody was called to run {run.id}.")
        click.echo(f"A worker was called to run {run.id}.")


@click.command("sweep")
@as_json_option
@pass_script_info
def sweep(script: ScriptInfo, as_json: bool) -> None:
    """Look once, now, for forgotten and interrupted runs and for broadcasts that did not go out."""
    from .runs.sweep import sweep as sweep_once

    with opened(script) as state:
        state.redis.ping()
        swept = sweep_once(state)
    said = {"runs": swept.runs, "broadcasts": swept.broadcasts}
    _print(
        said, as_json, lambda _: [f"Rang for {_many(swept.runs, 'run')}, sent {_many(swept.broadcasts, 'refresh')}."]
    )


@click.command("prune")
@click.option("--older-than", "age", required=True, metavar="AGE", help="Such as 12h, 30d or 2w.")
@click.option("--dry-run", is_flag=True, help="Only say how many.")
@as_json_option
@pass_script_info
def prune(script: ScriptInfo, age: str, dry_run: bool, as_json: bool) -> None:
    """Delete runs that ended longer ago than an age, with all their rows, and broadcasts that went out before that."""
    from .runs.retention import prune as prune_older

    try:
        older_than = read_age(age)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older-than") from error
    with opened(script) as state:
        pruned = prune_older(state.db.session(), older_than, dry_run=dry_run)
    said = {"runs": pruned.runs, "broadcasts": pruned.broadcasts, "dry_run": dry_run}
    verb = "Would delete" if dry_run else "Deleted"
    words = f"{verb} {_many(pruned.runs, 'run')} and {_many(pruned.broadcasts, 'broadcast')} older than {age}."
    _print(said, as_json, lambda _: [words])


@click.command("publish")
@click.argument("stream")
@click.argument("html", required=False)
@pass_script_info
def publish(script: ScriptInfo, stream: str, html: str | None) -> None:
    """Send HTML to the open pages of STREAM now; without HTML what standard input has.

    STREAM is the element's name on the page: text, or Class/key of a record. HTML is <turbo-stream> elements.
    """
    with opened(script) as state:
        position = state.live.bus.publish(stream, html if html is not None else sys.stdin.read())
    click.echo(position)


@click.command("doctor")
@as_json_option
@pass_script_info
def doctor(script: ScriptInfo, as_json: bool) -> None:
    """Examine Redis, database, workers, keys and settings; each finding says what to do. Exit status 1 on errors."""
    from .doctor import examine
    from .doctor import in_words

    findings = examine(partial(load, script))
    _print([finding.to_json() for finding in findings], as_json, lambda _: in_words(findings))
    if any(finding.level == "error" for finding in findings):
        raise SystemExit(1)


COMMANDS: tuple[click.Command, ...] = (runs, show, retry, cancel, resume, sweep, prune, publish, doctor)


@contextmanager
def opened(script: ScriptInfo) -> Iterator[State]:
    """Load the app and push its context; what goes wrong is said without a traceback."""
    with plain_errors():
        app = load_ours(script)
        with app.app_context():
            yield app.extensions["instruct"]


def load_ours(script: ScriptInfo) -> Flask:
    """Return the app of a command.

    :raises ConfigurationError: when it does not use this package, or its database lacks a driver.
    """
    app = load(script)
    if "instruct" not in app.extensions:
        raise ConfigurationError(f"The app {app.name} does not use Flask-Instruct: call instruct.init_app(app).")
    return app


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show what is to be set, installed or started without a traceback in front of it."""
    try:
        yield
    except ImportError as error:
        lack = lack_of_driver(error)
        if lack is None:
            raise
        raise click.ClickException(lack) from error
    except InstructError as error:
        raise click.ClickException(str(error)) from error
    except (SQLAlchemyError, RedisError) as error:
        what = "The database" if isinstance(error, SQLAlchemyError) else "Redis"
        raise click.ClickException(
            f"{what} could not be used ({type(error).__name__}): flask instruct doctor says more."
        ) from error


@contextmanager
def _a_run(script: ScriptInfo, run_id: str) -> Iterator[tuple[State, Run]]:
    from .runs.account import find

    with opened(script) as state:
        yield state, find(state.db.session(), run_id)


def _refuse_to_resume(run: Run) -> None:
    """Say why nobody needs to be called to a run.

    :raises RunEnded: unless it waits for a worker, or its worker went silent.
    """
    if run.ended:
        hint = f": flask instruct retry {run.id}" if run.status == "failed" else "."
        raise RunEnded(f"Run {run.id} has ended ({run.status}); only a failed one can be started again{hint}")
    if run.status in HELD and run.lease_until is not None and run.lease_until > now():
        left = (run.lease_until - now()).total_seconds()
        raise RunEnded(
            f"Run {run.id} is {run.status}, and a worker has renewed its lease, which lasts {left:.0f} s more: if that "
            "worker is gone, try again after that; to end the run: flask instruct cancel."
        )
    if run.status == "waiting_approval":
        raise RunEnded(f"Run {run.id} waits for a person's approval, not for a worker.")


def _print(data: Any, as_json: bool, words: Callable[[Any], Any]) -> None:
    if as_json:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for line in words(data):
        click.echo(line)


def _many(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("sh") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _table_of_runs(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "There is no such run."
        return
    head = ("RUN", "STATUS", "AGE", "HANDLER", "ACTOR", "MODEL", "TOKENS", "COST")
    rows = [head, *(_cells(run) for run in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    tokens = None if run["input_tokens"] is None else f"{run['input_tokens']}+{run['output_tokens'] or 0}"
    cost = None if run["cost"] is None else f"${run['cost']:.4f}"
    named = (run["handler_name"], run["actor"], run["model"], tokens, cost)
    return (run["id"], _status(run), write_age(run["age"]), *(_said(cell or "-") for cell in named))


def _status(run: dict[str, Any]) -> str:
    """A run that its worker has left says so, or it would look like one at work."""
    return f"{run['status']}, interrupted" if run["interrupted"] else str(run["status"])


def _lines_of_run(run: dict[str, Any]) -> Iterator[str]:
    """Give a run's own values a line each, and each of its rows one."""
    lists = ("messages", "calls", "effects", "model_calls")
    parts = (*lists, "spending", "broadcasts")
    own = {name: value for name, value in run.items() if name not in parts and value is not None}
    own |= {"age": write_age(own["age"]), "status": _status(run)}
    del own["interrupted"]
    width = max(map(len, own))
    yield from (f"{name:<{width}}  {_said(value)}" for name, value in own.items())
    for name in lists:
        yield ""
        yield f"{name.replace('_', ' ')}: {len(run[name])}"
        yield from (f"  {_row_said(row)}" for row in run[name])
    for name in ("spending", "broadcasts"):
        yield ""
        yield f"{name}: {_row_said(run[name])}"


def _row_said(row: dict[str, Any]) -> str:
    left_out = ("run_id", "message_id", "call_id", "id")
    return "  ".join(
        f"{name}={_said(value)}" for name, value in row.items() if name not in left_out and value is not None
    )


def _said(value: Any) -> str:
    """What a model wrote must not steer the terminal."""
    if isinstance(value, str) and value.isprintable():
        return value
    written = json.dumps(value, ensure_ascii=False)
    return written if written.isprintable() else json.dumps(value)
