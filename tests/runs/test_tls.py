"""A database that is reached by TLS, and forks: a connection that two processes share is broken for both of them.

Over a unix socket two processes may go on with one connection for a while; with TLS the second use fails at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.models import Run
from tests import servers
from tests.support import Process

from .conftest import ROOT
from .conftest import wait_for_end
from .notebook import db

Ask = Callable[..., Run]

SLOW = 60.0


@pytest.fixture(scope="module")
def server_with_tls() -> Iterator[str]:
    with servers.postgres_server(tls=True) as url:
        yield url


@pytest.fixture
def database_url(server_with_tls: str) -> Iterator[str]:
    with servers.postgres_database(server_with_tls) as url:
        yield url


def test_runs_one_after_the_other_in_forks_of_a_process_that_used_its_database_over_tls(
    app: Flask, ask: Ask, start: Callable[..., Process], settings: dict[str, str]
) -> None:
    """No "bad record mac" at the second job (rq/django-rq#123, celery/celery#1564)."""
    with db.engine.connect() as connection:
        query = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
        assert connection.scalar(sa.text(query)), "the test is about TLS"
    runs = [ask("talk") for _ in range(6)]
    app_path = "tests.runs.notebook:create_app_that_asks_its_database"
    command = [sys.executable, "-m", "flask", "--app", app_path, "instruct", "worker", "--concurrency", "2"]
    process = start(command, env=settings, cwd=ROOT)
    found = [wait_for_end(run, SLOW) for run in runs]
    assert [(run.status, run.attempt) for run in found] == [("succeeded", 1)] * 6
    for word in ("bad record mac", "SSL", "OperationalError", "ResourceClosedError"):
        assert word not in process.output
