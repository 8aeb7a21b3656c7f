"""Many open sockets in a process of their own, which checks every byte that they get: ``python -m benchmarks.crowd``.

It takes orders from standard input and answers each with a line of JSON; :class:`Crowd` is its other end.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds that an order may take."""
AT_ONCE = 64
"""Sockets that are being opened at the same time."""
PIECE = 65536

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server's messages look like.

    :param text: finds what was broadcast in a message.
    :param greeting: begins the message, after which a socket counts as open; "" where that is the end of the handshake.
    :param noise: messages that are no broadcast, each with the answer that is due, or "".
    """

    path: str
    text: Callable[[str], str]
    greeting: str = ""
    noise: Mapping[str, str] | None = None


DIALECTS = {
    "instruct": Dialect(
        "/instruct/socket", lambda message: str(json.loads(message)["html"]), '{"type":"ready"', {'{"type":"ping"}': ""}
    ),
    "socketio": Dialect(
        "/socket.io/?EIO=4&transport=websocket", lambda message: str(json.loads(message[2:])[1]), "40{", {"2": "3"}
    ),
    "plain": Dialect("/socket", str),
}


class Failed(Exception):
    """Raise when a server does not do what every contender has to do."""


class Sockets:
    """The process' work."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        self._orders = b""
        self._sockets: dict[int, socket.socket] = {}
        self._begun: dict[int, bytes] = {}
        """What has come of a message, or of the answer to a handshake, that is not whole yet."""
        self._dialect = DIALECTS["plain"]
        self._port = 0
        self._unopened: deque[str] = deque()
        self._opening: dict[int, str] = {}
        """Sockets that are not open yet, with what they say after their handshake."""
        self._shaking: set[int] = set()
        self._missing: set[int] = set()
        self._expected = ""
        self._whole = b""
        self._started = self._deadline = 0.0
        self._busy = False

    def run(self) -> None:
        """Work until the orders end."""
        while True:
            for descriptor, _ in self._epoll.poll(1.0):
                if descriptor == sys.stdin.fileno():
                    if not self._read_orders():
                        return
                else:
                    self._read(descriptor)
            if self._busy and time.monotonic() > self._deadline:
                missing = len(self._missing) or len(self._opening) + len(self._unopened)
                raise Failed(f"{missing} of {len(self._sockets)} sockets got nothing within {PATIENCE:.0f} s")

    # -- orders ------------------------------------------------------------------------------------------------------

    def _read_orders(self) -> bool:
        data = os.read(sys.stdin.fileno(), PIECE)
        *lines, self._orders = (self._orders + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            self._started = time.monotonic()
            self._deadline = self._started + PATIENCE
            self._busy = True
            if "text" in order:
                self._expect(order["text"])
            else:
                self._dialect = DIALECTS[order["dialect"]]
                self._port = order["port"]
                self._unopened.extend(order["hellos"])
                for _ in range(AT_ONCE):
                    self._open_next()
        return bool(data)

    def _expect(self, text: str) -> None:
        self._expected = text
        self._whole = b""
        self._missing = set(self._sockets)
        _answer()

    def _done(self, **answer: float) -> None:
        self._busy = False
        _answer(**answer)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _open_next(self) -> None:
        if not self._unopened:
            if not self._opening:
                self._done(seconds=time.monotonic() - self._started)
            return
        hello = self._unopened.popleft()
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
        connection.sendall(_handshake(self._port, self._dialect.path, len(self._sockets)))
        connection.setblocking(False)
        descriptor = connection.fileno()
        self._sockets[descriptor] = connection
        self._opening[descriptor] = hello
        self._shaking.add(descriptor)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _shaken(self, descriptor: int, data: bytes) -> bytes | None:
        """Take the answer to a handshake; return what came behind it, or None when it is not whole."""
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return None
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Failed(f"the handshake was answered {head.splitlines()[0].decode()}")
        self._shaking.discard(descriptor)
        hello = self._opening[descriptor]
        if hello:
            self._say(descriptor, TEXT, hello.encode())
        if not self._dialect.greeting:
            self._opened(descriptor)
        return rest

    def _opened(self, descriptor: int) -> None:
        del self._opening[descriptor]
        self._open_next()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, descriptor: int) -> None:
        data = self._sockets[descriptor].recv(PIECE)
        if not data:
            raise Failed("a socket was closed")
        if data == self._whole and descriptor in self._missing and descriptor not in self._begun:
            self._arrived(descriptor)
            return
        data = self._begun.pop(descriptor, b"") + data
        if descriptor in self._shaking:
            rest = self._shaken(descriptor, data)
            if rest is None:
                self._begun[descriptor] = data
                return
            data = rest
        while data:
            size = _size(data)
            if size is None or size > len(data):
                self._begun[descriptor] = data
                return
            self._take(descriptor, data[:size])
            data = data[size:]

    def _take(self, descriptor: int, frame: bytes) -> None:
        opcode, payload = frame[0] & 0xF, _payload(frame)
        if opcode == PING:
            self._say(descriptor, PONG, payload)
            return
        if opcode != TEXT:
            raise Failed(f"a frame of kind {opcode} came: {payload[:80]!r}")
        message = payload.decode()
        noise = self._dialect.noise or {}
        if message in noise:
            if noise[message]:
                self._say(descriptor, TEXT, noise[message].encode())
        elif descriptor in self._opening:
            if message.startswith(self._dialect.greeting):
                self._opened(descriptor)
        elif descriptor in self._missing:
            if self._dialect.text(message) != self._expected or (self._whole and self._whole != frame):
                raise Failed(f"other bytes came than were published: {message[:200]}")
            self._whole = frame
            self._arrived(descriptor)
        else:
            raise Failed(f"a message came that nobody has published: {message[:200]}")

    def _arrived(self, descriptor: int) -> None:
        self._missing.discard(descriptor)
        if not self._missing:
            self._done(moment=time.monotonic())

    def _say(self, descriptor: int, opcode: int, payload: bytes) -> None:
        self._sockets[descriptor].sendall(_masked(opcode, payload))


def _answer(**answer: float | str) -> None:
    print(json.dumps(answer), flush=True)


def _handshake(port: int, path: str, number: int) -> bytes:
    # As long as Flask's session cookie of a signed-in user, and no two alike.
    cookie = f"session={number:0>32x}{'.eJwlzjkOwjAQAMC_uKbYy2s7n0HeS9AmpEL8HSTmBfMu9zryfJTtdVx5K_dnlK0I':x>100}"
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Origin: http://127.0.0.1:{port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36",
        "Accept-Language: en-GB,en;q=0.9",
        f"Cookie: {cookie}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def _masked(opcode: int, payload: bytes) -> bytes:
    """Build a client's frame; its mask of zeros leaves the payload as it is."""
    size = len(payload)
    head = bytes([0x80 | opcode, 0x80 | size]) if size < 126 else bytes([0x80 | opcode, 0xFE]) + size.to_bytes(2, "big")
    return head + bytes(4) + payload


def _size(data: bytes) -> int | None:
    """Return the bytes of the frame that begins here; None when too few have come to tell."""
    if len(data) < 2:
        return None
    width = {126: 2, 127: 8}.get(data[1], 0)
    if len(data) < 2 + width:
        return None
    return 2 + width + (int.from_bytes(data[2 : 2 + width], "big") if width else data[1])


def _payload(frame: bytes) -> bytes:
    return frame[2 + {126: 2, 127: 8}.get(frame[1], 0) :]


class Crowd:
    """The process, as the benchmark sees it."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    @classmethod
    @contextmanager
    def gathered(cls, name: str) -> Iterator[Crowd]:
        """Start the process; its sockets end with the block.

        :param name: of the server, for errors.
        """
        command = [sys.executable, "-m", "benchmarks.crowd"]
        root = Path(__file__).parent.parent
        with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process, name)
            finally:
                assert process.stdin is not None
                with suppress(BrokenPipeError):
                    process.stdin.close()

    def open(self, port: int, dialect: str, hellos: Sequence[str]) -> float:
        """Open a socket for each hello, which it says after the handshake; return the seconds until all are open."""
        return float(self._ordered(port=port, dialect=dialect, hellos=list(hellos))["seconds"])

    def expect(self, text: str) -> None:
        """Say what is published next, and return when the clients know it."""
        self._ordered(text=text)

    def heard(self) -> float:
        """Wait until every socket has got what was expected; return that moment of ``time.monotonic()``.

        :raises RuntimeError: when one gets anything else, or nothing.
        """
        return float(self._answer()["moment"])

    def _ordered(self, **order: Any) -> Any:
        self._order(**order)
        return self._answer()

    def _order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # Their last answer says why they have ended.
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline() or '{"failed": "the clients have ended"}')
        if "failed" in answer:
            raise RuntimeError(f"{self._name}: {answer['failed']}")
        return answer


def most_files() -> int:
    """Return how many files and sockets a process may have open; from here on this one may have as many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> None:
    most_files()
    try:
        Sockets().run()
    except (Failed, OSError) as failed:
        _answer(failed=f"{type(failed).__name__}: {failed}")


if __name__ == "__main__":
    main()
