"""Every word of the dashboard's own goes through gettext: in a language that writes no plain letter none is left."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_babel import Babel

from flask_instruct.runs.columns import now
from tests.panel.board import db

from .ledger import a_call
from .ledger import a_change
from .ledger import a_model_call
from .ledger import a_run
from .ledger import a_turn
from .ledger import an_approval
from .ledger import an_effect

LETTERS = str.maketrans("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "äƀčđęƒģħįĵķłɱņøƥɋŕşŧųṽŵẋỳž" * 2)
DATA = {
    "Ada",
    "Arranger",
    "Add",
    "add",
    "card",
    "instruct",
    "Card",
    "Grace",
    "USD",
    "text",
    "one",
    "two",
    "scripted",
    "board",
}
DATA |= {"janv", "mars", "avr", "mai", "juin", "juil", "sept", "oct", "nov"}
"""Words of the rows, which nobody translates, and of dates in French."""


class Odd:
    """A translation of whatever there is."""

    def gettext(self, message: str) -> str:
        return re.sub(r"%\(\w+\)s|(.)", lambda found: found[1].translate(LETTERS) if found[1] else found[0], message)

    def ngettext(self, singular: str, plural: str, number: int) -> str:
        return self.gettext(singular if number == 1 else plural) % {"num": number}


@pytest.fixture
def odd(app: Flask) -> None:
    Babel(app, default_locale="fr", default_timezone="Europe/Paris")
    app.extensions["instruct_panel_domain"] = Odd()


def words_of(client: FlaskClient, path: str) -> set[str]:
    """The words of a page that are written in plain letters, without those of codes and addresses."""
    answer = client.get(path)
    assert answer.status_code < 500
    page = answer.text.partition("<body")[2].partition(">")[2]
    attributes = re.findall(r'(?:aria-label|placeholder|title)="([A-Za-z ]{3,})"', page)
    page = re.sub(r"<(code|svg|script|time|datalist)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    said = re.findall(r"(?<![\w/:.-])[A-Za-z]{3,}(?![\w:/-])", html.unescape(page))
    return {*said, *attributes} - DATA


@pytest.mark.usefixtures("odd")
def test_no_english_word_is_left(app: Flask, client: FlaskClient) -> None:
    with app.app_context():
        run = a_run("failed", prompt="one", limits={"cost": 1, "seconds": 2}, resumes=2, context={"text": 1})
        turn = a_turn(run, "two", state="cut", parts={"parts": [{"type": "reasoning", "text": "two"}]})
        call = a_call(turn, arguments=json.dumps({"text": "one"}), result="two", undo_problem="one")
        for number, action in enumerate(("insert", "update", "delete"), 1):
            a_change(call, number, action)
        an_approval(call, decided_by="Grace", decided_at=now(), edited=json.dumps({"text": "two"}), reason="one")
        an_effect(call, "unknown", method="add_card")
        a_model_call(run, turn)
        a_model_call(run, try_number=2, attempt=2)
        a_run("retrying", prompt="two", lease_until=now() - timedelta(minutes=5))
        a_run(kind="undo", undoes=run.id, prompt="one")
        for status in ("queued", "waiting_approval", "cancelled", "limited"):
            a_run(status, prompt="one")
        run_id = run.id
        db.session.remove()
    paths = [
        "/instruct/",
        "/instruct/runs",
        "/instruct/runs?q=o",
        f"/instruct/runs/{run_id}",
        "/instruct/runs?q=nothing",
    ]
    left: dict[str, Any] = {path: words for path in paths if (words := words_of(client, path))}
    assert left == {}


@pytest.mark.usefixtures("odd")
def test_the_pages_that_refuse_are_translated_too(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    client = app.test_client()
    assert words_of(client, "/instruct/") == set()
    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", None)
    assert words_of(client, "/instruct/") == set()
