"""The same handler, unchanged, over three models: scripted, OpenAI's format, Anthropic's; each by a real worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import sqlalchemy as sa

from example_app import create_app
from example_app import stories
from example_app.database import db
from example_app.handlers import AssessmentUpdater
from example_app.models import Assessment
from flask_instruct import generate_for
from tests.support import wait_for
from tests.wire import WireServer

from .conftest import Studio

MODELS = ("scripted:studio", "local-openai:any", "local-anthropic:any")
PROTOCOLS = {"local-openai": "openai_chat", "local-anthropic": "anthropic"}
ASSESSMENT = sa.text("select title, instructions from assessment where id = :key")
CRITERIA = sa.text(
    "select name, description, weight, position from criterion where assessment_id = :key order by position"
)
CALLS = sa.text("select name, arguments, status, error_kind from instruct_tool_call where run_id = :run order by seq")


def test_equal_rows_at_the_end_whatever_the_model_speaks(make_studio: Callable[[], Studio]) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(WireServer.telling(stories.play, piece=50))
        providers = {
            name: {"protocol": protocol, "base_url": server.base_url(protocol), "api_key": "k"}
            for name, protocol in PROTOCOLS.items()
        }
        rows = [_carry_out(make_studio(), model, providers) for model in MODELS]
    assert len(server.seen) > 4
    assert rows[0][0]
    assert rows[0] == rows[1] == rows[2]


def _carry_out(studio: Studio, model: str, providers: dict[str, dict[str, str]]) -> list[object]:
    studio.start_worker(INSTRUCT_PROVIDERS=json.dumps(providers))
    key = studio.key_of("Lab report: Enzyme kinetics")
    names = ("INSTRUCT_REDIS_URL", "INSTRUCT_KEY_PREFIX", "INSTRUCT_QUEUE")
    app = create_app(
        {"SECRET_KEY": "x", "SQLALCHEMY_DATABASE_URI": studio.database_url}
        | {name: studio.environment[name] for name in names}
    )
    with app.app_context():
        handler = AssessmentUpdater(db.session.get(Assessment, key))
        run = generate_for(handler, user_prompt="Check the rubric and repair the weights", model=model, actor=1)
        run_id = run.id
        db.session.remove()
        db.engine.dispose()
    wait_for(lambda: studio.statuses()[-1] in ("succeeded", "failed"), 30, f"the run of {model}")
    with studio.engine.connect() as connection:
        error = connection.scalar(sa.text("select error_technical from instruct_run where id = :run"), {"run": run_id})
    assert error is None, model
    with studio.engine.connect() as connection:
        return [
            [tuple(row) for row in connection.execute(ASSESSMENT, {"key": key})],
            [tuple(row) for row in connection.execute(CRITERIA, {"key": key})],
            [_call(row) for row in connection.execute(CALLS, {"run": run_id})],
        ]


def _call(row: sa.Row[tuple[str, str, str, str]]) -> tuple[object, ...]:
    return row.name, json.loads(row.arguments or "{}"), row.status, row.error_kind
