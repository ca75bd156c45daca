"""Render Markdown of records as HTML: a few tags, and everything else as text.

Raw HTML in a record is shown as text. Links are not clickable and images are not loaded: the
address is shown instead, because a record may come from a model or from another person.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence, Set

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from ralph.text.sanitize import visible
from ralph.text.tokens import tokens

# A longer text is shown as it is written: parsing it would hold up the page.
MOST_CHARS = 40_000
_WORD = re.compile(r"([\w'.-]*\w)")
_CODE_SPAN = re.compile(r"`([^`\n]{1,300})`")
_TAGS = frozenset(
    "p blockquote ul ol li strong em s table thead tbody tr th td hr br code pre".split()
)
_HEADINGS = {"h1": "h3", "h2": "h3", "h3": "h4", "h4": "h4", "h5": "h4", "h6": "h4"}
_WIDE = {"table": ('<div class="scroll" tabindex="0">', "</div>")}


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["table", "strikethrough"])


def render_markdown(text: str | None) -> Markup:
    """Return a text that may be Markdown as HTML."""
    plain = visible(text or "")
    if len(plain) > MOST_CHARS:
        return Markup('<pre class="said">{}</pre>').format(plain)
    return Markup("").join(_html(_parser().parse(plain)))


def code_spans(text: str | None) -> Markup:
    """Return one line of text as HTML, with `code` in backticks as code."""
    parts = _CODE_SPAN.split(visible(text or ""))
    shown = (
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
    return Markup("").join(shown)


def mark_words(text: str | None, asked: Set[str]) -> Markup:
    """Return a text as HTML, with the words marked that have one of these tokens."""
    parts = _WORD.split(visible(text or ""))
    shown = (
        Markup("<mark>{}</mark>").format(part)
        if place % 2 and not asked.isdisjoint(tokens(part))
        else escape(part)
        for place, part in enumerate(parts)
    )
    return Markup("").join(shown)


def _html(parsed: Sequence[Token]) -> Iterator[Markup]:
    addresses: list[str] = []
    for token in parsed:
        if token.type == "inline":
            yield from _html(token.children or ())
        elif token.type == "link_open":
            url = str(token.attrs.get("href", ""))
            addresses.append("" if token.markup == "autolink" else url)
        elif token.type == "link_close":
            yield _address(addresses.pop())
        else:
            yield _LEAVES.get(token.type, _tag)(token)


def _text(token: Token) -> Markup:
    return escape(token.content)


def _code(token: Token) -> Markup:
    return Markup("<code>{}</code>").format(token.content)


def _line_end(token: Token) -> Markup:
    return Markup("\n")


def _image(token: Token) -> Markup:
    name = escape(token.content or "image")
    return name + _address(str(token.attrs.get("src", "")))


def _code_block(token: Token) -> Markup:
    language = token.info.split()[0] if token.info.split() else ""
    label = Markup('<span class="language">{}</span>').format(language[:20]) if language else ""
    block = Markup('<div class="code">{}<pre><code>{}</code></pre></div>')
    return block.format(label, token.content)


def _address(url: str) -> Markup:
    if not url:
        return Markup("")
    return Markup(' <span class="address">({})</span>').format(url)


def _tag(token: Token) -> Markup:
    name = _HEADINGS.get(token.tag, token.tag)
    if name not in _TAGS and token.tag not in _HEADINGS:
        return escape(token.content)
    if token.hidden:  # a paragraph in a tight list
        return Markup("")
    before, after = _WIDE.get(name, ("", ""))
    if token.nesting < 0:
        return Markup(f"</{name}>{after}")
    if name == "ol" and (start := str(token.attrs.get("start", ""))).isdecimal():
        return Markup('<ol start="{}">').format(start[:6])
    return Markup(f"{before}<{name}>")


_LEAVES: dict[str, Callable[[Token], Markup]] = {
    "text": _text,
    "text_special": _text,
    "code_inline": _code,
    "fence": _code_block,
    "code_block": _code_block,
    "softbreak": _line_end,
    "image": _image,
}
