"""The panel's strings go through gettext: Flask-Babel's where an app uses it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from flask import Flask

from flask_instruct.live.language import TRANSLATIONS
from flask_instruct.panel.language import duration
from flask_instruct.panel.language import gettext
from flask_instruct.panel.language import ngettext

FRENCH = {
    "Stopping": "Arrêt en cours",
    "%(n)s s": "%(n)s sec.",
    "%(num)s step done": ("%(num)s étape faite", "%(num)s étapes faites"),
}


class Catalog:
    """What ``flask_babel.Domain`` is to the panel."""

    made = 0

    def __init__(self, directories: list[str], domain: str) -> None:
        assert domain == "flask_instruct"
        assert directories == [str(TRANSLATIONS), "/the/apps/own"], "later ones overrule those before them"
        Catalog.made += 1

    def gettext(self, message: str) -> object:
        return FRENCH.get(message, message)

    def ngettext(self, singular: str, plural: str, number: int) -> str:
        return FRENCH.get(singular, (singular, plural))[number != 1] % {"num": number}


@pytest.fixture
def french(monkeypatch: pytest.MonkeyPatch) -> Flask:
    app = Flask(__name__)
    app.extensions["babel"] = SimpleNamespace(translation_directories=["/the/apps/own"])
    monkeypatch.setitem(sys.modules, "flask_babel", SimpleNamespace(Domain=Catalog, get_locale=lambda: None))
    return app


def test_without_babel_strings_are_english_also_outside_of_any_app() -> None:
    assert gettext("Asked by %(name)s", name="Ada") == "Asked by Ada"
    assert ngettext("%(num)s step done", "%(num)s steps done", 1) == "1 step done"
    assert ngettext("%(num)s step done", "%(num)s steps done", 2) == "2 steps done"


def test_a_percent_sign_in_a_string_without_values_stays() -> None:
    assert gettext("100 % sure") == "100 % sure"


def test_with_babel_strings_come_from_the_domain_of_the_package(french: Flask) -> None:
    with french.app_context():
        assert gettext("Stopping") == "Arrêt en cours"
        assert gettext("Unknown %(what)s", what="words") == "Unknown words"
        assert ngettext("%(num)s step done", "%(num)s steps done", 3) == "3 étapes faites"
        assert duration(12) == "12 sec."


def test_the_catalog_is_opened_once(french: Flask) -> None:
    Catalog.made = 0
    with french.app_context():
        gettext("a"), gettext("b")
    with french.app_context():
        gettext("c")
    assert Catalog.made == 1


def test_an_app_without_babel_is_left_alone_where_the_package_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flask_babel", SimpleNamespace(Domain=Catalog))
    with Flask(__name__).app_context():
        assert gettext("Stopping") == "Stopping"
