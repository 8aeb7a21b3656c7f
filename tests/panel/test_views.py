"""What the panel's POSTs do, and whom they refuse."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from flask_instruct.errors import ConfigurationError
from flask_instruct.panel.forms import LONGEST_PROMPT
from flask_instruct.panel.keys import panel_key
from flask_instruct.runs.models import Run

from .board import instruct

GID = "instruct://Arranger/1"
BY_SCRIPT = {"Accept": "text/vnd.turbo-stream.html"}

Runs = Callable[[], list[Run]]
Work = Callable[[], list[str]]


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, f"no field {name} on the page"
    return html.unescape(found[1])


def post(client: FlaskClient, path: str = "/instruct/runs", board: int = 1, **options: object) -> TestResponse:
    """Post what a browser would, with the token of the page of a board; ``data`` and ``headers`` overrule."""
    page = client.get(f"/boards/{board}?view=all").text
    data = {"token": field(page, "token"), "next": field(page, "next"), "prompt": "Arrange it."}
    data |= options.pop("data", {})  # type: ignore[call-overload]
    return client.post(path, data=data, **options)  # type: ignore[arg-type]


def test_a_request_starts_a_run_and_returns_to_the_page(client: FlaskClient, runs: Runs) -> None:
    response = post(client)
    assert response.status_code == 303
    assert response.location == f"/boards/1?view=all#instruct_panel_{panel_key(GID)}"
    [run] = runs()
    assert (run.user_prompt, run.handler, run.actor, run.status) == ("Arrange it.", GID, "Ada", "queued")


def test_the_pending_request_is_on_the_page_before_a_worker_starts(client: FlaskClient) -> None:
    page = post(client, follow_redirects=True).text
    assert "Arrange it." in page
    assert "Queued, waiting for a worker" in page


def test_a_script_gets_the_pending_request_as_a_fragment(client: FlaskClient, runs: Runs) -> None:
    response = post(client, headers=BY_SCRIPT)
    assert response.mimetype == "text/vnd.turbo-stream.html"
    assert f'action="append" target="instruct_runs_{panel_key(GID)}"' in response.text
    assert f'id="instruct_run_{runs()[0].id}"' in response.text
    assert "Queued, waiting for a worker" in response.text


def test_a_suggestion_is_a_request(client: FlaskClient, runs: Runs) -> None:
    post(client, data={"suggestion": "Chat with me", "prompt": "half a thou"})
    assert runs()[0].user_prompt == "Chat with me"


def test_control_characters_of_a_request_are_dropped(client: FlaskClient, runs: Runs) -> None:
    post(client, data={"prompt": "  one\r\ntwo\x00\x1b[31m\tthree\r\n"})
    assert runs()[0].user_prompt == "one\ntwo[31m\tthree"


def test_an_empty_request_is_refused(client: FlaskClient, runs: Runs) -> None:
    assert post(client, data={"prompt": " \n\x00"}).status_code == 400
    assert runs() == []


def test_a_request_that_is_too_long_is_refused_and_kept(client: FlaskClient, runs: Runs) -> None:
    response = post(client, data={"prompt": "x" * (LONGEST_PROMPT + 1)})
    assert response.status_code == 413
    assert "x" * (LONGEST_PROMPT + 1) in response.text
    assert runs() == []


@pytest.mark.parametrize("token", ["", "x", "e30.x.y"])
def test_a_post_without_a_valid_token_is_refused(client: FlaskClient, runs: Runs, token: str) -> None:
    assert post(client, data={"token": token}).status_code == 403
    assert runs() == []


def test_a_token_of_another_purpose_is_refused(client: FlaskClient, runs: Runs) -> None:
    found = re.search(r'<instruct-stream[^>]* token="([^"]+)"', client.get("/boards/1").text)
    assert found is not None
    assert post(client, data={"token": found[1]}).status_code == 403
    assert runs() == []


def test_a_token_names_the_record_so_that_no_other_can_be_asked_for(client: FlaskClient, runs: Runs) -> None:
    post(client, board=2, data={"handler": GID, "record": "1"})
    assert runs()[0].handler == "instruct://Arranger/2"


def test_a_token_of_someone_else_is_refused(app: Flask, client: FlaskClient, runs: Runs) -> None:
    token = field(client.get("/boards/1").text, "token")
    other = app.test_client()
    other.get("/as/Bob")
    assert post(other, data={"token": token}).status_code == 403
    client.get("/as/Bob")
    assert "signed in as someone else" in post(client, data={"token": token}).text
    assert runs() == []


def test_a_token_grows_old(client: FlaskClient, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.time()
    with monkeypatch.context() as past:
        past.setattr("itsdangerous.timed.time.time", lambda: moment - 90_000)
        token = field(client.get("/boards/1").text, "token")
    response = post(client, data={"token": token})
    assert response.status_code == 403
    assert "open for too long" in response.text
    assert runs() == []


def test_whom_the_app_does_not_let_ask_is_refused(app: Flask, client: FlaskClient, runs: Runs) -> None:
    guest = app.test_client()
    guest.get("/as/guest")
    page = guest.get("/boards/1").text
    assert "<form" not in page
    assert "You can follow along here" in page

    with app.test_request_context():
        token = app.extensions["instruct"].live.signer.sign("panel", {"handler": GID}, "guest")
    assert guest.post("/instruct/runs", data={"token": token, "prompt": "Arrange"}).status_code == 403
    assert runs() == []


def test_a_post_from_another_site_is_refused(client: FlaskClient, runs: Runs) -> None:
    assert post(client, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert runs() == []


def test_nothing_is_done_by_a_get(client: FlaskClient, runs: Runs) -> None:
    client.get("/instruct/runs")  # the dashboard's list of them
    assert runs() == []
    assert client.get("/instruct/runs/0197a5f0-0000-7000-8000-000000000000/retry").status_code == 405


def test_a_record_that_is_gone_is_told(app: Flask, client: FlaskClient) -> None:
    with app.test_request_context():
        token = app.extensions["instruct"].live.signer.sign("panel", {"handler": "instruct://Arranger/99"}, "Ada")
    response = post(client, data={"token": token})
    assert response.status_code == 404
    assert "no longer exists" in response.text


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "\t//evil.example",
        "/a\nLocation: x",
        "javascript:alert(1)",
        "evil.example",
        "",
    ],
)
def test_the_way_back_leads_to_this_site_only(client: FlaskClient, path: str) -> None:
    assert post(client, data={"next": path}).location == f"/#instruct_panel_{panel_key(GID)}"


def test_a_refusal_keeps_what_was_written_and_shows_the_way_back(client: FlaskClient) -> None:
    response = post(client, data={"token": "", "prompt": "\nKeep <b>this</b>"})
    assert '">\n\nKeep &lt;b&gt;this&lt;/b&gt;</textarea>' in response.text
    assert 'href="/boards/1?view=all"' in response.text


def test_a_script_is_told_of_a_refusal_in_plain_words(client: FlaskClient) -> None:
    response = post(client, headers=BY_SCRIPT, data={"prompt": ""})
    assert response.mimetype == "text/plain"
    assert response.text == "Write what should change, then send."


def test_a_failed_run_is_retried_where_it_stopped(client: FlaskClient, runs: Runs, work: Work) -> None:
    post(client, data={"prompt": "Fail"})
    work()
    assert runs()[0].status == "failed"
    response = post(client, f"/instruct/runs/{runs()[0].id}/retry")
    assert response.status_code == 303
    [run] = runs()
    assert (run.status, run.actor) == ("queued", "Ada")


def test_a_retry_by_script_leaves_the_rest_to_the_stream(client: FlaskClient, runs: Runs, work: Work) -> None:
    post(client, data={"prompt": "Fail"})
    work()
    assert post(client, f"/instruct/runs/{runs()[0].id}/retry", headers=BY_SCRIPT).status_code == 204


def test_a_run_that_has_not_failed_is_not_retried(client: FlaskClient, runs: Runs) -> None:
    post(client)
    assert post(client, f"/instruct/runs/{runs()[0].id}/retry").status_code == 409


def test_a_run_of_another_record_cannot_be_retried_from_here(client: FlaskClient, runs: Runs, work: Work) -> None:
    post(client, board=2, data={"prompt": "Fail"})
    work()
    assert post(client, f"/instruct/runs/{runs()[0].id}/retry").status_code == 404
    for unknown in ("unknown", "%00", "0197a5f0-0000-7000-8000-000000000000"):
        assert post(client, f"/instruct/runs/{unknown}/retry").status_code == 404
    assert runs()[0].status == "failed"


def test_a_site_that_is_not_set_up_says_so_and_changes_nothing(
    app: Flask, client: FlaskClient, runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(client, data={"prompt": "Fail"})
    work()

    def missing() -> str:
        raise ConfigurationError("INSTRUCT_REDIS_URL is not set.")

    monkeypatch.setattr(app.extensions["instruct"], "redis_url", missing)
    for path in ("/instruct/runs", f"/instruct/runs/{runs()[0].id}/retry"):
        response = post(client, path)
        assert response.status_code == 503
        assert "not set up" in response.text
        assert "INSTRUCT_REDIS_URL" not in response.text
    assert [run.status for run in runs()] == ["failed"]


def test_an_actor_without_a_rule_is_nobody_and_may_ask(app: Flask, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruct._hooks, "actor", None)
    monkeypatch.setattr(instruct._hooks, "authorize", None)
    assert post(app.test_client()).status_code == 303
    assert runs()[0].actor is None


def test_a_waiting_request_is_stopped_for_good(client: FlaskClient, runs: Runs, work: Work) -> None:
    post(client)
    response = post(client, f"/instruct/runs/{runs()[0].id}/stop")
    assert response.status_code == 303
    work()
    assert runs()[0].status == "cancelled"
    assert "/stop" not in client.get("/boards/1").text


def test_a_stop_by_script_leaves_the_rest_to_the_stream(client: FlaskClient, runs: Runs) -> None:
    post(client)
    assert post(client, f"/instruct/runs/{runs()[0].id}/stop", headers=BY_SCRIPT).status_code == 204
    # Pressed twice, or a moment after the end: what was wanted has happened.
    assert post(client, f"/instruct/runs/{runs()[0].id}/stop", headers=BY_SCRIPT).status_code == 204


def test_a_request_of_another_record_is_not_stopped(client: FlaskClient, runs: Runs) -> None:
    post(client, board=2)
    assert post(client, f"/instruct/runs/{runs()[0].id}/stop").status_code == 404
    assert runs()[0].status == "queued"
