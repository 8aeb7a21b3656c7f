"""What language the panel speaks: Flask-Babel's where an app uses it, else English.

The strings are in the gettext domain ``flask_instruct``; an app adds a language by putting
``translations/<locale>/LC_MESSAGES/flask_instruct.mo`` where Flask-Babel looks for its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flask import current_app
from flask import has_app_context

DOMAIN = "flask_instruct"


def gettext(message: str, /, **values: object) -> str:
    """Translate a string; ``%(name)s`` in it is replaced by the value of that name."""
    domain = _domain()
    text: str = domain.gettext(message) if domain is not None else message
    return text % values if values else text


def ngettext(singular: str, plural: str, number: int, /) -> str:
    """Translate a string that counts; ``%(num)s`` in it is replaced by the number."""
    domain = _domain()
    if domain is not None:
        text: str = domain.ngettext(singular, plural, number)
        return text
    return (singular if number == 1 else plural) % {"num": number}


def marked(message: str, /) -> str:
    """Mark a string for extraction where it stands in a table; it is translated when it is shown."""
    return message


def duration(seconds: float) -> str:
    """Return a length of time in short words, such as ``0.4 s``, ``12 s`` or ``2 min 5 s``."""
    if seconds < 9.95:
        return gettext("%(n)s s", n=f"{max(seconds, 0):.1f}")
    return whole_duration(round(seconds))


def whole_duration(seconds: int) -> str:
    """Return a length of time that still grows: as :func:`duration`, without fractions."""
    whole = max(seconds, 0)
    if whole < 60:
        return gettext("%(n)s s", n=whole)
    if whole < 3600:
        return gettext("%(m)s min %(s)s s", m=whole // 60, s=whole % 60)
    return gettext("%(h)s h %(m)s min", h=whole // 3600, m=whole % 3600 // 60)


def _domain() -> Any | None:
    if not has_app_context() or "babel" not in current_app.extensions:
        return None
    found: Any = current_app.extensions.get("instruct_panel_domain")
    if found is None:
        found = import_module("flask_babel").Domain(domain=DOMAIN)
        current_app.extensions["instruct_panel_domain"] = found
    return found
