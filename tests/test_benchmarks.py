"""The benchmark runs, compares like with like, and fails where an aim is missed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import __main__ as command
from benchmarks import chromium
from benchmarks import hosts
from benchmarks import jobs
from benchmarks import live
from benchmarks import memory
from benchmarks import wire
from benchmarks import workers
from benchmarks.bodies import FORMATS
from benchmarks.bodies import turn_of
from benchmarks.contenders import Contender
from benchmarks.contenders import Hear
from benchmarks.contenders import LookUp
from benchmarks.contenders import Place
from benchmarks.crowd import Crowd
from benchmarks.peers import LIBRARIES
from benchmarks.timing import Entry
from benchmarks.timing import WrongAnswer
from benchmarks.timing import timed
from benchmarks.wire import QUICK
from benchmarks.wire import Line
from benchmarks.wire import Table
from benchmarks.wire import courses
from benchmarks.workload import FIELD
from benchmarks.workload import TOOL
from benchmarks.workload import Task
from benchmarks.workload import heard_of
from benchmarks.workload import look_up
from flask_instruct.live.frames import TEXT
from flask_instruct.live.frames import close_frame
from flask_instruct.live.frames import websocket_frame

ROOT = Path(__file__).parent.parent


def test_a_quick_run_prints_every_table_with_the_floor_and_whoever_is_installed() -> None:
    command = [sys.executable, "-m", "benchmarks", "wire", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    for course in courses(QUICK):
        for title in course.titles.values():
            table = run.stdout.partition(f"{title}\n")[2].partition("\n\n")[0]
            assert re.search(rf"{re.escape(course.ours.name)} +[\d.]+ (µs|ms)", table)
            assert re.search(rf"{re.escape(course.floor.name)} +[\d.]+ (µs|ms) +ours is +[\d.]+ of it", table)
    for library in LIBRARIES:
        said = f"Left out: {library.distribution} is not installed: pip install -e '.[bench]'"
        assert (said in run.stdout) is (find_spec(library.package) is None)


def test_a_quick_run_of_jobs_starts_every_worker_and_measures_ledger_and_memory() -> None:
    command = [sys.executable, "-m", "benchmarks", "jobs", "--quick", "--repeats", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(rf"{workers.Ours.name} +[\d.]+ ms\n", run.stdout)
    for kind in workers.OTHERS:
        row = re.search(rf"{re.escape(kind.name)} +[\d.]+ ms +ours is +[\d.]+ of it", run.stdout)
        assert (row is not None) is workers.is_installed(kind)
        assert (f"Left out: {kind.name} is not installed" in run.stdout) is not workers.is_installed(kind)
    assert re.search(r"the ledger +-?[\d.]+ ms +aim 5 ms: ", run.stdout)
    assert bool(re.search(r"runs per GiB +\d+ by PSS, \d+ by RSS", run.stdout)) is memory.is_known()


def test_a_quick_run_of_changes_tells_the_flush_and_the_transaction() -> None:
    command = [sys.executable, "-m", "benchmarks", "changes", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"flush +[\d.]+ ms +with the record +[\d.]+ of it +aim 1.1: ", run.stdout)
    assert re.search(r"transaction, ledger rows too +[\d.]+ ms +with the record +[\d.]+ of it\n", run.stdout)


def test_a_quick_run_of_live_opens_sockets_at_every_server_and_pages_in_chromium() -> None:
    command = [sys.executable, "-m", "benchmarks", "live", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    if sys.platform != "linux":
        assert "Left out: everything" in run.stdout
        return
    for words in ("one stream", "each its own"):
        assert len(re.findall(rf"pages, {words} +-?[\d.]+ KiB PSS +-?[\d.]+ KiB RSS +\d+ threads", run.stdout)) == 2
    for kind in hosts.OTHERS:
        row = re.search(rf"{re.escape(kind.name)} +[\d.]+ µs CPU .* ours is [\d.]+ of it", run.stdout)
        assert (row is not None) is hosts.is_installed(kind)
        said = f"Left out: {kind.name} is not installed: pip install {kind.pip}"
        assert (said in run.stdout) is not hosts.is_installed(kind)
    if chromium.missing() is None:
        assert re.search(r"broadcast_append_to, instruct\.js +[\d.]+ ms", run.stdout)
        assert re.search(r"text, each piece once +400 +[\d.]+ kB +400 characters put into the page", run.stdout)
        assert re.search(
            r"replace, the whole each time +400 +[\d.]+ kB +1,000 characters put into the page", run.stdout
        )


@pytest.mark.parametrize(("share", "words", "missed"), [(1, "met", 0), (1.2, "just missed", 0), (1.3, "missed", 1)])
def test_an_aim_of_jobs_counts_as_missed_beyond_a_fifth(share: float, words: str, missed: int) -> None:
    line = jobs.Line("the  ledger  6 ms", "aim 5 ms", share)
    table = jobs.Table("A turn", (line, jobs.Line("without an aim")))
    assert str(line).endswith(f"aim 5 ms: {words}")
    assert table.missed == ("A turn: the ledger 6 ms, aim 5 ms",) * missed


@pytest.mark.skipif(not memory.is_known(), reason="memory is counted by the Linux kernel")
def test_a_shared_page_counts_whole_in_one_figure_and_divided_in_the_other() -> None:
    own = memory.Memory.of(os.getpid())
    assert own.rss >= own.pss > 0
    assert own + own == memory.Memory(own.rss * 2, own.pss * 2)


@pytest.mark.parametrize(
    ("ratio", "words", "missed"), [(1.3, "met", False), (1.5, "just missed", False), (1.6, "missed", True)]
)
def test_an_aim_counts_as_missed_beyond_a_fifth(ratio: float, words: str, missed: bool) -> None:
    line = Line("the floor", 1e-6, ratio, aim=1.3)
    table = Table("A delta", "µs", ratio * 1e-6, (line, Line("a peer without aim", 1e-6, 9.0)))
    assert line.verdict == f"aim 1.3: {words}"
    assert table.missed == ((f"A delta: {ratio:.2f} of the floor, the aim is 1.3",) if missed else ())


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--check"], 1)])
@pytest.mark.parametrize("benchmark", [wire, jobs, live])
def test_a_missed_aim_is_the_exit_status_of_a_check(
    benchmark: ModuleType,
    options: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(benchmark, "report", lambda sizes, say: ("A delta: 2.00 of the floor, the aim is 1.3",))
    assert command.main([benchmark.__name__.rpartition(".")[2], *options]) == status
    assert ("Missed: A delta: 2.00 of the floor" in capsys.readouterr().err) is bool(status)


def test_a_check_that_misses_nothing_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "report", lambda sizes, say: ())
    assert command.main(["wire", "--check"]) == 0


class Careless(Contender):
    """Tells what it is told to, and calls the tool as often as it is told to."""

    name = "careless"
    lost_pieces = 0
    lost_calls = 0

    def __init__(self, place: Place, look_up: LookUp) -> None:
        self._look_up = look_up

    def talk(self, task: Task, hear: Hear, hear_arguments: Hear) -> None:
        for turn in range(task.rounds - self.lost_calls):
            self._look_up(turn, FIELD)
        heard = heard_of(task)
        for piece in heard[: len(heard) - self.lost_pieces]:
            hear(piece)


def test_a_turn_is_measured_from_one_call_of_the_tool_to_the_next() -> None:
    with Entry.opened(Careless, Place("")) as careful:
        figures = timed(careful, Task("turns", 10), (2, 4))
    assert set(figures) == {"2", "4"}
    assert all(figure >= 0 for figure in figures.values())


@pytest.mark.parametrize("lost", [{"lost_pieces": 1}, {"lost_calls": 1}])
def test_who_skips_work_is_not_measured(lost: dict[str, int]) -> None:
    kind = type("Hasty", (Careless,), lost)
    with Entry.opened(kind, Place("")) as hasty, pytest.raises(WrongAnswer):
        timed(hasty, Task("turns", 10), (2, 4))


@pytest.mark.parametrize(
    ("results", "tools", "fault"),
    [
        ([look_up(0, FIELD), "shorter"], [{"name": TOOL}], "results of 2 turns"),
        ([look_up(1, FIELD)], [{"name": TOOL}], "results of 1 turns"),
        ([look_up(0, FIELD)], [], "not declared"),
    ],
)
def test_the_server_refuses_a_request_that_skips_work(results: list[str], tools: list[object], fault: str) -> None:
    messages = [{"role": "tool", "content": result} for result in results]
    with pytest.raises(ValueError, match=fault):
        turn_of(FORMATS["/chat/completions"], Task("turns", 10), {"messages": messages, "tools": tools})


def test_the_server_tells_the_turn_behind_the_results_of_a_request() -> None:
    messages = [{"role": "tool", "content": look_up(turn, FIELD)} for turn in range(3)]
    request = {"messages": messages, "tools": [{"name": TOOL}]}
    assert turn_of(FORMATS["/chat/completions"], Task("turns", 10), request) == 3


def test_a_model_that_names_no_task_is_refused() -> None:
    with pytest.raises(ValueError, match="No task"):
        Task.of_model("gpt-5")


@contextmanager
def server(*frames: bytes) -> Iterator[tuple[int, Callable[[], None]]]:
    """Serve one socket a frame; gives the port, and what sends each socket its frame."""
    clients: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            for _ in frames:
                clients.append(listener.accept()[0])
                clients[-1].recv(65536)
                clients[-1].sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")

        def send() -> None:
            for client, frame in zip(clients, frames, strict=True):
                client.sendall(frame)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1], send
        thread.join()
        for client in clients:
            client.close()


def told(text: str) -> bytes:
    return websocket_frame(TEXT, text.encode())


@pytest.mark.skipif(sys.platform != "linux", reason="the clients wait as Linux lets them")
@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ((told("a" * 300), told("a" * 300)), ""),
        ((told("a" * 300), told("a" * 299 + "b")), "other bytes came"),
        ((told("b"), told("b")), "other bytes came"),
        ((told("a" * 300), told("a" * 300) * 2), "nobody has published"),
        ((told("a" * 300), close_frame(1011, "")), "a frame of kind 8"),
    ],
)
def test_a_crowd_checks_that_each_of_its_sockets_gets_what_was_published_and_nothing_else(
    frames: tuple[bytes, ...], fault: str
) -> None:
    with server(*frames) as (port, send), Crowd.gathered("a server") as crowd:
        crowd.open(port, "plain", [""] * len(frames))
        crowd.expect("a" * 300)
        with pytest.raises(RuntimeError, match=fault) if fault else nullcontext():
            send()
            crowd.heard()
            crowd.expect("nothing more")


def test_fewer_sockets_are_opened_where_fewer_files_may_be_open() -> None:
    wished = live.Sizes()
    assert wished.within(20_000) == wished
    fewer = wished.within(4_500)
    assert (fewer.pages, fewer.beside, fewer.floor) == ((1_000, 4_000), 1_000, 4_000)
    assert wished.within(1_500).beside == 500
