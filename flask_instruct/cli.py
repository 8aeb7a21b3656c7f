"""The ``flask instruct`` commands."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import click
import sqlalchemy as sa
from flask import Flask
from flask.cli import AppGroup
from flask.cli import ScriptInfo
from flask.cli import pass_script_info
from sqlalchemy.exc import SQLAlchemyError

from .loading import load
from .operations import COMMANDS
from .operations import load_ours
from .operations import plain_errors
from .playback import COMMANDS as PLAYBACK
from .runs.ledger import Ledger

instruct = AppGroup("instruct", help="Run what AI edits need, look after runs, and examine the site.")

concurrency = click.option(
    "--concurrency", default=1, show_default=True, type=click.IntRange(min=1), help="How many runs to work on at once."
)


@instruct.command("worker", with_appcontext=False)
@concurrency
@click.option(
    "--max-jobs", type=click.IntRange(min=1), help="Replace a worker process by a new one after so many jobs."
)
@pass_script_info
def worker(script: ScriptInfo, concurrency: int, max_jobs: int | None) -> None:
    """Work on runs until it is told to stop (SIGTERM or Ctrl-C).

    Runs in hand then have INSTRUCT_GRACE seconds to come to their end, and go back to the queue after that.
    """
    with plain_errors():
        from .runs.worker import work

        app = load_ours(script)
        app.extensions["instruct"].redis_url()
        click.echo(f"Working on runs of {app.name}, {concurrency} at a time.")
        _tell_missing_tables(app)
        work(app, concurrency=concurrency, max_jobs=max_jobs)


@instruct.command("dev", with_appcontext=False)
@click.option("--port", default=5000, show_default=True, type=click.IntRange(1, 65535), help="Port of the web server.")
@concurrency
@pass_script_info
def dev(script: ScriptInfo, port: int, concurrency: int) -> None:
    """Run web server, worker and, where no Redis is configured, an embedded one; Ctrl-C ends them all.

    With ``flask --debug`` web server and worker start again when a Python file of the app changes.
    """
    # Before the app is loaded, and inherited by the web server and the worker.
    os.environ.setdefault("INSTRUCT_EMBEDDED", "1")
    with plain_errors():
        from .development import Development

        raise SystemExit(Development(script, port=port, concurrency=concurrency).run())


@instruct.command("tools", with_appcontext=False)
@click.argument("handlers", metavar="[HANDLER]...", nargs=-1)
@click.option("--explain", is_flag=True, help="Say for each provider's dialect whether it is strict, and what changes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, schemas included.")
@pass_script_info
def tools(script: ScriptInfo, handlers: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """List the tools of all handlers, or of those named."""
    from .explain import in_words
    from .explain import listed

    with plain_errors():
        load(script)
        found = listed(handlers, explain=explain)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for line in in_words(found):
        click.echo(line)


for command in (*COMMANDS, *PLAYBACK):
    instruct.add_command(command)


def _tell_missing_tables(app: Flask) -> None:
    """Say it in words; no error, since a migration may be on its way, and a database that is down may come up."""
    missing: list[str] = []
    with app.app_context(), suppress(SQLAlchemyError):
        engine = app.extensions["instruct"].db.engine
        there = sa.inspect(engine)
        missing = [name for name in sorted(Ledger.metadata.tables) if not there.has_table(name)]
        # Nothing may stay open over the fork that follows.
        engine.dispose()
    if missing:
        click.echo(
            f"The database has no {', '.join(missing)}: call db.create_all() after instruct.init_app(app), "
            "or make and apply a migration.",
            err=True,
        )
