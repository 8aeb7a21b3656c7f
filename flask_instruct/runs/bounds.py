"""How long PostgreSQL lets a transaction of ours wait for a lock, work at one statement, and do nothing at all.

A worker that is stopped or cut off in the middle of a tool keeps its locks for as long as the server lets it. These
bounds hold for the transaction alone, and never loosen what the app has set. SQLite has no such thing.
"""

from __future__ import annotations

import math

import sqlalchemy as sa

LOCK_WAIT = 5.0
"""Seconds that the ledger waits for a row that another worker holds; then it gives up, and the sweep rings again."""
STEP_IDLE = 120.0
"""Seconds that a step of the ledger may be idle, which is what the app's callbacks may take in it."""
MARGIN = 30.0
"""Seconds on top of a tool's limit after which the server ends what the tool is at: its worker no longer can."""

BOUNDS = ("lock", "statement", "idle")
"""Parameters of :data:`LOWER`: each a time as PostgreSQL writes it, or None to leave it."""
LOWER = sa.text(
    "SELECT set_config(name, value, true) FROM (VALUES ('lock_timeout', CAST(:lock AS text)), "
    "('statement_timeout', :statement), ('idle_in_transaction_session_timeout', :idle)) AS wanted (name, value) "
    "WHERE value IS NOT NULL AND (current_setting(name)::interval = interval '0' "
    "OR current_setting(name)::interval > value::interval)"
)


def bound_step(connection: sa.Connection) -> None:
    """Bound a transaction that locks a run: nobody waits for a run for long, and nobody holds one for long."""
    _bound(connection, lock=LOCK_WAIT, idle=STEP_IDLE)


def bound_tool(connection: sa.Connection, seconds: float) -> None:
    """Bound a transaction in which a tool runs that may take so many seconds."""
    # No bound on locks: whatever the tool waits for is over with its own limit.
    _bound(connection, statement=seconds + MARGIN, idle=seconds + MARGIN)


def _bound(connection: sa.Connection, **seconds: float) -> None:
    if connection.dialect.name != "postgresql":
        return
    wanted: dict[str, str | None] = dict.fromkeys(BOUNDS)
    connection.execute(LOWER, wanted | {name: f"{math.ceil(value * 1000)}ms" for name, value in seconds.items()})
