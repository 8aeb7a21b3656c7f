"""Every word of the panel's own goes through gettext: in a language that writes no plain letter none is left (T30)."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_babel import Babel
from playwright.sync_api import expect

from flask_instruct.runs.models import Run
from tests.dashboard.test_language import Odd

from .pages import Open
from .pages import Work
from .pages import status
from .scenes import addresses
from .scenes import make_everything_happen
from .scenes import show
from .test_views import BY_SCRIPT
from .test_views import post

DATA = """
Rewrite it. / Rewritten. / Plan of / the / week / Rewrite / Plan
Arrange again. / Arrange it. / Arrange / Fail now. / Cut it. / Forever on. / Publish it. / Chat. / Hello, / world
And more. / Chat with me. / Mine / Board / card
First / two / cards. / one / two / three / Done / I would publish. / Well, / Far too lo / Publishing needs a lead.
What stands above it. / The weights total 110, not 100. / Added one. / Added two. / Added three. / Added beside.
beside / I would now use check, but tools are switched off for this answer.
Add card / Check all / Check / Publish / Title / Copies / Style / Secret / title / copies / style / secret
plain / false
One / text / Text / Id / Board id / Card / Lead Lea / Ada / janv / mars / avr / mai / juin / juil / sept / oct / nov
"""
"""What people, models, tools and rows say, which nobody translates, and months in French."""


@pytest.fixture
def odd(app: Flask) -> None:
    Babel(app, default_locale="fr", default_timezone="Europe/Paris")
    app.extensions["instruct_panel_domain"] = Odd()
    show(app, "fr")


@pytest.fixture
def french(app: Flask) -> None:
    Babel(app, default_locale="fr", default_timezone="Europe/Paris")
    show(app, "fr")


def words_of(text: str) -> set[str]:
    """The words of a page in plain letters, in its text and in the attributes that people meet."""
    page = text.partition("<body")[2].partition(">")[2]
    met = r'(?:aria-label|placeholder|title|data-instruct-(?:lost|odd|until|durations|text-\w+))="([^"]*)"'
    said = " ".join(re.findall(met, text))
    # What a model was told is quoted, and said to be English.
    page = re.sub(r'<p class="instruct-result"[^>]* lang="en">.*?</p>', " ", page, flags=re.DOTALL)
    page = re.sub(r"<(code|svg|script|textarea|select)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    whole = html.unescape(f"{page} {said}")
    whole = re.sub(r"\{[smh]\}|scripted:board", " ", whole)
    for text in sorted(re.split(r" / |\n", DATA.strip()), key=len, reverse=True):
        whole = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", " ", " ".join(whole.split()))
    return set(re.findall(r"(?<![\w/:.-])[A-Za-z]{2,}(?![\w:/-])", whole))


@pytest.fixture
def happened(app: Flask, client: FlaskClient, work: Work) -> None:
    make_everything_happen(app, client, work)


def pages(app: Flask, client: FlaskClient) -> dict[str, str]:
    lead = app.test_client()
    lead.get("/as/Lead Lea")
    found = {}
    for name, path in addresses(app).items():
        found[name], found[f"{name} for a lead"] = client.get(path).text, lead.get(path).text
    guest = app.test_client()
    guest.get("/as/guest")
    found["guest"] = guest.get("/everything").text
    found["refused"] = post(client, data={"prompt": ""}).text
    return found


@pytest.mark.usefixtures("odd", "happened")
def test_t30_no_english_word_is_left(app: Flask, client: FlaskClient) -> None:
    found = {path: words for path, text in pages(app, client).items() if (words := words_of(text))}
    assert found == {}, found


@pytest.mark.usefixtures("odd")
def test_t30_what_a_script_is_told_is_translated_too(client: FlaskClient) -> None:
    assert words_of("<body>" + post(client, headers=BY_SCRIPT, data={"prompt": "x" * 20_001}).text) == set()
    assert words_of("<body>" + post(client, headers=BY_SCRIPT, data={"token": "x"}).text) == set()


@pytest.mark.usefixtures("french")
def test_t30_a_person_who_reads_french_meets_french(
    app: Flask, enter: Open, work: Work, runs: Callable[[], list[Run]]
) -> None:
    page = enter(locale="fr-FR", timezone_id="Europe/Paris")
    page.get_by_label("Votre demande").fill("Arrange it.")
    page.get_by_role("button", name="Envoyer").click()
    expect(status(page)).to_have_text("En file d’attente : attend qu’un worker soit libre")
    page.get_by_label("Votre demande").fill("Arrange again.")
    page.get_by_role("button", name="Envoyer").click()
    expect(status(page)).to_have_text("En file d’attente, place 2")
    work()
    expect(status(page)).to_have_text("Terminé")
    expect(page.locator(".instruct-panel [role=status]")).to_have_text(
        "L’IA a terminé. 3 étapes terminées, 2 en échec."
    )
    page.get_by_role("link", name="Annuler…").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Annuler")
    assert page.evaluate("document.documentElement.lang") == "fr"
    page.get_by_role("button", name="Annuler").click()
    expect(page.get_by_text("Annulé").first).to_be_attached()
    expect(page.locator(".instruct-prompt__text").last).to_have_text("Annuler")
