"""A finished answer as HTML: Markdown from a model is hostile text, so only a closed list of elements comes out.

No raw HTML, no images (a remote image leaks what its address carries), no style attributes (a strict
content security policy reports them), and links of three schemes only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup
from markupsafe import escape

LONGEST = 50_000
"""Characters up to which text is parsed; anything longer is shown as it is."""
DEEPEST = 20
"""Nesting up to which text is parsed: the parser drops what is deeper, and takes long to get there."""
LINK_RULES = "noopener noreferrer nofollow"
TOP_HEADING = 4
"""The level of the first heading of an answer: the page and the panel own those above."""

_ALLOWED_LINK = re.compile(r"(?:https?://|mailto:|[/?#]|[^:/?#]*(?:[/?#]|$))", re.IGNORECASE)
_OTHER_SITE = re.compile(r"(?:https?:)?//|/\\", re.IGNORECASE)
_ALIGN = re.compile(r"text-align:(left|center|right)")


class _Renderer(RendererHTML):
    """Writes what the stock renderer would, less what must not leave a page."""

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        words = self.renderInlineAsText(tokens[idx].children, options, env)
        return f'<span class="instruct-image">{escape(words or tokens[idx].attrGet("src") or "")}</span>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        token.attrSet("rel", LINK_RULES)
        if _OTHER_SITE.match(str(token.attrGet("href") or "")):
            token.attrSet("target", "_blank")
        return self.renderToken(tokens, idx, options, env)

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self._cell(tokens, idx, options, env)

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self._cell(tokens, idx, options, env)

    def _cell(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        style = str(tokens[idx].attrs.pop("style", ""))
        if align := _ALIGN.match(style):
            tokens[idx].attrSet("data-align", align[1])
        return self.renderToken(tokens, idx, options, env)


def _nest_headings(state: StateCore) -> None:
    """Give the headings of an answer the levels that their order asks for, below those of the panel."""
    levels: list[int] = []
    for token in state.tokens:
        if token.type == "heading_open":
            level = int(token.tag[1:])
            levels = [*(above for above in levels if above < level), level]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(TOP_HEADING - 1 + len(levels), 6)}"


def _allowed(url: str) -> bool:
    return bool(_ALLOWED_LINK.match(url.strip()))


_parser = MarkdownIt(
    "commonmark", {"html": False, "breaks": True, "xhtmlOut": False, "maxNesting": DEEPEST}, renderer_cls=_Renderer
)
_parser.enable(["table", "strikethrough"])
_parser.core.ruler.push("instruct_headings", _nest_headings)
_parser.validateLink = _allowed  # type: ignore[method-assign]  # the parser's documented way to set it


def markdown(text: str) -> Markup:
    """Return a model's Markdown as safe HTML; text that is too long or that breaks the parser comes out plain."""
    if len(text) > LONGEST:
        return plain(text)
    try:
        tokens = _parser.parse(text)
        if any(token.level >= DEEPEST - 1 for token in tokens):
            return plain(text)
        return Markup(_parser.renderer.render(tokens, _parser.options, {}))
    except (RecursionError, ValueError, IndexError):
        return plain(text)


def block_tokens(text: str) -> list[Token]:
    """Return the blocks of a text, without looking at what is in them; none where that breaks the parser."""
    tokens: list[Token] = []
    try:
        _parser.block.parse(text, _parser, {}, tokens)
    except (RecursionError, ValueError, IndexError):
        return []
    return tokens


def plain(text: str) -> Markup:
    """Return text as escaped preformatted HTML."""
    return Markup('<p class="instruct-plain">{}</p>').format(text)
