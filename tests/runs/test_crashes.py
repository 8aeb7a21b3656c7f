"""The crash matrix: a worker dies at each point of a run's life, and the run ends as if nothing had been (G1, G4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.models import Run
from flask_instruct.runs.points import POINTS
from flask_instruct.runs.points import Point
from tests.support import Process
from tests.support import wait_for

from .conftest import notes
from .conftest import reread
from .conftest import wait_for_end
from .notebook import db

Ask = Callable[..., Run]

TWICE: tuple[Point, ...] = ("call leaves", "turn written", "tool begun", "tool returned", "tool committed")
"""Points that the story reaches a second time: two tools, two turns."""
PLACES = [(point, nth) for point in POINTS for nth in ((1, 2) if point in TWICE else (1,))]
ALWAYS = ("turn written", "tool returned", "tool committed")
"""Points at which the death of the whole worker is tried in every run of the tests; the others by ``make chaos``."""


def deaths() -> Iterator[Any]:
    for point, nth in PLACES:
        yield pytest.param(point, nth, False, id=f"{point} {nth}-horse")
        rare = [] if point in ALWAYS and nth == 1 else [pytest.mark.chaos]
        yield pytest.param(point, nth, True, id=f"{point} {nth}-worker", marks=rare)


def story(run: Run) -> list[tuple[str, list[tuple[str, bool]]]]:
    """What was said and answered, as the next model call would hear it; ids differ from run to run."""
    return [
        (f"{message.role}: {message.text}", [(result.content, result.error) for result in message.results])
        for message in transcript(run)
    ]


@pytest.fixture
def undisturbed(ask: Ask, app: Flask) -> Callable[[], Any]:
    """Carry out the same request without a death, in a notebook as it was, and tell how it ended."""

    def undisturbed() -> Any:
        with db.engine.begin() as connection:
            connection.execute(sa.text("delete from note"))
        run = ask("write_two")
        generate(run.id)
        ended = reread(run)
        return ended.status, story(ended), [call.status for call in ended.calls], notes()

    return undisturbed


@pytest.mark.parametrize(("point", "nth", "whole"), list(deaths()))
def test_g1_g4_a_death_anywhere_changes_nothing(
    ask: Ask,
    worker: Callable[..., Process],
    undisturbed: Callable[[], Any],
    tmp_path: Path,
    point: Point,
    nth: int,
    whole: bool,
) -> None:
    flag = tmp_path / "died"
    run = ask("write_two")
    worker(INSTRUCT_TEST_DEATH=json.dumps({"point": point, "nth": nth, "flag": str(flag), "whole": whole}))
    wait_for(flag.exists, message=f"the death at {point!r}")
    if whole:
        worker()
    ended = wait_for_end(run)
    assert ended.attempt == (1 if point == "ended" else 2)
    calls = list(db.session.scalars(sa.select(ModelCall).where(ModelCall.run_id == run.id)))
    assert all(call.error_class or call.seconds is not None for call in calls)
    wait_for(lambda: not unpublished(), message="every broadcast to go out")
    outcome = ended.status, story(reread(run)), [call.status for call in reread(run).calls], notes()
    assert outcome == undisturbed()


def unpublished() -> int:
    db.session.remove()
    return db.session.scalar(sa.select(sa.func.count(Outbox.seq)).where(Outbox.position.is_(None))) or 0
