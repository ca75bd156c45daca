"""Documents in passages: headings, limits, and that no line is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.sections import TextSection, sections

GUIDE = """\
# Guide

Read this first, all of it, before anything is installed on any machine at all, because what comes
after it takes every word of it for granted and explains none of them a second time anywhere below.

## Set-up

Install it with your package manager, then open a new shell so that the command is found there.
Whoever works behind a proxy sets the two variables first, or nothing at all will be downloaded.

## Use

### Ask

Ask a question in plain words, and the answer is given with its source, date, and how sure it is.
An answer that is not sure says so, and names what it has looked at, so that nobody is led astray.
"""


def headings(text: str, max_chars: int = 2000) -> list[str]:
    return [section.heading for section in sections(text, max_chars=max_chars)]


def test_a_document_is_cut_at_its_headings() -> None:
    assert [(s.heading, s.line) for s in sections(GUIDE, max_chars=400)] == [
        ("Guide", 1),
        ("Guide > Set-up", 6),
        ("Guide > Use > Ask", 11),
    ]


def test_a_passage_is_the_files_own_lines_with_its_heading() -> None:
    found = sections(GUIDE, max_chars=400)[1]
    assert found.text == "\n".join(GUIDE.splitlines()[5:9])
    assert GUIDE.splitlines()[found.line - 1] == "## Set-up"


@pytest.mark.parametrize("text", ["", "\n\n", "  \n\t\n", "\ufeff", "---\ntitle: x\n---\n"])
def test_an_empty_file_has_no_passages(text: str) -> None:
    assert sections(text) == []


def test_a_heading_inside_a_fence_is_code() -> None:
    text = (
        "# A\n\n```sh\n# not a heading\n```\n\n~~~~\n## nor this\n~~~\n## nor that\n~~~~\n\nend\n"
    )
    assert sections(text) == [TextSection("A", text.strip(), 1)]


def test_a_heading_inside_a_fence_of_a_list_is_code() -> None:
    text = "# A\n\n1. do\n   ```sh\n   # not a heading\n   ```\n- ```\n  # nor this\n  ```\n"
    assert headings(text) == ["A"]


def test_underlined_headings_count() -> None:
    text = f"Guide\n=====\n\n{'Words. ' * 40}\n\nSet-up\n------\n{'More. ' * 40}\n"
    assert headings(text, 600) == ["Guide", "Guide > Set-up"]


def test_a_rule_below_a_list_a_table_or_a_paragraph_is_no_heading() -> None:
    assert headings("- one\n---\n\n| a |\n---\n\nfirst line\nsecond line\n---\n") == [""]


def test_marks_in_a_heading_are_dropped() -> None:
    text = "## **Set** up `ralph` with [uv](https://example.org) ## \n\nwords\n"
    assert headings(text) == ["Set up ralph with uv"]


def test_front_matter_is_skipped_and_gives_the_title() -> None:
    text = '---\ntitle: "My notes"\ntags: [a]\n---\n\nFirst.\n\n## More\n\nSecond.\n'
    found = sections(text, max_chars=20, overlap_chars=0)
    assert [(s.heading, s.text, s.line) for s in found] == [
        ("My notes", "First.", 6),
        ("My notes > More", "## More\n\nSecond.", 8),
    ]


def test_toml_front_matter_counts_too() -> None:
    assert sections('+++\ntitle = "My notes"\n+++\nFirst.\n') == [
        TextSection("My notes", "First.", 4)
    ]


def test_a_title_is_not_put_above_a_first_level_heading() -> None:
    assert headings("---\ntitle: Notes\n---\n# My notes\n\nwords\n") == ["My notes"]


def test_two_rules_are_no_front_matter() -> None:
    text = "---\n\nA thought (and another).\n\n---\n\nMore.\n"
    assert sections(text) == [TextSection("", text.strip(), 1)]


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter() -> None:
    windows = "\ufeff" + GUIDE.replace("\n", "\r\n")
    assert sections(windows, max_chars=400) == sections(GUIDE, max_chars=400)


def test_tiny_sections_of_one_parent_are_joined() -> None:
    text = f"# API\n\n## get\n\nReads.\n\n## put\n\nWrites.\n\n## list\n\n{'All of them. ' * 30}\n"
    [found] = sections(text)
    assert found.heading == "API > get, put, list"
    assert found.text == text.strip()


def test_a_tiny_section_is_not_joined_across_parents() -> None:
    text = f"# A\n\n## one\n\ntiny\n\n# B\n\n## two\n\n{'words ' * 40}\n"
    assert headings(text) == ["A > one", "B > two"]


def test_a_long_section_is_split_at_paragraphs_and_overlaps() -> None:
    paragraphs = [f"Paragraph {n} says this. It then says that {n} times." for n in range(8)]
    found = sections("# A\n\n" + "\n\n".join(paragraphs), max_chars=150, overlap_chars=40)

    assert len(found) > 2
    assert {section.heading for section in found} == {"A"}
    for before, after in pairwise(found):
        repeated = after.text.split("\n")[0]
        assert repeated.startswith("It then says")
        assert before.text.endswith(repeated)
    assert all(paragraph in "".join(s.text for s in found) for paragraph in paragraphs)


def test_a_long_line_is_split_at_sentences() -> None:
    found = sections("One is here. " * 30, max_chars=100, overlap_chars=0)
    assert all(section.text.endswith("here.") for section in found)
    assert " ".join(section.text for section in found) == ("One is here. " * 30).strip()


def test_a_line_without_a_space_is_cut_hard() -> None:
    assert [s.text for s in sections("x" * 250, max_chars=100, overlap_chars=0)] == [
        "x" * 100,
        "x" * 100,
        "x" * 50,
    ]


def test_a_table_and_a_list_stay_together() -> None:
    table = "\n".join(f"| row {n} | value |" for n in range(8))
    items = "\n\n".join(f"- item {n}\n  goes on" for n in range(8))
    text = f"{'Words here. ' * 10}\n\n{table}\n\n{'More words. ' * 10}\n\n{items}\n"
    found = [section.text for section in sections(text, max_chars=250, overlap_chars=0)]
    assert any(table in one for one in found)
    assert any(items in one for one in found)


def test_the_line_is_where_the_passage_begins_in_the_file() -> None:
    text = "---\ntitle: x\n---\n\n" + "\n\n".join(f"Line {n} of it." for n in range(40))
    lines = text.split("\n")
    found = sections(text, max_chars=100, overlap_chars=0)
    assert len(found) > 3
    assert all(section.text.split("\n")[0] == lines[section.line - 1] for section in found)


LINES = st.one_of(
    st.sampled_from(
        "# One|## Two|### Three|Title|=====|-----|```|~~~|- item|  more|1. first|> quote|| a | b ||"
        "---|+++|title: x||".split("|")
    ),
    st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=60),
    st.lists(st.sampled_from("a long word. Another? yes".split()), max_size=40).map(" ".join),
)


@given(
    lines=st.lists(LINES, max_size=30),
    max_chars=st.integers(10, 200),
    share=st.floats(0, 0.5),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_no_line_is_lost_and_no_passage_is_too_long(
    lines: list[str], max_chars: int, share: float, end: str
) -> None:
    # Front matter is the one thing that is left out.
    lines = ["", *lines]
    found = sections(end.join(lines), max_chars=max_chars, overlap_chars=int(max_chars * share))

    held = {line for section in found for line in section.text.split("\n")}
    text = "".join("".join(section.text.split()) for section in found)
    for line in lines:
        if line.strip() and len(line) <= max_chars:
            assert line in held or line.rstrip() in held
        assert all(word in text for word in line.split() if len(word) < 5)
    assert all(0 < len(section.text) <= max_chars for section in found)
    assert all(section.text.strip() for section in found)
    numbers = [section.line for section in found]
    assert numbers == sorted(numbers)
    assert all(lines[number - 1].strip() for number in numbers)
