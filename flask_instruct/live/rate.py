"""How much of something may be asked for: so much at once, and then so much a minute."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_KEYS = 10_000
"""Addresses that are counted at once; beyond them the oldest is forgotten."""


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount in a time, in seconds. Whoever has used it up gets it back little by little.

    What one has used is told by a single number, the moment at which nothing of it will count any more; 0 is nobody's.
    """

    amount: int
    seconds: float = 60.0

    def take(self, spent: float, now: float, cost: int = 1) -> tuple[float, float]:
        """Return what is used after taking ``cost`` more, and 0; or what was, and the seconds until there is enough."""
        after = max(spent, now) + cost * self.seconds / self.amount
        wait = after - now - self.seconds
        return (spent, wait) if wait > 1e-6 else (after, 0.0)


class Counters:
    """What each of many has used of a rate, such as each address of handshakes, in bounded memory."""

    def __init__(self, rate: Rate, most: int = MOST_KEYS) -> None:
        self._rate = rate
        self._most = most
        self._spent: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._spent)

    def take(self, key: str, now: float) -> float:
        """Count one more; return 0, or how many seconds too early it is."""
        with self._lock:
            spent, wait = self._rate.take(self._spent.pop(key, 0.0), now)
            if len(self._spent) >= self._most:
                self._forget(now)
            self._spent[key] = spent
            return wait

    def _forget(self, now: float) -> None:
        """Make room: first of those that have all back, else of the tenth that was here longest ago."""
        self._spent = {key: spent for key, spent in self._spent.items() if spent > now}
        if len(self._spent) >= self._most:
            for key in list(self._spent)[: max(1, self._most // 10)]:
                del self._spent[key]


def counted_address(environ: Mapping[str, Any]) -> str | None:
    """Return the address that a request's handshake is counted for, or None where it cannot be told.

    Behind a proxy of the same machine or private network it is the one that the proxy says it speaks for, also
    without ProxyFix: all visitors of a site would share one limit otherwise. An address of the internet is its own.
    """
    near = _address(environ.get("REMOTE_ADDR", ""))
    if near is not None and not near.is_private:
        return _network(near)
    forwarded = environ.get("HTTP_X_FORWARDED_FOR", "")
    if forwarded and "werkzeug.proxy_fix.orig" not in environ:
        far = _address(forwarded.rpartition(",")[2].strip())
        return None if far is None else _network(far)
    if near is None or near.is_loopback:
        return None
    return _network(near)


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Whoever has one address of IPv6 mostly has 2 to the 64th of them."""
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
