"""For whom a fragment is rendered where no request is at hand: the address, language and time zone of the one that
asked for it, so that links, words and times come out as they would have there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from flask import Flask
from flask import current_app
from flask import has_request_context
from flask import request

LONGEST_LANGUAGE = 200
"""Characters of an ``Accept-Language`` that are kept."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The circumstances of a request that outlive it.

    :param base_url: scheme, host and prefix of links.
    :param language: Flask-Babel's locale of the request where an app uses it, else its ``Accept-Language``.
    :param timezone: Flask-Babel's name of the time zone.
    """

    base_url: str | None = None
    language: str | None = None
    timezone: str | None = None

    @classmethod
    def current(cls) -> Reader:
        """Return what the current request has; nothing outside of one."""
        if not has_request_context():
            return cls()
        babel = _babel(current_app)
        if babel is None:
            accepted = request.headers.get("Accept-Language", "")
            return cls(request.url_root, accepted[:LONGEST_LANGUAGE] or None)
        locale, timezone = babel.get_locale(), babel.get_timezone()
        return cls(request.url_root, str(locale) if locale else None, str(timezone) if timezone else None)

    @contextmanager
    def looking(self, app: Flask) -> Iterator[None]:
        """Push a request context in which links, language and time zone are this reader's."""
        headers = {"Accept-Language": self.language.replace("_", "-")} if self.language else {}
        here = app.test_request_context(base_url=self.base_url, headers=headers)
        with here, _speaking(_babel(app), self.language, self.timezone):
            yield


@contextmanager
def _speaking(babel: Any | None, language: str | None, timezone: str | None) -> Iterator[None]:
    if babel is None:
        yield
        return
    with babel.force_locale(language) if language else nullcontext():
        # Flask-Babel keeps what its selector says of the time zone here, and has no public way to say it instead.
        kept = babel._get_current_context()
        before = getattr(kept, "babel_tzinfo", None)
        if timezone:
            kept.babel_tzinfo = import_module("babel.dates").get_timezone(timezone)
        try:
            yield
        finally:
            kept.babel_tzinfo = before


def _babel(app: Flask) -> Any | None:
    return import_module("flask_babel") if "babel" in app.extensions else None
