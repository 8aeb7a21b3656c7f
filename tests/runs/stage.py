"""One run on a stage of its own: database, Redis, a model's server, a worker, a page that somebody watches, and
perhaps a fault that strikes. What came of it can be compared with what comes of a run that nothing strikes.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.engine import make_url

from flask_instruct.runs.history import transcript
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.unit import ledger_engine
from tests.live.redis_process import RedisProcess
from tests.support import Process
from tests.support import served
from tests.support import wait_for

from . import chronicle
from .conftest import ROOT
from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .faults import STRIKES
from .faults import WORKER_NAME
from .faults import Fault
from .faults import Model
from .faults import Place
from .faults import Scene
from .notebook import Notebook
from .notebook import db
from .notebook import instruct
from .watched import WatchedPage
from .watched import content_of
from .watched import fetch
from .watched import without_names

PATH = "/chronicle"
SETTINGS = {
    "INSTRUCT_LEASE": "2",
    "INSTRUCT_SWEEP_INTERVAL": "0.3",
    "INSTRUCT_RETRIES": "3",
    "INSTRUCT_RETRY_WAIT": "0.1",
}
UNDISTURBED = Place("undisturbed")


@dataclass
class Outcome:
    """How a run ended, in words that are the same for every run of the story."""

    status: str
    story: list[tuple[str, list[tuple[str, bool]]]]
    calls: list[tuple[str, str]]
    notes: list[str]
    page: str
    letters: int
    effect: str
    approvals: list[tuple[str, str | None]]
    attempt: int = field(compare=False)
    seconds: float = field(compare=False, default=0.0)
    """From the strike until the run had ended and the watched page showed it."""


@dataclass
class Stage:
    """Where a run is played."""

    folder: Path
    database_url: str
    redis: RedisProcess
    model: Model
    environment: dict[str, str]
    address: str
    start: Callable[..., Process]
    workers: list[Process] = field(default_factory=list)

    def start_worker(self) -> Process:
        command = [sys.executable, "-m", "flask", "--app", "tests.runs.chronicle", "instruct", "worker"]
        self.workers.append(self.start(command, env=self.environment, cwd=ROOT))
        return self.workers[-1]

    def end(self) -> None:
        """End the workers, before what they need is taken from them."""
        for worker in self.workers:
            if worker.running:
                worker.signal(signal.SIGKILL)
                worker.wait()

    def ask(self) -> Run:
        book = db.session.scalars(sa.select(Notebook)).one()
        run = instruct.generate_for(chronicle.Chronicler(book), user_prompt="Go.", model="near:m")
        db.session.refresh(run)
        db.session.expunge(run)
        return run

    def play(self, place: Place, fault: Fault | None) -> Outcome:
        """Carry out one run, and strike it at the place."""
        with WatchedPage(self.address, PATH) as page:
            wait_for(lambda: page.live, message="the page to be live")
            run = self.ask()
            worker = self.start_worker()
            struck = time.monotonic()
            if fault is not None:
                wait_for(lambda: self._reached(place, run), 60, f"the run to come to {place.name!r}")
                if place.decided:
                    self.approve(run)
                struck = time.monotonic()
                scene = Scene(
                    self.folder,
                    self.database_url,
                    worker,
                    self.start_worker,
                    self.redis,
                    self.model,
                    lambda: bool(reread(run).ended),
                )
                STRIKES[fault](scene)
            self.finish(run)
            wait_for(lambda: not unpublished(), 20, "every broadcast to go out")
            watched_equals_loaded(page, self.address)
            seconds = time.monotonic() - struck
        return self._outcome(run, seconds)

    def approve(self, run: Run) -> None:
        """Decide as a person does about the one call of a run that asks, once it asks."""
        [asked] = wait_for(lambda: reread(run).approvals, 30, "the run to ask")
        instruct.approve(asked, actor="lead")
        db.session.remove()

    def finish(self, run: Run) -> Run:
        """Approve as soon as the run waits for it, unless that was done, and wait for the end."""
        wait_for(lambda: not self._undecided(run), 40, "the run to wait for a person")
        return wait_for_end(run, 40)

    def _undecided(self, run: Run) -> bool:
        """Tell whether the approval is still to come; gives it when the run waits for it."""
        found = reread(run)
        if found.status == "waiting_approval":
            self.approve(run)
        return not found.ended and not any(one.status == "approved" for one in reread(run).approvals)

    def _reached(self, place: Place, run: Run) -> bool:
        if place.midway:
            return any(message.text for message in reread(run).messages)
        if place.request:
            return self.model.reached.is_set()
        if not place.before_the_decision and not place.decided:
            self._undecided(run)
        return (self.folder / "reached").exists()

    def _outcome(self, run: Run, seconds: float) -> Outcome:
        ended = reread(run)
        assert all(call.error_class or call.seconds is not None for call in model_calls(run))
        letters = self.folder / "letters"
        return Outcome(
            ended.status,
            story_of(ended),
            [(call.name, call.status) for call in ended.calls],
            notes(),
            without_names(content_of(fetch(self.address, PATH))),
            len(letters.read_text().splitlines()) if letters.exists() else 0,
            db.session.scalars(sa.select(Effect.status).where(Effect.run_id == run.id)).one(),
            [(approval.status, approval.decided_by) for approval in ended.approvals],
            ended.attempt,
            seconds,
        )


def difference(one: str, other: str) -> str:
    """Say where two texts part."""
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    around = slice(max(0, at - 150), at + 150)
    return f"…{one[around]}…\n\nis not\n\n…{other[around]}…"


def watched_equals_loaded(page: WatchedPage, address: str) -> None:
    """Wait until the page that was watched shows what one shows that is loaded now (G7)."""

    def equal() -> bool:
        return page.shown() == content_of(fetch(address, PATH))

    try:
        wait_for(equal, 20, "the watched page")
    except AssertionError as error:
        loaded = content_of(fetch(address, PATH))
        raise AssertionError(f"{error}: {difference(page.shown(), loaded)}") from None


def story_of(run: Run) -> list[tuple[str, list[tuple[str, bool]]]]:
    """What was said and answered, as the next model call would hear it; ids differ from run to run."""
    return [
        (f"{message.role}: {message.text}", [(result.content, result.error) for result in message.results])
        for message in transcript(run)
    ]


def model_calls(run: Run) -> list[ModelCall]:
    return list(db.session.scalars(sa.select(ModelCall).where(ModelCall.run_id == run.id)))


def unpublished() -> int:
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(Outbox.seq)).where(Outbox.position.is_(None))) or 0


@contextmanager
def stage(
    database_url: str, place: Place, fault: Fault | None, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """Set everything up for one run, and take it down again."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="instruct-stage-")))
        redis = stack.enter_context(own_redis())
        model = Model(chronicle.STORY, place, chronicle.FIRST_WORDS)
        stack.enter_context(model.server)
        stack.callback(model.release)
        near = {"protocol": "openai_chat", "base_url": model.server.base_url("openai_chat")}
        own = {
            "DATABASE_URL": database_url,
            "INSTRUCT_REDIS_URL": redis.url,
            "INSTRUCT_PROVIDERS": json.dumps({"near": near}),
            # Named so that its SDK is loaded before the worker forks.
            "INSTRUCT_DEFAULT_MODEL": "near:m",
            "INSTRUCT_TEST_LETTERS": str(folder / "letters"),
        }
        address = stack.enter_context(open_site(chronicle.create_app, own, monkeypatch))
        theirs = worker_environment(own)
        if fault is not None:
            disk = make_url(database_url).database if fault == "database" and "sqlite" in database_url else None
            order = {"folder": str(folder), "path": place.path, "disk": disk}
            theirs["INSTRUCT_TEST_AMBUSH"] = json.dumps(order)
        made = Stage(folder, database_url, redis, model, theirs, address, start)
        stack.callback(made.end)
        yield made


@contextmanager
def own_redis() -> Iterator[RedisProcess]:
    """Start a Redis of the test's own, which forgets all when it is killed."""
    redis = RedisProcess(keeps=False)
    redis.start()
    try:
        yield redis
    finally:
        redis.remove()


@contextmanager
def open_site(
    create_app: Callable[[], Flask], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Serve an app with that environment, with tables and one notebook, its context pushed; give its address."""
    with monkeypatch.context() as patch:
        for key, value in {**SETTINGS, **environment}.items():
            patch.setenv(key, value)
        app = create_app()
        with app.app_context(), served(app) as address:
            db.create_all()
            db.session.add(Notebook(title="Chronicle"))
            db.session.commit()
            try:
                yield address
            finally:
                _let_go(app)


def worker_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a worker, whose connections to PostgreSQL can be told from the test's."""
    url = environment["DATABASE_URL"]
    if not url.startswith("sqlite"):
        named = make_url(url).update_query_dict({"application_name": WORKER_NAME})
        url = named.render_as_string(hide_password=False)
    return {**SETTINGS, **environment, "DATABASE_URL": url}


def _let_go(app: Flask) -> None:
    db.session.remove()
    state = app.extensions["instruct"]
    state.live.close()
    if state._redis is not None:
        state.redis.close()
    ledger_engine(db).dispose()
    for engine in db.engines.values():
        engine.dispose()
