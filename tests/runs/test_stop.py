"""Stopping a run (guarantee G8): from any process, at any point, within a second, and nothing runs afterwards."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.errors import RunEnded
from flask_instruct.runs.columns import now
from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from tests.support import Process
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import Seen
from tests.wire import WireServer
from tests.wire_format import DONE
from tests.wire_format import openai_chunk

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

Ask = Callable[..., Run]
BOUND = 10.0
"""Seconds, far below what each of these runs would take by itself, and enough for a machine that is busy."""


def work_on(server: WireServer, worker: Callable[..., Process]) -> Run:
    """Start a run on this server's model, and a worker that takes it up."""
    providers = {"near": {"protocol": "openai_chat", "base_url": server.base_url("openai_chat")}}
    worker(INSTRUCT_PROVIDERS=json.dumps(providers))
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="near:m")
    db.session.refresh(run)
    db.session.expunge(run)
    return run


def test_g8_a_wait_for_the_first_byte_is_broken_off(worker: Callable[..., Process], app: Flask) -> None:
    released = threading.Event()

    def think(seen: Seen) -> Reply:
        released.wait()
        return Reply()

    with WireServer(think) as server:
        try:
            run = work_on(server, worker)
            wait_for(lambda: server.seen, message="the model to be asked")
            assert reread(run).cancel()
            assert wait_for_end(run, BOUND).status == "cancelled"
        finally:
            released.set()


def test_g8_a_wait_between_two_words_is_broken_off_and_its_stream_closed(
    worker: Callable[..., Process], app: Flask
) -> None:
    beginning = openai_chunk({"role": "assistant", "content": "Once upon a "})
    body = beginning + openai_chunk({"content": "time."}) + DONE
    with WireServer(lambda seen: Reply(body, stall_after=len(beginning.encode()))) as server:
        run = work_on(server, worker)
        wait_for(
            lambda: [message.text for message in reread(run).messages] == ["Once upon a "], message="the beginning"
        )
        assert reread(run).cancel()
        assert wait_for_end(run, BOUND).status == "cancelled"
        assert server.seen[0].hung_up.wait(BOUND)
    assert [(message.text, message.state) for message in reread(run).messages] == [("Once upon a ", "cut")]
    (call,) = db.session.scalars(sa.select(ModelCall))
    assert call.error_class == "cancelled"


def test_g8_between_chunks_and_the_text_is_kept(ask: Ask, worker: Callable[..., Process]) -> None:
    run = ask("endless_text")
    worker()
    wait_for(lambda: any(message.text for message in reread(run).messages), message="some text")
    reread(run).cancel()
    ended = wait_for_end(run, BOUND)
    assert (ended.status, ended.error_class) == ("cancelled", None)
    assert ended.messages[-1].text.startswith("word word")
    assert ended.messages[-1].state == "cut"


def test_g8_a_queued_run_never_starts(ask: Ask, app: Flask) -> None:
    run = ask(turns=[[Use("write", text="never")], []])
    assert reread(run).cancel()
    assert reread(run).status == "cancelled"
    generate(run.id)
    assert (reread(run).status, notes()) == ("cancelled", [])


def test_g8_after_a_tool_and_before_the_next(ask: Ask, worker: Callable[..., Process], tmp_path: Path) -> None:
    """The tool that runs comes to its end and is committed; the next one is answered and does not run."""
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    arguments = {"begun": str(begun), "go_on": str(go_on), "text": "first"}
    run = ask("hold_and_write")
    worker(INSTRUCT_TEST_HOLD=json.dumps(arguments))
    wait_for(begun.exists, message="the tool to begin")
    # On SQLite the tool has the one write lock, so the stop waits for it.
    threading.Timer(1.0, go_on.touch).start()
    assert reread(run).cancel()
    ended = wait_for_end(run, BOUND)
    assert (ended.status, notes()) == ("cancelled", ["first"])
    assert [call.status for call in ended.calls] == ["done", "failed"]
    assert "interrupted" in (ended.calls[1].result or "")
    # The history is valid: every call has its one result.
    _, turn, results = transcript(ended)
    assert [result.call_id for result in results.results] == [call.id for call in turn.calls]


def test_g8_during_the_wait_before_a_retry(ask: Ask, worker: Callable[..., Process]) -> None:
    run = ask("always_overloaded")
    worker(INSTRUCT_RETRIES="5")
    wait_for(lambda: reread(run).status == "retrying", message="the first failure")
    reread(run).cancel()
    ended = wait_for_end(run, BOUND)
    assert (ended.status, ended.retry_at) == ("cancelled", None)


def test_g8_a_run_whose_worker_died_ends_when_it_is_taken_up(ask: Ask, worker: Callable[..., Process]) -> None:
    run = ask("slow")
    process = worker()
    wait_for(lambda: reread(run).messages, message="the run to begin")
    os.killpg(process.pid, signal.SIGKILL)
    reread(run).cancel()
    assert reread(run).status in ("cancelling", "cancelled")
    worker()
    assert wait_for_end(run).status == "cancelled"


def test_a_run_whose_lease_ran_out_ends_at_once_and_its_worker_commits_nothing_more(ask: Ask, app: Flask) -> None:
    run = ask("slow")
    db.session.execute(
        sa.update(Run).where(Run.id == run.id).values(status="running", attempt=1, lease_until=now() - timedelta(1))
    )
    db.session.commit()
    assert reread(run).cancel()
    assert reread(run).status == "cancelled"


def test_a_run_that_has_ended_is_not_stopped(ask: Ask, app: Flask) -> None:
    run = ask("talk")
    generate(run.id)
    assert not reread(run).cancel()
    assert reread(run).status == "succeeded"


def test_after_a_stop_the_next_request_works(ask: Ask, app: Flask) -> None:
    reread(ask("slow")).cancel()
    run = ask(turns=[[Use("write", text="next")], [Say("Done.")]])
    generate(run.id)
    assert (reread(run).status, notes()) == ("succeeded", ["next", "finished: stop"])


def test_a_stopped_run_can_not_be_retried_by_mistake(ask: Ask, app: Flask) -> None:
    run = ask("slow")
    reread(run).cancel()
    with pytest.raises(RunEnded):
        instruct.retry(reread(run))
