"""The embedded server is one for all processes of an app, and ends with the last of them, however that ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from flask import Flask

from flask_instruct import embedded
from flask_instruct.embedded import embedded_url
from flask_instruct.embedded import leave
from flask_instruct.errors import ConfigurationError

from .support import Process
from .support import alive
from .support import holds
from .support import wait_for

USER = """
import sys, time
from flask import Flask
from flask_instruct.embedded import embedded_url

app = Flask("user", instance_path=sys.argv[1])
app.testing = True
print("URL", embedded_url(app), flush=True)
time.sleep(600)
"""

RELOADING_APP = """
from flask import Flask
from flask_instruct.embedded import embedded_url

app = Flask(__name__)
VERSION = "one"


@app.get("/")
def index():
    return VERSION + " " + embedded_url(app)
"""

Start = Callable[..., Process]


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    return tmp_path / "instance"


@pytest.fixture
def app(instance: Path) -> Iterator[Flask]:
    app = Flask("embedded", instance_path=str(instance))
    app.testing = True
    yield app
    leave(app)


@pytest.fixture
def start_user(start: Start, instance: Path) -> Callable[[], Process]:
    """Start a process that uses the server of the instance folder until it is killed."""
    return lambda: start([sys.executable, "-c", USER, str(instance)])


def test_a_configured_url_is_taken_as_it_is(app: Flask) -> None:
    app.config["INSTRUCT_REDIS_URL"] = "redis://elsewhere:6379/3"
    assert embedded_url(app) == "redis://elsewhere:6379/3"
    assert not Path(app.instance_path).exists()


def test_in_production_the_error_says_which_lines_to_add(app: Flask) -> None:
    app.testing = False
    with pytest.raises(ConfigurationError) as caught:
        embedded_url(app)
    assert 'INSTRUCT_REDIS_URL = "redis://localhost:6379/0"' in str(caught.value)
    assert "export INSTRUCT_REDIS_URL=redis://localhost:6379/0" in str(caught.value)


def test_the_dev_command_may_ask_for_it_outside_debug_mode(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    app.testing = False
    monkeypatch.setenv("INSTRUCT_EMBEDDED", "1")
    assert server_pid(embedded_url(app)) > 0


def test_the_server_answers_on_a_private_socket_only(app: Flask) -> None:
    url = embedded_url(app)
    with redis.Redis.from_url(url) as client:
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("maxmemory")["maxmemory"] == str(256 * 1024 * 1024)
    address = socket_of(url)
    assert address.stat().st_mode & 0o777 == 0o700
    assert address.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_call_finds_the_same_server(app: Flask) -> None:
    assert server_pid(embedded_url(app)) == server_pid(embedded_url(app))


def test_what_was_stored_is_there_after_a_restart(app: Flask) -> None:
    url = embedded_url(app)
    with redis.Redis.from_url(url) as client:
        client.set("job", "kept")
    first = server_pid(url)
    leave(app)
    assert not alive(first)
    assert embedded_url(app) == url
    assert server_pid(url) != first
    with redis.Redis.from_url(url) as client:
        assert client.get("job") == b"kept"


def test_processes_that_start_at_once_share_one_server(start_user: Callable[[], Process]) -> None:
    urls = {url_of(user) for user in [start_user() for _ in range(4)]}
    assert len(urls) == 1
    with redis.Redis.from_url(urls.pop()) as client:
        assert client.info("server")["process_id"] > 0


def test_the_killed_starter_takes_nothing_from_the_others(start_user: Callable[[], Process]) -> None:
    starter, other = start_user(), start_user()
    url = url_of(starter)
    assert url_of(other) == url
    pid = server_pid(url)
    starter.signal(signal.SIGKILL)
    starter.wait()
    assert holds(lambda: alive(pid), seconds=3)
    other.signal(signal.SIGKILL)
    wait_for(lambda: not alive(pid), message="the server outlived its last user")
    wait_for(lambda: not socket_of(url).parent.exists(), message="its temporary folder stayed")


def test_no_process_is_left_after_all_users_were_killed(start_user: Callable[[], Process], instance: Path) -> None:
    users = [start_user(), start_user()]
    pids = [server_pid(url_of(users[0])), supervisor_pid(instance)]
    for user in users:
        url_of(user)
        user.signal(signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in pids), message="something was left")


def test_a_forked_child_counts_as_a_user(app: Flask) -> None:
    pid = server_pid(embedded_url(app))
    wake, sleep = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(sleep)
        os.read(wake, 1)
        os._exit(0)
    leave(app)
    assert alive(pid)
    os.close(sleep)
    os.waitpid(child, 0)
    os.close(wake)
    wait_for(lambda: not alive(pid))


def test_a_reload_of_the_web_process_keeps_the_server(start: Start, tmp_path: Path, free_port: int) -> None:
    source = tmp_path / "reloading.py"
    source.write_text(RELOADING_APP)
    web = start(
        [sys.executable, "-m", "flask", "--app", "reloading", "--debug", "run", "--port", str(free_port)], cwd=tmp_path
    )
    web.wait_for_output("Debugger PIN")
    version, url = get(free_port).split()
    assert version == "one"
    with redis.Redis.from_url(url) as client:
        client.set("job", "kept")
    source.write_text(RELOADING_APP.replace("one", "two"))
    wait_for(lambda: get(free_port).startswith("two"), timeout=20, message="the web process did not reload")
    with redis.Redis.from_url(url) as client:
        assert client.get("job") == b"kept"
        pid = client.info("server")["process_id"]
    os.killpg(web.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), message="the server outlived the web process")


def test_a_server_that_died_is_started_again(app: Flask) -> None:
    url = embedded_url(app)
    first = server_pid(url)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: (pid := server_pid(url)) and pid != first)


def test_a_killed_supervisor_is_replaced_at_the_same_address(app: Flask, instance: Path) -> None:
    url = embedded_url(app)
    pid = server_pid(url)
    os.kill(supervisor_pid(instance), signal.SIGKILL)
    wait_for(lambda: not alive(pid), message="the server outlived its supervisor")
    assert embedded_url(app) == url
    assert server_pid(url) != pid


def test_a_server_that_cannot_start_is_reported_with_its_own_words(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_binary", lambda: "/bin/false")
    with pytest.raises(ConfigurationError, match="/bin/false did not start"):
        embedded_url(app)


def test_without_a_server_to_start_the_error_says_what_to_install(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match=r"pip install 'flask-instruct\[embedded\]'"):
        embedded_url(app)


def test_an_instance_folder_that_cannot_be_made_is_named(app: Flask, instance: Path) -> None:
    instance.write_text("a file where the folder would be")
    with pytest.raises(ConfigurationError, match="instance folder writable"):
        embedded_url(app)


def test_a_temporary_folder_open_to_others_is_refused(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        folder = Path(short) / f"flask-instruct-{os.getuid()}"
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(ConfigurationError, match="this user's alone"):
            embedded_url(app)


def test_a_long_temporary_folder_is_not_used_for_the_socket(
    app: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 25)))
    assert socket_of(embedded_url(app)).is_relative_to("/tmp")


def socket_of(url: str) -> Path:
    return Path(url.removeprefix("unix://").partition("?")[0])


def server_pid(url: str) -> int:
    """Return the process id of the server, or 0 while it does not answer."""
    try:
        with redis.Redis.from_url(url, retry=None) as client:
            return int(client.info("server")["process_id"])
    except redis.ConnectionError:
        return 0


def supervisor_pid(instance: Path) -> int:
    return int((instance / "instruct-redis" / "pid").read_text())


def url_of(user: Process) -> str:
    output = user.wait_for_output("?db=0")
    return next(line.split()[1] for line in output.splitlines() if line.startswith("URL"))


def get(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
