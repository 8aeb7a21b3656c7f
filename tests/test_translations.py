"""The catalogues that come with the package say all that the package says, and are compiled as they are written."""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Catalog
from babel.messages.catalog import Message
from babel.messages.mofile import read_mo
from flask import Flask
from flask_babel import Babel

from flask_instruct.panel.language import gettext
from flask_instruct.panel.language import ngettext
from tools.translations import DOMAIN
from tools.translations import ROOT
from tools.translations import catalogue
from tools.translations import compiled
from tools.translations import extract
from tools.translations import languages
from tools.translations import untranslated
from tools.translations import update

FRENCH = ROOT / "flask_instruct" / "translations" / "fr" / "LC_MESSAGES" / f"{DOMAIN}.po"
OPENING = re.compile(r"%\(\w+\)s")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """What code and templates say now."""
    return extract(tmp_path_factory.mktemp("said") / "said.pot")


def texts_of(message: Message) -> tuple[str, ...]:
    return message.string if isinstance(message.string, tuple) else (message.string,)


def ids(catalog: Catalog) -> set[Any]:
    return {message.id for message in catalog if message.id}


def test_french_is_there() -> None:
    assert FRENCH in languages()


@pytest.mark.parametrize("language", languages(), ids=lambda file: file.parent.parent.name)
def test_a_catalogue_has_every_string_and_no_other(language: Path, said: Catalog) -> None:
    has = ids(catalogue(language))
    assert ids(said) - has == set(), "not in the catalogue"
    assert has - ids(said) == set(), "no longer said"
    assert untranslated(catalogue(language)) == []


@pytest.mark.parametrize("language", languages(), ids=lambda file: file.parent.parent.name)
def test_the_compiled_catalogue_is_that_of_the_text(language: Path) -> None:
    with language.with_suffix(".mo").open("rb") as stored:
        there, wanted = read_mo(stored), read_mo(io.BytesIO(compiled(language)))
    assert [(each.id, each.string) for each in there] == [(each.id, each.string) for each in wanted], (
        "run: make translations"
    )
    assert there.plural_expr == wanted.plural_expr


def test_what_is_put_into_a_string_is_put_into_its_translation() -> None:
    odd = []
    for message in catalogue(FRENCH):
        given = message.id if isinstance(message.id, tuple) else (message.id,)
        wanted = [set(OPENING.findall(form)) for form in given]
        for text in texts_of(message):
            if message.id and set(OPENING.findall(text)) not in wanted:
                odd.append((message.id, text))
    assert odd == []


def test_french_is_set_as_people_set_it() -> None:
    """Spaces that do not break before the signs that French keeps apart, and its own quotation marks."""
    plain = re.compile(r" [:;!?»]|« |[“”\"]|\w'\w")
    texts = [text for message in catalogue(FRENCH) if message.id for text in texts_of(message)]
    assert [text for text in texts if plain.search(text)] == []


def test_a_string_that_is_new_is_missed_and_one_that_is_guessed_is_none(tmp_path: Path, said: Catalog) -> None:
    language = tmp_path / "fr" / "LC_MESSAGES" / f"{DOMAIN}.po"
    language.parent.mkdir(parents=True)
    language.write_bytes(FRENCH.read_bytes())
    said_and_more = Catalog()
    for message in said:
        if message.id:
            said_and_more.add(message.id, flags=message.flags)
    said_and_more.add("Something that is really new")
    update(said_and_more, language)
    assert untranslated(catalogue(language)) == ["Something that is really new"]
    update(said, language)
    assert language.read_bytes() == FRENCH.read_bytes()


@pytest.mark.parametrize("plural", ["", '"Plural-Forms: nplurals=2; plural=(n > 1);\\n"'])
def test_an_app_reads_the_packages_words_and_its_own_come_first(tmp_path: Path, plural: str) -> None:
    """Whichever of the two common rules for French plurals the app's catalogue has: Flask-Babel takes that for both."""
    own = tmp_path / "fr" / "LC_MESSAGES" / f"{DOMAIN}.po"
    own.parent.mkdir(parents=True)
    header = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n{plural}\n'
    own.write_text(f'{header}\nmsgid "Stop"\nmsgstr "Halte"\n')
    own.with_suffix(".mo").write_bytes(compiled(own))
    app = Flask(__name__)
    Babel(app, default_locale="fr_FR", default_translation_directories=str(tmp_path))
    with app.test_request_context():
        assert gettext("Stop") == "Halte"
        assert gettext("Send") == "Envoyer"
        assert ngettext("%(num)s step done", "%(num)s steps done", 0) == "0 étape terminée"
        assert ngettext("%(num)s step done", "%(num)s steps done", 2) == "2 étapes terminées"


def test_what_is_built_has_the_catalogues_templates_and_scripts() -> None:
    package = ROOT / "flask_instruct"
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["flask_instruct"]
    built = {file for pattern in globs for file in package.glob(pattern)}
    kept = {file for file in package.rglob("*") if file.suffix in (".po", ".mo", ".html", ".css", ".js")}
    assert kept - built == set()
    assert FRENCH.with_suffix(".mo") in built
