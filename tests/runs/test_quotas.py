"""Quotas of a day: what one person, and one tenant, may use in all their runs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import Limits
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.events import Usage
from flask_instruct.panel import words
from flask_instruct.prompt import ModelRequest
from flask_instruct.runs.columns import now
from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run

from .conftest import reread
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

CarryOut = Callable[..., Run]
Setting = Callable[..., None]


@pytest.fixture
def heard(app: Flask, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that ``handle_limit`` was called with."""
    heard: list[str] = []
    monkeypatch.setattr(NoteKeeper, "handle_limit", lambda self, name: heard.append(name))
    return heard


@pytest.fixture
def setting(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Change settings of the app in this process."""
    state = app.extensions["instruct"]

    def setting(**values: object) -> None:
        monkeypatch.setattr(state, "config", replace(state.config, **values))

    return setting


@pytest.fixture
def rule(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Register the app's own rule for the length of the test."""

    def rule(function: Any) -> None:
        monkeypatch.setattr(app.extensions["instruct"].hooks, "quota", None)
        instruct.quota(function)

    return rule


@pytest.fixture
def use(carry_out: CarryOut, monkeypatch: pytest.MonkeyPatch) -> CarryOut:
    """Carry out a run of ``rounds`` tool calls and an answer; each model call is ten tokens and a dollar."""
    monkeypatch.setattr("flask_instruct.adapters.scripted._estimate", lambda request, parts: Usage(8, 2))
    monkeypatch.setattr("flask_instruct.runs.rounds.cost", lambda *_, **__: Decimal(1))

    def use(rounds: int = 0, **options: Any) -> Run:
        def turns(request: ModelRequest) -> list[Any]:
            done = sum(1 for message in request.messages if message.role == "assistant")
            ready = request.tool_choice == "none" or done >= rounds
            return [Say("Done.")] if ready else [Use("link")]

        register_script("measured", turns)
        return carry_out(script="measured", **options)

    return use


def model_calls(run: Run) -> int:
    return db.session.scalar(sa.select(sa.func.count(ModelCall.id)).where(ModelCall.run_id == run.id)) or 0


QUOTAS = [
    ({"actor_tokens_per_day": 20}, "actor_tokens"),
    ({"actor_cost_per_day": Decimal(2)}, "actor_cost"),
    ({"tenant_tokens_per_day": 20}, "tenant_tokens"),
    ({"tenant_cost_per_day": Decimal(2)}, "tenant_cost"),
]


@pytest.mark.parametrize(("quota", "name"), QUOTAS)
def test_a_run_that_starts_over_its_quota_ends_at_once_in_words(
    use: CarryOut, setting: Setting, heard: list[str], quota: dict[str, Any], name: str
) -> None:
    setting(**quota)
    assert use(rounds=1, actor="ada", tenant="acme").status == "succeeded"
    run = use(actor="ada", tenant="acme")
    assert (run.status, run.limit_reached, run.error_class) == ("limited", name, None)
    assert (model_calls(run), heard) == (0, [name])
    assert words.limit(run) == words.LIMITS[name]
    assert words.limit(run).endswith("today.")
    assert [message.role for message in transcript(run)] == ["user"]


@pytest.mark.parametrize(("quota", "name"), QUOTAS)
def test_a_run_that_meets_a_quota_on_its_way_answers_once_more(
    use: CarryOut, setting: Setting, heard: list[str], quota: dict[str, Any], name: str
) -> None:
    setting(**quota)
    run = use(rounds=5, actor="ada", tenant="acme")
    assert (run.status, run.limit_reached, model_calls(run), heard) == ("limited", name, 3, [name])
    assert transcript(run)[-1].text == "Done."


def test_a_quota_that_is_far_behind_ends_a_run_on_its_way_without_an_answer(use: CarryOut, setting: Setting) -> None:
    setting(actor_tokens_per_day=7)
    run = use(rounds=5, actor="ada")
    assert (run.status, run.limit_reached, model_calls(run)) == ("limited", "actor_tokens", 1)


def test_each_person_and_each_tenant_has_a_quota_of_their_own(use: CarryOut, setting: Setting) -> None:
    setting(actor_tokens_per_day=10, tenant_tokens_per_day=30)
    assert use(actor="ada", tenant="acme").status == "succeeded"
    assert use(actor="ada", tenant="other").limit_reached == "actor_tokens"
    assert use(actor="ben", tenant="acme").status == "succeeded"
    assert use(actor="eve", tenant="acme").status == "succeeded"
    assert use(actor="kim", tenant="acme").limit_reached == "tenant_tokens"
    assert use(actor="kim", tenant="other").status == "succeeded"


def test_runs_of_nobody_have_no_quota(use: CarryOut, setting: Setting) -> None:
    setting(actor_tokens_per_day=1, tenant_tokens_per_day=1)
    assert [use().status for _ in range(2)] == ["succeeded"] * 2


def test_what_was_used_yesterday_is_not_counted_today(use: CarryOut, setting: Setting) -> None:
    setting(actor_tokens_per_day=10)
    use(actor="ada")
    assert use(actor="ada").status == "limited"
    midnight = now().replace(hour=0, minute=0, second=0, microsecond=0)
    db.session.execute(sa.update(ModelCall).values(created_at=midnight - timedelta(seconds=1)))
    db.session.commit()
    assert use(actor="ada").status == "succeeded"


# -- the app's own numbers ---------------------------------------------------------------------------------------------


def test_the_apps_own_numbers_take_the_place_of_the_settings(
    use: CarryOut, setting: Setting, rule: Callable[[Any], None]
) -> None:
    setting(actor_tokens_per_day=10)
    plans = {"ada": Limits(tokens=30), "ben": None}
    rule(lambda actor, tenant: plans.get(actor))
    assert [use(actor="ada").status for _ in range(4)] == ["succeeded"] * 3 + ["limited"]
    assert [use(actor="ben").status for _ in range(2)] == ["succeeded", "limited"]


def test_the_rule_is_asked_for_the_person_and_for_the_tenant_once_in_an_attempt(
    use: CarryOut, rule: Callable[[Any], None]
) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def plan(actor: str | None, tenant: str | None) -> Limits | None:
        asked.append((actor, tenant))
        return Limits(cost=Decimal(2)) if actor is None else None

    rule(plan)
    run = use(rounds=5, actor="ada", tenant="acme")
    assert (run.limit_reached, asked) == ("tenant_cost", [("ada", "acme"), (None, "acme")])


def test_a_rule_that_limits_what_no_day_has_is_told_to_the_developer(
    use: CarryOut, rule: Callable[[Any], None]
) -> None:
    rule(lambda actor, tenant: Limits(rounds=3))
    run = use(actor="ada")
    assert (run.status, run.error_class) == ("failed", "configuration")
    assert "@instruct.quota rule limits rounds" in (run.error_technical or "")


def test_a_plan_without_any_use_starts_no_run(use: CarryOut, rule: Callable[[Any], None]) -> None:
    rule(lambda actor, tenant: Limits(tokens=0))
    run = use(actor="ada")
    assert (run.limit_reached, model_calls(run)) == ("actor_tokens", 0)


def test_a_run_that_was_taken_up_again_may_still_come_to_an_end(use: CarryOut, setting: Setting) -> None:
    run = use(rounds=1, actor="ada")
    setting(actor_tokens_per_day=20)
    db.session.execute(
        sa.update(Run)
        .where(Run.id == run.id)
        .values(status="running", ended_at=None, lease_until=now() - timedelta(hours=1))
    )
    last = run.messages[-1]
    db.session.delete(last)
    db.session.commit()
    generate(run.id)
    again = reread(run)
    assert (again.status, again.limit_reached, again.messages[-1].text) == ("limited", "actor_tokens", "Done.")
