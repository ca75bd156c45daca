"""Tokens are estimated near enough for a budget: never shrinking, about a quarter of English."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.tokens import estimate_tokens, first_tokens

ENGLISH = """
The session lives in a cookie that is signed on the server. When somebody signs in, the form posts
the name and the password; the password is checked against its hash, the cookie is set, and the
browser is sent back to the page it came from. A request without a valid cookie is answered with
the form. Nothing about the person is kept in the cookie itself, only the number of the session.
"""
CODE = """
def slugify(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return "-".join(part for part in plain.lower().split() if part)
"""


def test_english_takes_about_a_token_for_four_characters() -> None:
    assert 3.5 <= len(ENGLISH) / estimate_tokens(ENGLISH) <= 6


def test_code_takes_more_tokens_than_prose_of_its_length() -> None:
    assert estimate_tokens(CODE) / len(CODE) > estimate_tokens(ENGLISH) / len(ENGLISH)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("   ", 0), ("word", 1), ("a, b", 3)])
def test_small_texts(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_script_without_spaces_takes_about_a_token_a_character() -> None:
    assert estimate_tokens("\u8a18\u61b6\u306f\u5927\u5207") == 5


@given(st.text(max_size=200), st.text(max_size=50))
def test_more_text_never_takes_fewer_tokens(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + more)


@given(st.text(max_size=300), st.integers(0, 60))
def test_the_first_tokens_are_a_beginning_that_takes_no_more_than_asked(
    text: str, count: int
) -> None:
    beginning = first_tokens(text, count)
    assert text.startswith(beginning)
    assert estimate_tokens(beginning) <= count


@given(st.text(max_size=300))
def test_a_text_that_fits_is_not_cut(text: str) -> None:
    assert first_tokens(text, estimate_tokens(text)) == text
