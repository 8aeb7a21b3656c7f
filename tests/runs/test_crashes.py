"""The crash matrix: whatever fails at each point of a run's life, the run ends as if nothing had been (G1, G2, G4, G7).

``make test`` takes some of the cases, ``make chaos`` all; docs/reliability.md has the table of what came of them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from flask_instruct.live.broadcasts import broadcast_refresh_to
from flask_instruct.runs.points import POINTS
from tests import servers
from tests.support import Process
from tests.support import wait_for

from . import results
from .faults import FAULTS
from .faults import PLACES
from .faults import Fault
from .faults import Place
from .faults import impossible
from .notebook import Note
from .notebook import Notebook
from .notebook import db
from .stage import PATH
from .stage import UNDISTURBED
from .stage import Outcome
from .stage import Stage
from .stage import difference
from .stage import stage
from .stage import watched_equals_loaded
from .watched import WatchedPage
from .watched import content_of
from .watched import fetch

SetUp = Callable[[str, Place, Fault | None], AbstractContextManager[Stage]]

ALWAYS = {
    ("before commit", "work-horse", "sqlite"),
    ("after commit", "worker", "sqlite"),
    ("mid-stream", "model", "sqlite"),
    ("before publish", "redis", "sqlite"),
    ("inside the tool", "database", "sqlite"),
    ("effect returned", "work-horse", "sqlite"),
    ("turn written", "worker", "postgresql"),
    ("before commit", "database", "postgresql"),
    ("request sent", "model", "postgresql"),
    ("effect begun", "work-horse", "postgresql"),
    ("second tool after commit", "redis", "postgresql"),
    ("before finish", "work-horse", "postgresql"),
    ("before the wait", "work-horse", "sqlite"),
    ("decided as it is put down", "redis", "postgresql"),
    ("approved call before commit", "worker", "postgresql"),
}
"""Cases that every run of the tests tries."""
LOCKED = ("turn written", "after commit", "before finish")
"""Where another process may hold the write lock of an SQLite file for longer than it is waited for."""
NO_RESUME = (
    "before claim",
    "decided before the wait",
    "put down",
    "decided as it is put down",
    "before publish of the end",
    "finished",
)
"""Where a death costs no attempt: it leaves nothing half done, or what a decision would have cost anyway."""


def cases() -> Iterator[Any]:
    for place in PLACES:
        for fault in FAULTS:
            for database in results.DATABASES:
                if impossible(place, fault) is None:
                    marks = [] if (place.name, fault, database) in ALWAYS else [pytest.mark.chaos]
                    name = f"{place.name}-{fault}-{database}"
                    yield pytest.param(place, fault, database, id=name, marks=marks)


@pytest.fixture
def set_up(
    request: pytest.FixtureRequest, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> SetUp:
    """Set a stage up, over a new database of that kind."""
    made = 0

    def set_up(database: str, place: Place, fault: Fault | None) -> AbstractContextManager[Stage]:
        nonlocal made
        made += 1
        if database == "sqlite":
            return stage(f"sqlite:///{tmp_path / str(made)}.sqlite3", place, fault, start, monkeypatch)
        databases: list[str] = request.getfixturevalue("spare_databases")
        return stage(databases.pop(), place, fault, start, monkeypatch)

    return set_up


@pytest.fixture
def spare_databases(postgres_url: str) -> Iterator[list[str]]:
    """Two empty PostgreSQL databases: a test may play its story twice."""
    with servers.postgres_database(postgres_url) as one, servers.postgres_database(postgres_url) as other:
        yield [one, other]


@pytest.fixture(scope="session")
def known() -> dict[str, Outcome]:
    """What came of the run that nothing strikes, by the kind of the database."""
    return {}


@pytest.fixture
def undisturbed(set_up: SetUp, known: dict[str, Outcome]) -> Callable[[str], Outcome]:
    """Tell what comes of the same run where nothing strikes."""

    def undisturbed(database: str) -> Outcome:
        if database not in known:
            with set_up(database, UNDISTURBED, None) as quiet:
                known[database] = quiet.play(UNDISTURBED, None)
        return known[database]

    return undisturbed


@pytest.mark.matrix
@pytest.mark.parametrize(("place", "fault", "database"), list(cases()))
def test_g1_g2_g4_g7_a_fault_anywhere_changes_nothing(
    set_up: SetUp, undisturbed: Callable[[str], Outcome], place: Place, fault: Fault, database: str
) -> None:
    results.note(place, fault, database, None)
    expected = deepcopy(undisturbed(database))
    assert (expected.status, expected.letters, expected.effect) == ("succeeded", 1, "done")
    assert (expected.approvals, expected.attempt) == ([("approved", "lead")], 2)
    assert expected.notes == ["a", "b", "c", "finished: stop"]
    with set_up(database, place, fault) as scene:
        outcome = scene.play(place, fault)
        if fault == "redis":
            # Also with the worker itself all is well again, whichever of its processes Redis took along.
            again = scene.finish(scene.ask())
            assert (again.status, again.attempt) == ("succeeded", expected.attempt)
    if place.in_the_effect and outcome.effect == "unknown":
        assert_honest(outcome, expected)
    else:
        assert outcome.page == expected.page, difference(outcome.page, expected.page)
        assert outcome == expected
    if fault in ("work-horse", "worker"):
        assert outcome.attempt == expected.attempt + (place.name not in NO_RESUME)
    if fault == "model":
        assert outcome.attempt == expected.attempt
    results.note(place, fault, database, outcome.seconds)


@pytest.mark.chaos
@pytest.mark.parametrize("place", [place for place in PLACES if place.name in LOCKED], ids=lambda place: place.name)
def test_g1_g4_a_write_lock_that_somebody_keeps_for_too_long_changes_nothing(
    set_up: SetUp, undisturbed: Callable[[str], Outcome], place: Place
) -> None:
    expected = undisturbed("sqlite")
    with set_up("sqlite", place, "lock") as scene:
        assert scene.play(place, "lock") == expected


def assert_honest(outcome: Outcome, expected: Outcome) -> None:
    """Nobody can know whether the letter was sent: it was at most once, and the model and the page say so (G2)."""
    assert outcome.letters <= 1
    assert 'data-status="unknown"' in outcome.page
    [told] = [text for _, answers in outcome.story for text, _ in answers if "Wrote b." in text]
    assert "unknown" in told
    assert "it may or may not have happened" in told
    for one in (outcome, expected):
        one.story = [
            (words, [(text.partition("\n")[0], error) for text, error in answers]) for words, answers in one.story
        ]
    assert replace(outcome, page=expected.page, letters=expected.letters, effect=expected.effect) == expected


def test_a_watched_page_that_was_told_nothing_differs_from_a_loaded_one(set_up: SetUp) -> None:
    with set_up("sqlite", UNDISTURBED, None) as scene, WatchedPage(scene.address, PATH) as page:
        wait_for(lambda: page.live, message="the page to be live")
        watched_equals_loaded(page, scene.address)
        book = db.session.scalars(sa.select(Notebook)).one()
        db.session.add(Note(notebook_id=book.id, text="untold"))
        db.session.commit()
        assert "untold" in content_of(fetch(scene.address, PATH))
        assert "untold" not in page.shown()
        broadcast_refresh_to(book)
        watched_equals_loaded(page, scene.address)
        assert "untold" in page.shown()


def test_the_places_cover_every_point() -> None:
    assert {point for place in PLACES for point in place.path} >= set(POINTS)


def test_the_cases_of_every_run_exist() -> None:
    names = {f"{place.name}" for place in PLACES}
    assert {place for place, _, _ in ALWAYS} <= names
