"""What the web server around us can tell: whether it is about to end, and how many threads it has."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from types import FrameType
from typing import Any

logger = logging.getLogger("flask_instruct")

SINGLE = (
    "Live pages need a server with threads, and this one answers a single request at a time: "
    "run gunicorn with --worker-class gthread --threads 16, or Flask's server with threads."
)
SOCKETLESS = (
    "{} lends no socket: each open page takes one of its threads, by events. Run gunicorn with --worker-class gthread "
    "--threads 16, where it takes none."
)
LENDING = ("gthread", "gevent")
"""Gunicorn's workers whose sockets are tried."""

OTHERS = ("waitress", "cheroot", "bjoern", "hypercorn", "uvicorn", "granian")
"""Servers that are the program they run in, by their package; uWSGI and mod_wsgi bring a module of their name."""


class WebServer:
    """The server of this process, as far as it shows."""

    def __init__(self) -> None:
        self._found: tuple[int, Any] | None = None

    def stopping(self) -> bool:
        """Tell whether this process has begun to end, so that open sockets should let go of it."""
        if not threading.main_thread().is_alive():
            return True  # The interpreter waits for the threads that are left.
        worker = self._worker()
        return worker is not None and not worker.alive

    def socket_limit(self, most: int) -> int:
        """Return how many sockets may be open: where each takes a thread, a quarter of them stays for requests."""
        worker = self._worker()
        if worker is None or not hasattr(worker, "tpool") or not worker.cfg.is_ssl:
            return most
        threads: int = worker.cfg.threads
        return min(most, threads - -(-threads // 4))

    def _worker(self) -> Any:
        if self._found is None or self._found[0] != os.getpid():
            worker = _gunicorn_worker()
            if worker is None:
                return None
            self._found = (os.getpid(), worker)
        return self._found[1]


def unusable(environ: Mapping[str, Any]) -> str | None:
    """Say why a request's server cannot hold a socket open, or None if it can."""
    if (problem := blocked_by_events(environ)) is not None:
        return problem
    if not any(key in environ for key in ("werkzeug.socket", "gunicorn.socket")):
        return "Sockets work on gunicorn (gthread, gevent) and Flask's own server; here pages use events instead."
    return None


def blocked_by_events(environ: Mapping[str, Any]) -> str | None:
    """Say why a request's server cannot send events for long, or None if it can."""
    if environ.get("wsgi.multithread"):
        return None
    return SINGLE


def announce() -> None:
    """Say in the log which server this is, where its pages cannot have sockets, as the app is made in it."""
    problem = problem_of(running())
    if problem is not None:
        logger.warning(problem)


def running() -> str | None:
    """Name the server, or gunicorn's kind of worker, that is about to run the app which is being made."""
    if found := next((name for name in ("uwsgi", "mod_wsgi") if name in sys.modules), None):
        return found
    for frame in _main_frames():
        # With --preload it is the arbiter that makes the app.
        config = getattr(frame.f_locals.get("self"), "cfg", None)
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "gunicorn" and config is not None:
            return str(config.worker_class_str).rpartition(".")[2]
        if package in OTHERS:
            return package
    return None


def problem_of(running: str | None) -> str | None:
    """Say what pages lack on a server, or None where it is nothing."""
    if running is None or running in LENDING or running == "ThreadWorker" or "Gevent" in running:
        return None
    return SINGLE if running in ("sync", "SyncWorker") else SOCKETLESS.format(running)


def _gunicorn_worker() -> Any:
    """Find the worker object that runs this process's main thread; gunicorn hands it to no application."""
    base = sys.modules.get("gunicorn.workers.base")
    if base is None:
        return None
    for frame in _main_frames():
        worker = frame.f_locals.get("self")
        if isinstance(worker, base.Worker):
            return worker
    return None


def _main_frames() -> Iterator[FrameType]:
    """Go up what the main thread is at, or under gevent the main greenlet."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    greenlets = sys.modules.get("greenlet")
    if frame is None and greenlets is not None:
        main = greenlets.getcurrent()
        while main.parent is not None:
            main = main.parent
        frame = main.gr_frame
    while frame is not None:
        yield frame
        frame = frame.f_back
