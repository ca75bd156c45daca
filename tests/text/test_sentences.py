"""Where a text may be cut: at the end of a sentence, else of a clause, else of a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing import assert_linear

from ralph.text.sentences import Piece, cut_at_end, lines_joined, pieces, sentences


@pytest.mark.parametrize(
    ("text", "max_chars", "cut"),
    [
        ("One is done. Two is not done yet.", 20, "One is done."),
        ("The store is full, the disk is slow", 25, "The store is full\u2026"),
        ("The tests pass here, but not on the server", 26, "The tests pass here, but\u2026"),
        ("Fixed the login of the shop because it broke", 28, "Fixed the login of the shop\u2026"),
        ("It runs on v1.2.3 and node.js only", 18, "It runs on v1.2.3\u2026"),
        ("short", 20, "short"),
        ("abcdefghij", 5, "abcd\u2026"),
    ],
)
def test_a_text_is_cut_where_something_ends(text: str, max_chars: int, cut: str) -> None:
    assert cut_at_end(text, max_chars) == cut


def test_a_clause_inside_code_or_brackets_is_no_place_to_cut() -> None:
    text = "Calls `open(path, mode)` first (with a lock, and a timeout) and then reads"
    assert cut_at_end(text, 54) == "Calls `open(path, mode)` first (with a lock\u2026"
    assert (
        cut_at_end("Set `a: b, c: d` in the file, then run it again", 24)
        == "Set `a: b, c: d`\u2026"
    )


@given(text=st.text(max_size=120), max_chars=st.integers(1, 60))
def test_a_cut_is_the_beginning_and_fits(text: str, max_chars: int) -> None:
    cut = cut_at_end(text, max_chars)
    assert len(cut) <= max_chars
    assert text.startswith(cut.removesuffix("\u2026"))


@pytest.mark.parametrize(
    "sentence",
    [
        "See https://example.org/a?b=C for more.",
        "It needs node.js 18.2.1 and e.g. Bun.",
        "Edit docs/guide.md or README.md first.",
    ],
)
def test_a_sentence_does_not_end_inside_a_name(sentence: str) -> None:
    assert sentences(f"{sentence} Then go on.") == [sentence, "Then go on."]


def test_a_sentence_does_not_end_inside_code() -> None:
    text = "Run `make a. Then make b` first. Then go on."
    assert sentences(text) == ["Run `make a. Then make b` first.", "Then go on."]


def test_a_typed_sentence_may_begin_with_a_small_letter() -> None:
    text = "always go to maps.example.org not api.example.org. see @.docs/a.md e.g. the list? ok"
    assert sentences(text) == [text]
    assert sentences(text, typed=True) == [
        "always go to maps.example.org not api.example.org.",
        "see @.docs/a.md e.g. the list?",
        "ok",
    ]


def test_lines_of_one_paragraph_are_joined_and_items_are_not() -> None:
    text = "One lock\nfor all.\n\n- a reader\n  waits\n- a writer"
    assert lines_joined(text) == ["One lock for all.", "- a reader waits", "- a writer"]


@pytest.mark.parametrize("piece", ["a. ", "`a. ", "`", "A. `b. C` ", "..", "\n- "])
def test_splitting_takes_no_longer_than_the_text(piece: str) -> None:
    def split(text: str) -> object:
        return sentences(text), sentences(text, typed=True), lines_joined(text)

    assert_linear(split, lambda size: piece * (size // len(piece)), 60_000)


def test_the_rows_of_a_table_are_items_and_its_head_is_not() -> None:
    assert pieces("| Step | Result |\n|---|---|\n| Lint | passed |\n| Sign | failed |") == [
        Piece("item", ("Lint: passed",)),
        Piece("item", ("Sign: failed",)),
    ]


def test_a_nested_item_is_known() -> None:
    assert pieces("- a\n  - b") == [Piece("item", ("a",)), Piece("item", ("b",), nested=True)]
