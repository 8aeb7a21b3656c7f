"""What a card shows of what its tool does outside the database, and what a person decides about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy.orm import selectinload

from flask_instruct.panel import words
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import EffectStatus
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall

from .board import Arranger
from .board import db
from .rows import a_call
from .rows import a_run
from .test_views import BY_SCRIPT
from .test_views import GID
from .test_views import post

Lose = Callable[..., Effect]


def an_effect(call: ToolCall, status: str = "unknown", **values: object) -> Effect:
    """Add an effect to a call."""
    defaults: dict[str, object] = {"seq": len(call.effects) + 1, "method": "send_mail", "owner": "handler", "tries": 1}
    effect = Effect(**(defaults | {"arguments": '{"args": [], "kwargs": {}}', "timeout": 5, "status": status} | values))
    call.effects.append(effect)
    return effect


@pytest.fixture
def lose(app: Flask) -> Lose:
    """Write a run that has ended with an effect of which nobody knows; gives the effect."""

    def lose(status: str = "unknown", gid: str = GID, **values: object) -> Effect:
        run = a_run("succeeded", handler=gid)
        effect = an_effect(
            a_call(run, "invite", status="done", result="Invited.", idempotency_key="key"),
            status,
            run_id=run.id,
            **values,
        )
        with app.app_context():
            db.session.add(run)
            db.session.commit()
            db.session.refresh(effect)
            db.session.expunge_all()
        return effect

    return lose


def reread(app: Flask, effect: Effect) -> Effect:
    with app.app_context():
        found = db.session.get_one(Effect, effect.id, options=[selectinload(Effect.call)])
        db.session.expunge_all()
        return found


def path(effect: Effect, decision: str) -> str:
    return f"/instruct/runs/{effect.run_id}/effects/{effect.id}/{decision}"


def test_every_state_has_words() -> None:
    assert set(words.EFFECT) == set(get_args(EffectStatus))


def test_a_card_works_until_its_effects_have_ended() -> None:
    call = a_call(a_run(), status="done")
    effect = an_effect(call, "running")
    assert words.call_phrase(call).text == "Send mail: Running"
    effect.end("done")
    assert words.call_phrase(call).text == "Done"
    assert words.effects_note(call) == ""


def test_the_head_of_a_card_says_what_did_not_go_well() -> None:
    call = a_call(a_run(), status="done")
    an_effect(call, "done")
    an_effect(call, "failed", error_safe="Nobody lives there.", error_class="ToolError")
    an_effect(call, "unknown")
    assert words.effects_note(call) == "Send mail: Failed\nSend mail: It may or may not have happened"
    assert words.effect_phrase(call.effects[1]).detail == "Nobody lives there."
    assert words.effect_phrase(call.effects[2]).detail == "The worker died while it ran."


def test_two_buttons_stand_only_where_nobody_knows(client: FlaskClient, lose: Lose) -> None:
    for status in ("pending", "running", "done", "failed"):
        lose(status)
    page = client.get("/boards/1").text
    assert "Mark as done" not in page
    assert "Run again" not in page
    effect = lose()
    page = client.get("/boards/1").text
    assert page.count("Mark as done") == page.count("Run again") == 1
    assert f'formaction="{path(effect, "done")}"' in page


def test_what_was_never_begun_can_be_run(client: FlaskClient, lose: Lose) -> None:
    lose("failed", error_class="not_started", tries=0)
    page = client.get("/boards/1").text
    assert "Run now" in page
    assert "It was not started, because the request ended before." in page


def test_marked_as_done_it_is_done(app: Flask, client: FlaskClient, lose: Lose) -> None:
    effect = lose()
    assert post(client, path(effect, "done")).status_code == 303
    assert reread(app, effect).status == "done"
    assert "Mark as done" not in client.get("/boards/1").text


def test_run_again_it_waits_for_a_worker(
    app: Flask, client: FlaskClient, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    monkeypatch.setattr(
        Arranger,
        "send_mail",
        lambda self: keys.append(f"{self.call.idempotency_key} of {self.record.id}"),
        raising=False,
    )
    effect = lose()
    assert post(client, path(effect, "again"), headers=BY_SCRIPT).status_code == 204
    assert (reread(app, effect).status, keys) == ("pending", [])
    assert "Send mail: Waiting" in client.get("/boards/1").text
    with app.app_context():
        generate(effect.run_id)
    assert (reread(app, effect).status, keys) == ("done", ["key:effect:1 of 1"])
    with app.app_context():
        assert db.session.get_one(Run, effect.run_id).status == "succeeded"


def test_the_second_to_decide_is_told_that_someone_was_faster(client: FlaskClient, lose: Lose) -> None:
    effect = lose()
    assert post(client, path(effect, "done"), headers=BY_SCRIPT).status_code == 204
    for decision in ("done", "again"):
        response = post(client, path(effect, decision), headers=BY_SCRIPT)
        assert (response.status_code, response.text) == (409, "Someone else was faster: this has been decided.")


def test_only_who_may_use_the_panel_decides(app: Flask, client: FlaskClient, lose: Lose) -> None:
    effect = lose()
    guest = app.test_client()
    guest.get("/as/guest")
    with app.test_request_context():
        token = app.extensions["instruct"].live.signer.sign("panel", {"handler": GID}, "guest")
    assert guest.post(path(effect, "done"), data={"token": token}).status_code == 403
    assert guest.post(path(effect, "done")).status_code == 403
    assert client.get(path(effect, "done")).status_code == 405
    assert reread(app, effect).status == "unknown"


def test_an_effect_of_another_record_or_request_is_not_decided_from_here(
    app: Flask, client: FlaskClient, lose: Lose
) -> None:
    elsewhere, here = lose(gid="instruct://Arranger/2"), lose()
    assert post(client, path(elsewhere, "done")).status_code == 404
    assert post(client, f"/instruct/runs/{here.run_id}/effects/{elsewhere.id}/done").status_code == 404
    assert post(client, f"/instruct/runs/{here.run_id}/effects/{here.id}/undone").status_code == 404
    assert {reread(app, effect).status for effect in (elsewhere, here)} == {"unknown"}
