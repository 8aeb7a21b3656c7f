"""People in control of the studio's AI, in Chromium: previews, undo, and what axe says of their pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask
from playwright.sync_api import Page
from playwright.sync_api import expect

from example_app.database import db
from example_app.extensions import instruct
from example_app.handlers import AssessmentUpdater
from example_app.models import Criterion
from example_app.models import User
from example_app.seed_data import AUTHOR
from example_app.seed_data import LEAD
from example_app.stories import story
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from tests.support import wait_for

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import Studio
from .conftest import find
from .test_studio_in_browser import ask
from .test_studio_in_browser import equals_a_fresh_one
from .test_studio_in_browser import pages as pages
from .test_studio_in_browser import status


@pytest.fixture
def desk(app: Flask, serve: Callable[..., str], key_of: Callable[[str], int]) -> Studio:
    """The studio without a worker: runs are carried out by ``work``."""
    return Studio(serve(app), key_of)


@pytest.fixture
def work(app: Flask) -> Callable[[], None]:
    """Wait for queued runs, and carry them out as the worker's job does."""

    def queued() -> list[str]:
        with app.app_context():
            return list(db.session.scalars(sa.select(Run.id).where(Run.status == "queued")))

    def work() -> None:
        for run_id in wait_for(queued):
            with app.app_context():
                generate(run_id)

    return work


def digest(app: Flask) -> str:
    """A hash over all rows of the studio's own tables."""
    seen = hashlib.sha256()
    with app.app_context():
        for table in db.metadata.sorted_tables:
            if not table.name.startswith("instruct_"):
                rows = db.session.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
                seen.update(repr((table.name, rows)).encode())
    return seen.hexdigest()


def rows(app: Flask) -> dict[tuple[str, object], str]:
    """All rows of the studio's own tables, by table and key."""
    with app.app_context():
        return {
            (table.name, row[0]): repr(row)
            for table in db.metadata.sorted_tables
            if not table.name.startswith("instruct_")
            for row in db.session.execute(sa.select(*table.primary_key.columns, *table.columns))
        }


def weights(app: Flask, title: str) -> dict[str, int]:
    with app.app_context():
        return {criterion.name: criterion.weight for criterion in find(title).criteria}


def test_t19_three_weights_return_and_the_fourth_is_left_to_its_person(
    app: Flask, desk: Studio, pages: Callable[..., Page], work: Callable[[], None]
) -> None:
    mina = desk.enter(pages(), LEAD, LAB_REPORT)
    before = weights(app, LAB_REPORT)
    ask(mina, "repair")
    work()
    expect(status(mina)).to_have_text("Done")
    written = weights(app, LAB_REPORT)
    changed = [name for name in before if before[name] != written[name]]
    assert len(changed) >= 2
    with app.app_context():
        db.session.execute(sa.update(Criterion).where(Criterion.name == changed[0]).values(weight=1))
        db.session.commit()
    mina.locator(".instruct-run").last.get_by_role("link", name="Undo…").first.click()
    expect(mina.locator("[data-conflict]", has_text="Weight")).to_have_count(1)
    mina.locator("button[type=submit]").click()
    expect(mina.locator(".instruct-run")).to_have_count(2)
    assert weights(app, LAB_REPORT) == {**before, changed[0]: 1}
    equals_a_fresh_one(mina)
    mina.locator(".instruct-run").last.get_by_role("link", name="Redo…").first.click()
    mina.locator("button[type=submit]").click()
    expect(mina.locator(".instruct-run")).to_have_count(3)
    assert weights(app, LAB_REPORT) == {**written, changed[0]: 1}
    equals_a_fresh_one(mina)


def test_t20_a_preview_changes_no_row_and_three_of_five_are_accepted(
    app: Flask, desk: Studio, pages: Callable[..., Page], work: Callable[[], None]
) -> None:
    mina = desk.enter(pages(), LEAD, LAB_REPORT)
    untouched, before = digest(app), rows(app)
    ask(mina, "propose")
    work()
    expect(status(mina)).to_have_text("Waiting for approval")
    assert digest(app) == untouched
    mina.locator(".instruct-ask__more").click()
    proposed = mina.locator(".instruct-change")
    accepted = []
    for row in proposed.all():
        if len(accepted) < 3 and "Criterion" in row.inner_text():
            accepted.append(row.inner_text())
        else:
            row.get_by_role("checkbox").uncheck()
    assert (len(accepted), proposed.count() >= 5) == (3, True)
    mina.get_by_role("button", name="Approve").click()
    expect(mina.locator("main")).to_contain_text(f"Approved by {LEAD}")
    assert digest(app) == untouched
    work()
    after = rows(app)
    assert after.keys() == before.keys()
    changed = [key for table, key in before if before[table, key] != after[table, key] and table == "criterion"]
    assert len(changed) == sum(before[each] != after[each] for each in before) == 3
    # Those that were accepted, and no others.
    with app.app_context():
        names = [criterion.name for criterion in find(LAB_REPORT).criteria if criterion.id in changed]
    assert [re.findall(r"Criterion “(.+?)”", text) for text in accepted] == [[name] for name in names]


def test_an_author_sees_that_a_lead_has_to_decide(
    desk: Studio, pages: Callable[..., Page], work: Callable[[], None]
) -> None:
    mina, theo = desk.enter(pages(), LEAD, ESSAY), desk.enter(pages(), AUTHOR, ESSAY)
    ask(theo, "publish")
    work()
    for page in (mina, theo):
        expect(status(page)).to_have_text("Waiting for approval")
    card = theo.locator(".instruct-ask")
    expect(card).to_contain_text("Publishing needs a lead.")
    expect(card.get_by_text("Somebody else has to decide this.")).to_be_visible()
    expect(card.get_by_role("button")).to_have_count(0)
    equals_a_fresh_one(theo)
    expect(mina.locator(".instruct-ask__other")).to_be_hidden()
    mina.locator(".instruct-ask").get_by_role("button", name="Approve").click()
    work()
    for page in (mina, theo):
        expect(status(page)).to_have_text("Done")
        equals_a_fresh_one(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_axe_finds_nothing_to_say_of_the_pages_of_control(
    app: Flask, desk: Studio, pages: Callable[..., Page], work: Callable[[], None], scheme: str
) -> None:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    with app.app_context(), app.test_request_context("/"):
        author = db.session.scalars(sa.select(User).where(User.name == AUTHOR)).one()
        for name in ("rewrite", "publish"):
            instruct.generate_for(AssessmentUpdater(find(ESSAY)), user_prompt=story(name).prompt, actor=author)
    work()
    page = desk.enter(pages(color_scheme=scheme, reduced_motion="reduce", viewport={"width": 360, "height": 740}), LEAD)
    expect(page.locator(".top__count")).to_contain_text("1")
    axe = Path(found.origin).with_name("axe.min.js").read_text()
    base = f"/assessments/{desk.key_of(ESSAY)}"
    for path in ("/", base, f"{base}/history", "/activity", "/instruct/approvals"):
        page.goto(desk.address + path)
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(found => found.violations)")
        assert [(path, each["id"], each["nodes"][0]["html"]) for each in violations] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
