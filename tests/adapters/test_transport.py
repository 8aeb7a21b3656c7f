"""The way to a provider: whose client is used, how many are kept, and when a connection serves the next call too."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from flask_instruct.adapters import keep_alive
from flask_instruct.adapters import transport
from flask_instruct.adapters.clients import Clients
from flask_instruct.adapters.openai_chat import OpenAIChat
from flask_instruct.adapters.openai_chat import clients
from flask_instruct.adapters.sse import read_events
from flask_instruct.errors import ProviderError
from flask_instruct.events import Finish
from flask_instruct.events import TextDelta
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import WireServer
from tests.wire_format import DONE
from tests.wire_format import openai_chunk

from .hearing import KEY
from .hearing import Heard
from .hearing import asking
from .hearing import settings

BODY = openai_chunk({"content": "Hi"}) + openai_chunk({}, "stop") + DONE


class FakeClient:
    """Only counts how often it is closed; nothing here sends anything."""

    def __init__(self, made_for: Any) -> None:
        self.made_for = made_for
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def adapter(server: WireServer, **changes: Any) -> OpenAIChat:
    return OpenAIChat(settings("near", server.base_url("openai"), **changes))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, the end of a body is waited for when it comes."""
    monkeypatch.setattr(keep_alive, "LONGEST_WAIT", 10.0)


@pytest.mark.usefixtures("patient")
class TestAConnection:
    def test_serves_the_next_call_after_an_answer_was_read(self) -> None:
        with WireServer.playing(BODY) as server:
            for _ in range(3):
                assert Heard(adapter(server).stream(asking())).text == "Hi"
            assert server.connections == 1

    def test_serves_it_too_when_the_loop_stops_at_the_finish(self) -> None:
        with WireServer.playing(Reply([BODY, ": the end\n\n"])) as server:
            for _ in range(2):
                stream = adapter(server).stream(asking())
                assert any(isinstance(event, Finish) for event in stream)
                stream.close()
            assert server.connections == 1

    def test_that_the_server_keeps_open_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        with WireServer.playing(Reply(BODY + ": and on", stall_after=len(BODY))) as server:
            # The server would only go on when released, so an answer here means that nobody waited for it.
            assert Heard(adapter(server).stream(asking())).text == "Hi"
            assert wait_for(server.seen[0].hung_up.is_set)

    def test_with_much_behind_the_answer_is_given_up(self) -> None:
        with WireServer.playing(Reply(BODY + ": x\n" * 100_000)) as server:
            for _ in range(2):
                assert Heard(adapter(server).stream(asking())).text == "Hi"
            assert server.connections == 2

    def test_that_was_abandoned_serves_nobody_again(self) -> None:
        with WireServer.playing(Reply(BODY, stall_after=len(openai_chunk({"content": "Hi"}))), BODY) as server:
            stream = adapter(server).stream(asking())
            assert next(stream) == TextDelta("Hi")
            stream.close()
            assert Heard(adapter(server).stream(asking())).text == "Hi"
            assert server.connections == 2

    def test_keeps_its_patience_for_the_next_call(self) -> None:
        late = Reply([openai_chunk({"content": "Hi"}), 0.3, openai_chunk({}, "stop") + DONE])
        with WireServer.playing(BODY, late) as server:
            for _ in range(2):
                assert Heard(adapter(server).stream(asking())).text == "Hi"
            assert server.connections == 1


class TestTheAppsOwnClient:
    def own(self, server: WireServer, **changes: Any) -> openai.OpenAI:
        return openai.OpenAI(api_key="sk-own-0123456789", base_url=server.base_url("openai"), **changes)

    def test_speaks_with_its_own_key_and_address(self) -> None:
        with WireServer.playing(BODY) as server, self.own(server) as client:
            heard = Heard(OpenAIChat(settings("near", client=client, headers=(("x-team", "blue"),))).stream(asking()))
        assert heard.text == "Hi"
        assert server.seen[0].headers["authorization"] == "Bearer sk-own-0123456789"
        assert server.seen[0].headers["x-team"] == "blue"

    def test_does_not_retry_and_waits_no_longer_than_was_set(self) -> None:
        busy = Reply("{}", 500, "application/json")
        with WireServer.playing(busy, Reply(BODY, stall_after=0)) as server, self.own(server, max_retries=5) as client:
            chat = OpenAIChat(settings("near", client=client, timeout=0.2))
            for kind in ("server", "timeout"):
                with pytest.raises(ProviderError) as caught:
                    Heard(chat.stream(asking()))
                assert caught.value.kind == kind
        assert len(server.seen) == 2

    def test_may_come_from_a_function_that_is_asked_on_each_call(self) -> None:
        with WireServer.playing(BODY) as server, self.own(server) as client:
            given: list[Any] = []
            chat = OpenAIChat(settings("near", client=lambda: given.append(client) or client))
            for _ in range(2):
                Heard(chat.stream(asking()))
        assert given == [client, client]

    def test_for_azure_makes_its_own_addresses(self) -> None:
        with WireServer.playing(BODY) as server:
            azure = openai.AzureOpenAI(azure_endpoint=server.url, api_version="2024-10-21", api_key=KEY)
            with azure:
                Heard(OpenAIChat(settings("azure", client=azure)).stream(asking(model="small")))
        assert server.seen[0].path == "/openai/deployments/small/chat/completions?api-version=2024-10-21"
        assert server.seen[0].headers["api-key"] == KEY

    def test_whose_key_a_gateway_repeats_keeps_it_secret(self) -> None:
        reply = Reply('{"error": "wrong key sk-own-0123456789"}', 401, "application/json")
        with WireServer.playing(reply) as server, self.own(server) as client, pytest.raises(ProviderError) as caught:
            Heard(OpenAIChat(settings("near", client=client)).stream(asking()))
        assert "sk-own" not in caught.value.technical

    def test_is_neither_kept_nor_closed(self) -> None:
        made = Clients(FakeClient)
        given = FakeClient(None)
        assert made.get(settings("near", client=given)) is given
        made.close()
        assert given.closed == 0


class TestTheClientsThatAreKept:
    def test_are_the_latest_used(self) -> None:
        made = Clients(FakeClient, most=2)
        first, second = (made.get(settings(name)) for name in ("a", "b"))
        assert made.get(settings("a")) is first
        made.get(settings("c"))
        assert made.get(settings("a")) is first
        assert made.get(settings("b")) is not second

    def test_end_with_the_last_stream_that_holds_them(self) -> None:
        made = Clients(FakeClient, most=1)
        held = made.get(settings("a"))
        gone = weakref.ref(held)
        made.get(settings("b"))
        gc.collect()
        assert gone() is held
        assert held.closed == 0
        del held
        gc.collect()
        assert gone() is None

    def test_do_not_end_under_a_running_stream(self) -> None:
        slow = Reply(BODY, stall_after=len(openai_chunk({"content": "Hi"})))
        with WireServer.playing(slow) as server:
            stream = adapter(server).stream(asking())
            assert next(stream) == TextDelta("Hi")
            for number in range(70):
                clients.get(settings(f"tenant-{number}", server.base_url("openai")))
            gc.collect()
            server.release()
            assert isinstance(list(stream)[-1], Finish)

    def test_are_made_once_for_all_threads(self) -> None:
        made = Clients(FakeClient)
        barrier = threading.Barrier(8)
        got: list[Any] = []

        def get() -> None:
            barrier.wait()
            got.append(made.get(settings("a")))

        in_threads(get, 8)
        assert len(set(map(id, got))) == 1

    def test_of_a_parent_are_left_alone_by_a_forked_child(self) -> None:
        made = Clients(FakeClient)
        before = made.get(settings("a"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            own = made.get(settings("a"))
            made.close()
            os.write(writing, b"1" if own is not before and not before.closed and own.closed == 1 else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 1) == b"1"
        assert made.get(settings("a")) is before

    def test_are_taken_from_those_made_ahead_once_and_by_one_process(self) -> None:
        made: list[FakeClient] = []

        def make(given: Any) -> FakeClient:
            made.append(FakeClient(given))
            return made[-1]

        kept = Clients(make)
        kept.prepare(settings("a"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"1" if kept.get(settings("a")) is made[0] else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 1) == b"1"
        assert kept.get(settings("a")) is kept.get(settings("a")) is made[0]
        child = os.fork()
        if child == 0:
            os.write(writing, b"1" if kept.get(settings("a")) is made[1] else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 1) == b"1", "the child shares a connection with its parent"


def in_threads(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_line_without_end_is_an_error_and_costs_little() -> None:
    def endless() -> Iterator[bytes]:
        yield b"data: "
        while True:
            yield b"x" * 65536

    with pytest.raises(ProviderError, match="longer than") as caught:
        list(read_events(endless()))
    assert caught.value.kind == "malformed"


def test_an_answer_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 100)
    with pytest.raises(ProviderError, match="larger than"):
        list(transport.bounded(iter([b": PROCESSING\n\n"] * 100), 60.0))


def test_a_lively_line_does_not_keep_a_call_alive_for_ever() -> None:
    with pytest.raises(ProviderError, match="INSTRUCT_MODEL_CALL_TIMEOUT") as caught:
        list(transport.bounded(iter([b": PROCESSING\n\n"] * 2), -1.0))
    assert caught.value.kind == "timeout"


def test_two_threads_that_leave_one_connection_leave_it_as_it_was() -> None:
    """The first to leave must not take away what the second has put in front, nor what the class has."""

    class Stream:
        def read(self, most: int, timeout: float | None = None) -> bytes:
            return b"x"

    stream = Stream()
    first, second = keep_alive._waiting_until(stream, 0.0), keep_alive._waiting_until(stream, 0.0)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert "read" in vars(stream)
    second.__exit__(None, None, None)
    assert "read" not in vars(stream)
    assert stream.read(1) == b"x"
