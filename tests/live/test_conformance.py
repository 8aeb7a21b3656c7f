"""The same messages into real Turbo and into ours: the same page, but for what is different on purpose.

The differences stand below, each with its reason; docs/decisions/0003 says why there are any.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from markupsafe import Markup
from playwright.sync_api import Browser
from playwright.sync_api import Page

from flask_instruct.live.turbo_stream import turbo_stream
from tests.npm import npm_file

from .watching import RENDER

TURBO = "@hotwired/turbo@8.0.23"

BODY = (
    '<ul id="list"><li id="a">a</li><li id="b">b</li><li id="c">c</li></ul>'
    '<p id="text" class="x">some <b>bold</b> text</p><div id="box"><p>one</p><p>two</p></div>'
)

RENDER_BY_TURBO = """async ([messages, body]) => {
  document.body.innerHTML = body;
  const Turbo = await import("/turbo.js");
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  for (const message of messages) {
    try { Turbo.renderStreamMessage(message); } catch (error) { console.warn(error); }
    await frame();
    await frame();
  }
  return document.body.innerHTML;
}"""

RENDER_BY_US = f"""async ([messages, body]) => {{
  const one = {RENDER};
  await one(["", body]);
  for (const message of messages) await one([message, null]);
  return document.body.innerHTML;
}}"""


@pytest.fixture(scope="module")
def turbo_source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return npm_file(TURBO, "dist/turbo.es2017-esm.js", tmp_path_factory.mktemp("turbo"))


@pytest.fixture(scope="module")
def turbo(browser: Browser, turbo_source: str) -> Iterator[Page]:
    """A page on which Turbo renders."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/turbo.js", lambda route: route.fulfill(body=turbo_source, content_type="text/javascript"))
    page.route(
        "**/empty", lambda route: route.fulfill(body="<!doctype html><title>Turbo</title>", content_type="text/html")
    )
    page.goto("http://turbo.test/empty")
    yield page
    context.close()


def by_turbo(turbo: Page, *messages: str, body: str = BODY) -> str:
    return normal(turbo.evaluate(RENDER_BY_TURBO, [list(messages), body]))


def by_us(canvas: Page, *messages: str, body: str = BODY) -> str:
    return normal(canvas.evaluate(RENDER_BY_US, [list(messages), body]))


def normal(html: str) -> str:
    """Return markup without the mark of what has changed, which is ours and passes."""
    return re.sub(r' data-instruct-changed=""', "", html)


def stream(action: str, html: str = "", **options: Any) -> str:
    return str(turbo_stream(action, html=Markup(html), **options))


SAME: dict[str, tuple[str, ...]] = {
    **{
        f"{action} to the list": (stream(action, '<li id="d">d</li>', target="list"),)
        for action in ("append", "prepend", "update")
    },
    **{
        f"{action} an item": (stream(action, '<li id="d">d</li>', target="b"),)
        for action in ("before", "after", "replace")
    },
    **{
        f"{action} what is there already": (stream(action, '<li id="a">again</li>', target="list"),)
        for action in ("append", "prepend")
    },
    **{
        f"{action} a neighbour": (stream(action, '<li id="a">again</li>', target="c"),)
        for action in ("before", "after")
    },
    "several children": (stream("append", '<li id="d">d</li> text <li>e</li><!-- note -->', target="list"),),
    "replace by several": (stream("replace", '<li id="d">d</li><li id="e">e</li>', target="b"),),
    "replace by text": (stream("replace", "only text", target="b"),),
    "update with text": (stream("update", "a &lt; b &amp; c", target="text"),),
    "update with nothing": (stream("update", "", target="box"),),
    "remove": (stream("remove", target="b"),),
    "remove what is not there": (stream("remove", target="zzz"),),
    "a target that is not there": (stream("update", "x", target="zzz"),),
    "targets": (stream("update", "<i>x</i>", targets="#list > li, #box p"),),
    "append to targets": (stream("append", "<i>x</i>", targets="p"),),
    "targets that are none": (stream("remove", targets=".none"),),
    "morph a replacement": (
        stream("replace", '<p id="text" class="y">other <b>bold</b></p>', target="text", method="morph"),
    ),
    "morph an update": (stream("update", '<li id="c">c</li><li id="a">a2</li>', target="list", method="morph"),),
    "two streams in a message": (stream("append", '<li id="d">d</li>', target="list") + stream("remove", target="a"),),
    "a table row": (stream("append", "<tr id='r2'><td>2</td></tr>", target="rows"),),
    "an option": (stream("append", "<option>2</option>", target="choice"),),
    "an SVG": (stream("update", '<svg viewBox="0 0 1 1"><path d="M0 0"></path></svg>', target="box"),),
    "one after the other": (
        stream("append", '<li id="d">d</li>', target="list"),
        stream("after", '<li id="e">e</li>', target="d"),
        stream("prepend", '<li id="d">d2</li>', target="list"),
        stream("remove", target="e"),
    ),
}

TABLE = BODY + "<table><tbody id='rows'><tr id='r1'><td>1</td></tr></tbody></table><select id='choice'></select>"


@pytest.mark.parametrize("name", SAME)
def test_the_same_messages_give_the_same_page(canvas: Page, turbo: Page, name: str) -> None:
    assert by_us(canvas, *SAME[name], body=TABLE) == by_turbo(turbo, *SAME[name], body=TABLE)


def test_any_messages_in_a_row_give_the_same_page(canvas: Page, turbo: Page) -> None:
    for seed in range(25):
        messages = story(random.Random(seed))
        ours = by_us(canvas, *messages)
        assert ours == by_turbo(turbo, *messages), (seed, messages)
        assert ours != BODY


def story(chance: random.Random) -> list[str]:
    """Return a dozen messages about a list whose items come, go and move."""

    def message() -> str:
        item = chance.choice("abcdefgh")
        html = f'<li id="{item}">{item}{chance.randrange(100)}</li>'
        action = chance.choice(["append", "prepend", "before", "after", "replace", "update", "remove"])
        if action in ("append", "prepend"):
            return stream(action, html, target="list")
        if action in ("before", "after"):
            other = chance.choice([each for each in "abcdefgh" if each != item])
            return stream(action, html, target=other)
        return stream(action, html if action == "replace" else f"{chance.randrange(100)}", target=item)

    return [message() for _ in range(12)]


DIFFERENT: dict[str, tuple[str, str, str, str]] = {
    "a script in a fragment": (
        "a fragment is looks, never behaviour: Turbo runs it",
        stream("append", "<script>document.body.dataset.ran = 1</script>", target="box"),
        "!document.body.dataset.ran",
        "document.body.dataset.ran === '1'",
    ),
    "an event handler in a fragment": (
        "the same, where no policy forbids it",
        stream("append", '<b id="n" onclick="1">x</b>', target="box"),
        "!document.getElementById('n').hasAttribute('onclick')",
        "document.getElementById('n').hasAttribute('onclick')",
    ),
    "a bad element among good ones": (
        "one without a template costs the others nothing: Turbo loses the whole message",
        '<turbo-stream action="update" target="a"><p>no template</p></turbo-stream>'
        + stream("append", '<li id="d">d</li>', target="list"),
        "document.getElementById('d') !== null",
        "document.getElementById('d') === null",
    ),
    "text that has to be in order": (
        "`text` is ours: it grows by an offset and never doubles",
        str(turbo_stream("text", target="text", html=" more", offset=14)) * 2,
        "document.getElementById('text').textContent === 'some bold text more'",
        "document.getElementById('text').textContent === 'some bold text'",
    ),
    "rows that say where they belong": (
        "two processes tell of their rows in the order in which they commit: the text of the attribute decides here",
        stream("append", '<li id="e" data-instruct-order="5">e</li>', target="list")
        + stream("append", '<li id="d" data-instruct-order="4">d</li>', target="list"),
        "[...document.getElementById('list').children].map(each => each.id).join('') === 'abcde'",
        "[...document.getElementById('list').children].map(each => each.id).join('') === 'abced'",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_differences_are_these(canvas: Page, turbo: Page, name: str) -> None:
    _reason, message, ours, theirs = DIFFERENT[name]
    by_us(canvas, message)
    assert canvas.evaluate(ours)
    by_turbo(turbo, message)
    assert turbo.evaluate(theirs)


def test_morphing_leaves_what_is_being_typed(canvas: Page, turbo: Page) -> None:
    """Turbo overwrites it."""
    body = '<form id="form"><input id="name" value="old"></form>'
    message = stream("update", '<input id="name" value="new">', target="form", method="morph")
    typing = "() => { const field = document.getElementById('name'); field.focus(); field.value = 'mine'; }"
    for page, render, expected in ((canvas, RENDER, "mine"), (turbo, None, "new")):
        page.evaluate("(body) => { document.body.innerHTML = body; }", body)
        page.evaluate(typing)
        if render:
            page.evaluate(render, [message, None])
        else:
            page.evaluate(
                "async (message) => { (await import('/turbo.js')).renderStreamMessage(message);"
                "await new Promise((resolve) => setTimeout(resolve, 200)); }",
                message,
            )
        assert page.evaluate("document.getElementById('name').value") == expected
