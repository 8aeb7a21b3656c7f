"""What each action does to the page, in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask import Response
from flask import make_response
from flask import render_template_string
from markupsafe import Markup
from playwright.sync_api import Error
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.live.turbo_stream import turbo_stream
from tests.npm import npm_file
from tests.support import wait_for

from .site import live_of
from .watching import heard
from .watching import items
from .watching import listening
from .watching import open_live
from .watching import render


@pytest.fixture
def page(canvas: Page) -> Page:
    return canvas


def markup(html: str) -> Markup:
    return Markup(html)


LIST = '<ul id="items"><li id="a">a</li><li id="b">b</li></ul>'


@pytest.mark.parametrize(
    ("action", "target", "expected"),
    [
        ("append", "items", ["a", "b", "c"]),
        ("prepend", "items", ["c", "a", "b"]),
        ("before", "b", ["a", "c", "b"]),
        ("after", "a", ["a", "c", "b"]),
        ("replace", "a", ["c", "b"]),
        ("update", "items", ["c"]),
    ],
)
def test_each_action_puts_a_fragment_where_it_belongs(
    page: Page, action: str, target: str, expected: list[str]
) -> None:
    fragment = turbo_stream(action, target=target, html=markup('<li id="c">c</li>'))
    render(page, fragment, body=LIST)
    assert items(page) == expected
    render(page, fragment)
    assert items(page) == expected


def test_remove_takes_away_what_is_there_and_does_not_mind_what_is_not(page: Page) -> None:
    render(page, turbo_stream("remove", target="a"), turbo_stream("remove", target="none"), body=LIST)
    assert items(page) == ["b"]


def test_case_16_a_late_append_of_what_is_there_moves_it_to_the_end(page: Page) -> None:
    render(page, turbo_stream("append", target="items", html=markup('<li id="a">a2</li>')), body=LIST)
    assert items(page) == ["b", "a2"]


def test_before_and_after_leave_one_of_each_id(page: Page) -> None:
    render(page, turbo_stream("before", target="a", html=markup('<li id="b">b2</li>')), body=LIST)
    assert items(page) == ["b2", "a"]
    render(page, turbo_stream("after", target="a", html=markup('<li id="a">a2</li>')))
    assert items(page) == ["b2", "a2"]


def test_several_elements_of_one_message_are_done_in_their_order(page: Page) -> None:
    render(
        page,
        turbo_stream("append", target="items", html=markup('<li id="c">c</li>')),
        turbo_stream("update", target="c", html="c2"),
        turbo_stream("prepend", target="items", html=markup('<li id="d">d</li>')),
        body=LIST,
    )
    assert items(page) == ["d", "a", "b", "c2"]


def test_targets_reach_every_element_of_a_selector(page: Page) -> None:
    render(page, turbo_stream("update", targets="#items > li", html=markup("<i>x</i>")), body=LIST)
    assert items(page) == ["x", "x"]


def test_a_malformed_element_costs_the_others_nothing(page: Page) -> None:
    render(
        page,
        turbo_stream("append", target="items", html=markup('<li id="c">c</li>')),
        '<turbo-stream action="update" targets="]["><template>x</template></turbo-stream>',
        '<turbo-stream action="dance" target="a"></turbo-stream>',
        '<turbo-stream action="constructor" target="a"></turbo-stream>',
        "<turbo-stream></turbo-stream><p>neither</p> text </div>",
        turbo_stream("append", target="items", html=markup('<li id="d">d</li>')),
        body=LIST,
    )
    assert items(page) == ["a", "b", "c", "d"]


def test_text_grows_by_its_offset_and_never_doubles(page: Page) -> None:
    def say(offset: int, piece: str) -> Any:
        return render(page, turbo_stream("text", target="talk", html=piece, offset=offset))

    render(page, body='<p id="talk"></p>')
    assert say(0, "one <b>")
    assert say(7, " 😀")
    assert say(0, "one <b>")
    assert say(10, "!\n ")
    assert page.text_content("#talk") == "one <b> 😀!\n "
    assert page.evaluate("document.getElementById('talk').childNodes.length") == 1


def test_text_beyond_the_end_means_that_something_is_missing(page: Page) -> None:
    fragment = turbo_stream("text", target="talk", html="x", offset=5)
    assert render(page, fragment, body='<p id="talk">abc</p>') is False
    assert page.text_content("#talk") == "abc"


def test_text_for_a_finished_or_absent_element_is_ignored(page: Page) -> None:
    fragment = turbo_stream("text", target="talk", html="x", offset=5)
    assert render(page, fragment, body='<p id="talk" data-instruct-final>abc</p>') is True
    assert render(page, fragment, body="") is True


def test_t14_case_39_what_a_model_writes_is_never_run(page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: requests.append(dialog.message))
    hostile = (
        "<script>window.ran = 1</script><script src='/ran.js'></script>"
        "<b onclick='window.ran = 2' onfocus='window.ran = 3' autofocus tabindex=0>x</b>"
        "<a id=link href=' java\tscript:window.ran = 4'>x</a><iframe srcdoc='<script>top.ran = 5</script>'></iframe>"
        "<svg onload='window.ran = 6'></svg><form action='javascript:window.ran = 7'><button id=go>x</button></form>"
    )
    for action in ("append", "update", "replace"):
        for method in (None, "morph"):
            fragment = turbo_stream(action, target="box", html=markup(f"<div id=box>{hostile}</div>"), method=method)
            render(page, fragment, body="<div id=box></div>")
            page.click("b")
            page.click("#link")
    assert page.evaluate("window.ran") is None
    assert not [url for url in requests if "ran.js" in url]
    assert page.locator("[onclick], [onload], [onfocus], [srcdoc]").count() == 0


def test_a_morph_changes_only_what_differs(page: Page) -> None:
    render(page, body='<div id="box" class="old"><p>one</p><p id="two">two</p><ul><li id="x">x</li></ul></div>')
    page.evaluate("window.kept = [...document.querySelectorAll('#box, #box *')]")
    new = '<div id="box" class="new" title="t"><p>one</p><p id="new">new</p><p id="two">2</p>'
    new += '<ul><li id="x">x</li></ul></div>'
    render(page, turbo_stream("replace", target="box", html=markup(new), method="morph"))
    assert page.evaluate("document.getElementById('box').outerHTML.replace(/ data-instruct-changed=\"\"/, '')") == new
    assert page.evaluate("kept.every((element) => element.isConnected)")


def test_a_morph_can_reorder_without_taking_the_focus_away(page: Page) -> None:
    def inputs(*names: str) -> str:
        return "".join(f'<input id="{name}">' for name in names)

    render(page, body=f'<div id="box">{inputs("a", "b", "c", "d")}</div>')
    page.focus("#c")
    new = markup(f'<div id="box">{inputs("c", "d", "a", "b")}</div>')
    render(page, turbo_stream("replace", target="box", html=new, method="morph"))
    assert page.evaluate("[...document.querySelectorAll('#box input')].map((each) => each.id)") == ["c", "d", "a", "b"]
    assert page.evaluate("document.activeElement.id") == "c"


def test_a_morph_of_many_random_trees_gives_the_new_tree(page: Page) -> None:
    assert (
        page.evaluate(
            """async () => {
          const { morph } = await import("/instruct/live/morph.js");
          let seed = 7;
          const random = (most) => (seed = (seed * 16807) % 2147483647) % most;
          const tree = (depth) => {
            const element = document.createElement(["p", "div", "span", "b"][random(4)]);
            if (random(2)) element.className = "c" + random(3);
            const ids = new Set();
            for (let count = random(5); count > 0 && depth > 0; count--) {
              const child = random(4) ? tree(depth - 1) : document.createTextNode("t" + random(9));
              if (child.nodeType === 1 && random(2)) {
                const id = `n${depth}-${random(6)}`;
                if (!ids.has(id)) child.id = id;
                ids.add(id);
              }
              element.append(child);
            }
            return element;
          };
          for (let round = 0; round < 400; round++) {
            const [from, to] = [tree(4), tree(4)].map((each) => {
              const box = document.createElement("section");
              box.append(each);
              return box;
            });
            const expected = to.cloneNode(true);
            document.body.replaceChildren(from);
            morph(from, to);
            if (!from.isEqualNode(expected)) return [round, from.outerHTML, expected.outerHTML];
          }
          return null;
        }"""
        )
        is None
    )


def test_a_replaced_element_with_the_focus_keeps_it(page: Page) -> None:
    render(page, body='<div id="box"><button id="go">Go</button></div>')
    page.focus("#go")
    new = markup('<div id="box"><p>done</p><button id="go">Again</button></div>')
    render(page, turbo_stream("replace", target="box", html=new))
    assert page.evaluate("document.activeElement.id") == "go"
    assert page.inner_text("#go") == "Again"


def test_what_a_person_has_opened_stays_open(page: Page) -> None:
    def box(word: str, attribute: str = "") -> Markup:
        return markup(f'<details id="box"{attribute}><summary>s</summary><p>{word}</p></details>')

    render(page, body=box("one"))
    page.click("summary")
    render(page, turbo_stream("replace", target="box", html=box("two"), method="morph"))
    assert page.evaluate("document.getElementById('box').open") is True
    assert page.inner_text("#box p") == "two"


def test_an_element_elsewhere_of_the_same_id_is_not_taken_for_the_lists_own(page: Page) -> None:
    body = '<p id="a">elsewhere</p>' + LIST
    render(page, turbo_stream("append", target="items", html=markup('<li id="a">new</li>')), body=body)
    assert page.locator("#items [id=a]").all_inner_texts() == ["new"]
    assert page.locator("p[id=a]").inner_text() == "elsewhere"


@pytest.mark.parametrize("method", [None, "morph"])
@pytest.mark.parametrize("action", ["replace", "update"])
def test_a_dialog_stays_open_in_what_arrives(page: Page, action: str, method: str | None) -> None:
    def box(word: str) -> Markup:
        dialog = f'<dialog id="ask"><p>{word}</p><button>Yes</button></dialog>'
        return markup(f'<div id="box">{dialog}</div>' if action == "replace" else dialog)

    render(page, body=f'<div id="box">{box("one")}</div>' if action == "update" else str(box("one")))
    page.evaluate("document.getElementById('ask').showModal()")
    page.evaluate("document.activeElement.blur()")
    render(page, turbo_stream(action, target="box", html=box("two"), method=method))
    assert page.evaluate("document.querySelector('#ask:modal p').innerText") == "two"


def test_a_permanent_element_is_left_alone(page: Page) -> None:
    render(page, body='<div id="box"><p id="clock" data-instruct-permanent>12:00</p></div>')
    new = markup('<div id="box"><p id="clock" data-instruct-permanent></p></div>')
    render(page, turbo_stream("replace", target="box", html=new, method="morph"))
    assert page.inner_text("#clock") == "12:00"


def test_what_changed_is_marked_for_a_moment(page: Page) -> None:
    render(page, turbo_stream("append", target="items", html=markup('<li id="c">c</li>')), body=LIST)
    assert page.locator("[data-instruct-changed]").all_inner_texts() == ["c"]
    page.wait_for_selector("[data-instruct-changed]", state="detached", timeout=8_000)


def test_a_morph_that_changes_nothing_marks_nothing(page: Page) -> None:
    render(
        page,
        turbo_stream("replace", target="a", html=markup('<li id="a">a</li>'), method="morph"),
        body=LIST,
    )
    assert page.locator("[data-instruct-changed]").count() == 0


def test_the_host_page_hears_of_each_action_and_may_object(page: Page) -> None:
    page.evaluate(
        """() => document.addEventListener("instruct:before-render", (event) => {
          if (event.detail.element.getAttribute("target") === "a") event.preventDefault();
        })"""
    )
    render(page, turbo_stream("remove", target="a"), turbo_stream("remove", target="b"), body=LIST)
    assert items(page) == ["a"]
    assert [detail["action"] for detail in heard(page, "before-render")] == ["remove", "remove"]
    assert heard(page, "rendered") == [{"action": "remove", "stream": "test"}]


def test_custom_actions_are_left_to_turbo_when_it_is_there(new_page: Callable[..., Page], address: str) -> None:
    page = open_live(new_page(), address)
    page.evaluate(
        """() => {
          window.Turbo = { StreamActions: { shout() {} } };
          customElements.define("turbo-stream", class extends HTMLElement {
            connectedCallback() { window.shouted = this.getAttribute("action"); this.remove(); }
          });
        }"""
    )
    page.evaluate(
        """async () => {
          const { render } = await import("/instruct/live/actions.js");
          render('<turbo-stream action="shout"></turbo-stream>', "test");
        }"""
    )
    assert page.evaluate("window.shouted") == "shout"


LOG = "<div id='log' data-instruct-follow style='height: 60px; overflow-y: auto'>{}</div>"


def log_of(lines: int) -> str:
    return LOG.format("".join(f"<p id='line{number}' style='height: 30px; margin: 0'>x</p>" for number in range(lines)))


def line(name: str) -> str:
    return turbo_stream("append", target="log", html=markup(f"<p id='{name}' style='height: 30px; margin: 0'>y</p>"))


def from_the_end(page: Page) -> float:
    return float(page.eval_on_selector("#log", "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"))


SITES = """<!doctype html><html lang="en"><head><title>Site</title>{{ instruct_scripts(nonce="n0") }}</head><body>
{{ turbo_stream_from("board") }}<div id="box">box</div></body></html>"""


@pytest.fixture
def with_policy(
    make_app: Callable[..., Flask], serve_site: Callable[..., str], new_page: Callable[..., Page]
) -> Callable[..., tuple[Page, Flask]]:
    """Open a page of a site whose Content-Security-Policy is given, as ``with_policy(policy, **settings)``."""

    def open_page(policy: str, **settings: Any) -> tuple[Page, Flask]:
        app = make_app(**settings)

        @app.get("/site")
        def site() -> Response:
            response = make_response(render_template_string(SITES))
            response.headers["Content-Security-Policy"] = policy
            return response

        return open_live(listening(new_page()), serve_site(app), "/site"), app

    return open_page


def test_a_policy_of_trusted_types_is_kept(with_policy: Callable[..., tuple[Page, Flask]]) -> None:
    page, app = with_policy("require-trusted-types-for 'script'; trusted-types flask-instruct")
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("document.createElement('div').innerHTML = '<b>no</b>'")
    live_of(app).bus.publish("board", turbo_stream("update", target="box", html=markup("<b>yes</b>")))
    page.wait_for_selector("#box b")
    live_of(app).bus.publish("board", turbo_stream("refresh"))
    wait_for(lambda: page.locator("#box b").count() == 0)


def test_scripts_run_only_where_the_site_says_so(with_policy: Callable[..., tuple[Page, Flask]]) -> None:
    policy = "script-src 'self' 'nonce-n0'"
    hostile = markup("<script>document.body.dataset.ran = 1</script><b>done</b>")
    for allowed in (False, True):
        page, app = with_policy(policy, allow_scripts=allowed)
        live_of(app).bus.publish("board", turbo_stream("update", target="box", html=hostile))
        page.wait_for_selector("#box b")
        assert page.evaluate("document.body.dataset.ran ?? ''") == ("1" if allowed else "")


def test_htmx_works_in_what_is_new(page: Page, tmp_path: Path) -> None:
    source = npm_file("htmx.org@2.0.8", "dist/htmx.min.js", tmp_path)
    page.route("**/htmx.js", lambda route: route.fulfill(body=source, content_type="text/javascript"))
    # As the page's policy wants it: no style and no eval of its own.
    page.evaluate(
        """() => {
            const settings = Object.assign(document.createElement("meta"), {name: "htmx-config"});
            settings.content = JSON.stringify({includeIndicatorStyles: false, allowEval: false});
            document.head.append(settings);
        }"""
    )
    page.add_script_tag(url="/htmx.js")
    page.route("**/more", lambda route: route.fulfill(body="<i>more</i>", content_type="text/html"))
    button = '<button hx-get="/more" hx-target="#list" hx-swap="beforeend">More</button>'
    render(page, turbo_stream("append", target="list", html=markup(button)), body="<div><p id=list></p></div>")
    page.get_by_role("button", name="More").click()
    expect(page.locator("#list i")).to_have_text("more")
    page.evaluate("delete window.htmx")


def test_t35_a_log_that_is_read_to_its_end_follows_and_one_that_was_scrolled_up_stays_and_says_so(
    with_policy: Callable[..., tuple[Page, Flask]],
) -> None:
    page, _app = with_policy("style-src 'unsafe-inline'")
    render(page, body=log_of(10))
    page.eval_on_selector("#log", "(log) => { log.scrollTop = log.scrollHeight; }")
    render(page, line("new1"))
    assert from_the_end(page) == 0
    new = page.get_by_role("button")
    expect(new).to_have_count(0)
    page.eval_on_selector("#log", "(log) => { log.scrollTop = 100; }")
    render(page, turbo_stream("update", target="line9", html="z"))
    expect(new).to_have_count(0)
    render(page, line("new2"))
    render(page, line("new3"))
    assert page.eval_on_selector("#log", "(log) => log.scrollTop") == 100
    expect(new).to_have_text(["New below"])
    page.eval_on_selector("#log", "(log) => { log.scrollTop = log.scrollHeight; }")
    expect(new).to_have_count(0)
    page.eval_on_selector("#log", "(log) => { log.scrollTop = 100; }")
    render(page, line("new4"))
    new.click()
    assert from_the_end(page) == 0
    expect(new).to_have_count(0)
    expect(page.locator("#log")).to_be_focused()
    # Exchanged as a whole, by a longer one, at its end.
    page.eval_on_selector("#log", "(log) => { log.scrollTop = log.scrollHeight; }")
    render(page, turbo_stream("replace", target="log", html=markup(log_of(30))))
    assert from_the_end(page) == 0


def test_streaming_text_keeps_its_log_at_the_end(
    with_policy: Callable[..., tuple[Page, Flask]],
) -> None:
    page, _app = with_policy("style-src 'unsafe-inline'")
    render(page, body=LOG.format("<p id='talk' style='margin: 0'></p>"))
    said = ""
    for number in range(40):
        piece = f"word {number} and more of it "
        render(page, turbo_stream("text", target="talk", html=piece, offset=len(said)))
        said += piece
        assert from_the_end(page) <= 1
