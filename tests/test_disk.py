"""Locks that die with their process, appends that are whole or not there, atomic replacement."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from journaling import child, hear, tell

from ralph import disk

HOLD = """
    import sys
    from pathlib import Path
    from ralph import disk

    with disk.lock(Path(sys.argv[1]), timeout_s=30):
        print("held", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# -- locks


def test_a_lock_that_another_process_holds_is_busy_and_free_when_it_ends(file: Path) -> None:
    with child(HOLD, file) as holder:
        assert hear(holder) == "held"
        with pytest.raises(disk.Busy), disk.lock(file, timeout_s=0):
            pass
        tell(holder, "let go")
        holder.wait(timeout=30)
        with disk.lock(file, timeout_s=0):
            pass


def test_a_lock_is_free_when_its_process_was_killed(file: Path) -> None:
    with child(HOLD, file) as holder:
        assert hear(holder) == "held"
        holder.kill()
        holder.wait(timeout=30)
        with disk.lock(file, timeout_s=0):
            pass


def test_two_threads_of_one_process_do_not_hold_a_lock_at_once(file: Path) -> None:
    with disk.lock(file, timeout_s=0), pytest.raises(disk.Busy), disk.lock(file, timeout_s=0):
        pass


def test_a_lock_is_given_back_when_its_block_fails(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), disk.lock(file, timeout_s=0):
        raise ZeroDivisionError
    with disk.lock(file, timeout_s=0):
        pass


def test_who_waits_gets_the_lock_when_it_is_let_go(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = waits(monkeypatch)
    got: list[str] = []

    def wait() -> None:
        with disk.lock(file, timeout_s=30):
            got.append("lock")

    with disk.lock(file, timeout_s=0):
        thread = in_thread(wait)
        assert waiting.wait(timeout=30)
        assert got == []
    thread.join(timeout=30)
    assert got == ["lock"]


def test_a_file_replaced_while_one_waits_is_the_one_that_gets_locked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = waits(monkeypatch)
    held: list[os.stat_result] = []

    def wait() -> None:
        with disk.lock(file, timeout_s=30) as fd:
            held.append(os.fstat(fd))

    with disk.lock(file, timeout_s=0) as old:
        thread = in_thread(wait)
        assert waiting.wait(timeout=30)
        disk.replace(file, b"new")
        assert not os.path.samestat(os.fstat(old), file.stat())
    thread.join(timeout=30)
    assert [os.path.samestat(held[0], file.stat()), held[0].st_size] == [True, 3]


def test_a_file_that_is_replaced_for_ever_is_busy_and_not_waited_for_for_ever(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "is_current", lambda fd, path: False)
    with pytest.raises(disk.Busy), disk.lock(file, timeout_s=0):
        pass


def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set as soon as somebody has found the lock taken."""
    waiting = threading.Event()
    try_lock = disk._try_lock

    def spy(fd: int) -> bool:
        got = try_lock(fd)
        if not got:
            waiting.set()
        return got

    monkeypatch.setattr(disk, "_try_lock", spy)
    return waiting


# -- appends


def test_an_append_goes_on_after_a_short_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with disk.lock(file, timeout_s=0) as fd:
        disk.write_all(fd, b"0123456789")
    assert file.read_bytes() == b"0123456789"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_append_that_fails_half_way_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    file.write_bytes(b"before\n")

    def fail(fd: int) -> None:
        raise error

    monkeypatch.setattr(disk, "flush", fail)
    with pytest.raises(type(error)), disk.lock(file, timeout_s=0) as fd:
        disk.write_all(fd, b"after\n")
    assert file.read_bytes() == b"before\n"


# -- replacement


def test_a_reader_of_a_replaced_file_keeps_the_old_one_whole(file: Path) -> None:
    file.write_bytes(b"old" * 100_000)
    with file.open("rb") as reader:
        assert reader.read(3) == b"old"
        disk.replace(file, b"new")
        assert reader.read() == b"old" * 99_999
    assert file.read_bytes() == b"new"
    assert list(file.parent.iterdir()) == [file]


def test_a_replaced_file_keeps_its_mode(file: Path) -> None:
    file.write_bytes(b"old")
    file.chmod(0o640)
    disk.replace(file, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_file_that_was_not_there_can_be_replaced(file: Path) -> None:
    disk.replace(file, b"new")
    assert file.read_bytes() == b"new"


def test_what_a_link_points_to_is_replaced_and_the_link_stays(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "file"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"old")
    file.symlink_to(elsewhere)
    disk.replace(file, b"new")
    assert file.is_symlink()
    assert elsewhere.read_bytes() == b"new"


def test_a_replacement_that_fails_leaves_nothing_behind(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(b"old")

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "flush", fail)
    with pytest.raises(OSError, match="No space"):
        disk.replace(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(file.parent.iterdir()) == [file]


def test_what_a_crash_left_of_a_replacement_is_swept_and_nothing_else(tmp_path: Path) -> None:
    kept = [
        "a.jsonl",
        ".a.jsonl.b.jsonl.12-0.tmp",  # a draft of a.jsonl.b.jsonl
        ".ab.jsonl.12-0.tmp",
        ".axjsonl.12-0.tmp",
        ".a.jsonl.swp",
        "a.jsonl.12-0.tmp",
    ]
    for name in [*kept, ".a.jsonl.12-0.tmp", ".a.jsonl.99999-15.tmp"]:
        (tmp_path / name).touch()
    disk.sweep_drafts(tmp_path / "a.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(kept)


# -- creation


def test_a_file_is_created_once(file: Path) -> None:
    deep = file.parent / "not" / "yet" / "there"
    assert disk.create(deep, b"first")
    assert not disk.create(deep, b"second")
    assert deep.read_bytes() == b"first"
    assert list(deep.parent.iterdir()) == [deep]


def test_of_many_threads_that_create_a_file_one_does_and_its_content_is_whole(file: Path) -> None:
    created: list[int] = []
    together = threading.Barrier(8)

    def create(number: int) -> None:
        together.wait()
        if disk.create(file, str(number).encode() * 100_000):
            created.append(number)

    threads = [in_thread(lambda number=number: create(number)) for number in range(8)]  # type: ignore[misc]
    for thread in threads:
        thread.join(timeout=30)
    assert len(created) == 1
    assert file.read_bytes() == str(created[0]).encode() * 100_000
    assert list(file.parent.iterdir()) == [file]


def test_a_file_system_without_hard_links_creates_a_file_once_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str, **folders: int | None) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert disk.create(file, b"first")
    assert not disk.create(file, b"second")
    assert file.read_bytes() == b"first"
    assert list(file.parent.iterdir()) == [file]


def test_a_creation_that_fails_leaves_nothing_behind(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "flush", fail)
    with pytest.raises(OSError, match="No space"):
        disk.create(file, b"new")
    assert list(file.parent.iterdir()) == []
