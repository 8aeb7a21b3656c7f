"""Typing is sacred: what a person writes survives whatever arrives over it, in Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from markupsafe import Markup
from playwright.sync_api import Locator
from playwright.sync_api import Page

from flask_instruct.live.turbo_stream import turbo_stream
from flask_instruct.testing import LivePage
from tests.support import wait_for

from .site import Board
from .watching import open_live
from .watching import render


@pytest.fixture
def page(canvas: Page) -> Page:
    return canvas


def form(note: str, name: str = "Ada", kind: str = "a", done: bool = False, extra: str = "") -> Markup:
    options = "".join(f"<option{' selected' if each == kind else ''}>{each}</option>" for each in "abc")
    return Markup(
        '<form id="form"><h2>{head}</h2><textarea id="note" name="note">{note}</textarea>'
        '<input id="name" name="name" value="{name}"><select id="kind" name="kind">{options}</select>'
        '<input id="done" name="done" type="checkbox"{checked}>{extra}</form>'
    ).format(
        head=f"head of {note}",
        note=note,
        name=name,
        options=Markup(options),
        checked=Markup(" checked" if done else ""),
        extra=Markup(extra),
    )


def arrive(page: Page, how: str, new: Markup) -> None:
    """Let a new version of the form come over the page in one of several ways."""
    inner = Markup(str(new).removeprefix('<form id="form">').removesuffix("</form>"))
    elements = {
        "replace": turbo_stream("replace", target="form", html=new),
        "update": turbo_stream("update", target="form", html=inner),
        "morph": turbo_stream("replace", target="form", html=new, method="morph"),
        "append": turbo_stream("append", target="box", html=new),
    }
    render(page, elements[how])


def notices(page: Page) -> Locator:
    return page.locator("instruct-notice")


WAYS = ["replace", "update", "morph", "append"]


@pytest.mark.parametrize("how", WAYS)
def test_t15_text_caret_and_scroll_stay_while_another_version_arrives(page: Page, how: str) -> None:
    lines = "\n".join(f"line {number}" for number in range(60))
    render(page, body=f'<div id="box">{form(lines)}</div>')
    page.click("#note")
    page.evaluate("note.setSelectionRange(10, 14, 'backward')")
    page.keyboard.type("my words")
    page.evaluate("note.setSelectionRange(3, 9); note.scrollTop = 150")
    before = page.evaluate("[note.value, note.selectionStart, note.selectionEnd, note.scrollTop]")
    arrive(page, how, form("their words", name="Grace"))
    assert page.evaluate("[note.value, note.selectionStart, note.selectionEnd, note.scrollTop]") == before
    assert page.evaluate("document.activeElement.id") == "note"
    # What nobody writes in is up to date.
    assert page.input_value("#name") == "Grace"
    assert page.inner_text("h2") == "head of their words"
    assert notices(page).count() == 1


@pytest.mark.parametrize("how", WAYS)
def test_text_that_was_left_unsaved_stays_too(page: Page, how: str) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    page.select_option("#kind", "b")
    page.check("#done")
    page.evaluate("document.activeElement.blur()")
    arrive(page, how, form("theirs", kind="c", done=False))
    assert page.input_value("#note") == "mine"
    assert page.input_value("#kind") == "b"
    assert page.is_checked("#done")
    assert notices(page).count() == 2


def test_the_notice_offers_both_versions_and_switches_between_them(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("theirs"))
    assert "changed elsewhere" in notices(page).locator("span").inner_text()
    page.evaluate("window.inputs = []; note.addEventListener('input', () => inputs.push(note.value))")
    page.get_by_role("button", name="Other version").click()
    assert page.input_value("#note") == "theirs"
    page.get_by_role("button", name="Your version").click()
    assert page.input_value("#note") == "mine"
    assert page.evaluate("inputs") == ["theirs", "mine"]
    assert page.evaluate("document.activeElement.id") == "note"
    page.get_by_role("button", name="Close").click()
    assert notices(page).count() == 0
    assert page.input_value("#note") == "mine"


def test_words_written_after_the_notice_are_the_persons_version(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("theirs"))
    page.fill("#note", "mine and more")
    page.get_by_role("button", name="Other version").click()
    page.get_by_role("button", name="Your version").click()
    assert page.input_value("#note") == "mine and more"


def test_the_other_version_is_always_the_newest(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("second"))
    arrive(page, "replace", form("third"))
    assert notices(page).count() == 1
    page.get_by_role("button", name="Other version").click()
    assert page.input_value("#note") == "third"


def test_no_notice_where_nothing_changed_elsewhere(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("first", name="Grace"))
    assert page.input_value("#note") == "mine"
    assert notices(page).count() == 0


def test_the_notice_goes_when_the_same_words_arrive(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("theirs"))
    arrive(page, "replace", form("mine"))
    assert notices(page).count() == 0
    arrive(page, "replace", form("later"))
    assert page.input_value("#note") == "mine"
    page.evaluate("document.activeElement.blur()")
    page.get_by_role("button", name="Other version").click()
    arrive(page, "replace", form("latest"))
    assert page.input_value("#note") == "latest"


def test_the_notice_stays_beside_its_field_through_further_changes(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    arrive(page, "replace", form("theirs"))
    arrive(page, "morph", form("theirs", name="Grace", extra="<p>more</p>"))
    assert page.evaluate("note.nextElementSibling.localName") == "instruct-notice"


def test_a_focused_field_without_changes_keeps_what_the_person_reads(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.click("#name")
    arrive(page, "replace", form("first", name="Grace"))
    assert page.input_value("#name") == "Ada"
    page.get_by_role("button", name="Other version").click()
    assert page.input_value("#name") == "Grace"


@pytest.mark.parametrize("method", ["replace", "morph"])
def test_words_that_are_being_composed_stay(page: Page, method: str) -> None:
    """An input method, as for Japanese, keeps its word in the field until it is chosen."""
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.focus("#note")
    page.keyboard.press("Control+End")
    keys = page.context.new_cdp_session(page)
    keys.send("Input.imeSetComposition", {"text": "かん", "selectionStart": 2, "selectionEnd": 2})
    page.evaluate(
        "window.chosen = null; note.addEventListener('compositionend', ({ data }) => { window.chosen = data; })"
    )
    arrive(page, method, form("second"))
    assert page.input_value("#note") == "firstかん"
    assert page.evaluate("window.chosen") is None
    keys.send("Input.insertText", {"text": "漢"})
    assert (page.input_value("#note"), page.evaluate("window.chosen")) == ("first漢", "漢")


def test_a_field_that_nobody_touched_takes_the_new_version(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    arrive(page, "replace", form("second", name="Grace", kind="b", done=True))
    values = page.evaluate("[note.value, document.getElementById('name').value, kind.value, done.checked]")
    assert values == ["second", "Grace", "b", True]
    arrive(page, "morph", form("third", name="Mary", kind="c", done=False))
    values = page.evaluate("[note.value, document.getElementById('name').value, kind.value, done.checked]")
    assert values == ["third", "Mary", "c", False]
    assert notices(page).count() == 0


def test_hidden_fields_are_the_servers(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first", extra="<input type=hidden id=token value=1>")}</div>')
    page.click("#note")
    arrive(page, "replace", form("first", extra="<input type=hidden id=token value=2>"))
    assert page.evaluate("token.value") == "2"


def test_a_removed_form_with_words_in_it_waits_until_the_person_lets_it_go(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}<p id="after">x</p></div>')
    page.fill("#note", "mine")
    render(page, turbo_stream("remove", target="form"))
    assert page.input_value("#note") == "mine"
    assert "removed elsewhere" in notices(page).locator("span").inner_text()
    page.get_by_role("button", name="Close").click()
    assert page.locator("#form").count() == 0


def test_a_form_that_the_new_version_lacks_is_kept_for_its_words(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.fill("#note", "mine")
    render(page, turbo_stream("update", target="box", html=Markup('<p id="closed">closed</p>')))
    assert page.input_value("#note") == "mine"
    assert page.inner_text("#closed") == "closed"


def test_a_form_without_words_goes_without_a_question(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first")}</div>')
    page.click("#note")
    render(page, turbo_stream("remove", target="form"))
    assert page.locator("#form").count() == 0


def test_an_editor_keeps_its_text_and_offers_the_other(page: Page) -> None:
    def editor(text: str) -> str:
        return f'<div id="box"><h2>{text}</h2><div id="editor" contenteditable="true"><p>{text}</p></div></div>'

    render(page, body=editor("first"))
    page.click("#editor")
    page.keyboard.press("End")
    page.keyboard.type(" mine")
    render(page, turbo_stream("replace", target="box", html=Markup(editor("theirs"))))
    assert page.inner_text("#editor") == "first mine"
    assert page.inner_text("h2") == "theirs"
    assert page.evaluate("document.activeElement.id") == "editor"
    page.get_by_role("button", name="Other version").click()
    assert page.inner_text("#editor") == "theirs"
    page.get_by_role("button", name="Your version").click()
    assert page.inner_text("#editor") == "first mine"


def test_a_part_of_an_editor_is_not_changed_under_the_writer(page: Page) -> None:
    render(page, body='<div id="editor" contenteditable="true"><p id="part">first</p></div>')
    page.click("#editor")
    page.keyboard.type("mine ")
    before = page.inner_text("#editor")
    render(page, turbo_stream("update", target="part", html="theirs"))
    assert page.inner_text("#editor") == before
    assert notices(page).count() == 1


def test_a_chosen_file_stays_chosen(page: Page) -> None:
    render(page, body=f'<div id="box">{form("first", extra="<input type=file id=file>")}</div>')
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"})
    arrive(page, "replace", form("second", extra="<input type=file id=file>"))
    assert page.evaluate("file.files.length") == 1
    assert page.input_value("#note") == "second"


def test_fields_that_browsers_fill_themselves_are_not_taken_for_written(page: Page) -> None:
    extra = '<input type="range" id="range"><input type="color" id="color">'
    render(page, body=f'<div id="box">{form("first", extra=extra)}</div>')
    arrive(page, "replace", form("second"))
    assert page.locator("#range").count() == 0
    assert notices(page).count() == 0


def test_a_refresh_of_the_whole_page_keeps_what_is_being_written(
    new_page: Callable[..., Page], address: str, board: Board
) -> None:
    page = open_live(new_page(), address)
    page.click("#note")
    page.keyboard.press("End")
    page.keyboard.type(" mine")
    board.write(note="theirs", title="New", name="Grace")
    board.tell("refresh")
    wait_for(lambda: page.inner_text("#title") == "New")
    assert page.input_value("#note") == "first mine"
    assert page.input_value("#name") == "Grace"
    assert page.evaluate("document.activeElement.id") == "note"
    assert notices(page).count() == 1
    LivePage(page).wait_connected()
