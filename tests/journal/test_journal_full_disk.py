"""No room, no permission: a clear error, the file as it was, and reading goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journaling import living, note, run_child

from ralph.journal.file import JsonlJournal

IS_ROOT = sys.platform != "win32" and os.geteuid() == 0
OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")


def can_mount() -> bool:
    """Whether a child may have mounts of its own, that vanish with it."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_limits = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no RLIMIT_FSIZE")
needs_users = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no user ids")
needs_mounts = pytest.mark.skipif(
    not can_mount(), reason="no process may have its own mounts here (unshare --mount)"
)

# What each script below begins with: a way to have an error told as a line.
TELL = """
import os, sys
from pathlib import Path
from journaling import living, note
import ralph.text.redact
from ralph.errors import JournalError
from ralph.journal.file import JsonlJournal

def tell(use):
    try:
        print(use())
    except JournalError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    journal = JsonlJournal(tmp_path / "memory" / "auth.jsonl")
    journal.append([note("a", 1), note("b", 2)])
    return journal


# -- no room


@needs_limits
def test_an_append_that_does_not_fit_is_an_error_and_leaves_the_file_as_it_was(
    journal: JsonlJournal,
) -> None:
    script = """
import resource
journal = JsonlJournal(Path(sys.argv[1]))
before = journal.path.read_bytes()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for room in (0, 1, 100, 300):
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
    tell(lambda: journal.append([note("c", 3), note("d", 4)]))
    assert journal.path.read_bytes() == before
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
(appended,) = journal.append([note("c", 3)])
print(appended.fresh, living(journal))
"""
    *refused, after = run_child(TELL + script, journal.path)
    assert refused == 4 * [
        f"JournalError {journal.path}: cannot write the journal (File too large); nothing was "
        "written. Free up disk space or fix the permissions, then try again."
    ]
    assert after == "True ['a', 'b', 'c']"
    assert living(journal) == ["a", "b", "c"]


@needs_limits
def test_a_forget_that_does_not_fit_is_an_error_and_leaves_the_file_as_it_was(
    journal: JsonlJournal,
) -> None:
    script = """
import resource
journal = JsonlJournal(Path(sys.argv[1]))
before = journal.path.read_bytes()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
tell(lambda: journal.forget([note("a", 1).id]))
assert journal.path.read_bytes() == before
assert list(journal.path.parent.iterdir()) == [journal.path]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
journal.forget([note("a", 1).id])
print(living(journal))
"""
    refused, after = run_child(TELL + script, journal.path)
    assert refused.startswith(f"JournalError {journal.path}: cannot write the journal (File too")
    assert after == "['b']"


@needs_mounts
def test_on_a_full_disk_everything_acknowledged_is_there_and_nothing_half_written(
    tmp_path: Path,
) -> None:
    script = """
import subprocess
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", root], check=True)
filler = root / "filler"
filler.write_bytes(b"x" * 100_000)
journal = JsonlJournal(root / "memory" / "auth.jsonl")
kept = []
while True:
    number = len(kept) + 1
    before = journal.path.read_bytes() if kept else b""
    try:
        journal.append([note(f"r{number}", number, text="x" * 5000)])
    except JournalError as error:
        print(error)
        break
    kept.append(f"r{number}")
assert journal.path.read_bytes() == before
assert journal.verify() == (len(kept), []), journal.verify()
tell(lambda: journal.forget([note("r1", 1).id]))
assert journal.path.read_bytes() == before
filler.unlink()
journal.append([note("next", 99)])
assert journal.verify() == (len(kept) + 1, [])
assert sorted(file.name for file in journal.path.parent.iterdir()) == ["auth.jsonl"]
print(len(kept) > 10)
"""
    refused, unforgotten, many = run_child(TELL + script, tmp_path, under=OWN_MOUNTS)
    path = tmp_path / "memory" / "auth.jsonl"
    assert refused.startswith(f"{path}: cannot write the journal (No space left on device)")
    assert unforgotten.startswith(f"JournalError {path}: cannot write the journal (No space left")
    assert many == "True"
    assert list(tmp_path.iterdir()) == []  # the mount was the child's own


# -- no permission

READ_ONLY = """
print(living(journal), journal.verify(), journal.unchanged(journal.read().position))
tell(lambda: journal.append([note("c", 3)]))
tell(lambda: journal.forget([note("a", 1).id]))
tell(lambda: JsonlJournal(journal.path.with_name("new.jsonl")).append([note("c", 3)]))
"""


@needs_mounts
def test_a_journal_on_a_read_only_disk_is_read_and_its_writers_are_told(
    journal: JsonlJournal,
) -> None:
    script = """
import subprocess
journal = JsonlJournal(Path(sys.argv[1]))
folder = journal.path.parent
subprocess.run(["mount", "--bind", folder, folder], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
"""
    before = journal.path.read_bytes()
    read, append, forget, new = run_child(TELL + script + READ_ONLY, journal.path, under=OWN_MOUNTS)
    assert read == "['a', 'b'] (2, []) True"
    told = f"JournalError {journal.path}: cannot write the journal (Read-only file system)"
    assert append.startswith(told)
    assert forget.startswith(told)
    assert "new.jsonl: cannot write the journal (Read-only file system)" in new
    assert journal.path.read_bytes() == before


@needs_users
@pytest.mark.parametrize(
    ("folder_mode", "file_mode"), [(0o555, 0o444), (0o755, 0o444), (0o555, 0o644)]
)
def test_a_journal_of_another_user_is_read_and_its_writers_are_told(
    journal: JsonlJournal, folder_mode: int, file_mode: int
) -> None:
    before = journal.path.read_bytes()
    journal.path.chmod(file_mode)
    journal.path.parent.chmod(folder_mode)
    try:
        read, append, forget, new = run_child(TELL + AS_NOBODY + READ_ONLY, journal.path)
    finally:
        journal.path.parent.chmod(0o755)
    assert read == "['a', 'b'] (2, []) True"
    told = "cannot write the journal (Permission denied); nothing was written"
    if IS_ROOT or file_mode == 0o444:
        assert append.startswith(f"JournalError auth.jsonl: {told}")
    assert forget.startswith("JournalError auth.jsonl: cannot write the journal")
    if IS_ROOT or folder_mode == 0o555:
        assert new.startswith(f"JournalError new.jsonl: {told}")
    if IS_ROOT:
        assert journal.path.read_bytes() == before


# Root may write anywhere, so it becomes nobody; the folders above may be closed to nobody, so
# the journal's own is entered first.
AS_NOBODY = """
path = Path(sys.argv[1])
os.chdir(path.parent)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
journal = JsonlJournal(Path(path.name))
"""


@needs_users
def test_a_journal_that_may_not_be_read_is_told_clearly(journal: JsonlJournal) -> None:
    script = """
tell(journal.read)
tell(journal.verify)
os.chdir("..")
closed = JsonlJournal(Path("closed") / "auth.jsonl")
tell(closed.read)
tell(closed.verify)
tell(lambda: closed.forget(["r1"]))
tell(lambda: closed.append([note("a")]))
print(closed.unchanged(None))
"""
    closed = journal.path.parent.with_name("closed")
    closed.mkdir(mode=0o000)
    journal.path.chmod(0o000)
    for folder in (journal.path.parent, journal.path.parent.parent):
        folder.chmod(0o755)
    try:
        told = run_child(TELL + AS_NOBODY + script, journal.path)
    finally:
        closed.chmod(0o755)
    assert told.pop() == "False"
    assert len(told) == 6
    for line in told:
        assert line.startswith("JournalError ")
        assert "(Permission denied)" in line
