"""Signed tokens: what a page may hand back to the server without being able to change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Flask
from itsdangerous import BadSignature
from itsdangerous import SignatureExpired
from itsdangerous import URLSafeTimedSerializer

from ..errors import ConfigurationError
from ..errors import InstructError


class InvalidToken(InstructError):
    """Raise when a token was not made here for this purpose, or is too old (then ``expired``)."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class Signed:
    """What a valid token says, and for whom it was made: an actor's id, or ``""`` for anyone."""

    payload: dict[str, Any]
    viewer: str


class Signer:
    """Signs with the app's ``SECRET_KEY``; what ``SECRET_KEY_FALLBACKS`` signed stays valid."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def sign(self, purpose: str, payload: dict[str, Any], viewer: str) -> str:
        """Return a token for one purpose and one viewer; the payload can be read by whoever has the token."""
        return str(self._serializer(purpose).dumps({"payload": payload, "viewer": viewer}))

    def unsign(self, token: str, purpose: str, max_age: float) -> Signed:
        """Return what a token says.

        :param max_age: seconds.
        :raises InvalidToken: when it was changed, made for another purpose, or is older than that.
        """
        try:
            data = self._serializer(purpose).loads(token, max_age=int(max_age))
        except SignatureExpired:
            raise InvalidToken("The token has expired.", expired=True) from None
        except (BadSignature, ValueError):
            raise InvalidToken("The token is not valid.") from None
        return Signed(data["payload"], data["viewer"])

    def _serializer(self, purpose: str) -> URLSafeTimedSerializer:
        if not self._app.secret_key:
            raise ConfigurationError(
                "SECRET_KEY is not set, and stream names are signed with it: set app.config['SECRET_KEY'] to a long "
                "random text."
            )
        # The last key signs; all of them verify.
        keys = [*(self._app.config.get("SECRET_KEY_FALLBACKS") or ()), self._app.secret_key]
        return URLSafeTimedSerializer(keys, salt=f"flask-instruct.{purpose}")
