"""Documents of the user's own: cut by headings, kept as they are now, found with conversations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commanding import Line
from remembering import ToyEmbedder, open_toy

from ralph.errors import NotFound
from ralph.memory import documents
from ralph.memory.documents import (
    MOST_BYTES,
    add_documents,
    line_of,
    list_documents,
    read_document,
    remove_documents,
)
from ralph.memory.ralph import Ralph
from ralph.recall import Hit
from ralph.records.conversation import DOCUMENT, content_of

GUIDE = """\
# Deploying

What to do before anybody goes home.

## Rolling back

The previous image is kept for a week. {filler} Run the rollback job with its tag.

## Certificates

They are renewed by the porter on the first of the month. {filler}
"""
# Long enough that each section is a passage of its own.
FILLER = "Nobody needs to be asked for that, whoever is on duty does it alone. " * 12


@pytest.fixture
def opened(project: Path, toy: ToyEmbedder) -> Iterator[Ralph]:
    with open_toy(project, toy) as one:
        yield one


@pytest.fixture
def guide(project: Path) -> Path:
    """A document with three sections."""
    return write(project / "docs" / "deploy.md", GUIDE.format(filler=FILLER))


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def added(opened: Ralph, *paths: Path) -> documents.Added:
    return add_documents(opened.conversations, paths, root=opened.project.root)


def ids(opened: Ralph) -> dict[str, str]:
    """The sections that are kept: id by the beginning of their text."""
    kept = opened.conversations.said(DOCUMENT)
    return {content_of(one).text.splitlines()[0]: one.id for one in kept}


def found(opened: Ralph, query: str) -> list[Hit]:
    return opened.conversations.search(query, documents=True, min_score=0.2)


def test_a_section_is_found_beside_the_conversations(opened: Ralph, guide: Path) -> None:
    talk = opened.conversations.start("Deploying")
    opened.conversations.exchange(
        talk,
        user="How do we roll back a release?",
        assistant="With the rollback job of the pipeline; it asks an operator for the tag.",
    )
    done = added(opened, guide)

    hits = found(opened, "roll back with the rollback job and its tag")

    assert (done.files, done.unchanged, done.refused) == (1, 0, [])
    assert {hit.kind for hit in hits} == {"exchange", "document"}
    [section] = [hit.record for hit in hits if hit.kind == "document"]
    assert (section.path, section.heading) == ("docs/deploy.md", "Deploying > Rolling back")
    assert guide.read_text(encoding="utf-8").splitlines()[section.line - 1] == "## Rolling back"


def test_documents_are_found_only_where_they_are_asked_for(opened: Ralph, guide: Path) -> None:
    added(opened, guide)

    assert opened.conversations.search("rollback job tag") == []
    assert opened.conversations.related("rollback job tag", min_similarity=0.4).exchanges == 0


def test_adding_again_touches_nothing_that_is_unchanged(
    opened: Ralph, guide: Path, toy: ToyEmbedder
) -> None:
    first = added(opened, guide)
    before = ids(opened)
    opened.conversations.sync()
    embedded = len(toy.embedded)
    text = guide.read_text(encoding="utf-8").replace("by the porter", "by a timer")
    guide.write_text(text, encoding="utf-8")

    again = added(opened, guide)
    opened.conversations.sync()

    assert (again.added, again.taken_out) == (1, 1)
    assert again.unchanged == first.added - 1
    assert {name: one for name, one in ids(opened).items() if before[name] != one}.keys() == {
        "## Certificates"
    }
    assert len(toy.embedded) == embedded + 1


def test_what_a_section_said_before_cannot_be_found(opened: Ralph, guide: Path, home: Path) -> None:
    added(opened, guide)
    assert found(opened, "certificates renewed by the porter")
    text = guide.read_text(encoding="utf-8").replace("by the porter", "by a timer")
    guide.write_text(text, encoding="utf-8")

    added(opened, guide)

    assert not any("porter" in hit.record.text for hit in found(opened, "renewed by the porter"))
    assert b"porter" not in (home / "journal" / "conversations" / files(home)[0]).read_bytes()


def files(home: Path) -> list[str]:
    return [file.name for file in (home / "journal" / "conversations").glob("*.jsonl")]


def test_a_section_that_is_again_what_it_was_is_found_again(opened: Ralph, guide: Path) -> None:
    first = guide.read_text(encoding="utf-8")
    for text in (first, first.replace("porter", "timer"), first):
        guide.write_text(text, encoding="utf-8")
        done = added(opened, guide)

    assert (done.added, done.taken_out) == (1, 1)
    [hit] = [one for one in found(opened, "renewed by the porter") if "porter" in one.record.text]
    assert hit.record.heading == "Deploying > Certificates"


def test_what_a_person_forgot_stays_out_until_it_says_something_else(
    opened: Ralph, guide: Path
) -> None:
    added(opened, guide)
    opened.conversations.forget([ids(opened)["## Certificates"]], reason="outdated")

    done = added(opened, guide)

    assert (done.added, done.forgotten) == (0, 1)
    assert "## Certificates" not in ids(opened)
    guide.write_text(guide.read_text(encoding="utf-8") + "Or by hand.\n", encoding="utf-8")
    assert added(opened, guide).added == 1


def test_a_section_that_only_moved_is_shown_where_it_is_now(opened: Ralph, guide: Path) -> None:
    added(opened, guide)
    guide.write_text(
        "# News\n\n" + FILLER * 3 + "\n\n" + guide.read_text(encoding="utf-8"), encoding="utf-8"
    )

    done = added(opened, guide)

    assert done.taken_out == 0
    [record] = [
        content_of(one)
        for one in opened.conversations.said(DOCUMENT)
        if content_of(one).text.startswith("## Rolling back")
    ]
    line = line_of(record, opened.project.root)
    assert line == record.line + 4
    assert guide.read_text(encoding="utf-8").splitlines()[line - 1] == "## Rolling back"


def test_twins_in_one_file_are_two_sections(opened: Ralph, project: Path) -> None:
    section = f"# Again\n\n{FILLER * 2}\n\n"
    file = write(project / "twins.md", section * 2)

    assert added(opened, file).added == 2
    assert added(opened, file).unchanged == 2
    write(file, section)
    assert added(opened, file).taken_out == 1


def test_secrets_are_not_kept(opened: Ralph, project: Path, home: Path) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLE"
    added(opened, write(project / "keys.md", f"# Keys\n\nThe key is {key}, keep it safe.\n"))

    [hit] = found(opened, "the key, keep it safe")

    assert "[redacted:" in hit.record.text
    assert key.encode() not in (home / "journal" / "conversations" / files(home)[0]).read_bytes()


def test_a_folder_gives_its_texts_and_nothing_else(opened: Ralph, project: Path) -> None:
    folder = project / "notes"
    for name in ("a.md", "b.txt", "deep/c.rst", "deep/D.MARKDOWN"):
        write(folder / name, f"About {name}, in a few words.\n")
    for name in ("code.py", ".hidden/x.md", "node_modules/p/README.md", ".draft.md"):
        write(folder / name, "Not this one.\n")

    done = added(opened, folder)

    assert (done.files, done.refused) == (4, [])
    assert [one.path for one in list_documents(opened.conversations)] == [
        "notes/a.md",
        "notes/b.txt",
        "notes/deep/D.MARKDOWN",
        "notes/deep/c.rst",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")
def test_links_that_go_round_are_not_followed(opened: Ralph, project: Path) -> None:
    folder = project / "notes"
    write(folder / "a.md", "About the first thing.\n")
    (folder / "round").symlink_to(folder, target_is_directory=True)
    (folder / "again.md").symlink_to(folder / "a.md")
    (folder / "gone.md").symlink_to(folder / "nowhere.md")

    assert added(opened, folder).files == 1
    assert added(opened, folder / "round").unchanged == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PDF\0\1\2", "it is no text"),
        ("Gr\u00fc\u00dfe".encode("latin-1"), "it is not UTF-8 text (byte 2)"),
        (b"x" * (MOST_BYTES + 1), f"it is longer than {MOST_BYTES:,} bytes"),
    ],
)
def test_what_is_no_text_is_refused_and_told(
    opened: Ralph, guide: Path, data: bytes, why: str
) -> None:
    bad = guide.parent / "bad.md"
    bad.write_bytes(data)

    done = added(opened, guide.parent)

    assert done.files == 1
    assert [str(one) for one in done.refused] == [f"docs/bad.md: {why}"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are always UTF-8 or UTF-16 there")
def test_a_name_that_is_not_utf_8_is_refused_and_the_others_are_added(
    ralph: Line, guide: Path, project: Path
) -> None:
    (guide.parent / os.fsdecode(b"na\xefve.md")).write_text("# Naive\n\nText.\n", encoding="utf-8")
    ran = ralph.well("conversations", "add-document", guide.parent)
    assert ran.out.startswith("1 document; sections: 3 new")
    assert ran.err == "ralph: not added: docs/na?ve.md: its name is not UTF-8\n"


def test_a_byte_order_mark_and_windows_lines_change_nothing(project: Path) -> None:
    plain = write(project / "plain.md", "# One\n\nText here.\n")
    other = project / "other.md"
    other.write_bytes("\ufeff# One\r\n\r\nText here.\r\n".encode())

    assert [one.text for one in read_document(other, "x")] == [
        one.text for one in read_document(plain, "x")
    ]


def test_an_empty_document_has_no_sections(opened: Ralph, project: Path) -> None:
    done = added(opened, write(project / "empty.md", "\n\n  \n"))

    assert (done.files, done.added) == (1, 0)


def test_a_file_that_vanished_is_told_and_found_until_it_is_removed(
    opened: Ralph, guide: Path
) -> None:
    other = write(guide.parent / "other.md", "About something else.\n")
    added(opened, guide.parent)
    guide.unlink()

    done = added(opened, guide.parent)

    assert done.vanished == ["docs/deploy.md"]
    assert found(opened, "certificates renewed by the porter")
    assert added(opened, other).vanished == []
    assert added(opened).vanished == ["docs/deploy.md"]
    assert remove_documents(opened.conversations, [guide], root=opened.project.root) == [
        "docs/deploy.md"
    ]
    assert found(opened, "certificates renewed by the porter") == []


def test_without_a_path_all_that_are_known_are_looked_at_again(opened: Ralph, guide: Path) -> None:
    added(opened, guide)
    write(guide.parent / "unknown.md", "Nobody added this.\n")
    guide.write_text(guide.read_text(encoding="utf-8") + "More.\n", encoding="utf-8")

    done = added(opened)

    assert (done.files, done.added, done.taken_out) == (1, 1, 1)


def test_a_folder_is_removed_with_all_that_is_below_it(opened: Ralph, guide: Path) -> None:
    write(guide.parent / "more" / "b.md", "About something else.\n")
    kept = write(guide.parent.parent / "kept.md", "Stays where it is.\n")
    added(opened, guide.parent, kept)

    gone = remove_documents(opened.conversations, [guide.parent], root=opened.project.root)

    assert gone == ["docs/deploy.md", "docs/more/b.md"]
    assert [one.path for one in list_documents(opened.conversations)] == ["kept.md"]
    assert guide.exists()
    with pytest.raises(NotFound, match="no document"):
        remove_documents(opened.conversations, [guide], root=opened.project.root)


def test_a_document_from_elsewhere_is_known_by_its_whole_path(
    opened: Ralph, tmp_path: Path
) -> None:
    file = write(tmp_path / "elsewhere" / "notes.md", "Notes about the harbour.\n")

    added(opened, file)

    [listed] = list_documents(opened.conversations)
    assert listed.path == file.resolve().as_posix()


# -- the command line


def test_documents_are_added_listed_found_and_removed(ralph: Line, guide: Path) -> None:
    assert "1 document; sections:" in ralph.well("conversations", "add-document", "docs").out
    again = ralph.well("conversations", "add-document", guide, "--json").json
    assert (again["added"], again["taken_out"]) == (0, 0)

    [hit] = ralph.well(
        "search", "rollback job with its tag", "--conversations", "--limit", "1", "--json"
    ).json
    assert (hit["kind"], hit["record"]["path"]) == ("document", "docs/deploy.md")
    shown = ralph.well("search", "rollback job with its tag", "--conversations").out
    assert f"docs/deploy.md:{hit['record']['line']}" in shown
    assert "Deploying > Rolling back" in shown
    assert "previous image" in ralph.well("conversations", "show", hit["id"][:8]).out
    [listed] = ralph.well("conversations", "add-document", "--list", "--json").json
    assert (listed["path"], listed["title"]) == ("docs/deploy.md", "Deploying")
    assert "docs/deploy.md" in ralph.well("conversations", "add-document", "--list").out

    removed = ralph.well("conversations", "add-document", "--remove", "docs", "--json").json
    assert removed == {"removed": ["docs/deploy.md"]}
    assert "No document" in ralph.well("conversations", "add-document", "--list").out


def test_a_search_by_day_or_tag_is_about_conversations_alone(ralph: Line, guide: Path) -> None:
    ralph.well("conversations", "add-document", guide)

    words = ("search", "rollback job with its tag", "--conversations", "--json")

    assert ralph.well(*words).json
    assert ralph.well(*words, "--since", "2020-01-01").json == []
    assert ralph.well(*words, "--tag", "deploy").json == []


def test_what_cannot_be_added_is_told_and_fails(ralph: Line, project: Path) -> None:
    (project / "x.md").write_bytes(b"\0\1")

    ran = ralph("conversations", "add-document", "x.md")

    assert (ran.code, ran.err) == (1, "ralph: not added: x.md: it is no text\n")
    missing = ralph("conversations", "add-document", "nowhere.md")
    assert (missing.code, missing.err) == (
        1,
        "ralph: not added: nowhere.md: there is no such file\n",
    )
    assert ralph("conversations", "add-document", "--remove").code == 2
    assert ralph("conversations", "add-document", "--list", "x.md").code == 2


def test_a_document_is_forgotten_with_the_rest_of_what_matches(ralph: Line, guide: Path) -> None:
    ralph.well("conversations", "add-document", guide)

    shown = ralph.well("forget", "--match", "by the porter", "--conversations", "--yes").out

    assert "document  docs/deploy.md:" in shown
    assert "1 forgotten before" in ralph.well("conversations", "add-document", guide).out
