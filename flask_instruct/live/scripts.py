"""Serves the client in one piece and as small as it gets: without comments and packed, under 12 kB.

There is no build step: what is in the package is what a person reads; it is joined and shortened once per process. In
debug mode the browser gets the modules as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

import rjsmin
from flask import Response
from flask import abort
from flask import current_app
from flask import request

ENTRY = "instruct.js"

_LINK = re.compile(r'^(import|export) \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_OFFERED = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", re.MULTILINE)


class Script(NamedTuple):
    """A script, ready to be sent."""

    plain: bytes
    packed: bytes
    etag: str


def serve(filename: str) -> Response:
    """Answer with a script: the first module has all others in it, but in debug mode, where each is its source."""
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
    if "/" in filename or not filename.endswith(".js") or not _source(filename).is_file():
        abort(404)
    text = _source(filename).read_text("utf-8")
    if not readable:
        text = str(rjsmin.jsmin(_joined() if filename == ENTRY else text))
    plain = text.encode()
    return Script(plain, gzip.compress(plain, 9, mtime=0), hashlib.sha256(plain).hexdigest()[:16])


def _joined() -> str:
    """Return all modules as one, those that others need first: a page asks once, not once for each step of the way.

    Each is a function of its own, so that names of two are no clash. What is loaded again under another address would
    hear every event twice; hence the condition around all of it.
    """
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        text = _source(f"{name}.js").read_text("utf-8")
        links = _LINK.findall(text)
        for _kind, _names, needed in links:
            if needed not in modules:
                add(needed)
        taken = "".join(f"const {{{names}}} = of_{needed};\n" for _kind, names, needed in links)
        passed_on = [names.strip() for kind, names, _needed in links if kind == "export"]
        offered = ", ".join([*_OFFERED.findall(text), *passed_on])
        own = re.sub(r"^export (?=\w)", "", _LINK.sub("", text), flags=re.MULTILINE)
        modules[name] = f"const of_{name} = (() => {{\n{taken}{own}\nreturn {{ {offered} }};\n}})();"

    add(ENTRY.removesuffix(".js"))
    return 'if (!customElements.get("instruct-stream")) {\n' + "\n".join(modules.values()) + "\n}\n"


def _source(filename: str) -> Traversable:
    return files(__package__) / "static" / filename
