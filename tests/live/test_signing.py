"""Tokens: valid for one purpose, for a while, and as they were made."""

from __future__ import annotations

import pytest
from flask import Flask

from flask_instruct.errors import ConfigurationError
from flask_instruct.live.signing import InvalidToken
from flask_instruct.live.signing import Signed
from flask_instruct.live.signing import Signer


def signer(key: str | None = "key", *fallbacks: str) -> Signer:
    app = Flask(__name__)
    app.config.update(SECRET_KEY=key, SECRET_KEY_FALLBACKS=list(fallbacks))
    return Signer(app)


def test_a_token_says_what_was_signed_and_for_whom() -> None:
    token = signer().sign("stream", {"stream": "s"}, "7")
    assert signer().unsign(token, "stream", 60) == Signed({"stream": "s"}, "7")


def test_a_changed_token_is_not_valid() -> None:
    token = signer().sign("stream", {"stream": "s"}, "7")
    other = signer().sign("stream", {"stream": "t"}, "7")
    payload, _, signature = token.partition(".")
    for forged in (f"{payload}.{signature[::-1]}", f"{other.partition('.')[0]}.{signature}", payload, ""):
        with pytest.raises(InvalidToken) as caught:
            signer().unsign(forged, "stream", 60)
        assert not caught.value.expired


def test_a_token_serves_no_other_purpose() -> None:
    with pytest.raises(InvalidToken):
        signer().unsign(signer().sign("panel", {}, ""), "stream", 60)


def test_a_token_of_another_site_is_not_valid() -> None:
    with pytest.raises(InvalidToken):
        signer("one").unsign(signer("other").sign("stream", {}, ""), "stream", 60)


def test_an_old_token_has_expired() -> None:
    with pytest.raises(InvalidToken) as caught:
        signer().unsign(signer().sign("stream", {}, ""), "stream", -1)
    assert caught.value.expired


def test_a_rotated_key_leaves_old_tokens_valid_and_signs_no_new_ones() -> None:
    token = signer("old").sign("stream", {}, "7")
    assert signer("new", "old").unsign(token, "stream", 60).viewer == "7"
    with pytest.raises(InvalidToken):
        signer("old").unsign(signer("new", "old").sign("stream", {}, ""), "stream", 60)


def test_without_a_secret_key_the_error_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="SECRET_KEY"):
        signer(None).sign("stream", {}, "")
