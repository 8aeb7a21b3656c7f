"""Keeps a demo working that an earlier version started: its own database is put aside when the tables have changed.

Only the file in the instance folder, which the studio has made itself; a configured database is migrated by its owner.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy import Engine
from sqlalchemy import MetaData
from sqlalchemy import inspect


@contextmanager
def fitting(file: Path, engine: Engine, metadata: MetaData) -> Iterator[None]:
    """Put a file aside whose tables are not those of this version; other processes wait until the block has ended."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists() and _is_outgrown(engine, metadata):
            engine.dispose()
            kept = file.with_suffix(".old.db")
            for ending in ("", "-wal", "-shm"):
                part = file.with_name(file.name + ending)
                if part.exists():
                    part.replace(kept.with_name(kept.name + ending))
            click.echo(f"{file} was made by another version: it is kept as {kept.name}, and filled anew.", err=True)
        yield


def _is_outgrown(engine: Engine, metadata: MetaData) -> bool:
    found = inspect(engine)
    names = set(found.get_table_names())
    if not names:
        return False
    return any(
        table.name not in names
        or {column.name for column in table.columns} - {column["name"] for column in found.get_columns(table.name)}
        for table in metadata.tables.values()
    )
