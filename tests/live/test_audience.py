"""Which origins are the site's own, and what counts as a rule's yes."""

from __future__ import annotations

import pytest

from flask_instruct.live.audience import is_own_origin
from flask_instruct.live.audience import says_yes


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("https://example.org", "example.org", True),
        ("http://example.org", "example.org", True),
        ("https://EXAMPLE.org", "Example.org", True),
        ("https://example.org:443", "example.org", True),
        ("https://example.org:8443", "example.org:8443", True),
        ("http://[::1]:5000", "[::1]:5000", True),
        ("https://example.org", "example.org:8443", False),
        ("https://example.org.evil.example", "example.org", False),
        ("https://evil.example/example.org", "example.org", False),
        ("https://example.org@evil.example", "example.org", False),
        ("https://sub.example.org", "example.org", False),
        ("file://example.org", "example.org", False),
        ("null", "example.org", False),
        ("", "example.org", False),
        (None, "example.org", False),
        ("http://[", "example.org", False),
        ("http://example.org:x", "example.org", False),
    ],
)
def test_an_origin_is_the_sites_own_when_host_and_port_are(origin: str | None, host: str, own: bool) -> None:
    # Behind a proxy that ends TLS the server sees http, whatever the page has.
    assert is_own_origin(origin, host, "http", ()) is own


def test_other_origins_count_when_they_are_listed_exactly() -> None:
    allowed = ("https://www.example.org/", "https://app.example.org")
    assert is_own_origin("https://www.example.org", "example.org", "https", allowed)
    assert is_own_origin("https://APP.example.org", "example.org", "https", allowed)
    assert not is_own_origin("http://www.example.org", "example.org", "https", allowed)
    assert not is_own_origin("https://x.www.example.org", "example.org", "https", allowed)


@pytest.mark.parametrize("answer", [True, False, None, "a user", ""])
def test_a_rule_says_yes_or_no(answer: object) -> None:
    assert says_yes(lambda viewer: answer, "Ada") is bool(answer)


def test_a_rule_whose_no_would_have_to_be_awaited_does_not_count_as_a_yes() -> None:
    async def nobody(viewer: str) -> bool:
        return False

    with pytest.raises(TypeError, match="nobody must return True or False, not coroutine: no async def"):
        says_yes(nobody, "Ada")
