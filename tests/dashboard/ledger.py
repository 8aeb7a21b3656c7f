"""Stores rows of the ledger as a test needs them; each function adds to the current session and commits."""

from __future__ import annotations

from datetime import datetime
from datetime import timedelta
from decimal import Decimal
from typing import Any

from flask_instruct.runs.approval import Approval
from flask_instruct.runs.change import Change
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import ENDED
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Message
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from tests.panel.board import db


def store(*rows: Any) -> None:
    db.session.add_all(rows)
    db.session.commit()


def a_run(
    status: str = "succeeded", *, at: datetime | None = None, took: float = 4.0, prompt: str = "Sort it.", **values: Any
) -> Run:
    """Store a run that was asked for at a moment (now), began a second later and took some seconds."""
    at = at or now()
    started = None if status == "queued" else at + timedelta(seconds=1)
    defaults: dict[str, Any] = {
        "handler": "instruct://Arranger/1",
        "handler_name": "Arranger",
        "actor": "Ada",
        "status": status,
        "user_prompt": prompt,
        "model": "scripted:board",
        "attempt": 0 if status == "queued" else 1,
        "created_at": at,
        "queued_at": at,
        "started_at": started,
        "ended_at": started + timedelta(seconds=took) if started and status in ENDED else None,
    }
    run = Run(**(defaults | values))
    store(run)
    return run


def a_turn(run: Run, text: str = "I sort it.", **values: Any) -> Message:
    seq = len(run.messages) + 1
    message = Message(**({"run_id": run.id, "seq": seq, "state": "complete", "text": text} | values))
    store(message)
    db.session.expire(run, ["messages"])
    return message


def a_call(message: Message, name: str = "add_card", arguments: str = "{}", **values: Any) -> ToolCall:
    """Store a call that is done, at the end of its run."""
    run = db.session.get_one(Run, message.run_id)
    seq = len(run.calls) + 1
    defaults: dict[str, Any] = {
        "run_id": run.id,
        "message_id": message.id,
        "seq": seq,
        "provider_call_id": f"call_{seq}",
        "name": name,
        "arguments": arguments,
        "status": "done",
        "result": "Done.",
        "attempt": 1,
        "idempotency_key": f"{run.id}:{seq}",
        "started_at": now(),
        "ended_at": now() + timedelta(seconds=0.5),
    }
    call = ToolCall(**(defaults | values))
    store(call)
    db.session.expire(run, ["calls"])
    return call


def a_change(call: ToolCall, seq: int = 1, action: str = "update", **values: Any) -> Change:
    defaults = {"entity": "Card", "table": "card", "key": "[7]", "before": {"text": "one"}, "after": {"text": "two"}}
    change = Change(run_id=call.run_id, call_id=call.id, seq=seq, action=action, **(defaults | values))
    store(change)
    return change


def an_approval(call: ToolCall, status: str = "approved", **values: Any) -> Approval:
    defaults = {"run_id": call.run_id, "call_id": call.id, "tool": call.name, "arguments": call.arguments}
    approval = Approval(status=status, digest="0" * 64, **(defaults | values))
    store(approval)
    return approval


def an_effect(call: ToolCall, status: str = "done", **values: Any) -> Effect:
    defaults = {"owner": "handler", "method": "send_mail", "arguments": "[]", "timeout": 10.0, "seq": 1}
    effect = Effect(run_id=call.run_id, call_id=call.id, status=status, **(defaults | values))
    store(effect)
    return effect


def a_model_call(run: Run, message: Message | None = None, **values: Any) -> ModelCall:
    defaults: dict[str, Any] = {
        "run_id": run.id,
        "message_id": message.id if message else None,
        "provider": "scripted",
        "model": "board",
        "attempt": 1,
        "input_tokens": 100,
        "output_tokens": 20,
        "cost": Decimal("0.001234567"),
        "seconds": 1.5,
        "created_at": run.created_at + timedelta(seconds=2),
    }
    call = ModelCall(**(defaults | values))
    store(call)
    return call
