"""A WebSocket client without threads, for tests that look at single frames."""

from __future__ import annotations

import json
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from wsproto import ConnectionType
from wsproto import WSConnection
from wsproto.events import AcceptConnection
from wsproto.events import CloseConnection
from wsproto.events import Event
from wsproto.events import Ping
from wsproto.events import RejectConnection
from wsproto.events import RejectData
from wsproto.events import Request
from wsproto.events import TextMessage
from wsproto.utilities import LocalProtocolError


class Closed(Exception):
    """Raise when the server has closed the socket."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code


class Rejected(Exception):
    """Raise when the server refuses the upgrade."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Client:
    """A page's side of the socket.

    :param origin: as a browser would name it; default: the server's own.
    """

    def __init__(
        self,
        address: str,
        *,
        origin: str | None = "",
        path: str = "/instruct/socket",
        headers: dict[str, str] | None = None,
        answer_pings: bool = True,
        timeout: float = 20,
    ) -> None:
        url = urlsplit(address)
        sent = dict(headers or {})
        if origin is not None:
            sent["Origin"] = origin or address
        self._answer_pings = answer_pings
        self._messages: deque[Any] = deque()
        self._text = ""
        self._wire = WSConnection(ConnectionType.CLIENT)
        self.sock = socket.create_connection((url.hostname, url.port), timeout=timeout)
        if url.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=url.hostname)
        try:
            extra = [(name.encode(), value.encode()) for name, value in sent.items()]
            request = Request(host=url.netloc, target=path, extra_headers=extra)
            self.sock.sendall(self._wire.send(request))
            self.accepted = self._accept()
        except BaseException:
            self.sock.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the socket as a tab does."""
        with suppress(Exception):
            self.sock.sendall(self._wire.send(CloseConnection(1000)))
        self.sock.close()

    def send(self, message: Any) -> None:
        """Send a message.

        :raises Closed: when the server has said goodbye already.
        """
        try:
            data = self._wire.send(TextMessage(message if isinstance(message, str) else json.dumps(message)))
        except LocalProtocolError:
            raise next((each for each in self._messages if isinstance(each, Closed)), Closed(1006)) from None
        self.sock.sendall(data)

    def subscribe(self, token: str, since: str | None) -> None:
        self.send({"type": "subscribe", "streams": [{"token": token, "since": since}]})

    def receive(self) -> Any:
        """Return the next message, a batch piece by piece.

        :raises Closed: when the server closes; 1006 without a goodbye.
        """
        while not self._messages:
            self._read()
        message = self._messages.popleft()
        if isinstance(message, Closed):
            raise message
        return message

    def until(self, kind: str) -> list[Any]:
        """Return all messages up to the first of a type, that one included."""
        found = [self.receive()]
        while found[-1].get("type") != kind:
            found.append(self.receive())
        return found

    def closed(self) -> int:
        """Return the code with which the server closes, whatever it sends before."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed.code

    def _accept(self) -> AcceptConnection:
        while True:
            self._wire.receive_data(self._recv() or None)
            events = self._wire.events()
            for event in events:
                if isinstance(event, AcceptConnection):
                    self._take(events)  # What came with it.
                    return event
                if isinstance(event, RejectConnection | RejectData):
                    raise Rejected(getattr(event, "status_code", 0))

    def _read(self) -> None:
        data = self._recv()
        if not data:
            self._messages.append(Closed(1006))
            return
        self._wire.receive_data(data)
        self._take(self._wire.events())

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Ping) and self._answer_pings:
                self.sock.sendall(self._wire.send(event.response()))
            elif isinstance(event, CloseConnection):
                with suppress(OSError):
                    self.sock.sendall(self._wire.send(event.response()))
                self._messages.append(Closed(event.code, event.reason or ""))
            elif isinstance(event, TextMessage):
                self._gather(event)

    def _gather(self, event: TextMessage) -> None:
        self._text += event.data
        if event.message_finished:
            message, self._text = json.loads(self._text), ""
            messages = message if isinstance(message, list) else [message]
            # How far it was told comes now and then, as a ping does, and says nothing new here.
            self._messages.extend(each for each in messages if each.get("type") != "told")

    def _recv(self) -> bytes:
        try:
            return self.sock.recv(65536)
        except ConnectionError:
            return b""
