"""The studio's database: one Flask-SQLAlchemy object, and what SQLite needs to be shared by web and worker."""

from __future__ import annotations

import sqlite3
from datetime import UTC
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import registry
from sqlalchemy.pool import ConnectionPoolEntry


class UTCDateTime(sa.TypeDecorator[datetime]):
    """An aware UTC datetime, also on SQLite, which forgets the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    # Flask-SQLAlchemy copies this class; SQLAlchemy then accepts the map on a registry only.
    registry = registry(type_annotation_map={datetime: UTCDateTime})


db = SQLAlchemy(model_class=Base)


def now() -> datetime:
    return datetime.now(UTC)


def normal_url(url: str) -> str:
    """Return a database URL with the driver this app installs; hosting services write ``postgres://``."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if separator and scheme in ("postgres", "postgresql") else url


def engine_options(url: str) -> dict[str, Any]:
    """Return the engine's options: on SQLite a writer waits up to 30 s for another instead of failing."""
    return {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {"pool_pre_ping": True}


def use_wal(connection: Any, entry: ConnectionPoolEntry) -> None:
    """Let readers go on while one process writes, and keep foreign keys, on each new SQLite connection."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
