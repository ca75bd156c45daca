"""One file a name, whatever characters the name has, on every file system."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from journaling import living, note

from ralph import disk
from ralph.errors import BadInput
from ralph.journal.file import JournalFolder, JsonlJournal, check_name, file_name


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("auth", "auth.jsonl"),
        ("user login", "user login.jsonl"),
        ("v1.2-beta_3", "v1.2-beta_3.jsonl"),
        ("größe", "größe.jsonl"),
        ("認証", "認証.jsonl"),
        ("a/b", "a%2Fb.jsonl"),
        ("a\\b", "a%5Cb.jsonl"),
        ("..", "%2E%2E.jsonl"),
        (".hidden", "%2Ehidden.jsonl"),
        ("ends.", "ends%2E.jsonl"),
        (" x ", "%20x%20.jsonl"),
        ("100%", "100%25.jsonl"),
        ('it\'s "so"?', "it%27s %22so%22%3F.jsonl"),
        ("ä:b*", "ä%3Ab%2A.jsonl"),
        ("con", "%63on.jsonl"),
        ("COM1.log", "%43OM1.log.jsonl"),
        ("console", "console.jsonl"),
        ("💡", "%F0%9F%92%A1.jsonl"),
    ],
)
def test_a_name_is_its_files_name_wherever_every_file_system_allows_it(
    name: str, file: str
) -> None:
    assert file_name(name) == file


@pytest.mark.parametrize(
    "name", ["", " ", "\t", "a\nb", "a\0b", "\u202eevil", "a\u200bb", "\ud800"]
)
def test_a_name_that_cannot_be_seen_is_refused(name: str) -> None:
    with pytest.raises(BadInput):
        file_name(name)


@pytest.mark.parametrize("name", ["x" * 101, "認" * 100, "💡" * 20, "/" * 80])
def test_a_name_too_long_for_a_file_is_refused_clearly(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"at most \d+ are allowed"):
        JournalFolder(tmp_path).journal(name)


def test_the_longest_names_can_be_written_and_forgotten_from(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path)
    for name in ("x" * 100, "認" * 70):
        journal = folder.journal(name)
        journal.append([note("a", 1), note("b", 2)])
        journal.forget([note("a", 1).id])
        assert living(journal) == ["b"]
    assert folder.names() == ["x" * 100, "認" * 70]


visible = st.characters(categories=["L", "M", "N", "P", "S", "Zs"])
names = st.text(visible, min_size=1, max_size=15).filter(str.strip)


@settings(deadline=None)
@given(names, names)
def test_any_names_are_kept_apart_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str
) -> None:
    assume(one.casefold() != other.casefold())
    folder = JournalFolder(tmp_path_factory.mktemp("names"))
    folder.journal(one).append([note("one")])
    folder.journal(other).append([note("other")])
    assert sorted(folder.names()) == sorted([one, other])
    reopened = JournalFolder(folder.path)
    assert living(reopened.journal(one)) == ["one"]
    assert living(reopened.journal(other)) == ["other"]


def test_a_folder_that_is_not_there_has_no_journals_and_is_not_made_by_looking(
    tmp_path: Path,
) -> None:
    folder = JournalFolder(tmp_path / "memory")
    assert folder.names() == []
    assert folder.journal("auth").read().records == ()
    assert not folder.path.exists()


def test_what_is_no_journal_is_not_listed(tmp_path: Path) -> None:
    for name in ("auth.jsonl", "notes.txt", ".auth.jsonl.12-0.tmp", ".x.jsonl", "old.jsonl.bak"):
        (tmp_path / name).touch()
    assert JournalFolder(tmp_path).names() == ["auth"]


def test_complaints_name_the_file_as_it_is_shown(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, shown=".ralph/db/memory")
    (tmp_path / "auth.jsonl").write_bytes(b"foreign\n")
    (complaint,) = folder.journal("auth").verify()[1]
    assert (complaint.file, complaint.line) == (".ralph/db/memory/auth.jsonl", 1)


def test_a_name_that_a_file_system_takes_for_another_is_refused(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path)
    folder.journal("Auth").append([note("a")])
    if not (tmp_path / "auth.jsonl").exists():  # where upper and lower case are two, play it
        (tmp_path / "auth.jsonl").hardlink_to(tmp_path / "Auth.jsonl")
        folder.names = lambda: ["Auth"]  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="differs from an existing name only by case"):
        folder.journal("auth")


def test_a_folder_with_many_journals_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        JournalFolder(tmp_path).journal(f"feature-{n}").append([note("a")])
    read: list[object] = []
    names = disk.names

    def counted(folder: disk.AnyPath) -> list[str]:
        read.append(folder)
        return names(folder)

    monkeypatch.setattr(disk, "names", counted)
    folder = JournalFolder(tmp_path)
    assert all(living(folder.journal(f"feature-{n}")) == ["a"] for n in range(20))
    assert len(read) == 1


def test_a_name_within_the_limits_is_fine() -> None:
    check_name("x" * 100)


# -- how often files are opened


def count_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of every file and folder opened from now on."""
    opened: list[str] = []
    real = os.open

    def counting(path: str, *args: Any, **how: Any) -> int:
        opened.append(Path(path).name)
        return real(path, *args, **how)

    monkeypatch.setattr(os, "open", counting)
    return opened


def test_an_append_opens_a_journal_in_a_project_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JsonlJournal(tmp_path / ".ralph" / "db" / "memory" / "auth.jsonl")
    journal.append([note("session-1", 1)])
    opened = count_opened(monkeypatch)

    journal.append([note("session-1", 2)])

    assert opened.count("auth.jsonl") == 1
    assert opened.count("memory") <= 1  # on the way to the file, to follow no link


def test_seeing_that_a_journal_is_unchanged_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JsonlJournal(tmp_path / ".ralph" / "db" / "memory" / "auth.jsonl")
    journal.append([note("session-1", 1)])
    position = journal.read().position
    opened = count_opened(monkeypatch)

    assert journal.unchanged(position)
    assert opened == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
def test_a_link_in_place_of_a_journal_is_a_change_even_if_it_leads_to_nothing(
    tmp_path: Path,
) -> None:
    journal = JsonlJournal(tmp_path / ".ralph" / "db" / "memory" / "auth.jsonl")
    before = journal.read().position
    journal.append([note("session-1", 1)])
    position = journal.read().position

    journal.path.unlink()
    journal.path.symlink_to(tmp_path / "nothing")

    assert not journal.unchanged(position)
    assert not journal.unchanged(before)
