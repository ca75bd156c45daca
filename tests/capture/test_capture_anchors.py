"""Which lines an edit leaves in a file, as hashes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ralph.capture.anchors import Anchor, EditedLines, line_hash, line_hashes

LINE = "    total = sum(prices)"
OTHER = "    total = round(total, 2)"


def anchors(*edits: tuple[str, str, str]) -> dict[str, Anchor]:
    lines = EditedLines()
    for path, old, new in edits:
        lines.note(path, old, new)
    return {anchor.path: anchor for anchor in lines.anchors()}


def test_white_space_does_not_change_a_line() -> None:
    assert line_hash(LINE) == line_hash("\ttotal =  sum(prices) \r") != line_hash(OTHER)


def test_lines_that_every_file_has_say_nothing() -> None:
    for line in ("", "}", "    else:", "if err != nil {", "return 1", "# ------", "    ),"):
        assert line_hash(line) == "", line


def test_only_added_lines_count() -> None:
    found = anchors(("a.py", LINE, f"{LINE}\n{OTHER}"))
    assert found["a.py"].hashes == {line_hash(OTHER)}


def test_what_a_later_edit_removes_was_never_left() -> None:
    found = anchors(("a.py", "", LINE), ("a.py", LINE, OTHER))
    assert found["a.py"].hashes == {line_hash(OTHER)}
    assert anchors(("a.py", "", LINE), ("a.py", LINE, "")) == {}


def test_an_edit_that_only_removes_leaves_nothing() -> None:
    assert anchors(("a.py", f"{LINE}\n{OTHER}", LINE)) == {}


def test_a_file_that_is_written_anew_keeps_the_new_lines() -> None:
    lines = EditedLines()
    lines.note("a.py", "", LINE)
    lines.drop("a.py")
    lines.note("a.py", "", OTHER)
    assert lines.anchors()[0].hashes == {line_hash(OTHER)}


def test_the_function_around_an_edit_is_named() -> None:
    found = anchors(("a.py", "", f"import os\n\nasync def total(prices):\n{LINE}"))
    assert found["a.py"].scope == "async def total(prices):"


def test_a_secret_is_not_in_the_scope() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    found = anchors(("a.py", "", f'def login(token="{token[:40]}"):\n{LINE}'))
    assert token[:40] not in found["a.py"].scope


def test_a_long_file_leaves_a_sample() -> None:
    text = "\n".join(f"line_number_{n} = compute({n})" for n in range(5000))
    hashes = anchors(("a.py", "", text))["a.py"].hashes
    assert 100 <= len(hashes) <= 200
    assert hashes < set(line_hashes(text))


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.text(), st.text()), max_size=8))
def test_any_edits_leave_anchors_that_can_be_saved(edits: list[tuple[str, str, str]]) -> None:
    for anchor in anchors(*edits).values():
        assert anchor.lines
        assert bytes.fromhex(anchor.lines)
        assert len(anchor.hashes) == len(anchor.lines) // 8
