"""Rows of the ledger as a test needs them, in no database, and as they are stored."""

from __future__ import annotations

from datetime import UTC
from datetime import datetime
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.approval import Approval
from flask_instruct.runs.columns import uuid7
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall

from .board import db

MOMENT = datetime(2030, 5, 1, 14, 5, tzinfo=UTC)
GID = "instruct://Editor/1"


def a_run(status: str = "running", **values: Any) -> Run:
    """Return a run that was asked for at :data:`MOMENT` and began two seconds later."""
    ended = MOMENT + timedelta(seconds=14) if status in ("succeeded", "failed", "limited", "cancelled") else None
    defaults: dict[str, Any] = {
        "id": uuid7(),
        "handler": GID,
        "handler_name": "Editor",
        "status": status,
        "user_prompt": "Make the weights total 100.",
        "attempt": 1,
        "resumes": 0,
        "created_at": MOMENT,
        "queued_at": MOMENT,
        "started_at": None if status == "queued" else MOMENT + timedelta(seconds=2),
        "ended_at": ended,
    }
    return Run(**(defaults | values))


def a_message(run: Run, text: str = "", state: str = "complete") -> Message:
    """Add a message to a run."""
    message = Message(id=uuid7(), seq=len(run.messages) + 1, role="assistant", text=text, state=state)
    run.messages.append(message)
    return message


def a_call(
    run: Run, name: str = "check_rubric", arguments: str = "{}", status: str = "waiting", **values: Any
) -> ToolCall:
    """Add a call to a run's last message."""
    message = run.messages[-1] if run.messages else a_message(run)
    begun = status != "waiting"
    defaults: dict[str, Any] = {
        "id": uuid7(),
        "seq": len(run.calls) + 1,
        "message_id": message.id,
        "provider_call_id": f"call_{len(run.calls)}",
        "name": name,
        "arguments": arguments,
        "status": status,
        "attempt": 1 if begun else 0,
        "started_at": MOMENT + timedelta(seconds=3) if begun else None,
        "ended_at": MOMENT + timedelta(seconds=3.4) if status in ("done", "failed") else None,
    }
    call = ToolCall(**(defaults | values))
    message.calls.append(call)
    run.calls.append(call)
    return call


def stored_approval(app: Flask) -> Approval:
    """Return the one thing that a person was asked, as it stands now."""
    with app.app_context():
        found = db.session.scalars(sa.select(Approval)).one()
        db.session.expunge_all()
        return found
