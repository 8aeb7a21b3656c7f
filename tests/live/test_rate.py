"""How often is too often, counted in bounded memory and for the address that really asks."""

from __future__ import annotations

import pytest

from flask_instruct.live.rate import Counters
from flask_instruct.live.rate import Rate
from flask_instruct.live.rate import counted_address


def test_so_much_is_given_at_once_and_then_little_by_little() -> None:
    counters = Counters(Rate(3))
    assert [counters.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert counters.take("a", 0.0) == pytest.approx(20)
    assert counters.take("a", 15.0) == pytest.approx(5)
    assert counters.take("a", 20.0) == 0.0
    assert counters.take("a", 20.0) == pytest.approx(20)
    assert counters.take("b", 20.0) == 0.0


def test_who_is_refused_does_not_wait_longer_for_having_asked() -> None:
    counters = Counters(Rate(1))
    counters.take("a", 0.0)
    for moment in range(1, 60):
        assert counters.take("a", float(moment)) == pytest.approx(60 - moment)
    assert counters.take("a", 60.0) == 0.0


def test_what_costs_more_takes_more() -> None:
    rate = Rate(60)
    spent, wait = rate.take(0.0, 100.0, 59)
    assert wait == 0.0
    assert rate.take(spent, 100.0, 2) == (spent, pytest.approx(1))
    assert rate.take(spent, 101.0, 2)[1] == 0.0


def test_any_number_of_addresses_takes_bounded_memory() -> None:
    counters = Counters(Rate(2), most=100)
    for number in range(10_000):
        counters.take(str(number), 0.0)
        assert len(counters) <= 101
    counters.take("9999", 0.0)
    assert counters.take("9999", 0.0) > 0  # The latest are still counted.
    for number in range(100):
        counters.take(f"later {number}", 1000.0)
    assert counters.take("9999", 1000.0) == 0.0


@pytest.mark.parametrize(
    ("near", "forwarded", "counted"),
    [
        ("93.184.216.34", "", "93.184.216.34"),
        ("93.184.216.34", "198.51.100.7", "93.184.216.34"),  # Anybody may claim that.
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", "1.2.3.4, 93.184.216.34", "93.184.216.34"),
        ("127.0.0.1", "93.184.216.34", "93.184.216.34"),
        ("127.0.0.1", "", None),
        ("", "93.184.216.34", "93.184.216.34"),
        ("", "", None),
        ("127.0.0.1", "unknown", None),
        ("2606:2800:220:1::1", "", "2606:2800:220:1::/64"),
        ("2606:2800:220:1:ffff::2", "", "2606:2800:220:1::/64"),
        ("::ffff:93.184.216.34", "", "93.184.216.34"),
    ],
)
def test_the_address_is_the_one_that_really_asks(near: str, forwarded: str, counted: str | None) -> None:
    assert counted_address({"REMOTE_ADDR": near, "HTTP_X_FORWARDED_FOR": forwarded}) == counted


def test_behind_proxyfix_the_address_is_what_it_says() -> None:
    environ = {"REMOTE_ADDR": "10.1.1.1", "HTTP_X_FORWARDED_FOR": "8.8.8.8", "werkzeug.proxy_fix.orig": {}}
    assert counted_address(environ) == "10.1.1.1"
