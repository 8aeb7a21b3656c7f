"""What is committed and not published is made good, and never takes a page back to an older state."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.connections import connect
from flask_instruct.live.turbo_stream import stream_name
from flask_instruct.prompt import ModelRequest
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.sweep import sweep

from .notebook import Notebook
from .notebook import db

CarryOut = Callable[..., Run]


def published(app: Flask, stream: str) -> list[str]:
    """The fragments that Redis holds for a stream, oldest first."""
    state = app.extensions["instruct"]
    [key] = [key for key in state.redis.scan_iter(f"{state.config.key_prefix}*stream*") if stream in key.decode()]
    return [b"".join(fields.values()).decode() for _, fields in state.redis.xrange(key)]


def age(count: int | None = None) -> None:
    """Make what the outbox holds old, and its newest ``count`` rows unpublished, as after a crash."""
    db.session.execute(sa.update(Outbox).values(created_at=now() - timedelta(seconds=60)))
    if count is not None:
        newest = db.session.scalars(sa.select(Outbox.seq).order_by(Outbox.seq.desc()).limit(count)).all()
        db.session.execute(sa.update(Outbox).where(Outbox.seq.in_(newest)).values(position=None))
    db.session.commit()


def test_a_broadcast_that_was_published_and_not_noted_is_not_repeated(app: Flask, carry_out: CarryOut) -> None:
    carry_out(script="write_two")
    age(count=10_000)
    before = published(app, "panel")
    swept = sweep(app.extensions["instruct"])
    assert swept.broadcasts > 0
    assert published(app, "panel") == before
    assert sweep(app.extensions["instruct"]).broadcasts == 0


def test_one_that_was_lost_becomes_a_refresh_and_not_an_old_fragment_after_newer_ones(
    app: Flask, carry_out: CarryOut
) -> None:
    carry_out(script="talk")
    record = db.session.scalars(sa.select(Notebook)).one()
    db.session.add(Outbox(stream=stream_name(record), html="<p>old</p>"))
    db.session.commit()
    age()
    assert sweep(app.extensions["instruct"]).broadcasts >= 1
    [fragment] = published(app, "Notebook")
    assert "refresh" in fragment
    assert "old" not in fragment


def test_a_redis_that_was_away_in_the_middle_of_a_run_costs_a_refresh(
    app: Flask, ask: CarryOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = app.extensions["instruct"]
    away = connect("redis://127.0.0.1:1")

    def turns(request: ModelRequest) -> list[Any]:
        answers = sum(message.role == "assistant" for message in request.messages)
        monkeypatch.setattr(state, "_redis", (os.getpid(), away if answers == 0 else there))
        return [Use("write", text=f"note {answers}")] if answers < 2 else [Say("Done.")]

    register_script("outage", turns)
    run = ask("outage")
    there = state.redis
    generate(run.id)
    [first, *rest] = published(app, "Notebook")
    assert "refresh" in first
    assert ["note 1" in fragment for fragment in rest] == [True]
    away.close()
