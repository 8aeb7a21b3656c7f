"""Serves the client's modules as small as they get: without comments and packed, under 12 kB in all.

There is no build step: what is in the package is what a person reads; it is shortened once per process.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import rjsmin
from flask import Response
from flask import abort
from flask import current_app
from flask import request


class Script(NamedTuple):
    """One module, ready to be sent."""

    plain: bytes
    packed: bytes
    etag: str


def serve(filename: str) -> Response:
    """Answer with a module; in debug mode with its source as it is."""
    script = _script(filename, current_app.debug)
    packed = request.accept_encodings["gzip"] > 0
    response = Response(script.packed if packed else script.plain, mimetype="text/javascript")
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    # A module of another version must never be mixed with these: ask each time, and mostly hear that it is the same.
    response.headers["Cache-Control"] = "no-cache"
    response.set_etag(f"{script.etag}{'-gz' if packed else ''}")
    response.make_conditional(request)
    return response


@lru_cache(maxsize=64)
def _script(filename: str, readable: bool) -> Script:
    source = files(__package__) / "static" / filename
    if "/" in filename or not filename.endswith(".js") or not source.is_file():
        abort(404)
    text = source.read_text("utf-8")
    plain = (text if readable else str(rjsmin.jsmin(text))).encode()
    return Script(plain, gzip.compress(plain, 9, mtime=0), hashlib.sha256(plain).hexdigest()[:16])
