"""Markdown of records: shown as a reader expects it, and never as the record's own HTML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.doors.web.markdown import MOST_CHARS, code_spans, mark_words, render_markdown

TAG = re.compile(r"<(/?)([a-z0-9]+)((?: [a-z]+=\"[^\"<>]*\")*)>")
ALLOWED = set("p ul ol li strong em s table thead tbody tr th td hr br code pre h3 h4".split())
ALLOWED |= {"blockquote", "div", "span"}


def tags_of(html: str) -> set[str]:
    """The names of the tags in some HTML, in which nothing else may look like a tag."""
    names = {found[2] for found in TAG.finditer(html)}
    assert "<" not in TAG.sub("", html), html
    return names


def test_headings_lists_code_and_tables_are_shown() -> None:
    text = "## Summary\n\n- **one** `x < y`\n  - two\n\n```go\na <- b\n```\n\n"
    text += "| a | b |\n|--:|---|\n| 1 | 2 |"
    html = str(render_markdown(text))
    assert "<h3>Summary</h3>" in html
    assert "<li><strong>one</strong> <code>x &lt; y</code><ul><li>two</li></ul></li>" in html
    assert '<span class="language">go</span><pre><code>a &lt;- b\n</code></pre>' in html
    assert "<th>a</th>" in html
    assert "<td>2</td>" in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onmouseover=alert(1)>b</b>",
        "[x](javascript:alert(1))",
        "[x](http://evil.example/?q=1)",
        "<http://evil.example>",
        "![x](http://evil.example/pixel.png)",
        '```"><script>\nx\n```',
        "| <svg onload=alert(1)> |\n|---|\n| <iframe> |",
        "[x]: http://evil.example 'title'\n\n[x]",
    ],
)
def test_html_links_and_images_of_a_record_are_text(text: str) -> None:
    html = str(render_markdown(text))
    assert tags_of(html) <= ALLOWED
    assert "href" not in html
    assert "src=" not in TAG.sub("", html).replace("src=x", "")


def test_the_address_of_a_link_is_shown() -> None:
    html = str(render_markdown("See [the guide](https://example.com/guide)."))
    assert 'the guide <span class="address">(https://example.com/guide)</span>.' in html


@given(st.text(alphabet="<>&\"'`*_[]()!#|-+~:\\/ \n\tab1.=x", max_size=200))
def test_no_text_becomes_a_tag_of_its_own(text: str) -> None:
    assert tags_of(str(render_markdown(text))) <= ALLOWED
    assert tags_of(str(code_spans(text))) <= {"code"}
    assert tags_of(str(mark_words(text, frozenset("ab x".split())))) <= {"mark"}


def test_a_very_long_text_is_shown_as_it_is() -> None:
    text = "**" * MOST_CHARS + "<b>"
    html = str(render_markdown(text))
    assert html.startswith('<pre class="said">')
    assert html.endswith("&lt;b&gt;</pre>")


def test_invisible_characters_are_removed() -> None:
    assert str(render_markdown("a\u202eb\x1b[31mc")) == "<p>abc</p>"


def test_words_of_the_question_are_marked() -> None:
    html = str(mark_words("The pools time out.", frozenset({"pool"})))
    assert html == "The <mark>pools</mark> time out."
