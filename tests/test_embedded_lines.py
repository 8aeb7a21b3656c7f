"""What docs/deployment.md says of the embedded server outside of ``flask instruct dev``, typed as it stands there."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.embedded import leave
from flask_instruct.runs.models import Run

from .runs.notebook import Notebook
from .runs.notebook import NoteKeeper
from .runs.notebook import db
from .runs.notebook import instruct
from .support import Process
from .support import wait_for

ROOT = Path(__file__).parent.parent
SLOW = 60.0
"""Seconds for processes that import an app anew, on a busy machine."""

APP = """
import os

from flask import Flask

from tests.runs.notebook import db
from tests.runs.notebook import instruct


def create_app():
    app = Flask(__name__)
    app.config.update(SECRET_KEY="a long random text for tests", SQLALCHEMY_DATABASE_URI=os.environ["DATABASE_URL"])
    db.init_app(app)
    instruct.init_app(app, db)
    return app
"""


def lines_for(what: str) -> str:
    """The block of the page in which a command stands."""
    page = (ROOT / "docs" / "deployment.md").read_text().partition("## Development")[2]
    (found,) = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if what in block]
    return str(found)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    """An app called as on the page, in a folder of its own, without any Redis that is set."""
    (tmp_path / "yourapp.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("INSTRUCT_REDIS_URL", raising=False)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "DATABASE_URL": f"sqlite:///{tmp_path / 'site.sqlite3'}",
        "INSTRUCT_EMBEDDED": "1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    app: Flask = importlib.import_module("yourapp").create_app()
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
        for engine in db.engines.values():
            engine.dispose()
        leave(app)
    sys.modules.pop("yourapp", None)


def carried_out() -> Run:
    """Ask for a run, and wait until whoever is there has carried it out."""
    record = db.session.scalars(sa.select(Notebook)).one()
    run_id = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="scripted:talk").id

    def ended() -> Run | None:
        db.session.remove()
        run = db.session.get_one(Run, run_id)
        return run if run.ended else None

    return wait_for(ended, SLOW, "the run to end")


def test_a_worker_and_a_plain_rq_worker_share_the_embedded_server_as_documented(
    site: Flask, start: Callable[..., Process], tmp_path: Path
) -> None:
    def typed(block: str) -> Process:
        return start(["bash", "-c", f"unset INSTRUCT_EMBEDDED\n{block}"], cwd=tmp_path)

    ours = typed(lines_for("instruct worker"))
    assert carried_out().status == "succeeded"
    os.killpg(ours.pid, signal.SIGTERM)
    ours.wait(SLOW)
    typed(lines_for("rq worker"))
    ended = carried_out()
    assert (ended.status, ended.attempt) == ("succeeded", 1)
    assert site.extensions["instruct"].redis_url().startswith("unix://")
