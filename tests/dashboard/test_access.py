"""Nobody sees a page of the dashboard until the app says who may; then only who may, and only to look."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from .ledger import a_run


@pytest.fixture
def addresses(app: Flask) -> list[str]:
    """Every address of the dashboard, those of a run with one that is there and one that is not."""
    with app.app_context():
        there = a_run().id
    some = ["/instruct/", "/instruct", "/instruct/runs", "/instruct/runs.csv", "/instruct/runs?q=treasure"]
    for run_id in (there, str(uuid.uuid4())):
        some += [f"/instruct/runs/{run_id}", f"/instruct/runs/{run_id}/export.json"]
    return some


def test_the_list_of_addresses_here_is_whole(app: Flask) -> None:
    rules = {rule.endpoint for rule in app.url_map.iter_rules() if rule.endpoint.startswith("instruct_dashboard.")}
    known = {"overview", "runs", "runs_csv", "run", "export_run", "static"}
    assert rules == {f"instruct_dashboard.{name}" for name in known}


def test_without_a_rule_every_address_is_closed_and_says_how_to_open_it(
    app: Flask, client: FlaskClient, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", None)
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 403, address
        assert "@instruct.authorize_dashboard" in answer.text
        assert "Sort it." not in answer.text
        assert "Location" not in answer.headers


@pytest.mark.parametrize("name", ["Bob", None])
def test_whom_the_rule_refuses_reads_plain_words_and_is_sent_nowhere(
    app: Flask, addresses: list[str], name: str | None
) -> None:
    client = app.test_client()
    if name:
        client.get(f"/as/{name}")
    for address in addresses:
        for answer in (client.get(address), client.head(address)):
            assert answer.status_code == 403, address
            assert "Location" not in answer.headers
        answer = client.get(address)
        assert "You may not see this page" in answer.text
        assert "authorize_dashboard" not in answer.text
        assert "Sort it." not in answer.text


def test_whom_the_rule_lets_in_sees_the_pages(client: FlaskClient, addresses: list[str]) -> None:
    for address in addresses[:-2]:
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
    for address in addresses[-2:]:
        answer = client.get(address)
        assert (answer.status_code, "There is no such run" in answer.text) == (404, True)


def test_a_rule_that_would_have_to_be_awaited_is_an_error_and_lets_nobody_in(
    app: Flask, client: FlaskClient, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rule(actor: object) -> bool:
        return False

    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", rule)
    for address in addresses:
        assert client.get(address).status_code == 500


def test_the_rule_is_told_who_asks(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.panel.board import instruct

    asked: list[object] = []

    @instruct.authorize_dashboard
    def rule(actor: object) -> bool:
        asked.append(actor)
        return True

    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", rule)
    client = app.test_client()
    client.get("/instruct/")
    client.get("/as/Ada")
    client.get("/instruct/")
    assert asked == [None, "Ada"]
    instruct._hooks.authorize_dashboard = None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_sent_to_it(client: FlaskClient, addresses: list[str], method: str) -> None:
    for address in addresses:
        answer = client.open(address, method=method)
        # What is posted to the list goes to the panel, which refuses what has no token.
        to_panel = method == "POST" and address.partition("?")[0] == "/instruct/runs"
        assert answer.status_code in ((403,) if to_panel else (404, 405))


def test_no_page_holds_a_form_that_does_something(client: FlaskClient, addresses: list[str]) -> None:
    for address in addresses:
        assert 'method="post"' not in client.get(address).text.lower()


def test_no_foreign_address_is_ever_led_to(client: FlaskClient, addresses: list[str]) -> None:
    for parameter in ("next", "before", "after", "q", "handler", "range", "since"):
        for address in addresses[:5]:
            page = client.get(address.partition("?")[0], query_string={parameter: "//evil.example/?x"})
            assert "Location" not in page.headers
            assert 'href="//evil' not in page.text


def test_the_stylesheet_is_there_for_the_page_that_refuses(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.extensions["instruct"].hooks, "authorize_dashboard", None)
    client = app.test_client()
    assert "dashboard-assets/instruct-dashboard.css" in client.get("/instruct/").text
    assert client.get("/instruct/dashboard-assets/instruct-dashboard.css", buffered=True).status_code == 200


def test_it_only_reads() -> None:
    """The room imports nothing that starts, stops or decides; see also tests/test_architecture.py."""
    import flask_instruct.dashboard as room

    text = "".join(file.read_text() for file in Path(room.__file__).parent.glob("*.py"))
    assert "commit(" not in text
    assert "sa.update" not in text
    assert "sa.delete" not in text
    assert "sa.insert" not in text
