"""The studio in Chromium, with a real worker: what two people see of each other and of the AI."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from flask import Flask
from playwright.sync_api import Page
from playwright.sync_api import expect

from example_app.seed_data import AUTHOR
from example_app.seed_data import LEAD
from example_app.stories import story
from flask_instruct.testing import LivePage

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import ORAL
from .conftest import Studio
from .conftest import Visitor

RUN = 30_000
"""Milliseconds that a story may take on a busy machine."""


@pytest.fixture
def pages(new_page: Callable[..., Page]) -> Iterator[Callable[..., Page]]:
    """Open pages that fail the test when the browser complains: about the policy, an error or a missing file."""
    complaints: list[str] = []

    def open_page(*, allow_errors: bool = False, **options: object) -> Page:
        page = new_page(**options)
        if allow_errors:  # Chromium complains of a refused form.
            return page
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        return page

    yield open_page
    assert not complaints


def ask(page: Page, name: str) -> None:
    """Press the suggestion of a story; the later ones are behind "More"."""
    suggestion = page.locator(f'button[name=suggestion][value="{story(name).prompt}"]')
    if not suggestion.is_visible():
        page.locator(".instruct-more__button").click()
    suggestion.click()


def status(page: Page) -> object:
    return page.locator(".instruct-run .instruct-status__text").last


def equals_a_fresh_one(page: Page) -> None:
    """What the page shows of the assessment is what it shows to whoever comes now."""
    LivePage(page).converges(".desk__main")


def test_two_people_watch_110_become_100(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, LAB_REPORT)
    theo = studio.enter(pages(), AUTHOR, LAB_REPORT)
    expect(theo.get_by_text("The weights total 110, 10 too many.")).to_be_visible()
    ask(mina, "repair")
    for page in (mina, theo):
        expect(page.locator(".summary").get_by_text("The weights total 100.")).to_be_visible(timeout=RUN)
        expect(status(page)).to_have_text("Done", timeout=RUN)
        expect(page.locator(".instruct-prompt__actor")).to_have_text(LEAD)
    expect(theo.locator(".criterion .ai-mark").first).to_have_attribute("href", re.compile("#instruct_run_"))
    for page in (mina, theo):
        equals_a_fresh_one(page)


def test_a_review_leaves_the_watched_page_equal_to_a_fresh_one(studio: Studio, pages: Callable[..., Page]) -> None:
    theo = studio.enter(pages(), AUTHOR, LAB_REPORT)
    mina = studio.enter(pages(), LEAD, LAB_REPORT)
    ask(mina, "review")
    for page in (mina, theo):
        expect(status(page)).to_have_text("Done", timeout=RUN)
    expect(theo.locator(".criterion h3").first).to_contain_text("Data and analysis")
    for page in (mina, theo):
        equals_a_fresh_one(page)


def test_the_list_follows_what_happens_elsewhere(studio: Studio, pages: Callable[..., Page]) -> None:
    listing = studio.enter(pages(), AUTHOR)
    card = listing.locator(".card").filter(has_text=LAB_REPORT)
    expect(card).to_contain_text("Weights total 110, not 100")
    ask(studio.enter(pages(), LEAD, LAB_REPORT), "repair")
    expect(card).to_contain_text("5 criteria, weights total 100", timeout=RUN)
    expect(card).to_contain_text("AI assistant")


def test_a_persons_comment_reaches_the_other_without_a_reload(studio: Studio, pages: Callable[..., Page]) -> None:
    theo = studio.enter(pages(), AUTHOR, ESSAY)
    mina = studio.enter(pages(), LEAD, ESSAY)
    mina.get_by_label("New comment").fill("Is 2,000 words enough?")
    mina.get_by_role("button", name="Comment", exact=True).click()
    for page in (mina, theo):
        expect(page.locator(".comments > .comment").last).to_contain_text("Is 2,000 words enough?")
    expect(mina.get_by_label("New comment")).to_have_value("")
    theo.locator("summary").filter(has_text="Reply to Mina").last.click()
    theo.get_by_label("Reply to Mina Okafor").last.fill("It was enough last year.")
    theo.get_by_role("button", name="Reply", exact=True).last.click()
    expect(mina.locator(".replies .comment").last).to_contain_text("It was enough last year.")
    equals_a_fresh_one(mina)


def test_what_a_person_types_is_kept_while_the_ai_rewrites_it(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, LAB_REPORT)
    theo = studio.enter(pages(), AUTHOR, LAB_REPORT)
    theo.get_by_text("Edit instructions").click()
    field = theo.get_by_label("Instructions for students")
    field.press("Control+End")
    field.press_sequentially(" Mine.")
    ask(mina, "rewrite")
    expect(theo.locator(".instructions .prose")).to_contain_text("What you do", timeout=RUN)
    expect(field).to_have_value(re.compile(r"^In this assignment.* Mine\.$", re.DOTALL))
    expect(field).to_be_focused()
    theo.get_by_role("button", name="Other version").click()
    expect(field).to_have_value(re.compile(r"^\*\*What you do"))


def test_an_untouched_editor_follows_the_text(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, LAB_REPORT)
    mina.get_by_text("Edit instructions").click()
    ask(mina, "rewrite")
    expect(mina.get_by_label("Instructions for students")).to_have_value(re.compile("What you do"), timeout=RUN)
    mina.get_by_role("button", name="Save instructions").click()
    expect(mina.get_by_role("status").filter(has_text="Instructions saved.")).to_be_visible()


def test_a_refused_form_keeps_its_words_while_the_page_follows(studio: Studio, pages: Callable[..., Page]) -> None:
    theo = studio.enter(pages(allow_errors=True), AUTHOR, ORAL)
    theo.get_by_role("link", name="Add criterion").click()
    theo.get_by_label("Name").fill("Idea of the proof")
    theo.get_by_role("button", name="Add criterion").click()
    LivePage(theo).wait_connected()
    mina = studio.enter(pages(), LEAD, ORAL)
    mina.get_by_role("button", name="Move Idea of the proof down").click()
    expect(theo.locator(".criterion h3").nth(1)).to_contain_text("Idea of the proof")
    expect(theo.get_by_label("Name")).to_have_value("Idea of the proof")
    expect(theo.locator("#criterion_form")).to_contain_text("There is a criterion called")


def test_people_see_who_else_is_here(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, ESSAY)
    expect(mina.locator(".here")).to_be_hidden()
    theo = studio.enter(pages(), AUTHOR, ESSAY)
    for page in (mina, theo):
        expect(page.locator(".here li")).to_have_text([re.compile(LEAD), re.compile(AUTHOR)])
        equals_a_fresh_one(page)
    theo.goto(studio.address)
    expect(mina.locator(".here")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_t23_axe_finds_nothing_to_say_of_a_page_that_two_people_have_open(
    studio: Studio, pages: Callable[..., Page], scheme: str
) -> None:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    page = studio.enter(pages(color_scheme=scheme, reduced_motion="reduce"), LEAD, LAB_REPORT)
    studio.enter(pages(), AUTHOR, LAB_REPORT)
    expect(page.locator(".here li")).to_have_count(2)
    page.evaluate(Path(found.origin).with_name("axe.min.js").read_text())
    violations = page.evaluate("axe.run().then(found => found.violations)")
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in violations] == []


def test_moving_a_criterion_keeps_the_focus(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, ORAL)
    button = mina.get_by_role("button", name="Move Idea of the proof down")
    button.focus()
    mina.keyboard.press("Enter")
    expect(mina.locator(".criterion h3").nth(1)).to_contain_text("Idea of the proof")
    expect(button).to_be_focused()


def test_an_overloaded_service_is_told_in_words_and_asked_again(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, ESSAY)
    ask(mina, "overloaded")
    expect(status(mina)).to_have_text("The AI service is overloaded. Trying again", timeout=RUN)
    expect(status(mina)).to_have_text("Done", timeout=RUN)
    expect(mina.locator(".instruct-run")).to_contain_text("Now the service answers.")


def test_hostile_text_does_nothing_in_a_browser(studio: Studio, pages: Callable[..., Page]) -> None:
    mina = studio.enter(pages(), LEAD, ESSAY)
    hosts: set[str] = set()
    mina.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    mina.on("dialog", lambda dialog: pytest.fail(dialog.message))
    ask(mina, "hostile")
    expect(status(mina)).to_have_text("Done", timeout=RUN)
    expect(mina.locator(".comments")).to_contain_text("<script>")
    expect(mina).to_have_title(re.compile("Essay"))
    assert hosts <= {studio.address.removeprefix("http://")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_no_page_scrolls_sideways_or_has_small_buttons(
    app: Flask,
    serve: Callable[..., str],
    pages: Callable[..., Page],
    key_of: Callable[[str], int],
    width: int,
    scheme: str,
) -> None:
    studio = Studio(serve(app), key_of)
    page = studio.enter(pages(viewport={"width": width, "height": 740}, color_scheme=scheme), LEAD)
    base = f"/assessments/{key_of(LAB_REPORT)}"
    for path in ("/", base, f"{base}/details", f"{base}/weights", f"{base}/criteria/new", "/about", "/login"):
        page.goto(studio.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        buttons = page.locator("button:visible, .button:visible, .tool:visible")
        sizes = [box for button in buttons.all() if (box := button.bounding_box())]
        assert min(min(box["width"], box["height"]) for box in sizes) >= 24, path


def test_the_keyboard_goes_straight_to_the_content(studio: Studio, pages: Callable[..., Page]) -> None:
    page = studio.enter(pages(), LEAD, ESSAY)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_without_scripts_everything_works_by_forms(
    app: Flask, serve: Callable[..., str], new_page: Callable[..., Page], key_of: Callable[[str], int], lead: Visitor
) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(f"{serve(app)}/login")
    page.get_by_role("button", name=LEAD).click()
    page.get_by_role("link", name=ESSAY).click()
    page.get_by_label("New comment").fill("Without a script.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator(".comments")).to_contain_text("Without a script.")
    page.get_by_role("link", name="Edit Argument").click()
    page.get_by_label("Weight in percent").fill("45")
    page.get_by_role("button", name="Save criterion").click()
    expect(page.locator(".summary")).to_contain_text("The weights total 105, 5 too many.")
