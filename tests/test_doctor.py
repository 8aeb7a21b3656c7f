"""``flask instruct doctor``: each thing that can be wrong is found, named and given a fix; no secret is told."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from redis import Redis

from flask_instruct import doctor
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.cli import instruct
from flask_instruct.config import Config
from flask_instruct.doctor import CHECKS
from flask_instruct.doctor import Check
from flask_instruct.doctor import Finding
from flask_instruct.doctor import database
from flask_instruct.doctor import examine
from flask_instruct.doctor import redis_server
from flask_instruct.doctor import work
from flask_instruct.runs.columns import now
from flask_instruct.runs.ledger import Ledger
from flask_instruct.runs.models import Run
from flask_instruct.runs.queue import ring

from . import servers
from .operating import a_run
from .operating import notebook_site
from .runs.notebook import db
from .support import Process
from .support import wait_for

LONG_KEY = "0123456789abcdef" * 4


class Site:
    """The notebook app, opened with some settings, and what the doctor finds about it."""

    def __init__(self, open_app: Callable[[dict[str, str]], Flask], settings: dict[str, str]) -> None:
        self._open = open_app
        self._settings = settings
        self.app: Flask

    def open(self, **settings: str) -> Site:
        self.app = self._open({**self._settings, **settings})
        self.app.secret_key = LONG_KEY
        return self

    @property
    def state(self) -> Any:
        return self.app.extensions["instruct"]

    def found(self, name: str) -> list[Finding]:
        """What one check finds, those before it that it needs included."""
        return [finding for finding in examine(lambda: self.app) if finding.check == name]

    def worst(self, name: str) -> Finding:
        levels = ("ok", "warning", "error")
        return max(self.found(name), key=lambda finding: levels.index(finding.level))


@pytest.fixture
def site(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, redis_url: str, key_prefix: str
) -> Iterator[Site]:
    """A notebook app that is opened by the test: on SQLite, or on what it says."""
    for variable in {key for profile in BUILT_IN.values() for key in profile.key_variables}:
        monkeypatch.delenv(variable, raising=False)
    settings = {
        "INSTRUCT_REDIS_URL": redis_url,
        "INSTRUCT_KEY_PREFIX": key_prefix,
        "INSTRUCT_QUEUE": key_prefix,
        "INSTRUCT_DEFAULT_MODEL": "scripted:talk",
    }
    if "database_url" in request.fixturenames:
        settings["DATABASE_URL"] = request.getfixturevalue("database_url")
    else:
        settings["DATABASE_URL"] = request.getfixturevalue("sqlite_url")
    with ExitStack() as stack:
        yield Site(lambda given: stack.enter_context(notebook_site(monkeypatch, **given)), settings)


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A server of the test's own, which it may configure."""
    with servers.redis_server() as url:
        client = Redis.from_url(url)
        yield client
        # It would try to save into a folder that is going away, and stay.
        client.config_set("appendonly", "no")
        client.config_set("save", "")
        client.close()


def url_of(client: Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}?db=0"


def test_a_site_with_nothing_wrong_has_no_error(site: Site, database_url: str, start: Callable[..., Process]) -> None:
    site.open()
    worker = start([sys.executable, "-m", "flask", "--app", "tests.runs.notebook", "instruct", "worker"])
    wait_for(lambda: site.worst("workers").level == "ok", timeout=30)
    found = examine(lambda: site.app)
    assert [finding for finding in found if finding.level == "error"] == []
    quiet = {"sqlite"} if db.engine.dialect.name == "postgresql" else set()
    assert {finding.check for finding in found} == {check.name for check in CHECKS} - quiet
    assert all(finding.fix for finding in found if finding.level != "ok")
    worker.stop()


def test_the_command_prints_findings_with_their_fixes_and_fails_on_an_error(site: Site) -> None:
    runner = site.open().app.test_cli_runner()
    result = runner.invoke(instruct, ["doctor"])
    assert result.exit_code == 1
    queue = site.state.config.queue
    assert f"error    workers: No worker is there for the queue {queue}: runs wait." in result.output
    assert "         → Start one: flask instruct worker." in result.output
    assert result.output.splitlines()[-1].startswith("1 error, ")
    data = json.loads(runner.invoke(instruct, ["doctor", "--json"]).output)
    assert {"level": "error", "check": "workers"}.items() <= next(
        row for row in data if row["level"] == "error"
    ).items()


def test_the_command_succeeds_when_there_is_no_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.open()
    monkeypatch.setattr(doctor, "examine", lambda load: [Finding("ok", "Fine.", check="all")])
    result = site.app.test_cli_runner().invoke(instruct, ["doctor"])
    assert (result.exit_code, result.output) == (0, "ok       all: Fine.\n\nAll is well.\n")


def test_a_check_that_raises_is_a_finding_and_the_others_go_on(site: Site) -> None:
    def broken(state: object) -> Iterator[Finding]:
        raise LookupError("redis://:sesame@host")

    def fine(state: object) -> Iterator[Finding]:
        yield Finding("ok", "Fine.")

    site.open()
    checks = (Check("one", broken), Check("two", fine, needs=("one",)), Check("three", fine))
    found = examine(lambda: site.app, checks)
    assert [(each.check, each.level) for each in found] == [("one", "error"), ("three", "ok")]
    assert found[0].sentence == "The check of the one failed with LookupError."


def test_an_app_that_cannot_be_set_up_is_a_finding() -> None:
    app = Flask("bare")
    (bare,) = examine(lambda: app)
    assert (bare.level, bare.fix) == ("error", "Call instruct.init_app(app).")

    def without_a_key() -> Flask:
        from flask_sqlalchemy import SQLAlchemy

        from flask_instruct import Instruct

        app = Flask("keyless")
        app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"
        SQLAlchemy(app)
        Instruct(app)
        return app

    (keyless,) = examine(without_a_key)
    assert keyless.fix.startswith("SECRET_KEY is not set")

    def broken() -> Flask:
        raise ZeroDivisionError

    assert examine(broken)[0].sentence == "The app could not be loaded: it raised ZeroDivisionError."


@pytest.mark.parametrize(("key", "level"), [("short", "error"), (b"x" * 20, "warning"), ("x" * 32, "ok")])
def test_a_secret_key_is_long(site: Site, key: str | bytes, level: str) -> None:
    site.open().app.secret_key = key
    assert site.worst("secret key").level == level


def test_a_redis_that_is_away_is_one_finding_without_its_password(site: Site, free_port: int) -> None:
    site.open(INSTRUCT_REDIS_URL=f"redis://user:sesame@127.0.0.1:{free_port}/0")
    found = [finding for finding in examine(lambda: site.app) if finding.check.startswith("redis")]
    assert [(each.check, each.level) for each in found] == [
        ("redis address", "ok"),
        ("redis", "error"),
        ("redis encryption", "ok"),
    ]
    assert f"Redis at 127.0.0.1:{free_port} does not answer" in found[1].sentence
    assert not site.found("workers")


@pytest.mark.parametrize("url", ["redis://:sesa/me@host/0", "redis://:sesame@host:door/0", "sesame@host"])
def test_an_address_that_is_none_is_one_finding_without_its_password(site: Site, url: str) -> None:
    site.open(INSTRUCT_REDIS_URL=url)
    found = [finding for finding in examine(lambda: site.app) if finding.check.startswith("redis")]
    assert [(each.check, each.level) for each in found] == [("redis address", "error")]
    assert not [part for part in ("sesa", "me@", "door") if part in found[0].sentence + found[0].fix]


def test_without_a_redis_only_its_address_is_missing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.open()
    site.state.config = replace(site.state.config, redis_url=None)
    assert site.worst("redis address").level == "error"
    assert not site.found("redis")
    site.state.config = replace(site.state.config, embedded=True)
    monkeypatch.setattr(type(site.state), "redis_url", lambda state: "unix:///nowhere")
    assert "meant for development" in site.worst("redis address").sentence


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "6.0.16"}, "error"),
        ({"redis_version": "6.2.0"}, "ok"),
        ({"redis_version": "10.0.1"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok"),
    ],
)
def test_redis_is_new_enough(info: dict[str, str], level: str) -> None:
    old: Any = SimpleNamespace(redis=SimpleNamespace(info=lambda section: info))
    assert [finding.level for finding in redis_server.version(old)] == [level]


def test_persistence_and_eviction_are_looked_at(site: Site, own_redis: Redis) -> None:
    site.open(INSTRUCT_REDIS_URL=url_of(own_redis))
    assert (site.worst("redis persistence").level, site.worst("redis eviction").level) == ("warning", "ok")
    own_redis.config_set("save", "60 1")
    assert "snapshots" in site.worst("redis persistence").sentence
    own_redis.config_set("appendonly", "yes")
    own_redis.config_set("maxmemory-policy", "allkeys-lru")
    assert "append only" in site.worst("redis persistence").sentence
    assert "as soon as a maxmemory is set" in site.worst("redis eviction").sentence
    own_redis.config_set("maxmemory", "100mb")
    assert "once its memory is full" in site.worst("redis eviction").sentence


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("redis://cache.example.com:6379/0", "warning"),
        ("redis://93.184.215.14/0", "warning"),
        ("rediss://cache.example.com:6379/0", "ok"),
        ("redis://10.0.0.7/0", "ok"),
        ("redis://redis/0", "ok"),
        ("redis://[::1]:6379/0", "ok"),
    ],
)
def test_an_unencrypted_way_through_the_open_is_named(url: str, level: str) -> None:
    far: Any = SimpleNamespace(redis_url=lambda: url, config=Config())
    assert [finding.level for finding in redis_server.encryption(far)] == [level]


def test_a_database_that_is_away_is_one_finding(site: Site, free_port: int) -> None:
    site.open()
    db.session.remove()
    db.engine.dispose()
    db.engines[None] = sa.create_engine(f"postgresql+psycopg://ada:sesame@127.0.0.1:{free_port}/app")
    found = [finding for finding in examine(lambda: site.app) if finding.check.startswith("database")]
    assert [(each.check, each.level) for each in found] == [("database", "error")]
    assert f"postgresql+psycopg://ada:***@127.0.0.1:{free_port}/app does not answer" in found[0].sentence
    assert not site.found("runs")


def test_a_database_that_hangs_is_given_up_and_what_needs_it_is_left_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IN_TIME", 0.3)
    site.open()
    db.session.remove()
    db.engine.dispose()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        db.engines[None] = sa.create_engine(f"postgresql+psycopg://ada:sesame@{place}/app")
        begin = time.monotonic()
        found = [finding for finding in examine(lambda: site.app) if finding.check.startswith(("database", "runs"))]
        assert time.monotonic() - begin < 4
    assert [(each.check, each.level) for each in found] == [("database", "error")]
    assert found[0].sentence == f"The database postgresql+psycopg://ada:***@{place}/app did not answer within 0.3 s."
    assert "firewall" in found[0].fix


def test_missing_tables_and_columns_are_named(site: Site, database_url: str) -> None:
    site.open()
    assert site.worst("database tables").level == "ok"
    db.session.remove()
    with db.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE instruct_model_call DROP COLUMN seconds"))
        connection.execute(sa.text("DROP TABLE instruct_outbox"))
    tables, columns = site.found("database tables")
    assert "The database has no instruct_outbox." in tables.sentence
    assert "instruct_model_call.seconds is missing" in columns.sentence
    assert not site.found("runs")


def test_sqlite_in_memory_is_refused(site: Site) -> None:
    site.open(DATABASE_URL="sqlite:///:memory:")
    found = site.worst("database kind")
    assert (found.level, "set SQLALCHEMY_DATABASE_URI to a file" in found.fix) == ("error", True)


def test_sqlite_is_best_in_wal_mode(site: Site) -> None:
    site.open()
    assert site.worst("sqlite").level == "warning"
    with db.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    assert site.worst("sqlite").level == "ok"


@pytest.mark.parametrize(
    ("isolation", "level"), [("READ COMMITTED", "ok"), ("SERIALIZABLE", "warning"), ("AUTOCOMMIT", "error")]
)
def test_the_isolation_level_of_postgresql_fits(site: Site, postgres_database: str, isolation: str, level: str) -> None:
    site.open(DATABASE_URL=postgres_database)
    db.session.remove()
    db.engine.dispose()
    db.engines[None] = sa.create_engine(postgres_database, isolation_level=isolation)
    assert site.worst("database isolation").level == level


def test_clocks_that_differ_are_named(site: Site, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.open()
    assert site.worst("clocks").level == "ok"
    for skew, level in ((-5, "warning"), (100, "error")):
        monkeypatch.setattr(work, "time", SimpleNamespace(time=lambda skew=skew: time.time() + skew))
        assert [finding.level for finding in site.found("clocks")] == [level] * len(site.found("clocks"))
        assert ("ahead of" if skew < 0 else "behind") in site.worst("clocks").sentence


def test_workers_of_another_queue_do_not_help_and_are_told(site: Site, start: Callable[..., Process]) -> None:
    site.open()
    command = [sys.executable, "-m", "flask", "--app", "tests.runs.notebook", "instruct", "worker"]
    worker = start(command, env={"INSTRUCT_QUEUE": "another-queue"})
    wait_for(lambda: "another-queue" in site.worst("workers").sentence, timeout=30)
    assert site.worst("workers").level == "error"
    worker.stop()


def test_a_worker_that_has_gone_silent_is_named(site: Site) -> None:
    site.open()
    redis, queue = site.state.redis, site.state.config.queue
    key = f"rq:worker:{queue}"
    redis.sadd("rq:workers", key)
    long_ago = "2026-01-01T00:00:00.000000Z"
    redis.hset(
        key, mapping={"queues": queue, "hostname": "far", "pid": 7, "last_heartbeat": long_ago, "birth": long_ago}
    )
    assert "The worker with pid 7 on far has been silent for" in site.worst("workers").sentence
    redis.delete(key)


def test_what_was_left_lying_is_counted(site: Site, database_url: str) -> None:
    site.open()
    assert site.worst("runs").level == "ok"
    hour = timedelta(hours=1)
    a_run("queued", age=2 * hour)
    a_run("running", age=hour, lease_until=now() - hour)
    sentences = [finding.sentence for finding in site.found("runs")]
    assert sentences == [
        "Runs held by workers that went silent: 1; nobody has taken them up.",
        "Runs that wait for longer than 5m: 1, the oldest for 2h.",
        "Broadcasts that were committed and did not go out: 2.",
    ]


def test_jobs_of_another_app_are_noticed(site: Site) -> None:
    site.open()
    run = a_run("queued")
    ring(site.state, run.id, 0)
    assert site.worst("neighbours").level == "ok"
    ring(site.state, "0197aaaa-0000-7000-8000-000000000001", 0)
    assert site.worst("neighbours").level == "error"


def test_another_app_that_was_examined_with_the_same_prefix_is_named(site: Site, tmp_path: Path) -> None:
    site.open()
    assert site.worst("neighbours").level == "ok"
    db.session.remove()
    site.open(DATABASE_URL=f"sqlite:///{tmp_path / 'other.sqlite3'}")
    assert re.search(r"tests\.runs\.notebook \(\d+s ago\)", site.worst("neighbours").sentence)


def test_a_default_model_needs_a_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.open(INSTRUCT_DEFAULT_MODEL="openai:gpt-5.4-mini,scripted:talk")
    assert [finding.level for finding in site.found("default model")] == ["error", "warning"]
    assert "OPENAI_API_KEY" in site.found("default model")[0].fix
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sesame-sesame")
    assert site.found("default model")[0].level == "ok"
    assert site.worst("providers").sentence == "Set up: openai."


def test_a_site_without_any_model_is_told_what_to_set(site: Site) -> None:
    site.open()
    site.state.config = replace(site.state.config, default_model=None)
    found = site.worst("default model")
    assert (found.level, "set INSTRUCT_DEFAULT_MODEL" in found.fix) == ("warning", True)
    assert found.fix.startswith("Name a model in each generate_for")


def test_a_web_socket_path_that_is_taken_is_noticed(site: Site) -> None:
    site.open()
    assert site.worst("web socket").level == "ok"
    site.state.config = replace(site.state.config, url_prefix="/elsewhere")
    assert "/elsewhere/socket is answered by nothing" in site.worst("web socket").sentence


def test_no_secret_is_ever_told(
    site: Site, free_port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-sesame")
    providers = {"own": {"protocol": "openai_chat", "base_url": "nonsense", "api_key": "k-sesame"}}
    site.open(
        INSTRUCT_REDIS_URL=f"redis://ada:red%20sesame@127.0.0.1:{free_port}/0", INSTRUCT_PROVIDERS=json.dumps(providers)
    )
    site.app.secret_key = "key-sesame"
    site.app.config["SQLALCHEMY_DATABASE_URI"] = "postgresql://ada:db-sesame@db/app"

    def quoting(state: object) -> Iterator[Finding]:
        yield Finding("error", "ada:red%20sesame, red sesame, db-sesame, k-sesame, sk-ant-sesame", "key-sesame")

    found = [*examine(lambda: site.app), *examine(lambda: site.app, [Check("quoting", quoting)])]
    told = " ".join(f"{finding.sentence} {finding.fix}" for finding in found)
    assert "sesame" not in told
    assert "sesame" not in caplog.text
    assert len(found) > 8


def test_a_wrong_setting_is_told_without_its_value(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    from .runs import notebook

    monkeypatch.setenv("DATABASE_URL", sqlite_url)
    monkeypatch.setenv("INSTRUCT_PROVIDERS", "sk-sesame")
    (found,) = examine(notebook.create_app)
    assert found.fix == "INSTRUCT_PROVIDERS must be a mapping of mappings (as JSON in the environment)"


def test_looking_changes_nothing_in_the_ledger(site: Site, database_url: str) -> None:
    site.open()
    a_run("queued", age=timedelta(hours=1))

    def everything() -> list[list[Any]]:
        with db.engine.connect() as connection:
            return [list(connection.execute(sa.select(table))) for table in Ledger.metadata.sorted_tables]

    before = everything()
    examine(lambda: site.app)
    assert everything() == before
    assert db.session.scalar(sa.select(Run.status)) == "queued"
