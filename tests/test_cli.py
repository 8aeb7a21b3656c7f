"""``flask instruct worker`` and ``flask instruct dev``, as real commands."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from .support import Process
from .support import alive
from .support import holds
from .support import processes
from .support import wait_for

APP = """
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_instruct import Instruct

db = SQLAlchemy()
instruct = Instruct(db=db)


def create_app():
    app = Flask(__name__)
    app.config.update(SECRET_KEY="only for tests", SQLALCHEMY_DATABASE_URI="sqlite:///small.sqlite3")
    db.init_app(app)
    instruct.init_app(app)
    with app.app_context():
        db.create_all()

    @app.get("/")
    def index():
        return "version one"

    return app
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "small.py").write_text(APP)
    return tmp_path / "app"


@pytest.fixture
def flask(start: Callable[..., Process], folder: Path) -> Callable[..., Process]:
    """Run a ``flask`` command on the small app."""

    def flask(*arguments: str, **env: str) -> Process:
        return start([sys.executable, "-m", "flask", "--app", "small", *arguments], cwd=folder, env=env)

    return flask


@pytest.fixture
def dev(flask: Callable[..., Process], free_port: int) -> Process:
    """``flask instruct dev``, ready."""
    dev = flask("instruct", "dev", "--port", str(free_port))
    dev.wait_for_output("Ready:", timeout=60)
    return dev


def test_without_redis_in_production_the_worker_says_what_to_set(flask: Callable[..., Process]) -> None:
    worker = flask("instruct", "worker")
    assert worker.wait() == 1
    assert worker.output.startswith("Error: INSTRUCT_REDIS_URL is not set")
    assert "Traceback" not in worker.output


def test_the_worker_ends_when_told_to(flask: Callable[..., Process], redis_url: str) -> None:
    worker = flask("instruct", "worker", "--concurrency", "2", INSTRUCT_REDIS_URL=redis_url)
    wait_for(lambda: len(descendants(worker.pid)) >= 2, timeout=30)
    children = descendants(worker.pid)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not [pid for pid in children if alive(pid)]


def test_the_worker_ends_when_told_to_in_the_middle_of_its_start(flask: Callable[..., Process], redis_url: str) -> None:
    worker = flask("instruct", "worker", "--concurrency", "4", INSTRUCT_REDIS_URL=redis_url)
    wait_for(lambda: descendants(worker.pid), timeout=30)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_dev_is_ready_once_the_page_answers(dev: Process, free_port: int) -> None:
    assert f"\nReady: http://127.0.0.1:{free_port}\n" in dev.output
    assert get(free_port) == (200, "version one")
    # Lines of the web server stand behind its name.
    dev.wait_for_output("web    | 127.0.0.1 - - ")
    dev.wait_for_output("worker | Working on runs of small, 1 at a time.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_everything_within_seconds(dev: Process, folder: Path, number: int) -> None:
    everything = [dev.pid, *descendants(dev.pid), *server_pids(folder)]
    assert len(everything) >= 5
    dev.signal(number)
    assert dev.wait(timeout=10) == 0
    assert not [pid for pid in everything if alive(pid)]


def test_a_killed_dev_leaves_no_process(dev: Process, folder: Path) -> None:
    everything = [dev.pid, *descendants(dev.pid), *server_pids(folder)]
    dev.signal(signal.SIGKILL)
    wait_for(lambda: not [pid for pid in everything if alive(pid)], message="something was left")


def test_a_worker_that_dies_is_started_again_with_a_message(dev: Process) -> None:
    (worker,) = children_that_run(dev.pid, "worker")
    subprocess.run(["kill", "-9", str(worker)], check=True)
    dev.wait_for_output("The worker ended (status -9); it is started again in 1 s.")
    wait_for(lambda: [pid for pid in children_that_run(dev.pid, "worker") if pid != worker])


def test_dev_with_debug_starts_again_when_a_file_changes(
    flask: Callable[..., Process], folder: Path, free_port: int
) -> None:
    dev = flask("--debug", "instruct", "dev", "--port", str(free_port))
    dev.wait_for_output("Ready:", timeout=60)
    (worker,) = children_that_run(dev.pid, "worker")
    (folder / "small.py").write_text(APP.replace("version one", "version two"))
    dev.wait_for_output("small.py changed: starting again")
    wait_for(lambda: get(free_port) == (200, "version two"), timeout=20)
    wait_for(lambda: not alive(worker), message="the old worker stayed")
    dev.signal(signal.SIGINT)
    assert dev.wait() == 0


def test_dev_names_a_port_that_is_in_use(flask: Callable[..., Process], free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        dev = flask("instruct", "dev", "--port", str(free_port))
        assert dev.wait() == 1
    assert f"Error: Port {free_port} of 127.0.0.1 cannot be used" in dev.output
    assert "--port" in dev.output


def test_dev_is_not_ready_while_the_page_fails(flask: Callable[..., Process], folder: Path, free_port: int) -> None:
    (folder / "small.py").write_text(APP.replace('return "version one"', "raise LookupError"))
    dev = flask("instruct", "dev", "--port", str(free_port))
    dev.wait_for_output(f"http://127.0.0.1:{free_port} answers with status 500", timeout=60)
    assert holds(lambda: "Ready" not in dev.output, seconds=2)
    # Asked again and again, it would push the first lines out of sight.
    assert dev.output.count("| LookupError") == 1


def test_the_worker_names_tables_that_are_missing(flask: Callable[..., Process], folder: Path, redis_url: str) -> None:
    (folder / "small.py").write_text(APP.replace("db.create_all()", "pass"))
    worker = flask("instruct", "worker", INSTRUCT_REDIS_URL=redis_url)
    worker.wait_for_output("The database has no instruct_approval, instruct_change", timeout=30)
    worker.wait_for_output("call db.create_all() after instruct.init_app(app), or make and apply a migration.")
    assert alive(worker.pid)


def get(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except OSError as error:
        return 0, str(error)


def descendants(pid: int) -> list[int]:
    found = [pid]
    listed = processes()
    while more := [child for child, (parent, _) in listed.items() if parent in found and child not in found]:
        found += more
    return found[1:]


def children_that_run(pid: int, word: str) -> list[int]:
    return [child for child, (parent, command) in processes().items() if parent == pid and f" {word}" in command]


def server_pids(folder: Path) -> list[int]:
    supervisor = int((folder / "instance" / "instruct-redis" / "pid").read_text())
    return [supervisor, *descendants(supervisor)]
