"""The commands that put a run into a file, and run such a file again beside the site's data."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import BinaryIO

import click
from flask.cli import ScriptInfo
from flask.cli import pass_script_info

from .errors import InstructError
from .operations import as_json_option
from .operations import opened
from .operations import run_argument

if TYPE_CHECKING:
    from .runs.recording import Recording
    from .state import State

SAME, DIFFERENT, IMPOSSIBLE = 0, 1, 2
"""Exit statuses of a replay."""


@click.command("export")
@run_argument
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Keep all rows of this table too; repeat it.")
@click.option("--no-rows", is_flag=True, help="Keep no rows of the app, only the run.")
@pass_script_info
def export(script: ScriptInfo, run_id: str, tables: tuple[str, ...], no_rows: bool) -> None:
    """Print a run that has ended as JSON, to be replayed; RUN is its id, or enough of its beginning.

    It holds what was asked, said and answered, and the rows about its record. It holds no key of a provider.
    """
    from .runs.account import find
    from .runs.recording import export as record

    if no_rows and tables:
        raise click.UsageError("--no-rows and --table exclude each other.")
    with opened(script) as state:
        recording = record(state, find(state.db.session(), run_id), tables=None if no_rows else tables)
    # UTF-8 whatever the terminal speaks; a half surrogate, which it lacks, is an escape that JSON has.
    click.echo(recording.to_json().encode("utf-8", "backslashreplace"), nl=False)


@click.command("replay")
@click.argument("file", type=click.File("rb"))
@click.option("--database", metavar="URL", help="Begin from a copy of this SQLite or PostgreSQL database.")
@click.option("--seed", metavar="MODULE:FUNCTION", help="Begin with empty tables that this function fills.")
@as_json_option
@pass_script_info
def replay(script: ScriptInfo, file: BinaryIO, database: str | None, seed: str | None, as_json: bool) -> None:
    """Run an exported run again, without network and without touching the site's data, and say what differs.

    Begins from a copy of the app's SQLite database as it is now, unless another is named. FILE may be - for what is
    piped in. Exit status 0: the same; 1: different; 2: it cannot be replayed.
    """
    from .runs.recording import Recording
    from .runs.replay import replay as run_again

    if database is not None and seed is not None:
        raise click.UsageError("--database and --seed exclude each other.")
    with _or_impossible():
        recording = Recording.from_json(file.read())
        with opened(script) as state, _beginning(state, recording, database, seed):
            replayed = run_again(state, recording)
    if as_json:
        found = {
            "run": recording.run["id"],
            "same": not replayed.differences,
            "differences": [asdict(one) for one in replayed.differences],
            "notes": list(replayed.notes),
        }
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for line in replayed.lines():
            click.echo(_shown(line))
    raise SystemExit(DIFFERENT if replayed.differences else SAME)


COMMANDS: tuple[click.Command, ...] = (export, replay)


def _beginning(
    state: State, recording: Recording, database: str | None, seed: str | None
) -> AbstractContextManager[None]:
    from .runs.models import Run
    from .runs.scratch import scratch_copy
    from .runs.scratch import scratch_tables

    if seed is not None:
        return scratch_tables(state, _function(seed))
    if database is None and state.db.session.get(Run, recording.run["id"]) is not None:
        click.echo(
            "Note: this run has happened in the database that is copied, so its own edits are there before it begins. "
            "Name one from before: --database URL, or fill empty tables: --seed MODULE:FUNCTION.",
            err=True,
        )
    return scratch_copy(state, database)


def _function(name: str) -> Any:
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise click.BadParameter("it must read MODULE:FUNCTION.", param_hint="--seed")
    # As flask itself does with --app: what is not installed is looked for beside where the command was typed.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"{name} could not be found: {error}", param_hint="--seed") from error


class Impossible(click.ClickException):
    """Shown where nothing could be compared."""

    exit_code = IMPOSSIBLE


@contextmanager
def _or_impossible() -> Iterator[None]:
    """Let whatever goes wrong end with that exit status: 1 would say that something was compared and differs."""
    try:
        yield
    except click.UsageError:
        raise
    except click.ClickException as error:
        raise Impossible(_shown(error.message)) from error
    except InstructError as error:
        raise Impossible(_shown(str(error))) from error
    except Exception as error:
        traceback.print_exc()
        raise SystemExit(IMPOSSIBLE) from error


def _shown(line: str) -> str:
    """What a model wrote must not steer the terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in line)
