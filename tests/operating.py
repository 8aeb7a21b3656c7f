"""The notebook app for tests of what operators use: opened on chosen servers, with rows as runs leave them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask

from flask_instruct.runs.approval import Approval
from flask_instruct.runs.change import Change
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from flask_instruct.runs.unit import ledger_engine

from .runs import notebook
from .runs.notebook import Notebook
from .runs.notebook import db

PROMPT = "Please hide the treasure under the oak."


@contextmanager
def notebook_site(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Iterator[Flask]:
    """Open the notebook app with these environment variables, tables made, its context pushed."""
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    app = notebook.create_app()
    with app.app_context():
        db.create_all()
        db.session.add(Notebook(title="Field notes"))
        db.session.commit()
        yield app
        db.session.remove()
        state = app.extensions["instruct"]
        state.live.close()
        if state._redis is not None:
            state.redis.close()
        if state._bus_redis is not None:
            state.bus_redis.close()
        if db.engine.url.database != ":memory:":
            ledger_engine(db).dispose()
        for engine in db.engines.values():
            engine.dispose()


def a_run(status: str = "succeeded", *, age: timedelta = timedelta(), effect: str = "done", **fields: Any) -> Run:
    """Store a run of that age, with a turn, a call, its effect and its model call, and broadcasts in the outbox."""
    moment = now() - age
    ended = moment if status in ("succeeded", "failed", "cancelled", "limited") else None
    run = Run(
        **{
            "handler": "instruct://NoteKeeper/1",
            "handler_name": "NoteKeeper",
            "user_prompt": PROMPT,
            "model": "scripted:talk",
            "status": status,
            "created_at": moment,
            "queued_at": moment,
            "ended_at": ended,
            **fields,
        }
    )
    db.session.add(run)
    db.session.flush()
    message = Message(run_id=run.id, seq=0, state="complete", text="Under the oak it is.")
    db.session.add(message)
    db.session.flush()
    call = ToolCall(
        run_id=run.id,
        message_id=message.id,
        seq=0,
        provider_call_id="call_1",
        name="write",
        arguments='{"text": "oak"}',
        status="done",
        result="Wrote oak.",
        idempotency_key=f"{run.id}:0",
    )
    db.session.add(call)
    db.session.flush()
    db.session.add_all(
        [
            Effect(
                run_id=run.id,
                call_id=call.id,
                seq=0,
                owner="handler",
                method="send",
                arguments='["oak"]',
                timeout=10,
                status=effect,
            ),
            Change(
                run_id=run.id,
                call_id=call.id,
                seq=1,
                action="update",
                entity="Notebook",
                table="notebook",
                key="[1]",
                before={"title": "Field notes"},
                after={"title": "Oak"},
            ),
            Approval(
                run_id=run.id,
                call_id=call.id,
                tool="write",
                arguments=call.arguments,
                digest="0" * 64,
                status="approved",
                decided_by="lead",
                decided_at=moment,
            ),
            ModelCall(
                run_id=run.id,
                model="talk",
                attempt=1,
                input_tokens=70,
                output_tokens=8,
                cost=Decimal("0.25"),
                seconds=1.5,
            ),
            Outbox(stream="notes", html=f'<p id="instruct_run_{run.id}">', position="1-0", created_at=moment),
            Outbox(stream="notes", html=f'<p id="instruct_message_{message.id}_text">', created_at=moment),
            Outbox(stream="notes", html="<p>somebody else's</p>", position="2-0", created_at=moment),
        ]
    )
    db.session.commit()
    return run
