"""The panel's board app with its dashboard open to Ada, and rows of the ledger as runs leave them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask import Flask

from tests.panel.board import db
from tests.panel.conftest import app
from tests.panel.conftest import board_database
from tests.panel.conftest import client
from tests.panel.conftest import enter
from tests.panel.conftest import runs
from tests.panel.conftest import settings
from tests.panel.conftest import site
from tests.panel.conftest import work
from tests.panel.conftest import work_aside

__all__ = ["app", "board_database", "client", "enter", "runs", "settings", "site", "work", "work_aside"]


@pytest.fixture(autouse=True)
def rule(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ada looks after the boards."""
    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", lambda actor: actor == "Ada")


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """An app context for the length of a test that stores and reads rows."""
    with app.app_context():
        yield app
        db.session.remove()


@pytest.fixture
def statements(app: Flask) -> Iterator[list[str]]:
    """The statements of SQL that were sent since the list was last cleared."""
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        sent.append(statement)

    with app.app_context():
        engine = db.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(engine, "before_cursor_execute", note)
