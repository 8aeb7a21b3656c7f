"""The dashboard in Chromium: a run's page follows its run, and every page behaves under strict policies, without a
script, on narrow, dark and mirrored screens, for keyboards and for screen readers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest
from flask import Flask
from playwright.sync_api import Page
from playwright.sync_api import expect
from redis.exceptions import ConnectionError as Unreachable

from flask_instruct.handlers import locate
from flask_instruct.runs.columns import now
from flask_instruct.runs.columns import uuid7
from tests.panel import board
from tests.panel.board import HOSTILE
from tests.panel.board import db
from tests.panel.board import instruct
from tests.panel.pages import Aside
from tests.panel.pages import Open
from tests.panel.pages import Work
from tests.support import wait_for

from .ledger import a_call
from .ledger import a_change
from .ledger import a_model_call
from .ledger import a_run
from .ledger import a_turn
from .ledger import an_approval
from .ledger import an_effect


def ask(app: Flask, text: str) -> str:
    with app.app_context():
        return str(instruct.generate_for(locate("instruct://Arranger/1"), user_prompt=text, actor="Ada").id)


@pytest.fixture
def filled(app: Flask) -> str:
    """Some runs of some days, and the id of one in which everything happened."""
    with app.app_context():
        for number in range(12):
            status = ("succeeded", "failed", "limited", "queued")[number % 4]
            run = a_run(status, at=now() - timedelta(hours=13 * number), took=number)
            a_model_call(run, cost=Decimal(number) / 1000, error_class="Cut" if number == 5 else None)
        run = a_run(
            "failed",
            prompt=f"Do it all. {'unbroken' * 40} {HOSTILE}",
            error_class="ModelError",
            error_safe=HOSTILE,
            error_technical=HOSTILE,
            limits={"cost": "1"},
            context={"a": 1},
            system_prompt="Help.",
        )
        turn = a_turn(run, f"# Title\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | {'wide' * 60} |")
        call = a_call(
            turn, "set_weights", json.dumps({"weights": [40, 60], "why": "wide" * 80}), undo_problem="It cannot."
        )
        before = {"text": "Keep this and drop that.", "tags": ["a", "b"], "n": 1}
        a_change(call, 1, before=before, after={"text": f"Keep this and add {'wide' * 60}.", "tags": ["b"], "n": 2})
        a_change(call, 2, "insert", before=None, after={"text": None})
        an_approval(call, decided_by="Grace", decided_at=now(), edited=json.dumps({"weights": [50, 50]}))
        an_effect(call, "unknown")
        a_model_call(run, turn)
        a_model_call(run, error_class="RateLimitError", cost=None)
        a_run(kind="undo", undoes=run.id)
        return run.id


def test_t33_a_run_is_exported_in_the_browser_and_comes_out_the_same_in_a_clean_database(
    app: Flask, enter: Open, work: Work, tmp_path: Path, board_database: str, redis_url: str, key_prefix: str
) -> None:
    clean = tmp_path / "clean.sqlite3"
    with app.app_context(), db.engine.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{clean}'")
    page = enter()
    page.get_by_label("Your request").fill("Arrange it.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Queued, waiting for a worker")).to_be_visible()
    (run_id,) = work()
    page.goto(f"{page.url.partition('/boards')[0]}/instruct/runs/{run_id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSON").click()
    file = tmp_path / "run.json"
    download.value.save_as(file)
    recording = json.loads(file.read_text())
    assert [row["text"] for row in recording["rows"]["card"]] == ["one", "two", "three"]
    assert len(recording["broadcasts"]) > 10

    def replayed(database: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flask", "--app", "tests.panel.board:from_environment()", "instruct", "replay"]
        made = {"database_url": board_database, "redis_url": "redis://127.0.0.1:1", "key_prefix": key_prefix}
        return subprocess.run(
            [*command, str(file), "--database", database],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "BOARD": json.dumps(made)},
        )

    same = replayed(f"sqlite:///{clean}")
    assert (same.returncode, same.stdout.splitlines()[-1]) == (0, "The replay is the same."), same.stderr
    # In one that is not clean it does not, and says where.
    with sqlite3.connect(clean) as connection:
        connection.execute("insert into card (board_id, text) values (1, 'in between')")
    other = replayed(f"sqlite:///{clean}")
    assert other.returncode == 1
    assert "row" in other.stdout


def paths(run_id: str) -> list[str]:
    return ["/instruct/", "/instruct/runs?actor=Ada", f"/instruct/runs/{run_id}", f"/instruct/runs/{uuid7()}"]


def unfold(page: Page) -> None:
    page.eval_on_selector_all("details", "all => { for (const each of all) each.open = true; }")


def main_of(page: Page) -> str:
    """The page's content, less what may differ between two that show the same."""
    html: str = page.locator("main").evaluate(
        """main => {
            const copy = main.cloneNode(true);
            const all = (selector) => copy.querySelectorAll(selector);
            for (const each of all("instruct-stream")) each.remove();
            for (const each of all("[data-instruct-changed]")) each.removeAttribute("data-instruct-changed");
            for (const each of all("details[open]")) each.open = false;
            return copy.innerHTML.replace(/\\s+/g, " ");
        }"""
    )
    return html


def open_run(page: Page, site: str, run_id: str) -> None:
    page.goto(f"{site}/instruct/runs/{run_id}")
    page.wait_for_selector("main > instruct-stream[connected]", state="attached")


def test_the_page_of_a_run_follows_it_to_its_end(app: Flask, enter: Open, work: Work, site: str) -> None:
    run_id = ask(app, "Arrange it.")
    page = enter(live=False)
    open_run(page, site, run_id)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.locator(".instruct-dash-section__head [role=status]")).to_contain_text("Queued")
    page.evaluate("window.notReloaded = true")
    work()
    expect(page.locator(".instruct-dash-section__head [role=status]")).to_contain_text("Done")
    expect(page.get_by_text("The weights total 110, not 100.")).to_be_visible()
    assert page.evaluate("window.notReloaded")
    fresh = enter(live=False)
    open_run(fresh, site, run_id)
    wait_for(lambda: main_of(page) == main_of(fresh))


def test_it_shows_a_tool_at_work_and_text_as_it_comes_and_leaves_the_reader_alone(
    app: Flask, enter: Open, work_aside: Aside, site: str
) -> None:
    board.released.clear()
    run_id = ask(app, "Hold it.")
    page = enter(live=False)
    open_run(page, site, run_id)
    work_aside()
    expect(page.locator(".instruct-dash-call").first).to_contain_text("Running")
    expect(page.get_by_text("I hold.")).to_be_visible()
    page.locator("main").focus()
    board.released.set()
    expect(page.locator(".instruct-dash-section__head [role=status]")).to_contain_text("Done")
    assert page.evaluate("document.activeElement.id") == "instruct_content"
    long_id = ask(app, "Long text.")
    open_run(page, site, long_id)
    work_aside()
    growing = page.locator(".instruct-text--streaming")
    expect(growing).to_be_attached()
    wait_for(
        lambda: page.evaluate("document.querySelector('.instruct-text--streaming')?.textContent.length ?? 0") > 200
    )
    expect(page.locator(".instruct-dash-section__head [role=status]")).to_contain_text("Done", timeout=30_000)
    expect(growing).to_have_count(0)


def test_what_takes_a_run_back_appears_on_its_open_page(app: Flask, enter: Open, work: Work, site: str) -> None:
    run_id = ask(app, "Chat with me")
    work()
    page = enter(live=False)
    open_run(page, site, run_id)
    with app.app_context():
        undo = a_run(kind="undo", undoes=run_id, actor="Grace")
        state = app.extensions["instruct"]
        from flask_instruct.runs.notices import announce

        announce(state, ("run_created", undo))
        db.session.commit()
        undo_id = undo.id
    expect(page.locator(f"a[href='/instruct/runs/{undo_id}']")).to_be_visible()


def test_without_live_updates_the_page_says_so(
    app: Flask, filled: str, enter: Open, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*arguments: object) -> str:
        raise Unreachable("down")

    bus = app.extensions["instruct"].live.bus
    monkeypatch.setattr(type(bus), "now", down)
    monkeypatch.setattr(type(bus), "cursor", down)
    page = enter(live=False)
    page.goto(f"{site}/instruct/runs/{filled}")
    expect(page.get_by_text("Live updates are off")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_axe_finds_nothing_to_say(filled: str, enter: Open, site: str, scheme: str) -> None:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    axe = Path(found.origin).with_name("axe.min.js").read_text()
    page = enter(live=False, color_scheme=scheme, reduced_motion="reduce")
    said = []
    for path in paths(filled):
        page.goto(site + path)
        unfold(page)
        page.evaluate(axe)
        for each in page.evaluate("axe.run(document).then(found => found.violations)"):
            said.append((path, each["id"], each["impact"], each["nodes"][0]["html"][:200]))
    page.goto(f"{site}/as/Bob")
    page.goto(f"{site}/instruct/")
    page.evaluate(axe)
    assert said == []
    assert page.evaluate("axe.run(document).then(found => found.violations.map(each => each.id))") == []


def test_t28_a_strict_policy_is_kept_and_nothing_foreign_is_asked_for(filled: str, enter: Open, site: str) -> None:
    page = enter(live=False)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(site) else None)
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    for path in paths(filled)[:3]:
        page.goto(site + path)
        if "runs/" in path:
            page.wait_for_selector("main > instruct-stream[connected]", state="attached")
        unfold(page)
        assert page.locator("[style]").count() == 0
    assert page.evaluate("window.broken") is None
    assert [each for each in problems if "favicon" not in each] == []


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_t31_it_fits_a_narrow_page_and_has_targets_to_hit(
    filled: str, enter: Open, site: str, width: int, direction: str
) -> None:
    page = enter(live=False, viewport={"width": width, "height": 800})
    for path in paths(filled):
        page.goto(site + path)
        page.evaluate("direction => { document.documentElement.dir = direction; }", direction)
        unfold(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        small = page.eval_on_selector_all(
            "button, summary, input, select, a.instruct-dash-button, nav a, .instruct-dash-run__prompt, table a",
            """all => all.filter(each => each.checkVisibility()
                && Math.min(each.getBoundingClientRect().height, each.getBoundingClientRect().width) < 23.9)
                .map(each => each.outerHTML)""",
        )
        assert small == [], path


def test_t27_without_a_script_pages_filters_and_links_work(filled: str, enter: Open, site: str) -> None:
    page = enter(live=False, java_script_enabled=False)
    page.goto(f"{site}/instruct/")
    page.get_by_role("link", name="All runs").click()
    page.get_by_label("Status").select_option("failed")
    page.get_by_label("Search").fill("do it ALL")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(f"{site}/instruct/runs?q=do+it+ALL&status=failed&handler=&actor=&model=&tenant="
                             "&conversation=&kind=&since=&until=")  # fmt: skip
    page.locator(".instruct-dash-run__prompt").click()
    expect(page).to_have_url(f"{site}/instruct/runs/{filled}")
    assert "<noscript>Reload to see what is new</noscript>" in page.content()
    page.get_by_text("System prompt").click()
    expect(page.get_by_text("Help.", exact=True)).to_be_visible()
    with page.expect_download() as loading:
        page.get_by_role("link", name="Export as JSON").click()
    assert json.loads(loading.value.path().read_text())["run"]["id"] == filled


def test_t25_a_keyboard_reaches_everything_and_the_focus_is_seen(filled: str, enter: Open, site: str) -> None:
    page = enter(live=False)
    page.goto(f"{site}/instruct/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Export as CSV")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Tab")
    page.keyboard.type("do it all")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=do+it+all**")
    summary = page.get_by_text("More filters")
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Tenant")).to_be_visible()


def test_in_forced_colours_the_drawings_and_marks_are_seen(filled: str, enter: Open, site: str) -> None:
    page = enter(live=False, forced_colors="active")
    page.goto(f"{site}/instruct/")
    seen = page.evaluate(
        """() => {
            const ground = getComputedStyle(document.body).backgroundColor;
            const shapes = document.querySelectorAll(".instruct-dash-chart__columns, .instruct-dash-chart__line");
            return [...shapes].map(each => getComputedStyle(each))
                .map(style => [style.fill, style.stroke].filter(paint => paint !== "none" && paint !== ground).length);
        }"""
    )
    assert seen
    assert all(seen)
