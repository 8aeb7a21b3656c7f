"""What the others serve: each sends every message of one channel in Redis to all of its sockets.

``gunicorn "benchmarks.relays:sock()"`` and ``…:socketio()`` are apps; ``python -m benchmarks.relays PORT`` is the bare
``websockets`` library. Redis and the channel come in the environment. Nothing of ours is imported here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

from flask import Flask

REDIS = "BENCHMARK_REDIS"
CHANNEL = "BENCHMARK_CHANNEL"
EVENT = "broadcast"
"""The name that a message has for Socket.IO."""
BACKLOG = 2048
"""Handshakes that may wait, as many as gunicorn lets wait."""


def sock() -> Flask:
    """Return an app of flask-sock: a thread or greenlet a socket, and one that sends to all of them."""
    from flask_sock import Sock
    from redis import Redis
    from simple_websocket import ConnectionClosed

    app = Flask(__name__)
    pages: set[Any] = set()

    @Sock(app).route("/socket")
    def socket(page: Any) -> None:
        pages.add(page)
        try:
            while True:
                page.receive()
        finally:
            pages.discard(page)

    def relay() -> None:
        pubsub = Redis.from_url(os.environ[REDIS]).pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(os.environ[CHANNEL])
        for message in pubsub.listen():
            text = message["data"].decode()
            for page in list(pages):
                try:
                    page.send(text)
                except ConnectionClosed:
                    pages.discard(page)

    threading.Thread(target=relay, daemon=True).start()
    return app


def socketio() -> Flask:
    """Return an app of Flask-SocketIO with its message queue in Redis, to be served by gunicorn's gevent worker."""
    from flask_socketio import SocketIO
    from socketio import RedisManager

    app = Flask(__name__)
    # What message_queue= stands for; that takes no address of a unix socket.
    queue = RedisManager(os.environ[REDIS], channel=os.environ[CHANNEL])
    SocketIO(app, async_mode="gevent", client_manager=queue)
    return app


async def bare(port: int) -> None:
    """Serve with the websockets library alone: its ``broadcast()`` is the floor."""
    from redis.asyncio import Redis
    from websockets.asyncio.server import ServerConnection
    from websockets.asyncio.server import broadcast
    from websockets.asyncio.server import serve

    pages: set[ServerConnection] = set()

    async def stay(connection: ServerConnection) -> None:
        pages.add(connection)
        await connection.wait_closed()
        pages.discard(connection)

    async with serve(stay, "127.0.0.1", port, compression=None, backlog=BACKLOG):
        pubsub = Redis.from_url(os.environ[REDIS]).pubsub(ignore_subscribe_messages=True)
        await pubsub.subscribe(os.environ[CHANNEL])
        async for message in pubsub.listen():
            broadcast(pages, message["data"].decode())


if __name__ == "__main__":
    asyncio.run(bare(int(sys.argv[1])))
