"""Our app of the benchmark of live pages: the pages that Chromium opens, and what the raw way beside ours shows.

``gunicorn "benchmarks.board:create_app()"`` serves it; its settings come as JSON in ``BENCHMARK_APP``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Flask
from flask import render_template_string

from . import archive

STREAM = "board"
"""What the pages follow."""
MARK = "bench-mark"
"""An element that notes by the page's clock when it is put into the page."""

_HEAD = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Board</title>
<script>
const marks = new Map(), waiting = new Map();
customElements.define("{MARK}", class extends HTMLElement {{
  connectedCallback() {{
    const number = Number(this.dataset.number), now = performance.now();
    marks.set(number, now);
    waiting.get(number)?.(now);
  }}
}});
function seen(number) {{
  return marks.get(number) ?? new Promise((resolve) => waiting.set(number, resolve));
}}
function written(length) {{
  const talk = () => document.getElementById("talk").textContent;
  return new Promise((resolve) => {{
    const look = () => (talk().length < length ? setTimeout(look, 5) : resolve(talk()));
    look();
  }});
}}
// Characters that are put into the page from now on.
let put = 0;
function count() {{
  new MutationObserver((records) => {{
    for (const {{ addedNodes, target, oldValue }} of records) {{
      put += oldValue === null ? 0 : target.length - oldValue.length;
      for (const node of addedNodes) put += node.textContent.length;
    }}
  }}).observe(document.body, {{ subtree: true, childList: true, characterData: true, characterDataOldValue: true }});
}}
// What to add to performance.now() for the system's clock in milliseconds, found where that goes on by one.
function offset() {{
  const start = Date.now();
  let now = start;
  while (now === start) now = Date.now();
  return now - performance.now();
}}
</script>
"""
OURS = (
    _HEAD
    + """{{ instruct_scripts() }}</head>
<body>{{ turbo_stream_from(stream) }}<div id="marks"></div><p id="talk"></p></body></html>"""
)
RAW = (
    _HEAD
    + """</head><body><div id="marks"></div><script>
const socket = new WebSocket({{ request.args["socket"]|tojson }});
socket.onopen = () => document.body.toggleAttribute("connected", true);
socket.onmessage = ({ data }) => document.getElementById("marks").insertAdjacentHTML("beforeend", data);
</script></body></html>"""
)


def create_app(settings: Mapping[str, Any] | None = None) -> Flask:
    app = archive.create_app(settings)
    app.add_url_rule("/ours", "ours", lambda: render_template_string(OURS, stream=STREAM))
    app.add_url_rule("/raw", "raw", lambda: render_template_string(RAW))
    return app
