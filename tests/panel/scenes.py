"""What can happen to a board, all at once, and the pages that show it: for tests that look at every page."""

from __future__ import annotations

import sqlalchemy as sa
from flask import Flask
from flask import render_template_string
from flask.testing import FlaskClient

from flask_instruct.runs.approval import Approval
from flask_instruct.runs.models import Run
from flask_instruct.runs.models import ToolCall
from flask_instruct.runs.undo import undo

from .board import Board
from .board import Card
from .board import db
from .pages import Work
from .test_views import post

PAGE = """<!doctype html><html lang="{{ lang }}" dir="{{ request.args.get('dir', 'ltr') }}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Board</title>
<link rel="icon" href="{{ url_for('static', filename='none.svg') }}"></head><body><main><h1>Board</h1>
{{ body }}</main></body></html>"""
EVERYTHING = """{{ instruct_panel(board, "Arranger", title="…", prompts=["Arrange"], placeholder="…") }}
<section><h2>…</h2>{{ instruct_approvals() }}</section><section><h2>…</h2>{{ instruct_activity() }}</section>
<section><h2>…</h2>{{ instruct_history(card) }}</section><p>{{ instruct_badge(card, "text") }}</p>"""
CHAT = """{{ instruct_chat(board, "Arranger", title="…", placeholder="…") }}"""
RUN = """{{ instruct_run(run, title="…") }}"""


def show(app: Flask, lang: str = "en") -> None:
    """Give the board's app pages with all that templates can show."""

    def page(body: str) -> str:
        return PAGE.replace("{{ body }}", body).replace("{{ lang }}", lang)

    @app.get("/everything")
    def everything() -> str:
        card = db.session.scalars(sa.select(Card).order_by(Card.id)).first()
        return render_template_string(page(EVERYTHING), board=db.session.get(Board, 1), card=card)

    @app.get("/chat")
    def chat() -> str:
        return render_template_string(page(CHAT), board=db.session.get(Board, 1))

    @app.get("/one/<run_id>")
    def one(run_id: str) -> str:
        return render_template_string(page(RUN), run=run_id)


def make_everything_happen(app: Flask, client: FlaskClient, work: Work) -> None:
    """Make a run of each kind of end, one that waits for a lead, one that was undone, a chat, and one that waits."""
    for text in ("Arrange it.", "Fail now.", "Cut it.", "Forever on.", "Publish it."):
        post(client, data={"prompt": text})
    post(client, data={"prompt": "Rewrite it.", "preview": "1"})
    work()
    with app.app_context():
        first = db.session.scalars(sa.select(Run).order_by(Run.created_at)).all()[0]
        call = db.session.scalars(sa.select(ToolCall).where(ToolCall.changed == 1)).all()[-1]
        call.undo_problem = "The key of a row of card was changed."
        db.session.commit()
        undo(app.extensions["instruct"], first, "Ada")
    chat = "0197a5f0-0000-7000-8000-000000000001"
    post(client, data={"prompt": "Chat with me.", "chat": chat})
    post(client, data={"prompt": "Arrange again."})
    work()
    with app.app_context():
        written = db.session.scalars(sa.select(Card).order_by(Card.id.desc()).limit(1)).one()
        written.text = "Mine"
        db.session.commit()
    post(client, data={"prompt": "Chat."})


def addresses(app: Flask) -> dict[str, str]:
    """Return the address of every page that there is something to see on."""
    with app.app_context():
        approval = db.session.scalars(sa.select(Approval).where(Approval.call_id.is_not(None))).one()
        proposal = db.session.scalars(sa.select(Approval).where(Approval.call_id.is_(None))).one()
        done = list(db.session.scalars(sa.select(Run).where(Run.status == "succeeded", Run.kind == "ai")))
        again = next(run for run in done if run.user_prompt == "Arrange again.")
        return {
            "everything": "/everything",
            "chat": "/chat",
            "run": f"/one/{approval.run_id}",
            "approval": f"/instruct/approvals/{approval.id}",
            "proposal": f"/instruct/approvals/{proposal.id}",
            "proposing run": f"/one/{proposal.run_id}",
            "inbox": "/instruct/approvals",
            "undo": f"/instruct/runs/{again.id}/undo",
            "undone": f"/instruct/runs/{done[0].id}/undo",
        }
