"""The mock model, a process of its own so that its work is not counted: ``python -m benchmarks.server``.

It prints its address, serves until its standard input ends, and answers a request that skips work with status 400.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .bodies import FORMATS
from .bodies import encoded
from .bodies import turn_of
from .workload import Task

WHOLE = 65536
"""Bytes in a piece of the body under the path ``/together``; elsewhere each event is a piece, as services send them."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = WHOLE

    def log_message(self, *arguments: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            form = next(form for ending, form in FORMATS.items() if self.path.endswith(ending))
            task = Task.of_model(request["model"])
            events = encoded(form, task, turn_of(form, task, request))
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in _together(events) if self.path.startswith("/together/") else events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _refuse(self, message: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _together(events: tuple[bytes, ...]) -> Iterator[bytes]:
    body = b"".join(events)
    return (body[start : start + WHOLE] for start in range(0, len(body), WHOLE))


@contextmanager
def serving() -> Iterator[str]:
    """Start the process and give its address; it ends with the block."""
    command = [sys.executable, "-m", "benchmarks.server"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError("The mock server of the benchmark did not start; its error is above.")
            yield address
        finally:
            process.stdin.close()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
