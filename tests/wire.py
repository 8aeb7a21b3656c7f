"""A real HTTP server that speaks the streaming formats of OpenAI, Anthropic and Gemini, as told.

It plays given bodies in pieces of any size, stalls, cuts and answers errors, and records what it was asked. Given a
script of the scripted adapter it serves whole conversations without any state: which turn comes next follows from
the request. Also a process: ``python -m tests.wire --port N --protocol PROTOCOL --story module:NAME``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from http.server import BaseHTTPRequestHandler
from http.server import HTTPServer
from importlib import import_module
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import find_script

from .wire_format import FORMATS
from .wire_format import protocol_of
from .wire_format import told
from .wire_parts import Frame


@dataclass(frozen=True)
class Reply:
    """What to answer with.

    :param body: the body, or its parts with pauses in seconds between them.
    :param piece: bytes sent at once; 0 sends each part whole.
    :param stall_after: bytes after which nothing more is sent until :meth:`WireServer.release`.
    :param cut_after: bytes after which the connection is closed in mid-body; 0 closes it without any answer.
    """

    body: str | bytes | Sequence[Frame] = b""
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    piece: int = 0
    stall_after: int | None = None
    cut_after: int | None = None


@dataclass(frozen=True)
class Seen:
    """A request as it came, and whether its client has hung up before the answer's end."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    hung_up: threading.Event = field(default_factory=threading.Event, compare=False)


Answer = Callable[[Seen], Reply]


class WireServer:
    """Serve answers on the loopback interface, from ``with`` on until its end."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.seen: list[Seen] = []
        self._answer = answer
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", port), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @classmethod
    def playing(cls, *replies: Reply | str, piece: int = 0) -> WireServer:
        """Answer the first request with the first reply, and so on; the last one is repeated."""
        made = [Reply(reply, piece=piece) if isinstance(reply, str) else reply for reply in replies]
        taken = iter(made)
        return cls(lambda seen: next(taken, made[-1]))

    @classmethod
    def telling(cls, story: Script, *, piece: int = 0, port: int = 0) -> WireServer:
        """Answer each request with the turn of the story that comes next in it, in the protocol it was asked in."""
        return cls(lambda seen: told_reply(story, seen, piece), port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def base_url(self, protocol: str) -> str:
        """The address to give to an SDK: OpenAI's has the version in it, the others add it."""
        return f"{self.url}/v1" if protocol.startswith("openai") else self.url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The request bodies so far."""
        return [seen.body for seen in self.seen]

    @property
    def connections(self) -> int:
        """How many connections were opened so far."""
        return self._server.accepted

    def release(self) -> None:
        """Let stalled answers go on."""
        self._released.set()

    def __enter__(self) -> WireServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def answer(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        return self._answer(seen)

    def wait_released(self, connection: socket.socket) -> bool:
        """Wait until released; false when the client hung up first."""
        while not self._released.wait(0.01):
            if _has_left(connection):
                return False
        return True

    def pause(self, seconds: float, connection: socket.socket) -> bool:
        """Stay silent until then, or until this server ends; false when the client hung up first."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._server.closing.wait(min(left, 0.05)):
            if _has_left(connection):
                return False
        return True


def _has_left(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and not connection.recv(1, socket.MSG_PEEK)


def told_reply(story: Script, seen: Seen, piece: int = 0) -> Reply:
    """Return the turn of a story that comes next in a request."""
    frames, status = told(story, seen.path, seen.body)
    if status == 0:
        return Reply(cut_after=0)
    if status != 200:
        return Reply(frames, status=status, content_type="application/json")
    return Reply(frames, piece=piece)


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.closing = threading.Event()
        self.accepted = 0
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End kept connections, so that their threads end."""
        self.closing.set()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error of the test."""


def _handler_of(wire: WireServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *arguments: Any) -> None:
            """Stay silent."""

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.path, headers, json.loads(self.rfile.read(length) or b"{}"))
            try:
                reply = wire.answer(seen)
            except Exception as error:
                # A story that fails must be seen to fail, and not look like a line that was cut.
                text = json.dumps({"error": {"message": f"the story failed: {error!r}"}})
                reply = Reply(text, status=500, content_type="application/json")
            if reply.cut_after == 0:
                self.close_connection = True
                return
            try:
                self._send(reply)
            except OSError:
                seen.hung_up.set()
                self.close_connection = True

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("content-type", reply.content_type)
            self.send_header("transfer-encoding", "chunked")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            sent = 0
            for piece in _pieces(reply):
                if isinstance(piece, float):
                    if not wire.pause(piece, self.connection):
                        raise ConnectionResetError
                    continue
                if (
                    reply.stall_after is not None
                    and sent >= reply.stall_after
                    and not wire.wait_released(self.connection)
                ):
                    raise ConnectionResetError
                if reply.cut_after is not None and sent + len(piece) > reply.cut_after:
                    self._write(piece[: reply.cut_after - sent])
                    self.close_connection = True
                    return
                self._write(piece)
                sent += len(piece)
            self.wfile.write(b"0\r\n\r\n")

        def _write(self, piece: bytes) -> None:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    return Handler


def _pieces(reply: Reply) -> Iterator[bytes | float]:
    parts: Sequence[Frame] = [reply.body] if isinstance(reply.body, str | bytes) else reply.body
    # A stall or cut is counted in bytes, so the parts are cut fine enough to meet it.
    fine = reply.piece or (1 if reply.stall_after is not None else 0)
    for part in parts:
        if isinstance(part, float):
            yield part
            continue
        data = part.encode() if isinstance(part, str) else part
        size = fine or max(len(data), 1)
        yield from (data[start : start + size] for start in range(0, len(data), size))


def load_story(name: str) -> Script:
    """Return the story ``module:NAME``: a value of the module, or a script that the module registers."""
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    story: Script = getattr(module, attribute) if hasattr(module, attribute) else find_script(attribute)
    return story


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.wire", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--protocol", choices=tuple(FORMATS), required=True)
    parser.add_argument("--story", required=True, metavar="module:NAME")
    parser.add_argument("--piece", type=int, default=0, help="bytes sent at once")
    parser.add_argument("--log", type=Path, help="append each request body as a line of JSON")
    options = parser.parse_args()
    story = load_story(options.story)

    def answer(seen: Seen) -> Reply:
        if options.log is not None:
            with options.log.open("a") as log:
                log.write(json.dumps(seen.body) + "\n")
        if protocol_of(seen.path) != options.protocol:
            return Reply('{"error": {"message": "not here"}}', status=404, content_type="application/json")
        return told_reply(story, seen, options.piece)

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with WireServer(answer, options.port) as server:
        print(f"Ready: {server.base_url(options.protocol)}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
