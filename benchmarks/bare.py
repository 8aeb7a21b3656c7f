"""A job as one writes it without us: one POST by the standard library; and the RQ workers that carry it out.

``python -m benchmarks.bare fork|simple URL QUEUE`` is such a worker. Nothing of ours is imported here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

BODY = b'{"model": "text-3", "stream": true, "messages": [{"role": "user", "content": "Go."}]}'


def post(address: str) -> int:
    """Ask the mock model once, and return the length of its answer."""
    from urllib.request import Request
    from urllib.request import urlopen

    request = Request(address, BODY, {"content-type": "application/json"})
    with urlopen(request) as response:
        return len(response.read())


def create_app() -> Flask:
    """Return an app for ``flask rq worker``."""
    import os

    from flask import Flask
    from flask_rq import RQ

    app = Flask(__name__)
    app.config.update(RQ_CONNECTION=os.environ["BENCHMARK_REDIS"], RQ_QUEUES=[os.environ["BENCHMARK_QUEUE"]])
    app.config["RQ_QUEUE_CONNECTIONS"] = {os.environ["BENCHMARK_QUEUE"]: os.environ["BENCHMARK_REDIS"]}
    RQ(app)
    return app


def main(kind: str, url: str, queue: str) -> None:
    from redis import Redis
    from rq import Queue
    from rq import SimpleWorker
    from rq import Worker

    connection = Redis.from_url(url)
    queues = [Queue(queue, connection=connection)]
    worker = SimpleWorker(queues, connection=connection) if kind == "simple" else Worker(queues, connection=connection)
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    main(*sys.argv[1:])
