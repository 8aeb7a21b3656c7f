"""Addresses of Redis, taken apart: those of one server, and the longer ones that name several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

ONE = "one"
SENTINEL = "sentinel"
CLUSTER = "cluster"

PORTS = {ONE: 6379, SENTINEL: 26379, CLUSTER: 6379}

_SEVERAL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<kind>sentinel|cluster)://"
    r"(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?\Z"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address leads.

    :param kind: one server, the master that Sentinel names, or a cluster.
    :param hosts: the servers it names; none for a unix socket.
    :param service: what the sentinels call the master.
    :param plain: the address as it would be of one server, for redis-py to read the rest.
    """

    kind: str
    scheme: str
    hosts: tuple[tuple[str, int], ...]
    service: str
    plain: str

    @classmethod
    def read(cls, url: str) -> Place:
        """Take an address apart.

        :raises ValueError: for what is none; its text may quote a part of the password.
        """
        if not re.match(r"rediss?\+", url):
            parts = urlsplit(url)
            server = (parts.hostname or "localhost", parts.port or PORTS[ONE])
            return cls(ONE, parts.scheme, () if parts.scheme == "unix" else (server,), "", url)
        match = _SEVERAL.match(url)
        if match is None:
            raise ValueError("This address names several servers in no way that is known.")
        kind, scheme = match["kind"], match["scheme"]
        hosts = tuple(_host(part, PORTS[kind]) for part in match["hosts"].split(","))
        path = (match["path"] or "/").removeprefix("/")
        service, _, database = path.partition("/") if kind == SENTINEL else ("", "", path)
        if kind == SENTINEL and not service:
            raise ValueError("The name of the master is missing.")
        login = f"{match['login']}@" if match["login"] is not None else ""
        plain = f"{scheme}://{login}localhost/{database}{match['query'] or ''}"
        return cls(kind, scheme, hosts, service, plain)

    @property
    def encrypted(self) -> bool:
        return self.scheme == "rediss"

    def __str__(self) -> str:
        """Name the servers, without user and password."""
        if not self.hosts:
            return urlsplit(self.plain).path
        named = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        return {ONE: named, SENTINEL: f"{self.service} of {named}", CLUSTER: f"the cluster {named}"}[self.kind]


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("A host is missing.")
    return parts.hostname, parts.port or port
