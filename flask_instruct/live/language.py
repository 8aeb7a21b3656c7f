"""Where the package's own words are translated: the gettext domain ``flask_instruct`` of Flask-Babel.

An app's catalogue of that domain is looked into first, then the one that comes with the package, so that an app can
put another word in any place, and add a language.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from flask import current_app
from flask import has_app_context

DOMAIN = "flask_instruct"
TRANSLATIONS = Path(__file__).parent.parent / "translations"
"""The catalogues of the package."""

_KEY = "instruct_panel_domain"


def domain() -> Any | None:
    """Return the ``flask_babel.Domain`` of the package's words; None outside of an app that uses Flask-Babel."""
    if not has_app_context() or "babel" not in current_app.extensions:
        return None
    found: Any = current_app.extensions.get(_KEY)
    if found is None:
        # Flask-Babel lays each catalogue over those before it.
        directories = [str(TRANSLATIONS), *current_app.extensions["babel"].translation_directories]
        found = import_module("flask_babel").Domain(directories, domain=DOMAIN)
        current_app.extensions[_KEY] = found
    return found


def marked(message: str, /) -> str:
    """Mark a string for extraction where it stands in a table; it is translated when it is shown."""
    return message


def locale() -> Any | None:
    """Return the ``babel.Locale`` of the reader; None where an app does not use Flask-Babel."""
    if not has_app_context() or "babel" not in current_app.extensions:
        return None
    return import_module("flask_babel").get_locale()
