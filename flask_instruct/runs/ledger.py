"""The metadata of the ledger's tables: its own, and copied into the app's, so that ``create_all`` and Flask-Migrate see
the tables while no class of ours can clash with one of the app's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase

from .columns import UTCDateTime


class Ledger(DeclarativeBase):
    """Base of the ledger's tables."""

    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads a plain class attribute
        datetime: UTCDateTime,
        dict[str, Any]: sa.JSON,
        list[Any]: sa.JSON,
    }


def add_tables(metadata: sa.MetaData) -> None:
    """Copy the ledger's tables into an app's metadata; a second call changes nothing."""
    for table in Ledger.metadata.sorted_tables:
        if table.name not in metadata.tables:
            table.to_metadata(metadata)
